"""Envoys prove who they are: a stranger is neither served nor counted."""

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from actuators.endpoints import Inline
from actuators.envoy import Envoy, EnvoyConfig, EnvoyPool, Grpc
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import ActuatorError, Binding
from tests.support.decisions import decide
from tests.support.envoy import bootstrap, envoy, until
from tests.support.ports import free_port

GATE = Target("chat", Lever.ADMISSION, "concurrency")
KEY = "circuit_breakers.chat-steered.default.max_requests"


def certificate(folder: Path, name: str, ca: str = "") -> None:
    """A key and a certificate in PEM, by a CA of the tests or by itself."""
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    by = ["-CA", f"{folder}/{ca}.crt", "-CAkey", f"{folder}/{ca}.key"] if ca else []
    more = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", *request, *by, *more, "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def speaking_as(folder: Path, name: str) -> Any:
    """A change of the bootstrap: TLS to Governor with this certificate."""

    def change(body: dict[str, Any]) -> None:
        kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
        mine = {
            "certificate_chain": {"filename": f"{folder}/{name}.crt"},
            "private_key": {"filename": f"{folder}/{name}.key"},
        }
        trusted = {"trusted_ca": {"filename": f"{folder}/ca.crt"}}
        context = {"tls_certificates": [mine], "validation_context": trusted}
        cluster = next(one for one in body["static_resources"]["clusters"] if one["name"] == "governor")
        cluster["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {"@type": kind, "common_tls_context": context},
        }

    return change


def test_an_envoy_with_a_certificate_of_somebody_else_is_told_nothing(tmp_path: Path) -> None:
    certificate(tmp_path, "ca")
    certificate(tmp_path, "stranger")
    for name in ("governor", "edge"):
        certificate(tmp_path, name, "ca")
    port = free_port()
    transport = Grpc(
        "grpc", f"127.0.0.1:{port}", f"{tmp_path}/governor.crt", f"{tmp_path}/governor.key", f"{tmp_path}/ca.crt"
    )
    pool = EnvoyPool("chat", "chat-steered", "chat-plain", Inline("inline", {"r1": "127.0.0.1:9"}))
    actuator = Envoy(EnvoyConfig({"chat": pool}, transport, timeout=0.5, arrival=0.0), Binding((GATE,)))
    with ExitStack() as stack:
        stack.callback(actuator.close)
        actuator.read([GATE], 0.0)
        for number, (name, outcome) in enumerate({"stranger": Outcome.FAILED, "edge": Outcome.DONE}.items()):

            def text(front: int, admin: int, name: str = name) -> str:
                ports = {10000: front, 9901: admin, 18000: port}
                return bootstrap("bootstrap.yaml", ports, node=name, change=speaking_as(tmp_path, name))

            with envoy(tmp_path, text, number) as running:
                if outcome is Outcome.DONE:
                    until(lambda: not actuator.read([GATE], 0.0)[GATE].error, "it is connected")
                (applied,) = actuator.apply([decide(GATE, 1e12, 5.0)], 0.0)
                assert applied.outcome is outcome, applied
                assert running.runtime(KEY) == ("5" if outcome is Outcome.DONE else "")


def test_a_certificate_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    transport = Grpc("grpc", "127.0.0.1:1", f"{tmp_path}/no.crt", f"{tmp_path}/no.key")
    pool = EnvoyPool("chat", endpoints=Inline("inline", {"r1": "127.0.0.1:9"}))
    actuator = Envoy(EnvoyConfig({"chat": pool}, transport), Binding((GATE,)))
    with pytest.raises(ActuatorError, match="cannot serve Envoys: No such file"):
        actuator.read([GATE], 0.0)
    actuator.close()


def test_a_second_governor_on_the_same_port_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """Else every other Envoy would hear the wrong one. What is told of it is Governor's word, not gRPC's on stderr."""
    config = EnvoyConfig(
        {"chat": EnvoyPool("chat", endpoints=Inline("inline", {"r1": "127.0.0.1:9"}))},
        Grpc("grpc", f"127.0.0.1:{free_port()}"),
        arrival=0.0,
    )
    first, second = Envoy(config, Binding((GATE,))), Envoy(config, Binding((GATE,)))
    first.read([GATE], 0.0)
    with pytest.raises(ActuatorError, match="another Governor"):
        second.read([GATE], 0.0)
    assert capfd.readouterr().err == ""
    first.close()
    second.read([GATE], 0.0)
    second.close()
