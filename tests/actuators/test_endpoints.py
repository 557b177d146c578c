"""Where replicas listen: an origin that fails is no reason to take a fleet out."""

import json
from pathlib import Path
from typing import Any

import pytest

from actuators.endpoints import Dns, Endpoint, Endpoints, InFile, Inline, Slices
from tests.support.kube import Trouble, fake_kube


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


def test_names_addresses_and_hosts_lead_to_the_same_replica() -> None:
    made = Endpoints(Inline("inline", {"pod-1": "10.0.0.1:80", "pod-2": "[::1]:81"}), 1.0, Clock())
    assert made.refresh()
    assert made.find("pod-1") == made.find("10.0.0.1:80") == made.find("10.0.0.1") == Endpoint("pod-1", "10.0.0.1", 80)
    assert made.find("[::1]:81") == Endpoint("pod-2", "::1", 81)
    assert made.find("pod-3") is None


def test_a_host_with_two_replicas_names_neither() -> None:
    made = Endpoints(Inline("inline", {"a": "10.0.0.1:80", "b": "10.0.0.1:81"}), 1.0, Clock())
    made.refresh()
    assert made.find("10.0.0.1") is None
    assert made.find("10.0.0.1:81") == Endpoint("b", "10.0.0.1", 81)


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:99999", ":80", "::1:80", ""])
def test_what_is_no_address_is_refused_with_its_place(address: str) -> None:
    with pytest.raises(ValueError, match=r"replicas\.a: .*write host:port"):
        Inline("inline", {"a": address})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.unlink(), "cannot read"),
        (lambda path: path.write_text("{]"), "neither JSON nor YAML"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "neither JSON nor YAML"),
        (lambda path: path.write_text("[1]"), "no mapping"),
        (lambda path: path.write_text("a: nowhere"), "write host:port"),
        (lambda path: path.write_text("{}"), "names no replica any more"),
    ],
)
def test_a_file_that_is_spoiled_keeps_the_last_list_and_is_told_of(
    tmp_path: Path, spoil: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "replicas.yaml"
    path.write_text(json.dumps({"a": "10.0.0.1:80"}))
    made = Endpoints(InFile("file", str(path)), 1.0, Clock())
    assert made.refresh()
    spoil(path)
    assert not made.refresh()
    assert made.known == (Endpoint("a", "10.0.0.1", 80),)
    assert says in made.problem
    assert "kept" in made.problem
    assert sum(says in one.message for one in caplog.records) == 1
    path.write_text("a: 10.0.0.1:80\nb: 10.0.0.2:80\n")
    assert made.refresh()
    assert (len(made.known), made.problem) == (2, "")


def test_an_origin_is_not_asked_more_often_than_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "replicas.json"
    path.write_text('{"a": "10.0.0.1:80"}')
    made = Endpoints(InFile("file", str(path)), 15.0, Clock())
    assert made.refresh()
    path.write_text('{"b": "10.0.0.1:80"}')
    assert not made.refresh()
    assert made.refresh()


def test_a_name_leads_to_all_of_its_addresses() -> None:
    made = Endpoints(Dns("dns", "localhost", 8000), 1.0, Clock())
    assert made.refresh()
    assert made.find("127.0.0.1:8000") == Endpoint("127.0.0.1:8000", "127.0.0.1", 8000)


def test_a_name_that_is_gone_is_said() -> None:
    made = Endpoints(Dns("dns", "no-such-host.invalid", 8000), 1.0, Clock())
    assert not made.refresh()
    assert "no-such-host.invalid" in made.problem


def slice_of(pods: dict[str, tuple[str, bool | None]], service: str = "chat", port: str = "http") -> dict[str, Any]:
    endpoints = [
        {
            "addresses": [host],
            "conditions": {} if ready is None else {"ready": ready},
            "targetRef": {"kind": "Pod", "name": pod},
        }
        for pod, (host, ready) in pods.items()
    ]
    return {
        "metadata": {"name": f"{service}-x", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "metrics", "port": 9}, {"name": port, "port": 8000}],
        "endpoints": endpoints,
    }


def test_the_pods_of_a_service_are_read_from_its_slices(tmp_path: Path) -> None:
    with fake_kube(tmp_path) as kube:
        kube.lists["endpointslices"] = [
            slice_of({"p1": ("10.0.0.1", True), "p2": ("10.0.0.2", False)}),
            slice_of({"p3": ("10.0.0.3", None)}),
        ]
        made = Endpoints(Slices("kubernetes", "prod", "chat", "http", kube.kubeconfig, timeout=1.0), 1.0, Clock())
        assert made.refresh(), made.problem
        assert made.known == (
            Endpoint("p1", "10.0.0.1", 8000), Endpoint("p2", "10.0.0.2", 8000, False), Endpoint("p3", "10.0.0.3", 8000),
        )  # fmt: skip
        kube.trouble.append(Trouble("GET", "endpointslices", 403))
        assert not made.refresh()
        assert len(made.known) == 3
        assert "forbidden" in made.problem
