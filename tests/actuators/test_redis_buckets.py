"""Buckets in a real Redis, drawn from by the gateway of ``examples/targets/redis``."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from actuators.redis import Redis, RedisConfig
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import Binding
from tests.actuators.rigs import NOW
from tests.support.by_hand import TARGETS, copied
from tests.support.decisions import decide
from tests.support.redis_server import RealRedis, real_redis
from tests.support.repository import ROOT

ACME, BATCH = (Target("chat", Lever.TENANT_CAP, name) for name in ("acme", "batch"))
GATE = Target("chat", Lever.ADMISSION, "concurrency")
DEADLINE, PRIORITY = (Target("chat", Lever.ADMISSION, name) for name in ("deadline", "priority"))
SMALL = Target("chat", Lever.DOWNGRADE, "small")
NO_LIMIT = 1e12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRedis]:
    with real_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("gateway")
    return copied(folder, TARGETS / "redis" / "gateway.py", ROOT / "actuators" / "redis" / "bucket.lua")


@pytest.fixture
def real(server: RealRedis) -> RealRedis:
    server.reset()
    return server


@pytest.fixture
def gateway(example: ModuleType, real: RealRedis) -> Any:
    return example.Gateway(real.admin, "chat")


@pytest.fixture
def hands(real: RealRedis) -> Iterator[Redis]:
    config = RedisConfig(real.url, burst=100, burst_seconds=0.0)
    one = Redis(config, Binding((ACME, BATCH, GATE, SMALL, DEADLINE, PRIORITY), "governor"))
    yield one
    one.close()


def put(hands: Redis, target: Target, value: float, lasts: float | None = None) -> None:
    until = None if lasts is None else NOW + lasts
    (applied,) = hands.apply([decide(target, None, value)._replace(until=until)], NOW)
    assert applied.outcome is Outcome.DONE, applied.detail


def age(real: RealRedis, tenant: str, seconds: float) -> None:
    """As if the bucket had last been touched so long ago."""
    key = f"governor:{{chat}}:bucket:{tenant}"
    real.admin.hset(key, "at", float(real.admin.hget(key, "at")) - seconds)


def level(gateway: Any, tenant: str) -> float:
    return float(gateway.bucket(keys=gateway.keys(tenant), args=["peek"])[2])


def test_a_tenant_without_a_cap_is_never_refused(gateway: Any) -> None:
    assert all(gateway.admit("acme", 10_000, 10_000).passes for _ in range(50))


def drained(gateway: Any, tenant: str, since: float) -> tuple[int, float, float]:
    """Tokens of requests of 500 until one is refused at last, and between which moments that was."""
    passed = 0
    while True:
        before = time.monotonic()
        passes = gateway.admit(tenant, 250, 250).passes
        passed += 500 * passes
        if not passes and before - since > 0.4:
            return passed, before, time.monotonic()


def test_each_tenant_gets_its_rate_and_not_its_neighbours(real: RealRedis, gateway: Any) -> None:
    """Each asks for more than it may have, and gets burst + rate x time, however slow this machine is."""
    rates = {"acme": 40_000, "batch": 10_000}
    hands = Redis(RedisConfig(real.url, burst=5000, burst_seconds=1.0), Binding((ACME, BATCH), "governor"))
    put(hands, ACME, rates["acme"])
    put(hands, BATCH, rates["batch"])
    hands.close()
    for tenant, rate in rates.items():
        began = time.monotonic()
        first = 500 * gateway.admit(tenant, 250, 250).passes  # the bucket is full until now
        there = time.monotonic()
        passed, before, after = drained(gateway, tenant, began)
        assert rate + rate * (before - there) - 500 <= first + passed <= rate + rate * (after - began) + 1


def test_a_new_rate_counts_from_the_change_on_and_not_for_the_idle_time_before(
    real: RealRedis, gateway: Any, hands: Redis
) -> None:
    put(hands, ACME, 1)
    gateway.admit("acme", 100, 0)
    age(real, "acme", 10)
    put(hands, ACME, 100)
    assert level(gateway, "acme") == pytest.approx(10, abs=3)  # and not 100: 10 s at 1 token/s
    age(real, "acme", 0.5)
    assert level(gateway, "acme") == pytest.approx(60, abs=4)


def test_renewing_a_rate_at_every_tick_hands_out_no_burst(gateway: Any, hands: Redis) -> None:
    put(hands, ACME, 1)
    assert gateway.admit("acme", 100, 0).passes
    for _ in range(20):
        put(hands, ACME, 1, lasts=60)
    assert not gateway.admit("acme", 5, 0).passes


def test_a_lower_rate_takes_the_deep_bucket_away(real: RealRedis, gateway: Any) -> None:
    hands = Redis(RedisConfig(real.url, burst=100, burst_seconds=5), Binding((ACME,), "governor"))
    put(hands, ACME, 1000)
    assert gateway.admit("acme", 100, 0).passes
    put(hands, ACME, 10)
    assert level(gateway, "acme") == 100
    hands.close()


def test_an_answer_shorter_than_expected_gives_back_and_a_longer_one_takes(gateway: Any, hands: Redis) -> None:
    put(hands, ACME, 0)
    gateway.admit("acme", 10, 80)
    gateway.done("acme", expected=80, answer=30)
    assert level(gateway, "acme") == pytest.approx(60, abs=0.1)
    gateway.done("acme", expected=0, answer=90)
    assert level(gateway, "acme") == pytest.approx(-30, abs=0.1)


def test_who_is_refused_is_told_when_to_come_again(gateway: Any, hands: Redis) -> None:
    put(hands, ACME, 50)
    gateway.admit("acme", 100, 0)
    said = gateway.admit("acme", 20, 5)
    assert not said.passes
    assert said.retry_after == pytest.approx(0.5, abs=0.1)
    assert gateway.admit("acme", 200, 0).retry_after is None  # deeper than the bucket


def test_a_cap_of_nothing_lets_nothing_through_and_its_bucket_does_not_come_back_full(
    real: RealRedis, gateway: Any, hands: Redis
) -> None:
    put(hands, ACME, 0)
    gateway.admit("acme", 100, 0)
    assert real.admin.ttl("governor:{chat}:bucket:acme") == -1
    assert not gateway.admit("acme", 1, 0).passes


def test_the_standing_limit_holds_below_the_cap_and_alone_after_it(real: RealRedis, gateway: Any, hands: Redis) -> None:
    real.admin.hset("governor:{chat}:standing:acme", mapping={"value": 10, "burst": 100})
    put(hands, ACME, 500)
    gateway.admit("acme", 100, 0)
    assert gateway.bucket(keys=gateway.keys("acme"), args=["peek"])[3] == "10.000000"
    put(hands, ACME, 2)
    assert gateway.bucket(keys=gateway.keys("acme"), args=["peek"])[3] == "2.000000"
    put(hands, ACME, NO_LIMIT)
    assert gateway.bucket(keys=gateway.keys("acme"), args=["peek"])[3] == "10.000000"


def test_with_every_governor_dead_a_cap_ends_at_its_time(gateway: Any, hands: Redis) -> None:
    """It is refused to the end of its 300 ms, and not a moment longer."""
    before = time.monotonic()
    put(hands, ACME, 0, lasts=0.3)
    after = time.monotonic()
    hands.close()
    gateway.admit("acme", 100, 0)
    asked = after
    while not gateway.admit("acme", 1000, 0).passes:
        assert asked - after <= 0.3  # asked before its end
        asked = time.monotonic()
    assert time.monotonic() - before >= 0.3
    while gateway.client.keys("governor:*") != ["governor:{chat}:generation"]:  # its key goes in the same millisecond
        assert time.monotonic() - before < 5


def test_a_cap_whose_key_outlived_it_is_over_all_the_same(real: RealRedis, gateway: Any, hands: Redis) -> None:
    """A replica that was promoted, or a dump that was loaded, may still have it."""
    put(hands, ACME, 0, lasts=60)
    real.admin.hset("governor:{chat}:tenant_cap:acme", "expires_at", 1.0)
    assert gateway.admit("acme", 1000, 0).passes


def test_the_time_after_a_cap_is_earned_at_the_standing_rate(real: RealRedis, gateway: Any, hands: Redis) -> None:
    real.admin.hset("governor:{chat}:standing:acme", mapping={"value": 50, "burst": 1000})
    put(hands, ACME, 1, lasts=60)
    gateway.admit("acme", 100, 0)
    age(real, "acme", 10)
    key = "governor:{chat}:bucket:acme"
    real.admin.hset(key, "until", float(real.admin.hget(key, "at")) + 5)  # of the 10 s the cap had 5
    real.admin.delete("governor:{chat}:tenant_cap:acme")
    assert level(gateway, "acme") == pytest.approx(5 * 1 + 5 * 50, rel=0.03)


@pytest.mark.parametrize("nonsense", ["abc", "nan", "-5", ""])
def test_a_limit_that_is_none_caps_nobody(real: RealRedis, gateway: Any, nonsense: str) -> None:
    real.admin.hset("governor:{chat}:tenant_cap:acme", "value", nonsense)
    assert gateway.admit("acme", 100_000, 0).passes


@pytest.mark.parametrize("words", [("take", "x"), ("take", "-1"), ("take", "nan"), ("spend", "1")])
def test_a_gateway_that_asks_nonsense_is_told(gateway: Any, words: tuple[str, str]) -> None:
    with pytest.raises(redis.ResponseError):
        gateway.bucket(keys=gateway.keys("acme"), args=list(words))


def test_set_points_and_shares_are_there_and_gone_at_their_time(real: RealRedis, gateway: Any, hands: Redis) -> None:
    assert gateway.set_point("admission", "concurrency") is None
    put(hands, GATE, 24, lasts=100)
    put(hands, SMALL, 0.3, lasts=50)
    assert gateway.set_point("admission", "concurrency") == 24
    assert real.admin.pttl("governor:{chat}:downgrade:small") == pytest.approx(50_000, abs=500)
    put(hands, SMALL, 0.0)
    assert gateway.set_point("downgrade", "small") is None


def test_deadlines_and_ranks_read_as_they_rest_when_nobody_wrote_them(gateway: Any, hands: Redis) -> None:
    """No key is no limit; a factor of a million million would be bounded and sent again at every tick."""
    found = hands.read([DEADLINE, PRIORITY], NOW)
    assert (found[DEADLINE].accepted, found[PRIORITY].accepted) == (1.0, 100.0)

    put(hands, DEADLINE, 0.35, lasts=100)
    put(hands, PRIORITY, 1.4, lasts=100)
    assert (gateway.set_point("admission", "deadline"), gateway.set_point("admission", "priority")) == (0.35, 1.4)
    assert hands.read([DEADLINE], NOW)[DEADLINE].accepted == 0.35

    put(hands, DEADLINE, 1.0)
    put(hands, PRIORITY, 100.0)
    assert gateway.set_point("admission", "deadline") is None
    assert gateway.set_point("admission", "priority") is None


def test_of_5000_requests_the_share_goes_to_the_smaller_model_and_nobody_who_does_not_consent(
    gateway: Any, hands: Redis
) -> None:
    put(hands, SMALL, 0.3, lasts=50)
    random.seed(1)
    sent = sum(gateway.goes_to("small", consents=True) for _ in range(5000))
    assert abs(sent - 1500) <= 3 * (5000 * 0.3 * 0.7) ** 0.5
    assert not any(gateway.goes_to("small", consents=False) for _ in range(100))


def test_a_redis_that_is_gone_refuses_nobody(example: ModuleType, tmp_path: Path) -> None:
    with example.connect("127.0.0.1", 1) as nowhere:
        gateway = example.Gateway(nowhere, "chat")
        assert gateway.admit("acme", 10, 10).passes
        gateway.done("acme", 10, 5)
        assert gateway.set_point("admission", "concurrency") is None
