"""How fast a real nginx does what a file tells it: a check, a reload, new workers."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actuators.file import File, FileConfig
from benchmarks.actuators import Course
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.why import Why
from tests.support.nginx import TEMPLATE, nginx
from tests.support.pipelined import Asking

_ROUNDS = 20


def _breaker(name: str) -> Target:
    return Target("chat", Lever.BREAKER, name)


def _swap() -> Sequence[float]:
    """Two servers change places, until a new connection is answered by the one that came."""
    out = []
    with tempfile.TemporaryDirectory(prefix="governor-bench-") as name:
        places = {str(_breaker("r2")): 0.0, str(_breaker("r3")): 0.0}
        with nginx(Path(name), places) as server:
            config = FileConfig(
                str(server.values), template=str(TEMPLATE), output=str(server.output), variables=server.variables,
                check=server.command("-t", "-c", "{file}"),
                reload=server.command("-s", "reload", "-c", str(server.output)),
            )  # fmt: skip
            actuator = File(config, Binding((), scopes=(("chat", Lever.BREAKER),)))
            for turn in range(_ROUNDS):
                goes, comes = ("r1", "r2") if turn % 2 == 0 else ("r2", "r1")
                began = time.perf_counter()
                moves = [(_breaker(comes), 0.0, 1.0), (_breaker(goes), 1.0, 0.0)]
                applied = actuator.apply([Decision(*move, Why.DEMAND, send=True) for move in moves], 0.0)
                assert {one.outcome for one in applied} == {Outcome.DONE}, applied
                while True:
                    with Asking(server.port) as client:
                        if client.ask() == comes:
                            break
                out.append(time.perf_counter() - began)
    return out


COURSES = (Course("file", "nginx", "an nginx is reloaded, until a new connection is answered so", 1.0, _swap),)
