"""Breakers of a bad rollout: one cause, of however many replicas, goes out as one; and the rest still has to carry."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import group
from controller.core.model import Decision, Lever, Target
from controller.core.ports import Balance, Brief
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.breaker import Breaker
from policies.wayback import Phase
from tests.core.test_ladder import lever
from tests.support.rotation import Rotation, Seen, named

FAILS, SLOW = Seen(errors=0.6), Seen(slow=3.5)


def rollout(
    new: int, count: int = 8, *, told: bool = True, demand: float = 2.0, left: float = 0.0, **config: object
) -> Rotation:
    """`count` replicas of which the first `new` run v2."""
    law = Breaker(Breaker.Config(**config))  # type: ignore[arg-type]
    versions = {name: "v2" if n < new else "v1" for n, name in enumerate(named(count))}
    brief = Brief(Balance(demand, float(count)), left)
    return Rotation(law, Lever.BREAKER, named(count), versions=versions if told else {}, brief=brief)


def held(fleet: Rotation) -> list[str]:
    """Who is out, or gets no more than a probe."""
    return [name for name in fleet.names if fleet.factors.get(name, 1.0) < 0.25]


def bad(seen: Seen, count: int) -> dict[str, Seen]:
    return dict.fromkeys(named(count), seen)


@pytest.mark.parametrize("seen", [FAILS, SLOW])
def test_a_bad_rollout_goes_out_whole_within_a_minute(seen: Seen) -> None:
    """Two of eight were more than the cap allows, so that none went out: it looked like a bad fleet."""
    blind, fleet = rollout(2, told=False), rollout(2)
    for one in (blind, fleet):
        one.run(60.0)
        one.run(60.0, **bad(seen, 2))
    assert held(blind) == []
    assert held(fleet) == ["r0", "r1"]
    assert fleet.state.replicas["r0"].version


def test_the_evidence_is_that_of_the_version() -> None:
    fleet = rollout(2)
    fleet.run(60.0)
    fleet.tick(**bad(FAILS, 2))
    found = fleet.last["r0"].evidence
    assert found["version_errors"] == pytest.approx(0.6)
    assert (found["version_ended"], found["rest_errors"]) == (60.0, 0.0)
    assert "version_errors" not in fleet.last["r5"].evidence


def test_each_of_a_version_that_fails_has_too_few_requests_to_be_judged_by() -> None:
    fleet = rollout(3)
    fleet.run(60.0)
    fleet.run(30.0, **bad(Seen(errors=0.5, ended=8.0), 3))
    assert held(fleet) == ["r0", "r1", "r2"]


def test_a_canary_of_one_is_told_as_a_version_also_where_the_cap_has_room() -> None:
    fleet = rollout(1)
    fleet.run(60.0)
    fleet.run(15.0, r0=FAILS)
    assert held(fleet) == ["r0"]
    assert fleet.last["r0"].why is Why.WORSE_VERSION
    fleet = rollout(1)
    fleet.run(60.0)
    fleet.run(15.0, r5=FAILS)  # one of many of the old version is itself at fault
    assert held(fleet) == ["r5"]
    assert fleet.last["r5"].why is Why.FAILING_REPLICA


def test_a_version_that_most_of_the_fleet_runs_is_not_taken_out() -> None:
    fleet = rollout(5)
    fleet.run(60.0)
    fleet.run(120.0, **bad(FAILS, 5))
    assert len(held(fleet)) <= 1


def test_where_the_others_look_bad_too_it_is_no_versions_fault() -> None:
    fleet = rollout(2)
    fleet.run(60.0)
    fleet.run(120.0, **{**bad(SLOW, 2), "r5": SLOW, "r6": SLOW})
    assert held(fleet) == []


def test_the_rest_has_to_carry_what_a_slow_version_did() -> None:
    """Half of the fleet was slow, and the other half drowned when it was taken out."""
    fleet = rollout(4, demand=7.2)
    fleet.run(60.0)
    fleet.run(120.0, **bad(SLOW, 4))
    assert len(held(fleet)) == 1  # what the cap allows
    fleet = rollout(4, demand=3.0)
    fleet.run(60.0)
    fleet.run(120.0, **bad(SLOW, 4))
    assert len(held(fleet)) == 4


def test_what_fails_nearly_all_is_better_out_also_where_the_rest_is_full() -> None:
    for errors, many in ((1.0, 3), (0.3, 1)):
        fleet = rollout(3, demand=7.5)
        fleet.run(60.0)
        fleet.run(30.0, **bad(Seen(errors=errors), 3))
        assert len(held(fleet)) == many


def test_nothing_is_taken_out_for_slowness_while_load_is_beyond_the_fleet() -> None:
    fleet = rollout(2, demand=12.0, left=4.0)
    fleet.run(60.0, Seen(waiting=5.0))
    fleet.run(120.0, Seen(waiting=5.0), **bad(replace(SLOW, waiting=5.0), 2))
    assert held(fleet) == []


def test_while_a_version_is_out_nobody_else_is_taken_out() -> None:
    fleet = rollout(2)
    fleet.run(60.0)
    fleet.run(30.0, **bad(FAILS, 2))
    fleet.run(60.0, **{**bad(FAILS, 2), "r6": SLOW})
    assert fleet.factors.get("r6", 1.0) == 1.0


def test_a_version_that_is_mended_comes_back_and_is_judged_anew() -> None:
    fleet = rollout(2)
    fleet.run(60.0)
    fleet.run(30.0, **bad(FAILS, 2))
    fleet.run(240.0)
    assert fleet.factors["r0"] == fleet.factors["r1"] == 1.0
    fleet.run(60.0, r0=SLOW)
    assert held(fleet) == ["r0"]  # one of two that is slow is a bad node
    assert not fleet.state.replicas["r0"].version


@pytest.mark.parametrize("bad", [{"r0": "v2", "r1": "v3"}, {"r0": "v2", "r1": "v2", "r2": "v3", "r3": "v3"}])
@pytest.mark.parametrize("told", [True, False])
def test_a_second_bad_version_does_not_make_the_first_well(bad: dict[str, str], told: bool) -> None:
    """At 100 % errors each was "well again" in turn: what the other failed, with most of all requests, was the rest."""
    fleet = rollout(0, 10)
    fleet.versions = {name: bad.get(name, "v1") for name in fleet.names} if told else {}
    fleet.run(60.0)
    fleet.run(15.0, **{name: Seen(errors=1.0, ended=60.0) for name in bad if bad[name] == "v2"})
    for _ in range(20):
        in_rotation = [name for name in bad if fleet.factors.get(name, 1.0) == 1.0]
        many = {name: 4000.0 if name in in_rotation else 40.0 for name in bad}
        fleet.tick(**{name: Seen(errors=1.0, ended=many[name]) for name in bad})
        assert Why.WELL_AGAIN not in {fleet.last[name].why for name in bad}
    if told:
        assert set(held(fleet)) >= {name for name in bad if bad[name] == "v2"}


def test_an_outage_of_the_metrics_lets_nobody_back() -> None:
    """Without versions the cap of single replicas would hold, and one of the two would get requests again."""
    fleet = rollout(2)
    fleet.run(60.0)
    fleet.run(30.0, **bad(FAILS, 2))
    versions, fleet.versions = fleet.versions, {}
    fleet.run(120.0, Seen(up=False))
    assert held(fleet) == ["r0", "r1"]
    fleet.versions = versions


def test_the_memory_round_trips() -> None:
    fleet = rollout(2)
    fleet.run(90.0, **bad(FAILS, 2))
    assert decode(Breaker.State, encode(fleet.state)) == fleet.state
    assert fleet.state.replicas["r0"].version
    assert fleet.state.replicas["r0"].phase is not Phase.CLOSED
    alone = rollout(2, told=False)
    alone.run(90.0, **bad(FAILS, 2))
    assert "versions" not in encode(alone.state)


seen = st.builds(
    Seen, slow=st.sampled_from([1.0, 1.0, 4.0]), errors=st.sampled_from([0.0, 0.0, 0.6, 1.0]), up=st.booleans(),
    stuck=st.sampled_from([False, False, True]), waiting=st.sampled_from([0.0, 6.0]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    ticks=st.lists(st.lists(seen, min_size=8, max_size=8), min_size=1, max_size=12),
    new=st.integers(0, 8), demand=st.floats(0.0, 12.0), left=st.sampled_from([0.0, 2.0]),
)  # fmt: skip
def test_whatever_is_read_no_more_are_out_than_the_cap_or_one_version(
    ticks: list[list[Seen]], new: int, demand: float, left: float
) -> None:
    fleet = rollout(new, demand=demand, left=left)
    for row in ticks:
        fleet.tick(None, **dict(zip(named(8), row, strict=True)))
        out = held(fleet)
        of = {fleet.versions[name] for name in out}
        assert len(out) <= 1 or (len(of) == 1 and len(out) <= 4)


# --- the guard, whatever a law asks -----------------------------------------------------------------------------------


def kept(out: set[int], new: int, count: int = 8, *, was: set[int] | None = None, told: bool = True) -> set[int]:
    """Who is out after the guard."""
    rules = replace(lever(Lever.BREAKER, 1.0), version_group=0.5)
    before = out if was is None else was
    made = {
        (t := Target("llm", Lever.BREAKER, f"r{n}")): Decision(
            t, 0.0 if n in before else 1.0, 0.0 if n in out else 1.0, Why.SLOW_REPLICA
        )
        for n in range(count)
    }
    versions = {f"r{n}": "v2" if n < new else "v1" for n in range(count)}
    after = group.keep_in(made, rules, None, versions if told else {})
    return {int(t.member[1:]) for t, d in after.items() if (d.final or 0.0) < group.RAMP}


def test_the_cap_counts_a_version_as_one_cause() -> None:
    assert kept({0, 1, 2}, 3, was=set()) == {0, 1, 2}
    assert kept({0, 1, 2}, 3) == {0, 1, 2}
    assert kept({0, 1, 2, 6}, 3, was={0, 1, 2}) == {0, 1, 2}  # nobody else
    assert kept({0, 1, 2, 6}, 3) == {0, 1, 2}
    assert len(kept({0, 1, 2}, 0, was=set())) == 1
    assert len(kept({3, 4, 5}, 3, was=set())) == 1  # of what most run
    assert len(kept({0, 1, 2, 3, 4}, 5, was=set())) == 1


def test_who_is_out_is_not_let_back_because_nobody_tells_versions_for_a_while() -> None:
    assert kept({0, 1, 2}, 3, told=False) == {0, 1, 2}
    assert len(kept({0, 1, 2}, 3, was=set(), told=False)) == 1
    assert len(kept({0, 1, 2, 3, 4}, 5, told=False)) == 4


@settings(deadline=None)
@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)), st.integers(0, 8), st.booleans())
def test_never_more_than_half_and_never_two_versions(out: set[int], was: set[int], new: int, told: bool) -> None:
    left = kept(out, new, was=was, told=told)
    assert left <= out
    assert len(left) <= 4
    if told and len(left) > 1:
        assert all(n < new for n in left) or all(n >= new for n in left)
