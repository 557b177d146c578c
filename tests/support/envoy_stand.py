"""An Envoy that a Governor of the moment steers over gRPC, with its replicas and the wire between them."""

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from actuators.endpoints import Inline
from actuators.envoy import Envoy, EnvoyConfig, EnvoyPool, Grpc
from controller.core.model import Applied, Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.envoy import (
    EnvoyProcess,
    Replicas,
    Wire,
    bootstrap,
    envoy,
    replicas,
    until,
    wire,
)  # fmt: skip
from tests.support.ports import free_port

NAMES = ("r1", "r2", "r3")
WEIGHTS = {name: Target("chat", Lever.WEIGHT, name) for name in NAMES}
BREAKERS = {name: Target("chat", Lever.BREAKER, name) for name in NAMES}
GATE = Target("chat", Lever.ADMISSION, "concurrency")
AWAY = Target("chat", Lever.DOWNGRADE, "small")
ACME, BETA = (Target("chat", Lever.TENANT_CAP, tenant) for tenant in ("acme", "beta"))
ALL = [*WEIGHTS.values(), *BREAKERS.values(), GATE, AWAY, ACME, BETA]
BINDING = Binding((GATE, AWAY, ACME, BETA), scopes=(("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))
KEY = "circuit_breakers.chat-steered.default.max_requests"
NO_LIMIT = 1e12
EVEN = {"r1": 1 / 3, "r2": 1 / 3, "r3": 1 / 3}


@dataclass
class Stand:
    """Replicas, a wire, and an Envoy at the other end of it; `actuator` is the Governor of the moment."""

    behind: Replicas
    running: EnvoyProcess
    cable: Wire
    port: int
    config: EnvoyConfig
    actuator: Envoy
    now: float = 0.0
    _ticks: Iterator[int] = field(default_factory=lambda: count(1))

    def governor(self, **changed: Any) -> Envoy:
        """Another Governor in the place of the one before."""
        self.actuator.close()
        self.actuator = Envoy(replace(self.config, **changed), BINDING)
        self.now = next(self._ticks)
        self.actuator.read(ALL, self.now)
        return self.actuator

    def connected(self) -> Envoy:
        """The Governor, once Envoy has what it tells; two ticks have gone by then."""
        self.reconnected()
        self.now = next(self._ticks)
        self.actuator.read(ALL, self.now)
        until(lambda: not any(s.error for s in self.actuator.read(ALL, self.now).values()), "Envoy took all of it")
        return self.actuator

    def reconnected(self, targets: Sequence[Target] = ALL) -> None:
        """Envoy has found the new Governor; no tick goes by."""
        until(lambda: not any(s.error for s in self.actuator.read(targets, self.now).values()), "Envoy is connected")

    def send(self, *wishes: tuple[Target, float], lasting: float | None = None) -> dict[Target, Applied]:
        """Values from neutral, `lasting` seconds where they expire."""
        made = [lasts(decide(target, None, value), lasting) for target, value in wishes]
        return {one.target: one for one in self.actuator.apply(made, 0.0)}

    def done(self, *wishes: tuple[Target, float], lasting: float | None = None) -> None:
        applied = self.send(*wishes, lasting=lasting)
        assert {one.outcome for one in applied.values()} == {Outcome.DONE}, applied


def lasts(decision: Decision, seconds: float | None) -> Decision:
    return decision._replace(until=seconds)


@contextmanager
def steered(folder: Path) -> Iterator[Stand]:
    """The whole stand, with a Governor that has told where replicas are."""
    with ExitStack() as stack:
        behind = stack.enter_context(replicas(*NAMES, "s1"))
        port = free_port()
        cable = stack.enter_context(wire(port))
        config = configured(port, behind)
        actuator = Envoy(config, BINDING)
        actuator.read(ALL, 0.0)
        running = stack.enter_context(envoy(folder, text_of(behind, cable)))
        stand = Stand(behind, running, cable, port, config, actuator)
        yield stand
        stand.actuator.close()


@contextmanager
def neutral(edge: Stand) -> Iterator[Stand]:
    """Neutral, with a Governor that has told so; and after a test the wire is whole again and Envoy runs."""
    edge.governor()
    edge.connected()
    yield edge
    edge.cable.deaf = False
    edge.cable.mend()
    edge.behind.let_go()
    if edge.running.process is None:
        edge.governor()  # first, for an Envoy that finds none waits for it
        edge.running.start()


def configured(port: int, behind: Replicas, **more: Any) -> EnvoyConfig:
    chat = EnvoyPool(
        "chat", eds="chat-steered", fallback="chat-plain", tokens_per_request=100.0,
        endpoints=Inline("inline", {name: behind.addresses[name] for name in NAMES}),
    )  # fmt: skip
    pools = {"chat": chat, "small": EnvoyPool("small")}
    return EnvoyConfig(pools, Grpc("grpc", f"127.0.0.1:{port}"), timeout=1.0, arrival=0.0, **more)


def text_of(
    behind: Replicas, cable: Wire, node: str = "edge-1", change: Callable[[dict[str, Any]], None] | None = None
) -> Callable[[int, int], str]:
    def text(front: int, admin: int) -> str:
        there = behind.ports
        ports = {8001: there["r1"], 8002: there["r2"], 8003: there["r3"], 8009: there["s1"]}
        ports |= {10000: front, 9901: admin, 18000: cable.port}
        made = bootstrap("bootstrap.yaml", ports, node=node, change=change)
        slow, fast = '"base_interval": "0.2s", "max_interval": "2s"', '"base_interval": "0.02s", "max_interval": "0.1s"'
        assert slow in made
        return made.replace(slow, fast)  # every test has a Governor of its own

    return text


def shares(found: Counter[str]) -> dict[str, float]:
    return {name: number / found.total() for name, number in found.items()}


def in_flight(running: EnvoyProcess, number: int) -> tuple[list[threading.Thread], list[int]]:
    """Requests that wait at their replicas, and the statuses that they end with."""
    ends: list[int] = []

    def one() -> None:
        link = http.client.HTTPConnection("127.0.0.1", running.front, timeout=20)
        link.request("GET", "/hold")
        ends.append(link.getresponse().status)
        link.close()

    threads = [threading.Thread(target=one, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, ends
