"""Groups: whatever laws, modes, people and shrinking fleets come to, enough replicas stay in rotation."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import group, guards
from controller.core.guard_state import GuardState
from controller.core.model import Decision, Lever, Mode, Scope, Target
from controller.core.rules import PoolRules
from controller.core.why import Why
from tests.core.test_ladder import Told, lever, pool
from tests.support.cases import NOW, case, estimate

seen_once = st.tuples(st.sampled_from([0.0, 0.05, 0.25, 1.0]), st.sampled_from([0.0, 0.05, 0.25, 1.0]), st.booleans())


@settings(deadline=None)
@given(st.lists(seen_once, min_size=1, max_size=12), st.integers(0, 14), st.sampled_from([Mode.AUTO, Mode.OBSERVE]))
def test_a_fleet_that_shrinks_has_no_more_out_than_its_new_size_allows(
    rows: list[tuple[float, float, bool]], staying: int, mode: Mode
) -> None:
    """Two of ten were out, and then of nine: with each replica that goes the rest has more to carry."""
    rules = replace(lever(Lever.BREAKER, 1.0), mode=mode)
    made = {
        (t := Target("big", Lever.BREAKER, f"pod-{n}")): Decision(t, current, final, Why.PIN if pin else Why.STEADY)
        for n, (current, final, pin) in enumerate(rows)
    }

    kept = group.one_in(group.keep_in(made, rules, float(staying)), rules)

    room = group.most_out(max(1, min(len(rows), staying)), rules.group)
    assert sum((d.final or 0.0) < group.RAMP for d in kept.values() if d.why is not Why.PIN) <= room
    assert any((d.final or 0.0) >= 0.5 or (made[t].why is Why.PIN and d.final) for t, d in kept.items())
    moved = [t for t in made if kept[t] != made[t]]
    assert all((kept[t].final or 0.0) > (made[t].final or 0.0) and kept[t].why is Why.EJECTION_CAP for t in moved)


def test_the_best_of_those_that_are_out_is_let_back() -> None:
    rules = lever(Lever.BREAKER, 1.0)
    rows = {"ill": (0.0, 0.0), "probe": (0.05, 0.05), "well": (1.0, 1.0), "other": (1.0, 1.0)}
    made = {(t := Target("big", Lever.BREAKER, n)): Decision(t, *pair, Why.STEADY) for n, pair in rows.items()}

    assert {t.member: d.final for t, d in group.keep_in(made, rules).items()} == {
        "ill": 0.0, "probe": 0.25, "well": 1.0, "other": 1.0
    }  # fmt: skip


def test_a_scale_down_and_an_ejection_in_the_same_tick_count_together() -> None:
    """Ten are seen, one is about to go: nine allow one that is out."""
    rules = lever(Lever.BREAKER, 1.0)
    made = {
        (t := Target("big", Lever.BREAKER, f"pod-{n}")): Decision(t, 1.0, 0.0 if n < 2 else 1.0, Why.SLOW_REPLICA)
        for n in range(10)
    }

    assert sum(d.final == 0.0 for d in group.keep_in(made, rules).values()) == 2
    assert sum(d.final == 0.0 for d in group.keep_in(made, rules, 9.0).values()) == 1


def test_in_protect_the_last_one_comes_back_all_the_same() -> None:
    """The other one was scaled away. Nothing comes back in protect, but a pool of none serves nobody."""
    rules = replace(lever(Lever.BREAKER, 1.0), mode=Mode.PROTECT)
    have = {Target("big", Lever.BREAKER, "pod-0"): 0.0}

    told = Told([PoolRules("big", (), (rules,), ())], {}, {}, have)

    assert [(d.final, d.send, d.why) for d in told.decisions.values()] == [(1.0, True, Why.EJECTION_CAP)]


def test_a_person_cannot_hold_the_whole_pool_at_nothing() -> None:
    """Each pin was right when it was set, and the replicas between them have gone since."""
    rules = lever(Lever.BREAKER, 1.0)
    pins = {(t := Target("big", Lever.BREAKER, f"pod-{n}")): Decision(t, 0.0, 0.0, Why.PIN) for n in range(2)}
    one_serves = {**pins, (t := Target("big", Lever.BREAKER, "pod-2")): Decision(t, 0.05, 0.05, Why.PIN)}

    assert [(d.final, d.why) for d in group.one_in(pins, rules).values()] == [(1.0, Why.EJECTION_CAP), (0.0, Why.PIN)]
    assert group.one_in(one_serves, rules) == one_serves


@pytest.mark.parametrize("order", [(Lever.REPLICAS, Lever.BREAKER), (Lever.BREAKER, Lever.REPLICAS)])
def test_nothing_is_drained_while_a_replica_is_out(order: tuple[Lever, Lever]) -> None:
    """Kubernetes takes away whichever it likes, and that may be a healthy one."""
    rules = pool(*(lever(one, 20.0 if one is Lever.REPLICAS else 1.0, group=0.5) for one in order))
    replicas, pods = Target("big", Lever.REPLICAS), [Target("big", Lever.BREAKER, f"pod-{n}") for n in range(10)]
    calm, seen = {"big": estimate()}, {pod.member: Scope() for pod in pods}

    def final(*out: float) -> tuple[float | None, Why]:
        have = {replicas: 10.0, **dict.fromkeys(pods, 1.0), **dict(zip(pods, out, strict=False))}
        told = Told([rules], {"big/replicas": 9.0, "big/breaker": None}, calm, have, replicas=seen)
        return told.decisions[replicas].final, told.decisions[replicas].why

    assert final() == (9.0, Why.DEMAND)
    assert final(0.05) == (10.0, Why.REPLICAS_OUT)


def test_a_replica_that_stays_out_for_good_does_not_keep_the_fleet_large_for_ever() -> None:
    """But it carries nothing, so that nine with it are eight."""
    long = GuardState(out_since=NOW - 901.0)

    assert guards.run(case(out=1, state=long), 9.0)[0] == 9.0
    assert guards.run(case(out=1, state=long, estimate=estimate(8.5)), 9.0)[0] == 10.0
    assert guards.run(case(state=long, estimate=estimate(8.5)), 9.0)[0] == 9.0
