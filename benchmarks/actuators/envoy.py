"""How fast a real Envoy does what was decided."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from actuators.endpoints import Inline
from actuators.envoy import Envoy, EnvoyConfig, EnvoyPool, Files, Grpc
from benchmarks.actuators import Course
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.why import Why
from tests.support.envoy import EnvoyProcess, bootstrap, envoy, neutral_files, replicas, until
from tests.support.ports import free_port

_NAMES = ("r1", "r2", "r3")
_ROUNDS = 200
_MANY = 1000
_AWAY = Target("chat", Lever.DOWNGRADE, "small")


def _breaker(name: str) -> Target:
    return Target("chat", Lever.BREAKER, name)


@dataclass
class _Stand:
    actuator: Envoy
    running: EnvoyProcess

    def send(self, values: Mapping[Target, float]) -> None:
        """Raises AssertionError when Envoy did not take all of it."""
        applied = self.actuator.apply([Decision(t, None, v, Why.DEMAND, send=True) for t, v in values.items()], 0.0)
        assert {one.outcome for one in applied} == {Outcome.DONE}, applied


@contextmanager
def _stand(addresses: Mapping[str, str] | None = None, *, files: bool = False) -> Iterator[_Stand]:
    """An Envoy before three replicas, steered by gRPC or by files; `addresses` of others that nobody asks."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="governor-bench-")))
        behind = stack.enter_context(replicas(*_NAMES, "s1"))
        told = {**{name: behind.addresses[name] for name in _NAMES}, **(addresses or {})}
        pool = EnvoyPool("chat", "chat-steered", "chat-plain", Inline("inline", told))
        port, admin, watched = free_port(), free_port(), neutral_files(folder)
        transport = Files("files", str(watched)) if files else Grpc("grpc", f"127.0.0.1:{port}")
        pages = (f"http://127.0.0.1:{admin}",) if files else ()
        config = EnvoyConfig({"chat": pool, "small": EnvoyPool("small")}, transport, pages, arrival=0.0)
        made = Envoy(config, Binding((_AWAY,), scopes=(("chat", Lever.BREAKER), ("chat", Lever.WEIGHT))))
        stack.callback(made.close)
        made.read([], 0.0)

        def text(front: int, page: int) -> str:
            there = behind.ports
            ports = {
                10000: front,
                9901: page,
                8001: there["r1"],
                8002: there["r2"],
                8003: there["r3"],
                8009: there["s1"],
            }
            if files:
                return bootstrap("bootstrap-files.yaml", ports, folder=watched)
            return bootstrap("bootstrap.yaml", {**ports, 18000: port})

        running = stack.enter_context(envoy(folder, text, admin=admin))
        wanted = [_breaker("r1"), _AWAY]
        until(lambda: not any(s.error for s in made.read(wanted, 0.0).values()), "Envoy is connected")
        yield _Stand(made, running)


def weights(*, files: bool = False) -> Sequence[float]:
    """Until the first request is answered by the replica that was just put into rotation in another's place."""
    with _stand(files=files) as stand:
        out = []
        stand.send({_breaker("r3"): 0.0, _breaker("r2"): 0.0})
        with stand.running.asking() as ask:
            for number in range(_ROUNDS):
                into, away = ("r2", "r1") if number % 2 == 0 else ("r1", "r2")
                began = time.perf_counter()
                stand.send({_breaker(into): 1.0, _breaker(away): 0.0})
                while ask() != into:
                    pass
                out.append(time.perf_counter() - began)
        return out


def splits() -> Sequence[float]:
    """Until the first request is answered by the pool that all are sent to since."""
    with _stand() as stand, stand.running.asking(x_consent="downgrade") as ask:
        out = []
        for number in range(_ROUNDS):
            away = number % 2 == 0
            began = time.perf_counter()
            stand.send({_AWAY: float(away)})
            while (ask() == "s1") is not away:
                pass
            out.append(time.perf_counter() - began)
        return out


def many() -> Sequence[float]:
    """Until Envoy has said yes to new weights of a thousand endpoints."""
    others = {f"x{n}": f"127.1.{n // 250}.{n % 250 + 1}:8000" for n in range(_MANY - len(_NAMES))}
    with _stand(others) as stand:
        out = []
        for number in range(20):
            wanted = {Target("chat", Lever.WEIGHT, name): (0.5, 0.25)[number % 2] for name in (*others, *_NAMES)}
            began = time.perf_counter()
            stand.send(wanted)
            out.append(time.perf_counter() - began)
        return out


COURSES = (
    Course("envoy", "envoy", "breakers of two replicas by gRPC, until another answers", 0.015, weights),
    Course("envoy", "envoy", "a split by gRPC, until the other pool answers", 0.015, splits),
    Course(
        "envoy", "envoy", "breakers by files and admin page, until another answers", 0.015, lambda: weights(files=True)
    ),
    Course("envoy", "envoy", "new weights of 1,000 endpoints, until Envoy says yes", 0.2, many),
)
