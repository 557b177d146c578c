"""Affinity from the law to a gateway: through a real Redis, into the gateway of ``routing/``, and out of it in time."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from actuators.redis import Redis, RedisConfig
from controller.core.model import Lever, Outcome, PoolReadings, Scope, Target, Tick
from controller.core.ports import Balance, Binding, Brief, Estimate, Limits, View
from controller.core.reading import ok
from controller.core.signals import Signal
from policies.affinity import Affinity
from routing.gateway import Gateway
from routing.knobs import Knobs
from routing.model import Replica
from routing.strategies import make
from tests.actuators.rigs import NOW
from tests.support.by_hand import TARGETS, copied
from tests.support.decisions import decide
from tests.support.queues import ask, chain
from tests.support.redis_server import RealRedis, real_redis
from tests.support.repository import ROOT

AFFINITY = Target("chat", Lever.ROUTING, "affinity")
PROMPT = chain(1, 2, 3, 4)
KEY = "governor:{chat}:routing:affinity"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRedis]:
    with real_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder: Path = tmp_path_factory.mktemp("gateway")
    return copied(folder, TARGETS / "redis" / "gateway.py", ROOT / "actuators" / "redis" / "bucket.lua")


class Front:
    """A gateway on the laws of ``routing/`` that looks into Redis, as the one of the example does."""

    def __init__(self, keys: Any) -> None:
        self.keys, self.now, self.number = keys, 0.0, 0
        self.gateway = Gateway(Knobs(), make("prefix-affinity"))
        for name in ("a", "b", "c", "d"):
            self.gateway.joined(Replica(name), 0.0)

    def look(self) -> float:
        """Every few seconds."""
        told = self.keys.set_point("routing", "affinity")
        self.gateway.tune(Knobs(affinity=1.0 if told is None else told), self.now)
        return self.gateway.knobs.affinity

    def crowd(self, count: int) -> dict[str, int]:
        """So many requests with one prompt, none of which ends."""
        for _ in range(count):
            self.number, self.now = self.number + 1, self.now + 0.01
            self.gateway.arrive(ask(self.number, prefix=PROMPT), self.now)
        return {name: one.inflight for name, one in self.gateway.replicas.items()}


def seen(work: dict[str, int], hands: Redis, law: Affinity, state: Affinity.State, at: float) -> tuple[float, Any]:
    """One look of the law at what the gateway's replicas have, and what it makes of it."""
    pool = PoolReadings(replicas={name: Scope({Signal.RUNNING: ok(float(one))}) for name, one in work.items()})
    view = View(
        Tick(1, at, 15.0), pool, {AFFINITY: hands.read([AFFINITY], at)[AFFINITY]}, {AFFINITY: Limits(0.5, 1.0, 0.05)},
        Estimate(demand=2.0, unit_sequences=40.0, trusted=True),
    )  # fmt: skip
    (made,), state = law.propose(view, (), Brief(Balance(2.0, 4.0), 0.0), state)
    return made.value, state


def test_a_hot_prefix_stays_at_one_replica_of_four_whatever_governor_decides(real: RealRedis, example: Any) -> None:
    """From what the replicas have to where the next requests go."""
    front = Front(example.Gateway(real.admin, "chat"))
    hands = Redis(RedisConfig(real.url), Binding((AFFINITY,), "governor"))
    law, at = Affinity(Affinity.Config()), NOW
    state, value = law.initial(), 1.0
    assert front.look() == 1.0
    assert sorted(front.crowd(60).values()) == [0, 0, 0, 60]

    while value > 0.75:
        current, at = value, at + 60.0
        value, state = seen(front.crowd(0), hands, law, state, at)
        applied = hands.apply([decide(AFFINITY, current, value)._replace(until=at + 300.0)], at)
        assert [one.outcome for one in applied] == [Outcome.DONE]
        assert front.look() == value
    work = front.crowd(90)
    hands.close()

    assert sum(work.values()) == 150
    assert max(work.values()) == 60  # not one more to a home that has more than three times what the others have
    assert min(work.values()) >= 10


def test_a_dead_governor_keeps_the_cache_spread_for_ever(real: RealRedis, example: Any) -> None:
    """Redis drops the value at its time, and the gateway is as it was configured."""
    front = Front(example.Gateway(real.admin, "chat"))
    hands = Redis(RedisConfig(real.url), Binding((AFFINITY,), "governor"))
    hands.read([AFFINITY], NOW)
    hands.apply([decide(AFFINITY, None, 0.6)._replace(until=NOW + 300.0)], NOW)
    assert front.look() == 0.6
    assert 0 < real.admin.pttl(KEY) <= 300_000

    real.admin.pexpire(KEY, 0)
    assert front.look() == 1.0
    assert hands.read([AFFINITY], NOW + 301.0)[AFFINITY].accepted == 1.0
    hands.close()


def test_a_neutral_value_leaves_a_key_that_outlives_governor(real: RealRedis) -> None:
    hands = Redis(RedisConfig(real.url), Binding((AFFINITY,), "governor"))
    for value in (0.75, 1.0):
        hands.read([AFFINITY], NOW)
        (applied,) = hands.apply([decide(AFFINITY, None, value)], NOW)
        assert applied.outcome is Outcome.DONE
        assert hands.read([AFFINITY], NOW)[AFFINITY].accepted == value
    assert not real.admin.exists(KEY)
    hands.close()
