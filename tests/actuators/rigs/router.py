"""Rigs of ``router``: real routers, of which the first replica is no worker at the start, behind a wire."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from actuators.router import Router, RouterConfig, RouterPool
from controller.core.model import Lever, Target
from controller.core.ports import Binding
from tests.actuators.rigs import Builder, Rig
from tests.support.relay import relay
from tests.support.routers import called, shared

COMMANDS = {"sglang": (b"POST /workers", b"DELETE /workers"), "vllm": (b"POST /add_worker", b"POST /remove_worker")}


def router_rig(make: str, folder: Path, stack: ExitStack) -> Rig:
    real = shared(make, (1, 2))
    real.reset()
    wire = stack.enter_context(relay(int(real.url.rpartition(":")[2])))
    wire.counts = COMMANDS[make]
    targets = {Target("chat", Lever.BREAKER, called(engine)): float(n > 0) for n, engine in enumerate(real.engines)}
    config = RouterConfig(make, {"chat": RouterPool((f"http://127.0.0.1:{wire.port}",))}, timeout=2.0)  # type: ignore[arg-type]
    return Rig(
        Router(config, Binding((), scopes=(("chat", Lever.BREAKER),))),
        Router.describe(config)[Lever.BREAKER],
        targets,
        up=1,
        down=0,
        other=1,
        values=lambda: {target: float(target.member in real.members()) for target in targets},
        touched=lambda: wire.counted,
        edit=lambda _: real.put(real.engines[0], inside=True),
        fail=lambda: wire.lose.append(b"GET /workers"),
        lose=lambda: wire.lose.extend(COMMANDS[make]),
        forget=real.restart,
        cannot={"refuse": "it takes every worker that it can reach; a wrong key is in test_router.py"},
    )


RIGS: dict[str, Builder] = {f"router-{make}": partial(router_rig, make) for make in COMMANDS}
