"""Levers and knobs: what is put reads back, no limit is no limit, and one lever does not move the knob of another."""

import pytest

from controller.core.model import Lever, Target
from controller.core.rest import NO_LIMIT
from routing.knobs import Admission, Concurrency, Downgrade, Knobs, Tenant
from simulator.front.knobs import Setting

EVERYBODY = frozenset("*")
ROUTES = (
    Downgrade("small", 0.1, EVERYBODY, EVERYBODY),
    Downgrade("tiny", 0.0, EVERYBODY, EVERYBODY),
    Downgrade("small", 0.1, EVERYBODY, frozenset({"batch"})),
)
CONCURRENCY = Target("chat", Lever.ADMISSION, "concurrency")
LONGEST = Target("chat", Lever.ADMISSION, "longest_prompt")
DEADLINE, PRIORITY = (Target("chat", Lever.ADMISSION, member) for member in ("deadline", "priority"))
TENANT = Target("chat", Lever.TENANT_CAP, "acme")
SMALL, TINY, FIRST = (Target("chat", Lever.DOWNGRADE, member) for member in ("small", "tiny", ""))
REPLICA = Target("chat", Lever.WEIGHT, "r0")
AFFINITY = Target("chat", Lever.ROUTING, "affinity")


def test_deadlines_and_ranks_at_rest_are_those_that_the_gateway_was_given() -> None:
    """A factor that reads as no limit would be a deadline of a million million of its seconds."""
    setting = Setting(Knobs(admission=Admission(deadlines=True)))
    assert (setting.get(DEADLINE), setting.get(PRIORITY)) == (1.0, 100.0)

    assert setting.put(DEADLINE, 0.35).admission == Admission(deadlines=True, deadline_factor=0.35)
    assert setting.put(PRIORITY, 1.4).admission == Admission(deadlines=True, deadline_factor=0.35, priority=1.4)
    assert (setting.get(DEADLINE), setting.get(PRIORITY)) == (0.35, 1.4)

    assert setting.put(PRIORITY, 100.0).admission.priority is None
    assert setting.drop(DEADLINE) == Knobs(admission=Admission(deadlines=True))


@pytest.mark.parametrize("target", [CONCURRENCY, LONGEST, TENANT])
def test_no_limit_reads_as_uncapped_and_uncapped_is_no_limit(target: Target) -> None:
    """A neutral value that reads back as another would be a foreign change at every tick."""
    setting = Setting(Knobs())
    assert setting.get(target) == NO_LIMIT
    setting.put(target, 300.0)
    assert setting.get(target) == 300.0
    assert setting.put(target, NO_LIMIT) == Knobs(tenants={"acme": Tenant()} if target is TENANT else {})
    assert setting.get(target) == NO_LIMIT


def test_each_lever_moves_its_own_knob_and_keeps_what_the_others_put() -> None:
    setting, knobs = Setting(Knobs(downgrade=ROUTES, concurrency=Concurrency(per_slot=1.0))), Knobs()
    for target, value in ((CONCURRENCY, 23.5), (LONGEST, 8192.0), (TENANT, 500.0), (SMALL, 0.4), (REPLICA, 0.5)):
        knobs = setting.put(target, value)
        assert setting.get(target) == value

    assert knobs.concurrency == Concurrency(per_slot=1.0, per_replica=23.5)
    assert knobs.longest_prompt == 8192
    assert knobs.tenants["acme"].tokens_per_s == 500.0
    assert [route.share for route in knobs.downgrade] == [0.4, 0.0, 0.4]
    assert knobs.weights == {"r0": 0.5}


def test_a_receiving_pool_is_the_member_and_none_is_the_first() -> None:
    setting = Setting(Knobs(downgrade=ROUTES))
    assert [setting.get(target) for target in (SMALL, TINY, FIRST)] == [0.1, 0.0, 0.1]
    assert [route.share for route in setting.put(TINY, 0.3).downgrade] == [0.1, 0.3, 0.1]
    assert [route.share for route in setting.put(FIRST, 0.2).downgrade] == [0.2, 0.3, 0.2]
    assert setting.get(SMALL) == setting.get(FIRST) == 0.2


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            Target("chat", Lever.ADMISSION, "patience"),
            "no such set-point; write concurrency, longest_prompt, deadline or priority",
        ),
        (Target("chat", Lever.ADMISSION, "deadline"), "goes by no deadlines; write knobs.admission.deadlines: true"),
        (Target("chat", Lever.DOWNGRADE, "huge"), "no rule of the gateway sends to huge"),
        (Target("chat", Lever.REPLICAS), "is no set-point of a gateway"),
    ],
)
def test_a_knob_that_is_not_there_says_what_is(target: Target, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Setting(Knobs(downgrade=ROUTES)).put(target, 1.0)


@pytest.mark.parametrize(
    ("target", "value"), [(CONCURRENCY, 0.0), (LONGEST, 0.0), (LONGEST, 10.5), (SMALL, 1.5), (TENANT, -1.0)]
)
def test_a_value_that_cannot_be_changes_nothing(target: Target, value: float) -> None:
    setting = Setting(Knobs(downgrade=ROUTES))
    before = setting.get(target)
    with pytest.raises(ValueError, match=": is "):
        setting.put(target, value)
    assert setting.get(target) == before
    assert setting.put(REPLICA, 0.5).longest_prompt is None


def test_affinity_is_moved_beside_the_other_knobs_and_dropped_alone() -> None:
    setting = Setting(Knobs(slow_start=5.0), "session")
    assert setting.get(AFFINITY) == 1.0
    setting.put(REPLICA, 0.5)
    knobs = setting.put(AFFINITY, 0.75)
    assert (knobs.affinity, knobs.weights, knobs.slow_start, setting.get(AFFINITY)) == (0.75, {"r0": 0.5}, 5.0, 0.75)
    assert (setting.drop(AFFINITY).affinity, setting.get(REPLICA)) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("knobs", "strategy", "target", "message"),
    [
        (Knobs(), "least-loaded", AFFINITY, "least-loaded has no affinity to move"),
        (Knobs(), "", AFFINITY, "no strategy has no affinity to move"),
        (Knobs(strategy="round-robin"), "session", AFFINITY, "round-robin has no affinity to move"),
        (Knobs(), "session", Target("chat", Lever.ROUTING, "stickiness"), "no such set-point; write affinity"),
    ],
)
def test_a_router_without_affinity_reads_as_one_that_has_it(
    knobs: Knobs, strategy: str, target: Target, message: str
) -> None:
    """Its law would lower it for good and wait for an effect."""
    with pytest.raises(ValueError, match=message):
        Setting(knobs, strategy).get(target)
    with pytest.raises(ValueError, match=r"affinity: is 1\.5"):
        Setting(Knobs(), "hybrid").put(AFFINITY, 1.5)
