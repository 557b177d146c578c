"""Rigs of ``envoy``: a real one, with gates of three pools by gRPC, and the same by files."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from actuators.endpoints import Inline
from actuators.envoy import Envoy, EnvoyConfig, EnvoyPool, Files, Grpc
from controller.core.model import Lever, Target
from controller.core.ports import Binding
from tests.actuators.rigs import NOW, Rig
from tests.support.decisions import decide
from tests.support.envoy import EnvoyProcess, bootstrap, envoy, neutral_files, until, wire
from tests.support.ports import free_port

A, B, C = (Target(pool, Lever.ADMISSION, "concurrency") for pool in "abc")
START = {A: 4.0, B: 6.0, C: 2.0}


def gate(target: Target) -> str:
    return f"circuit_breakers.{target.pool}.default.max_requests"


def config(transport: Grpc | Files, admin: int, timeout: float) -> EnvoyConfig:
    pools = {t.pool: EnvoyPool(t.pool, endpoints=Inline("inline", {"r1": "127.0.0.1:9"})) for t in START}
    return EnvoyConfig(pools, transport, admin=(f"http://127.0.0.1:{admin}",), timeout=timeout, arrival=0.0)


def values(running: EnvoyProcess) -> dict[Target, float]:
    return {target: float(running.runtime(gate(target))) for target in START}


def grpc_rig(folder: Path, stack: ExitStack) -> Rig:
    port = free_port()
    cable = stack.enter_context(wire(port))

    def standing(body: dict[str, Any]) -> None:
        """The operator's own limits, in the static layer."""
        body["layered_runtime"]["layers"][0]["static_layer"] = {gate(t): int(value) for t, value in START.items()}

    def text(front: int, admin: int) -> str:
        made = bootstrap("bootstrap.yaml", {10000: front, 9901: admin, 18000: cable.port}, change=standing)
        return made.replace('"initial_fetch_timeout": "1s"', '"initial_fetch_timeout": "0.1s"')  # none is told of chat

    admin = free_port()
    asked = config(Grpc("grpc", f"127.0.0.1:{port}"), admin, 0.3)
    actuator = Envoy(asked, Binding(tuple(START), "governor"))
    actuator.read([A], NOW)
    running = stack.enter_context(envoy(folder, text, admin=admin))
    until(lambda: not actuator.read([A], NOW)[A].error, "Envoy is connected")
    told = int(running.stat("runtime.update_success"))

    def cut() -> None:
        cable.cut()
        until(lambda: any("no Envoy" in one.text for one in actuator.diagnose(NOW)), "nobody is connected")

    def restart() -> None:
        running.stop()
        running.start()

    return Rig(
        actuator,
        Envoy.describe(asked)[Lever.ADMISSION],
        START,
        up=5,
        down=5,
        other=7,
        values=lambda: values(running),
        touched=lambda: int(running.stat("runtime.update_success")) - told,
        edit=None,
        fail=cut,
        lose=lambda: setattr(cable, "deaf", True),
        forget=restart,
        cannot={
            "edit": "only Governor speaks on its stream; what hides its values is in test_envoy_failures",
            "refuse": "Envoy takes every number as a runtime key; a refusal is in test_envoy_failures",
        },
    )


def files_rig(folder: Path, stack: ExitStack) -> Rig:
    watched = neutral_files(folder)
    running = stack.enter_context(
        envoy(
            folder, lambda front, admin: bootstrap("bootstrap-files.yaml", {10000: front, 9901: admin}, folder=watched)
        )
    )
    tap = stack.enter_context(wire(running.admin))
    asked = config(Files("files", str(watched)), tap.port, 0.3)
    before = Envoy(asked, Binding(tuple(START), "governor"))
    before.read([], NOW)
    before.apply([decide(target, 1e12, value) for target, value in START.items()], NOW)
    before.close()
    told = int(running.stat("runtime.update_success"))
    file = watched / "runtime-governor-admission.json"

    def edit(value: float) -> None:
        document = json.loads(file.read_text())
        document["resources"][0]["layer"][gate(A)] = value
        document["version_info"] = "by hand"
        file.with_suffix(".tmp").write_text(json.dumps(document))
        file.with_suffix(".tmp").rename(file)
        until(lambda: values(running)[A] == value, "Envoy has taken the edit")

    def in_the_way() -> None:
        file.unlink()
        file.mkdir()  # root may write anywhere, but not over a folder

    def restart() -> None:
        running.stop()
        running.start()

    return Rig(
        Envoy(asked, Binding(tuple(START), "governor")),
        Envoy.describe(asked)[Lever.ADMISSION],
        START,
        up=5,
        down=5,
        other=7,
        values=lambda: values(running),
        touched=lambda: int(running.stat("runtime.update_success")) - told,
        edit=edit,
        fail=in_the_way,
        lose=lambda: setattr(tap, "deaf_until", time.monotonic() + 0.7),
        forget=restart,
        cannot={"refuse": "Envoy takes every number as a runtime key; a refusal is in test_envoy_failures"},
    )


RIGS = {"envoy-files": files_rig, "envoy-grpc": grpc_rig}
