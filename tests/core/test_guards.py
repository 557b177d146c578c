"""What stands between a wish and a value that is sent. Each test is an outage that somebody had."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import guards
from controller.core.case import Case
from controller.core.guard_state import GuardState, observe, since
from controller.core.model import Lever, Mode, Outcome, Pending, Phase, Scope, TargetState
from controller.core.ports import Limits
from controller.core.reading import Reading, State, ok
from controller.core.rules import LeverRules, Rate
from controller.core.signals import Signal
from controller.core.why import Why
from controller.core.words import clock
from tests.support.cases import NOW, RULES, bad, but, case, estimate, healthy


def run(made: Case, wish: float) -> tuple[float, Why | None]:
    value, steps, _ = guards.run(made, wish)
    return value, steps[-1].why if steps else None


def test_with_nothing_wrong_capacity_is_lowered_by_the_rate() -> None:
    assert run(case(), 5.0) == (9.0, Why.RATE)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (State.MISSING, Why.MISSING),
        (State.STALE, Why.STALE),
        (State.PARTIAL, Why.PARTIAL),
        (State.UNDERFILLED, Why.UNDERFILLED),
        (State.CENSORED, Why.UNDERFILLED),
    ],
)
@pytest.mark.parametrize("signal", ["offered_rate", "queue_depth"])
def test_doubtful_data_never_lowers_capacity_and_never_stops_raising_it(signal: str, state: State, why: Why) -> None:
    """k8s#99394, keda#3065, aibrix#2592: missing read as zero scaled down at peak."""
    made = case(pool=healthy(**{signal: bad(state)}))

    assert run(made, 5.0) == (10.0, why)
    assert run(made, 12.0) == (12.0, None)


def test_an_engine_that_cannot_count_requests_is_judged_by_the_work_it_holds() -> None:
    """k8s#109214: what can never be known wedged scale-down for ever. llama.cpp counts no requests."""
    uncounted = bad(State.UNSUPPORTED)

    assert run(case(pool=healthy(offered_rate=uncounted, running=ok(0.0))), 9.0) == (9.0, None)
    assert run(case(pool=healthy(offered_rate=uncounted, running=bad(State.STALE))), 9.0) == (10.0, Why.STALE)
    assert run(case(pool=healthy(queue_depth=uncounted)), 9.0) == (10.0, Why.UNSUPPORTED)


def test_a_cache_that_was_seen_and_is_seen_no_more_may_be_full() -> None:
    """A KV gauge that vanished alone (renamed in an upgrade, dropped by relabelling) was read as an empty cache."""
    gone = healthy(kv_usage=bad(State.MISSING))

    assert run(case(pool=gone, estimate=estimate(cache_told=True)), 9.0) == (10.0, Why.MISSING)
    assert run(case(pool=gone, estimate=estimate(cache_told=True)), 12.0) == (12.0, None)
    assert run(case(pool=gone, estimate=estimate(cache_told=False)), 9.0) == (9.0, None)
    never = healthy(kv_usage=bad(State.UNSUPPORTED))
    assert run(case(pool=never, estimate=estimate(cache_told=True)), 9.0) == (9.0, None)


def test_a_model_that_is_wrong_does_not_overrule_promises_that_are_being_broken() -> None:
    """A wrong profile, or a queue that the engine does not count: every request is late, and the model sees surplus."""
    assert run(case(estimate=estimate(burning=True)), 9.0) == (10.0, Why.BUDGET_BURN)
    assert run(case(estimate=estimate(burning=True)), 12.0) == (12.0, None)


def test_one_dead_pod_makes_the_pool_partial_and_nothing_falls() -> None:
    made = case(pool=replace(healthy(), partial="1 of the pool's targets are down"))

    assert run(made, 5.0) == (10.0, Why.PARTIAL)


def test_nothing_falls_while_requests_wait() -> None:
    assert run(case(pool=healthy(queue_depth=ok(3.0))), 5.0) == (10.0, Why.WORK_WAITING)


def test_nothing_falls_while_an_engine_is_stuck() -> None:
    assert run(case(pool=healthy(stuck=ok(1.0))), 5.0) == (10.0, Why.STUCK_ENGINE)


def test_after_a_restart_nothing_falls_before_the_windows_are_full() -> None:
    """knative#4795: lost history shrank the fleet."""
    made = case(pool=replace(healthy(), filled_since=NOW - 30.0))

    assert run(made, 5.0) == (10.0, Why.BOOT)
    assert run(made, 12.0) == (12.0, None)


def test_a_flapping_load_follows_its_recent_peaks() -> None:
    """dynamo#9294: 2 to 1 and back, under constant load."""
    made = case(state=GuardState(wishes=((NOW - 30.0, 10.0), (NOW - 15.0, 5.0))))

    assert run(made, 5.0) == (10.0, Why.STABILISE)


@pytest.mark.parametrize(
    ("age", "kept"), [(0.0, 20.0), (30.0, 19.0), (60.0, 17.0), (150.0, 12.0), (240.0, 6.0), (285.0, 2.0), (300.0, 0.0)]
)
def test_a_crowd_that_is_over_is_not_paid_for_whole_until_the_end_of_the_window(age: float, kept: float) -> None:
    """Twenty replicas too many for a crowd that nobody knows to be over: 1 - (e^x - 1) / (e - 1) of them are kept at x
    of the window."""
    made = case(
        current=25.0, target=TargetState(25.0, 25.0), state=GuardState(wishes=((NOW - age, 25.0),)),
        rules=replace(RULES, stabilise=300.0),
    )  # fmt: skip

    assert guards.stabilise(made, 5.0)[0] == 5.0 + kept


def test_one_replica_that_comes_and_goes_in_the_noise_stays() -> None:
    """The share that is kept is rounded: the last of a surplus goes when less than half of it is left."""
    rules = replace(RULES, stabilise=300.0)
    states = [GuardState(wishes=((NOW - age, 10.0),)) for age in (150.0, 180.0, 195.0)]

    assert [guards.stabilise(case(rules=rules, state=one), 9.0)[0] for one in states] == [10.0, 10.0, 9.0]


@pytest.mark.parametrize("interval", [1.0, 15.0, 60.0, 180.0])
def test_no_single_reading_gives_up_more_than_a_twentieth(interval: float) -> None:
    """A tick a minute: at the first low reading a third of the window is over, and a fifth of a hundred would go."""
    made = case(
        current=100.0, target=TargetState(100.0, 100.0), rules=replace(RULES, stabilise=180.0),
        tick=replace(case().common.tick, since_last=interval), state=GuardState(wishes=((NOW - interval, 100.0),)),
    )  # fmt: skip

    assert guards.stabilise(made, 0.0)[0] >= 95.0


def test_what_a_cap_was_lowered_to_does_not_fade() -> None:
    """Only capacity is paid for while it is kept: a tenant's cap holds until the end of its window."""
    rules = replace(RULES, lever=Lever.TENANT_CAP, stabilise=300.0, rate_up=None)
    made = case(rules=rules, state=GuardState(wishes=((NOW - 250.0, 10.0),)))

    assert run(made, 20.0) == (10.0, Why.STABILISE)


def test_a_replica_that_takes_several_at_once_goes_as_a_whole() -> None:
    """A quantum of four: half of it cannot be kept."""
    limits = replace(RULES.limits, quantum=4.0)
    made = case(
        current=24.0, target=TargetState(24.0, 24.0), rules=replace(RULES, stabilise=300.0, limits=limits),
        state=GuardState(wishes=((NOW - 150.0, 24.0),)),
    )  # fmt: skip

    assert guards.stabilise(made, 4.0)[0] == 16.0


def test_stabilising_remembers_what_was_found_safe_and_not_what_was_wished() -> None:
    """One replica fewer is safe at this tick, was not at the last, and will not be at the next: that is not a reason to
    go down and up again."""
    two = {"serving": 2.0, "proven_rate": 5.0}
    unsafe = estimate(1.6, evidence=two)
    made = case(current=2.0, target=TargetState(2.0, 2.0), estimate=unsafe)
    _, _, sought = guards.run(made, 1.0)
    state = guards.remember(made, sought)
    later = case(
        current=2.0,
        target=TargetState(2.0, 2.0),
        estimate=estimate(0.9, evidence=two),
        tick=replace(made.common.tick, at=NOW + 15.0),
        state=state,
    )

    assert sought == 2.0
    assert run(later, 1.0) == (2.0, Why.STABILISE)


@given(
    st.lists(st.tuples(st.floats(0.5, 200.0), st.integers(0, 3), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([0.0, 60.0, 300.0]),
)
def test_a_wish_that_is_remembered_once_holds_as_long_as_one_remembered_at_every_tick(
    ticks: list[tuple[float, int, bool]], stabilise: float
) -> None:
    """Equal wishes in a row are one in memory. Forgetting one of them too early would let a pool fall in its peak."""
    now, state, every = NOW, GuardState(), list[tuple[float, float]]()
    for gap, wish, doubts in ticks:
        now += gap
        made = case(2.0, rules=replace(RULES, stabilise=stabilise), tick=replace(case().common.tick, at=now))
        start = made.common.stable_since
        assert {wish for _, wish in since(state.wishes, start)} == {wish for at, wish in every if at >= start}
        state = guards.remembered(made.common, state, (), 2.0, None if doubts else float(wish))
        every = [one for one in every if one[0] >= start]
        if not doubts or all(one == 2.0 for _, one in every):
            every.append((now, 2.0 if doubts else float(wish)))
        assert all(left[1] != right[1] for left, right in pairwise(state.wishes))


def test_stabilising_never_turns_a_lowering_into_a_raise() -> None:
    """k8s#98174: the window's maximum stood above the current value, and a scale-down became a scale-up."""
    made = case(current=6.0, state=GuardState(wishes=((NOW - 100.0, 12.0),)))

    assert run(made, 5.0) == (6.0, Why.STABILISE)


def test_one_replica_fewer_must_carry_the_load() -> None:
    made = case(current=2.0, target=TargetState(2.0, 2.0), estimate=estimate(1.6))

    assert run(made, 1.0) == (2.0, Why.UNSAFE_WITHOUT_ONE)


def test_one_replica_fewer_must_hold_the_kv_cache() -> None:
    full = estimate(1.0, evidence={"serving": 10.0, "proven_rate": 5.0})

    assert run(case(pool=healthy(kv_usage=ok(0.85)), estimate=full), 9.0) == (10.0, Why.UNSAFE_WITHOUT_ONE)


def test_capacity_that_was_never_shown_is_not_counted_on() -> None:
    """The model says that two replicas are enough; they have shown half of it."""
    unproven = estimate(1.5, evidence={"serving": 3.0, "proven_rate": 2.5})

    assert run(case(current=3.0, target=TargetState(3.0, 3.0), estimate=unproven), 2.0)[1] == Why.UNSAFE_WITHOUT_ONE


def test_capacity_on_its_way_forbids_lowering_until_it_is_given_up() -> None:
    """dynamo#14251: a pod Pending for an hour froze the planner, which could not even scale down."""
    young = TargetState(10.0, 9.0, (Pending(1, Phase.PENDING, NOW - 600.0),))
    old = TargetState(10.0, 9.0, (Pending(1, Phase.PENDING, NOW - 3600.0),))

    assert run(case(target=young), 9.0) == (10.0, Why.PENDING_CAPACITY)
    assert run(case(target=old), 9.0) == (9.0, None)


def test_pending_capacity_never_forbids_raising() -> None:
    pending = TargetState(10.0, 5.0, (Pending(5, Phase.LOADING, NOW - 60.0),))

    assert run(case(target=pending), 14.0) == (14.0, None)


def test_an_unknown_write_blocks_its_target_in_both_directions() -> None:
    blocked = guards.blocking(TargetState(10.0, 10.0, last_outcome=Outcome.UNKNOWN))

    assert blocked == (Why.OUTCOME_UNKNOWN, "")


def test_a_foreign_writer_is_yielded_to_as_long_as_it_is_reported() -> None:
    """dynamo#4420: somebody edits the replicas, and the planner says that all is well."""
    assert guards.blocking(TargetState(10.0, 10.0, foreign_writer="kubectl")) == (Why.FOREIGN_WRITER, "kubectl")
    assert guards.blocking(TargetState(10.0, 10.0)) is None


def test_pods_that_left_the_metrics_are_not_drained_after() -> None:
    """2 of 4 pods fell out of service discovery with ten requests waiting; the pool looked idle and went to one."""
    half = estimate(0.5, evidence={"serving": 2.0, "proven_rate": 5.0})
    made = case(current=4.0, target=TargetState(4.0), estimate=half)
    old = but(made, state=made.state._replace(short_since=NOW - 3600.0))

    assert run(made, 3.0) == (4.0, Why.PARTIAL)
    assert guards.remember(made, 3.0).short_since == NOW
    assert run(old, 3.0) == (3.0, None), "a job that scrapes half of a pool must not keep it from shrinking for good"


@pytest.mark.parametrize(
    ("delay", "held"),
    [
        (ok(0.4), False),  # a prompt that a full step left out
        (ok(1.2), True),
        (Reading(State.MISSING), True),
        (Reading(State.STALE, 0.1), True),
        (Reading(State.CENSORED, lo=0.1), True),  # nobody has left the queue
    ],
)
def test_who_waits_between_two_steps_holds_nothing_and_who_waits_for_long_holds_all(delay: Reading, held: bool) -> None:
    """At forty replicas somebody waits at every scrape, and a flash that was over was paid for until a scrape by luck
    saw nobody."""
    waiting = case(pool=healthy(queue_depth=ok(3.0), queue_delay=delay), estimate=estimate(passing=1.0))

    assert (run(waiting, 5.0) == (10.0, Why.WORK_WAITING)) is held
    unpromised = but(waiting, estimate=estimate())
    assert run(unpromised, 5.0) == (10.0, Why.WORK_WAITING)


def test_one_request_that_waits_at_a_scrape_does_not_keep_a_large_pool_up_all_night() -> None:
    waiting = case(current=40.0, target=TargetState(40.0, 40.0), pool=healthy(queue_depth=ok(1.0)))
    waiting = but(waiting, estimate=estimate(10.0, evidence={"serving": 40.0, "proven_rate": 5.0}))
    value, _, sought = guards.run(waiting, 30.0)
    after = but(waiting, pool=healthy(), state=guards.remember(waiting, sought))

    assert value == 40.0
    assert run(after, 30.0) == (36.0, Why.RATE)


def test_protect_may_add_and_not_take_away() -> None:
    made = case(rules=replace(RULES, mode=Mode.PROTECT))

    assert run(made, 14.0) == (14.0, None)
    assert run(made, 9.0) == (10.0, Why.MODE_PROTECT)


def test_a_full_ledger_holds_relaxing_moves_only() -> None:
    made = case(ledger_ok=False)

    assert run(made, 9.0) == (10.0, Why.LEDGER_FULL)
    assert run(made, 14.0) == (14.0, None)


def test_a_cooldown_counts_from_the_last_change_in_either_direction() -> None:
    made = case(state=GuardState(changes=((NOW - 30.0, 2.0),), position=(NOW - 15.0, 10.0)))

    assert run(made, 9.0) == (10.0, Why.COOLDOWN)


def test_a_slow_lever_waits_for_its_turn_to_relax_and_never_to_protect() -> None:
    made = case(rules=replace(RULES, every=600.0), state=GuardState(due=NOW + 100.0))

    assert run(made, 9.0) == (10.0, Why.NOT_DUE)
    assert run(made, 14.0) == (14.0, None)


CAP = replace(RULES, lever=Lever.TENANT_CAP, rate_up=None, rate_down=None)


def test_a_cap_relaxes_upwards_and_every_guard_turns_with_it() -> None:
    made = case(rules=CAP, pool=healthy(offered_rate=bad(State.STALE)))

    assert run(made, 12.0) == (10.0, Why.STALE)
    assert run(made, 4.0) == (4.0, None)


def test_a_cap_can_rise_while_requests_wait_behind_it() -> None:
    assert run(case(rules=CAP, pool=healthy(queue_depth=ok(3.0))), 12.0) == (12.0, None)


def test_a_cap_rises_also_while_the_requests_it_refuses_burn_the_budget() -> None:
    assert run(case(rules=CAP, estimate=estimate(burning=True)), 12.0) == (12.0, None)


@pytest.mark.parametrize(("member", "why"), [("pod-1", None), ("pod-2", Why.STALE), ("pod-3", Why.MISSING)])
def test_a_replica_comes_back_on_its_own_readings_and_not_on_those_of_the_others(member: str, why: Why | None) -> None:
    rules = replace(CAP, lever=Lever.BREAKER, stabilise=0.0, cooldown_up=0.0)
    scopes = {
        "pod-1": Scope(signals={Signal.RUNNING: ok(1.0)}),
        "pod-2": Scope(signals={Signal.RUNNING: bad(State.STALE)}),
    }
    pool = replace(healthy(), replicas=scopes, partial="pod-2 does not answer")
    made = case(current=0.0, rules=rules, pool=pool, member=member)

    assert run(made, 0.05) == ((0.05, None) if why is None else (0.0, why))
    assert run(but(made, current=1.0), 0.0) == (0.0, None)  # taking out waits for nothing


@pytest.mark.parametrize(
    ("wish", "value", "why"),
    [(0.0, 1.0, Why.MIN_BOUND), (50.0, 20.0, Why.MAX_BOUND), (7.4, 7.0, Why.QUANTUM), (7.0, 7.0, None)],
)
def test_bounds_come_last_and_say_which(wish: float, value: float, why: Why | None) -> None:
    assert guards.bounds(Limits(1, 20), wish) == (value, why)


@pytest.mark.parametrize(
    ("quantum", "wish", "value"),
    [(1.0, 0.05, 1.0), (0.1, 0.05, 0.1), (0.1, 0.25, 0.3), (0.05, 0.05, 0.05), (0.01, 0.07, 0.07), (1.0, 0.0, 0.0)],
)
def test_a_probe_is_never_rounded_to_nothing_nor_a_ramp_to_less_than_one(
    quantum: float, wish: float, value: float
) -> None:
    """A target that knows in and out alone would keep every replica out that was taken out once."""
    assert guards.bounds(Limits(0, 1, quantum), wish, up=True)[0] == pytest.approx(value)


@pytest.mark.parametrize("hundredths", range(101))
def test_a_weight_that_the_target_can_take_as_it_is_is_said_to_be_rounded(hundredths: int) -> None:
    """95 times 0.01 is 0.9500000000000001, which was sent with "rounded" for its reason."""
    assert guards.bounds(Limits(0, 1, 0.01), hundredths / 100) == (hundredths / 100, None)


CLOCKS = st.lists(st.floats(0.5, 90.0), min_size=1, max_size=40)
WISHES = st.lists(st.integers(0, 60), min_size=40, max_size=40)


@given(CLOCKS, WISHES, st.floats(1, 5), st.floats(10, 120))
def test_over_any_period_changes_stay_within_the_rate_however_ticks_come(
    gaps: list[float], wishes: list[int], amount: float, period: float
) -> None:
    """ray#61731 and late ticks: limits counted in ticks let a late loop jump."""
    amount = float(int(amount))
    rules = LeverRules(
        RULES.lever, "p", "a", limits=Limits(0, 100), rate_up=Rate(amount, period), rate_down=Rate(amount, period),
        stabilise=0.0, cooldown_down=0.0,
    )  # fmt: skip
    current, now, state = 30.0, NOW, GuardState()
    changes: list[tuple[float, float]] = []
    for gap, wish in zip(gaps, wishes, strict=False):
        now += gap
        state = observe(state, rules, TargetState(current, current), now)
        made = case(
            current,
            rules=rules,
            tick=replace(case().common.tick, at=now),
            state=state,
            pool=replace(healthy(), filled_since=NOW - 9e6),
            target=TargetState(current, current),
            estimate=estimate(0.0, evidence={"serving": current}),
        )
        final, _, _ = guards.run(made, float(wish))
        changes.append((now, final - current))
        current = final
    for start, _ in changes:
        inside = [delta for at, delta in changes if start <= at < start + period]
        assert sum(d for d in inside if d > 0) <= amount + 1e-9
        assert -sum(d for d in inside if d < 0) <= amount + 1e-9


def test_a_guard_says_until_when_and_why_its_window_is_longer_than_the_config_has_it() -> None:
    """ "[over 71 s]" where the config says 1m."""
    rules = replace(RULES, stabilise=60.0, cooldown_down=120.0)
    state = GuardState(wishes=((NOW - 30.0, 10.0),))
    usual = case(rules=rules, state=state)
    swung = replace(usual.common, gain=0.5)

    assert guards.stabilise(usual, 5.0)[2] == "over 60 s"
    assert guards.stabilise(usual._replace(common=swung), 5.0)[2] == (
        "over 120 s, and not over 60 s, because it was swinging by itself"
    )
    changed = usual._replace(changes=((NOW - 20.0, 1.0),))
    assert guards.cooldown(changed, 5.0)[2] == f"until {clock(NOW + 100.0)} UTC"
