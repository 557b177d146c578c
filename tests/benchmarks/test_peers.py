"""Every peer is a controller at all: it grows, it shrinks, and without data it does what the real one does."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.peers.apa import Apa
from benchmarks.peers.dynamo import Dynamo
from benchmarks.peers.hpa import Hpa
from benchmarks.peers.keda import Keda, KedaRate
from benchmarks.peers.kpa import Kpa
from benchmarks.peers.pid_p99 import PidP99
from benchmarks.peers.wva import Wva, WvaDerived
from controller.config.plugins import choose
from controller.core.model import Lever, Pending, Phase
from controller.core.ports import Limits, View
from controller.core.reading import Reading, State, ok
from controller.registry import Group
from controller.run.codec import decode, encode
from tests.support.peer_views import view, wanted

GIVEN: dict[str, dict[str, Any]] = {
    "hpa:Hpa": {"target": 20.0},
    "keda:Keda": {"target": 20.0},
    "keda:KedaRate": {"target": 2.0},
    "kpa:Kpa": {"target": 30.0},
    "apa:Apa": {"target": 20.0},
    "wva:Wva": {"kv_tokens": 100_000.0, "up": 0.6},
    "wva:WvaDerived": {"kv_tokens": 100_000.0, "up": 0.6},
    "dynamo:Dynamo": {"sla": 0.5, "kv_tokens": 100_000.0},
    "pid_p99:PidP99": {"gain": 0.4},
}
CLASSES = (Hpa, Keda, KedaRate, Kpa, Apa, Wva, WvaDerived, Dynamo, PidP99)
COMES = 60.0  # seconds until a replica serves
BOUNDS = Limits(2, 30)


def made(name: str) -> Any:
    plugin = choose(Group.POLICY, {"kind": f"benchmarks.peers.{name}", **GIVEN[name]})
    return plugin.cls(plugin.settings)


class Toy:
    """A pool whose requests in flight spread evenly and fill 2 % of a replica's KV cache each; beyond 40 they wait."""

    def __init__(self, law: Any, replicas: float) -> None:
        self.law, self.state, self.now = law, law.initial(), 0.0
        self.replicas, self.serving, self.asked = replicas, replicas, 0.0

    def run(self, seconds: float, look: Callable[["Toy"], View]) -> float:
        """The number of replicas after `seconds` of views."""
        for _ in range(int(seconds / 15)):
            if self.replicas != self.serving and self.now - self.asked >= COMES:
                self.serving = self.replicas
            value, self.state = wanted(self.law, look(self), self.state)
            if value != self.replicas:
                self.replicas, self.asked = value, self.now
                self.serving = min(self.serving, value)
            self.now += 15.0
        return self.replicas


def loaded(in_flight: float) -> Callable[[Toy], View]:
    def look(toy: Toy) -> View:
        each = in_flight / toy.serving
        running = min(each, 40.0)
        late = each > 40.0
        rows = [(running, each - running, 0.02 * running)] * int(toy.serving)
        coming = [Pending(int(toy.replicas - toy.serving), Phase.LOADING, toy.asked)]
        return view(
            toy.now, toy.replicas, rows, pending=coming if toy.replicas > toy.serving else [], limits=BOUNDS,
            rates=(in_flight / 10, 2000.0, 300.0), p99=ok(20.0 if late else 0.2), itl=0.09 if late else 0.02,
        )  # fmt: skip

    return look


def blind(toy: Toy) -> View:
    """All scrapes fail; the Prometheus answers."""
    gone = Reading(State.MISSING)
    return view(toy.now, toy.replicas, [None] * int(toy.serving), ready=toy.serving, limits=BOUNDS, p99=gone)


def silent(toy: Toy) -> View:
    """The Prometheus does not answer."""
    return view(toy.now, toy.replicas, unreachable=True, ready=toy.serving, limits=BOUNDS)


@pytest.mark.parametrize("name", GIVEN)
def test_it_grows_under_overload_and_shrinks_when_idle(name: str) -> None:
    toy = Toy(made(name), 4.0)
    high = toy.run(900.0, loaded(320.0))  # 80 on each of four
    assert high >= 7
    idle = toy.run(20_000.0, loaded(4.0))  # a PID on seconds winds down for hours
    assert idle <= max(3.0, high / 2)


@pytest.mark.parametrize("name", GIVEN)
def test_without_data_it_does_what_the_real_one_does(name: str) -> None:
    # With all targets down, KEDA reads nothing as 0; all others hold, and all hold while Prometheus is away.
    toy = Toy(made(name), 8.0)
    before = toy.run(600.0, loaded(8.0 * 20.0))
    assert before >= 3
    held = toy.run(900.0, silent)
    assert held == before
    assert toy.run(900.0, blind) == (BOUNDS.min if name.startswith("keda:") else before)


@pytest.mark.parametrize("name", GIVEN)
def test_its_memory_goes_through_the_ledger_unchanged(name: str) -> None:
    toy = Toy(made(name), 4.0)
    toy.run(600.0, loaded(320.0))
    assert decode(type(toy.state), encode(toy.state)) == toy.state


@pytest.mark.parametrize("name", GIVEN)
def test_while_the_replicas_cannot_be_read_it_asks_for_nothing(name: str) -> None:
    law = made(name)
    value, state = wanted(law, view(0.0, None, [(80, 0)] * 4, rates=(9.0, 2000.0, 300.0), p99=ok(9.0)), law.initial())
    assert (value, state) == (0.0, law.initial())


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_it_says_what_is_tuned_and_what_is_emulation(cls: Any) -> None:
    assert cls.TUNED in cls.Config.__dataclass_fields__
    assert list(cls.GRID) == sorted(set(cls.GRID))
    assert len(cls.GRID) >= 7
    assert cls.levers == (Lever.REPLICAS,)
    for value in cls.GRID:
        needed = {"kv_tokens": 1e5} if issubclass(cls, Wva) else {}
        cls(cls.Config(**needed, **{cls.TUNED: value}))
    assert len(cls.ABOUT.split()) >= 25
    assert cls.ABOUT.isascii()


def test_no_peer_is_left_out() -> None:
    assert {f"{cls.__module__.rpartition('.')[2]}:{cls.__name__}" for cls in CLASSES} == set(GIVEN)
