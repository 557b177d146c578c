"""How a Prometheus is reached: what can be known before the first query is told then, and in words that help."""

from pathlib import Path

import pytest

from controller.core.facts import Fact
from controller.core.ports import PoolNeeds
from sources.prometheus import PrometheusSource, history
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.errors import Refused, TimedOut, Unreachable
from sources.prometheus.history import read_range
from sources.prometheus.transport import Transport
from tests.support.cli import governor
from tests.support.ports import free_port
from tests.support.query_api import query_api, vector

NEEDS = PoolNeeds(pool="llama", engine="vllm", matchers=(), facts=frozenset({Fact.RUNNING}))


@pytest.mark.parametrize("key", ["ca", "cert"])
def test_a_missing_certificate_is_named_before_the_first_query(key: str, tmp_path: Path) -> None:
    config = PrometheusConfig(url="https://a", **{key: str(tmp_path / "absent.pem")})  # type: ignore[arg-type]
    with pytest.raises(Refused, match=rf"^source\.{key}: .*absent\.pem cannot be read: No such file"):
        PrometheusSource(config, [NEEDS])


@pytest.mark.parametrize("key", ["ca", "cert"])
def test_a_file_that_is_no_certificate_is_named(key: str, tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("not a certificate")
    with pytest.raises(Refused, match=rf"^source\.{key}: .* in PEM"):
        Transport(PrometheusConfig(url="https://a", **{key: str(tmp_path / "a.pem")}))  # type: ignore[arg-type]


def test_the_daemon_does_not_start_with_a_missing_certificate(tmp_path: Path) -> None:
    config = tmp_path / "governor.yaml"
    config.write_text(
        f"version: 1\nsource: {{kind: prometheus, url: 'https://127.0.0.1:9', ca: {tmp_path}/absent.pem}}\n"
        f"ledger: {{path: {tmp_path}/ledger}}\nhttp: {{listen: '127.0.0.1:0'}}\n"
        "pools: {chat: {engine: vllm, selector: {model_name: chat}}}\n"
    )
    done = governor("run", "-c", config)
    assert done.returncode == 2
    assert "source.ca: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_prometheus_that_hangs_is_given_up_at_its_first_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_FIRST", 0.2)
    with query_api() as api:
        api.behave = lambda _: None
        with pytest.raises(TimedOut, match=r"no answer within 0\.2 s"):
            list(read_range(PrometheusConfig(url=api.url), [NEEDS], 0.0, 60.0, 15.0))
        assert api.asked == ["vector(1)"]
        api.behave = lambda _: vector([])
        assert [at for at, _ in read_range(PrometheusConfig(url=api.url), [NEEDS], 0.0, 30.0, 15.0)] == [
            0.0,
            15.0,
            30.0,
        ]


@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", "Connection refused"), ("nowhere.invalid", "Failed to resolve 'nowhere.invalid'")]
)
def test_what_cannot_be_reached_is_told_without_the_insides_of_a_library(host: str, why: str) -> None:
    transport = Transport(PrometheusConfig(url=f"http://{host}:{free_port()}"))
    with pytest.raises(Unreachable, match=why) as caught:
        transport.query("up", 0.0, 5.0)
    assert "Max retries" not in str(caught.value)
    assert "(host=" not in str(caught.value)
    transport.close()
