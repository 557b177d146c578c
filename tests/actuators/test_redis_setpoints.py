"""Deadlines and ranks from the law to a gateway: through a real Redis, into one of ``routing/``, and out of it."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from actuators.redis import Redis, RedisConfig
from controller.core.model import Lever, Outcome, Target, Tick
from controller.core.ports import Balance, Binding, Brief, Estimate, View
from controller.core.reading import ok
from controller.core.setpoints import DEADLINE, OWN, PRIORITY
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tenancy import ClassRules
from policies.gate import Gate
from routing.actions import Reject
from routing.gateway import Gateway
from routing.knobs import Admission, Klass, Knobs
from routing.model import Replica, Request
from routing.strategies import make
from tests.actuators.rigs import NOW
from tests.support.by_hand import TARGETS, copied
from tests.support.cases import healthy
from tests.support.decisions import decide
from tests.support.redis_server import RealRedis, real_redis
from tests.support.repository import ROOT

MOVED = tuple(Target("chat", Lever.ADMISSION, name) for name in (DEADLINE, PRIORITY))
CLASSES = {"web": ClassRules(0), "api": ClassRules(1), "batch": ClassRules(2, sheddable=True)}
PROMISE = (Objective("ttft", Signal.TTFT, 2.0, 0.95, 60.0),)
USUAL = Knobs(
    admission=Admission(deadlines=True), classes={name: Klass(rank=one.rank) for name, one in CLASSES.items()}
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRedis]:
    with real_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("gateway")
    return copied(folder, TARGETS / "redis" / "gateway.py", ROOT / "actuators" / "redis" / "bucket.lua")


def look(keys: Any) -> Knobs:
    """What a gateway on the laws of ``routing/`` makes of the keys, every few seconds."""
    factor, rank = (keys.set_point("admission", name) for name in (DEADLINE, PRIORITY))
    return replace(USUAL, admission=Admission(True, 1.0 if factor is None else factor, rank))


def overload(hands: Redis, at: float) -> list[Any]:
    """What the law makes of a queue that is 5 s late for 2, with half a replica short beyond what may be shed."""
    pool = replace(healthy(queue_delay=ok(5.0)), latencies={Signal.TTFT: {"p95": ok(5.0)}})
    view = View(
        Tick(9, at, 15.0), pool, hands.read(MOVED, at), {target: OWN[target.member] for target in MOVED},
        Estimate(demand=5.0, trusted=True, passing=1.0), classes=CLASSES,
    )  # fmt: skip
    brief = Brief(Balance(5.0, 3.5, by_class={"web": 2.0, "api": 2.0, "batch": 1.0}), 1.5)
    law = Gate(Gate.Config())
    proposals, _ = law.propose(view, PROMISE, brief, law.initial())
    return [
        decide(one.target, view.targets[one.target].accepted, one.value)._replace(until=at + 300.0) for one in proposals
    ]


def test_what_the_law_wants_in_an_overload_is_what_the_gateway_does_and_ends_with_governor(
    real: RealRedis, example: Any
) -> None:
    keys = example.Gateway(real.admin, "chat")
    hands = Redis(RedisConfig(real.url), Binding(MOVED, "governor"))
    gateway = Gateway(look(keys), make("least-loaded"))
    gateway.joined(Replica("r", slots=1), 0.0)
    assert look(keys) == USUAL

    assert {one.outcome for one in hands.apply(overload(hands, NOW), NOW)} == {Outcome.DONE}
    moved = look(keys)
    assert moved.admission == Admission(True, 0.4, 0.75)
    gateway.tune(replace(moved, concurrency=replace(moved.concurrency, per_slot=1.0)), 1.0)
    gateway.arrive(Request(0, 10, 10, klass="web"), 1.0)
    refused = {
        name: sum(
            isinstance(action, Reject)
            for i in range(100)
            for action in gateway.arrive(Request(first + i, 10, 10, klass=name, deadline=11.0), 1.0)
        )
        for first, name in ((1000, "web"), (2000, "api"), (3000, "batch"))
    }
    assert refused == {"web": 0, "api": 25, "batch": 100}
    assert gateway.next_at == pytest.approx(5.0)  # four tenths of the ten seconds

    for target in MOVED:
        real.admin.pexpire(f"governor:{{chat}}:admission:{target.member}", 0)
    assert look(keys) == USUAL
    found = hands.read(MOVED, NOW + 301.0)
    assert {t.member: state.accepted for t, state in found.items()} == {DEADLINE: 1.0, PRIORITY: 100.0}
    assert not any(state.foreign_writer for state in found.values())
    hands.close()
