"""Feed-forward and trim: what is asked for, and that nothing is asked for on silence."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Ask, Lever, Pending, Phase, PoolReadings, Proposal, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.rules import LeverRules, Rate
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from controller.run import codec
from policies.capacity import Capacity, Floor, Short
from tests.support.cases import NOW, estimate, healthy

TARGET = Target("llm", Lever.REPLICAS)
TTFT = Objective("ttft", Signal.TTFT, 2.0, 0.99, 60.0)
BRIEF = Brief(Balance(0.0, 0.0), 0.0)


def view(
    made: Estimate, current: float = 4.0, pool: PoolReadings | None = None, at: float = NOW, **owner: object
) -> View:
    state = TargetState(current, current, **owner)  # type: ignore[arg-type]
    return View(Tick(9, at, 15.0), pool or healthy(), {TARGET: state}, {TARGET: Limits(1, 50)}, made)


def law_of(**config: Any) -> Capacity:
    """With round numbers: 15 % of room, and nothing for noise."""
    return Capacity(
        Capacity.Config(
            **{"utilisation": 0.85, "spread": 0.0, "trim_down": 0.15, "hysteresis": 0.1, "keep": 0.1, **config}
        )
    )


def propose(seen: View, state: Capacity.State | None = None, **config: Any) -> tuple[Proposal, Capacity.State]:
    law = law_of(**config)
    proposals, after = law.propose(seen, (TTFT,), BRIEF, state or law.initial())
    return proposals[0], after


@pytest.mark.parametrize(
    ("demand", "current", "wanted", "why"),
    [
        (3.4, 4.0, 4.0, Why.STEADY),  # 3.4 / 0.85 = 4.0
        (3.6, 4.0, 5.0, Why.DEMAND),  # 4.2
        (3.45, 4.0, 4.0, Why.STEADY),  # 4.06 is within the hysteresis
        (12.0, 4.0, 15.0, Why.DEMAND),  # 14.1
        (1.0, 4.0, 2.0, Why.SURPLUS),
        (0.0, 4.0, 1.0, Why.SURPLUS),
    ],
)
def test_the_need_is_demand_over_utilisation(demand: float, current: float, wanted: float, why: Why) -> None:
    proposal, _ = propose(view(estimate(demand), current))

    assert proposal.ask == Ask.SET
    assert max(proposal.value, 1.0) == wanted
    assert proposal.why == why


def test_capacity_on_its_way_is_not_asked_for_twice() -> None:
    """aibrix#2670: 2, 4, 8, 16 while the first pods were loading."""
    pending = view(estimate(3.6), 5.0, pending=(Pending(4, Phase.LOADING, NOW - 60),))

    assert propose(pending)[0].value == 5.0


def test_the_forecast_at_the_horizon_counts_when_it_is_higher() -> None:
    proposal, _ = propose(view(estimate(2.0, forecast=5.0)))

    assert (proposal.value, proposal.why) == (6.0, Why.FORECAST)


def test_a_backlog_is_capacity_too() -> None:
    proposal, _ = propose(view(estimate(3.0, backlog=2.0)))

    assert (proposal.value, proposal.why) == (6.0, Why.BACKLOG)


@pytest.mark.parametrize(
    ("left", "serving", "pending", "wanted"),
    [
        (0.0, 4.0, (), 4.0),  # the queue clears before a new replica would be warm
        (3.0, 4.0, (), 5.0),
        (3.0, 3.0, (), 4.0),  # one that was asked for does not serve yet
        (3.0, 4.0, (Pending(1, Phase.LOADING, NOW),), 4.0),
    ],
)
def test_a_queue_that_outlasts_a_cold_start_gets_one_more_at_a_time(
    left: float, serving: float, pending: tuple[Pending, ...], wanted: float
) -> None:
    made = estimate(3.0, evidence={"serving": serving, "still_waiting": left})

    assert propose(view(made, 4.0, pending=pending))[0].value == wanted


def test_a_prompt_that_a_full_step_left_out_grows_no_replica() -> None:
    """In a large pool one request waits at nearly every scrape: the twin's flash grew a replica every two minutes. What
    is long is said by the promise."""

    def wanted(delay: float, passing: float) -> float:
        waiting = healthy(queue_depth=ok(1.0), queue_delay=ok(delay))
        made = estimate(1.0, evidence={"serving": 4.0, "still_waiting": 1.0}, passing=passing)
        return propose(view(made, 4.0, pool=waiting))[0].value

    assert wanted(0.2, passing=1.0) < 4.0
    assert wanted(12.0, passing=1.0) == 5.0
    assert wanted(0.2, passing=0.15) == 5.0


def test_a_burning_budget_buys_a_margin() -> None:
    proposal, _ = propose(view(estimate(3.3, margin=0.15, burning=True)))

    assert (proposal.value, proposal.why) == (5.0, Why.BUDGET_BURN)


@pytest.mark.parametrize("state", [State.MISSING, State.STALE, State.PARTIAL, State.UNDERFILLED, State.UNSUPPORTED])
def test_untrusted_demand_is_a_floor_and_says_why(state: State) -> None:
    """No relaxing on missing data: AT_LEAST the current value, never a SET below it."""
    silent = state in (State.MISSING, State.UNSUPPORTED)
    pool = healthy(offered_rate=Reading(state, value=None if silent else 1.0))
    proposal, _ = propose(view(estimate(0.5, trusted=False), pool=pool))

    assert (proposal.ask, proposal.value) == (Ask.AT_LEAST, 4.0)
    assert proposal.why == Why(state.value)


def test_untrusted_demand_still_raises() -> None:
    proposal, _ = propose(view(estimate(9.0, trusted=False)))

    assert (proposal.ask, proposal.value) == (Ask.SET, 11.0)


def test_nothing_known_but_a_queue_asks_for_one_more() -> None:
    proposal, _ = propose(view(Estimate(), pool=healthy(queue_depth=ok(9.0))))

    assert (proposal.value, proposal.why) == (5.0, Why.BACKLOG)


def test_a_blind_order_waits_for_the_last_one_to_serve() -> None:
    """aibrix#2670 again: 3, 4, 5 ... 22 in five minutes, everything added still loading."""
    queue = healthy(queue_depth=ok(20.0))
    loading = view(Estimate(), 4.0, queue, pending=(Pending(1, Phase.LOADING, NOW),))
    unseen = view(Estimate(evidence={"serving": 3.0}), 4.0, queue)

    assert propose(loading)[0].value == 4.0
    assert propose(unseen)[0].value == 4.0


def test_a_queue_that_clears_by_itself_is_named_and_not_called_nothing() -> None:
    proposal, _ = propose(view(estimate(3.0), pool=healthy(queue_depth=ok(9.0))))

    assert (proposal.value, proposal.why) == (4.0, Why.QUEUE_CLEARS)


def trimmed(
    latency: Reading,
    ticks: int = 60,
    demand: float = 3.4,
    pending: tuple[Pending, ...] = (),
    promise: Objective = TTFT,
    brief: Brief = BRIEF,
) -> float:
    law, state = law_of(), Capacity.State()
    pool = replace(healthy(), latencies={Signal.TTFT: {"p99": latency}})
    for tick in range(ticks):
        seen = view(estimate(demand, evidence={"serving": 4.0}), pool=pool, at=NOW + 15.0 * tick, pending=pending)
        _, state = law.propose(seen, (promise,), brief, state)
    return state.trim


def test_latency_above_target_adds_within_bounds() -> None:
    assert 0.2 < trimmed(ok(4.0)) <= 0.35
    assert trimmed(ok(4.0), ticks=1000) == pytest.approx(0.35)


def test_a_lever_that_was_swinging_trims_more_slowly_and_its_feed_forward_does_not() -> None:
    slow = replace(BRIEF, gain=0.25)
    assert trimmed(ok(3.0), ticks=4, brief=slow) == pytest.approx(trimmed(ok(3.0), ticks=4) / 4, rel=0.05)
    seen = view(estimate(9.0, evidence={"serving": 4.0}))
    values = {law_of().propose(seen, (TTFT,), brief, Capacity.State())[0][0].value for brief in (BRIEF, slow)}
    assert values == {11.0}


def test_latency_below_target_takes_away_only_near_the_operating_point() -> None:
    assert trimmed(ok(0.05)) == pytest.approx(-0.15)
    assert trimmed(ok(0.05), demand=1.0) == 0.0


def test_the_quantile_of_all_requests_says_nothing_of_one_class() -> None:
    assert trimmed(ok(4.0), promise=replace(TTFT, klass="high")) == 0.0


def test_the_trim_rests_in_the_dead_band_while_capacity_is_pending_and_on_doubt() -> None:
    assert trimmed(ok(2.1)) == 0.0
    assert trimmed(ok(9.0), pending=(Pending(1, Phase.LOADING, NOW),)) == 0.0
    assert trimmed(Reading(State.PARTIAL, 0.05)) == 0.0
    assert trimmed(Reading(State.CENSORED, lo=9.0)) == 0.0


@given(st.floats(0, 40), st.floats(0, 10), st.integers(1, 40), st.booleans())
def test_more_demand_never_asks_for_less(demand: float, more: float, current: int, trusted: bool) -> None:
    less, _ = propose(view(estimate(demand, trusted=trusted), float(current)))
    more_, _ = propose(view(estimate(demand + more, trusted=trusted), float(current)))

    assert more_.value >= less.value


def test_while_other_levers_relieve_the_trim_rests() -> None:
    """A gate that sheds keeps latency fine, and says nothing of the model; one that is wanted and late says nothing
    either."""
    assert trimmed(ok(9.0), brief=Brief(Balance(5.0, 4.0), 1.0)) == 0.0
    assert trimmed(ok(9.0), brief=Brief(Balance(5.0, 4.0), 0.0, short=1.0)) == 0.0, "a rung above takes all of it"
    assert 0 < trimmed(ok(4.0), ticks=10, brief=replace(BRIEF, gain=0.25)) < trimmed(ok(4.0), ticks=10)


def test_broken_promises_ask_for_no_more_while_what_was_asked_for_is_on_its_way() -> None:
    """A crowd burnt the budget while its replicas were still to come, and was answered with 15 % more of them."""
    burning = estimate(3.3, margin=0.15, burning=True)
    proposal, _ = propose(view(burning, 4.0, pending=(Pending(1, Phase.LOADING, NOW - 60),)))

    assert (proposal.value, proposal.why) == (4.0, Why.STEADY)


# --- noise -------------------------------------------------------------------------------------------------------


def test_one_busy_window_buys_no_replica_and_a_noisy_load_buys_room() -> None:
    """The highest of twenty noisy readings is what stabilising keeps: a level of 12/s was served as 15/s."""
    burst = estimate(5.0, forecast=3.4, level=3.4, evidence={"serving": 4.0, "demand_compute": 5.0})

    assert propose(view(burst))[0].value == 4.0
    assert propose(view(replace(burst, noise=0.2)), spread=1.0)[0].value == 5.0


def test_full_caches_count_whatever_the_forecast_says() -> None:
    full = estimate(6.0, forecast=3.4, level=3.4, evidence={"serving": 4.0, "demand_kv": 6.0, "demand_compute": 3.4})

    assert propose(view(full))[0].value == 7.0


def test_three_doubts_of_one_crowd_do_not_multiply() -> None:
    """Of 16 replicas that were needed 25 were asked for: 22 % for the forecast, 15 % for broken promises and 14 % for
    noise, one on top of the other, are 60 %; as independent errors they are 31 %."""
    crowd = estimate(10.0, forecast=12.2, point=10.0, level=10.0, noise=0.14, margin=0.15, burning=True)
    together = math.exp(math.hypot(math.log(1.22), math.log(1.15), math.log(1.14)))

    assert propose(view(crowd), spread=1.0, utilisation=1.0)[0].evidence["need"] == pytest.approx(10.0 * together)
    assert together == pytest.approx(1.31, abs=0.01)


@given(
    st.floats(0.1, 40.0), st.floats(0.1, 40.0), st.floats(1.0, 1.35), st.floats(0.0, 0.3), st.sampled_from([0.0, 0.15])
)  # fmt: skip
def test_no_doubt_makes_the_need_smaller_nor_larger_than_all_of_them_multiplied(
    demand: float, point: float, upper: float, noise: float, margin: float
) -> None:
    made = estimate(
        demand, forecast=point * upper, point=point, level=demand, noise=noise, margin=margin, burning=margin > 0
    )
    need = propose(view(made), spread=2.0, utilisation=1.0)[0].evidence["need"]
    each = max(demand * (1 + 2 * noise), demand * (1 + margin), point * upper)

    assert need >= each * (1 - 1e-9)
    assert need <= max(demand, point * upper) * (1 + 2 * noise) * (1 + margin) * (1 + 1e-9)


# --- to and from zero --------------------------------------------------------------------------------------------


def at_zero(**signals: Reading) -> View:
    """No replica, so no engine to read; the gateway alone."""
    return view(
        Estimate(evidence={"serving": 0.0}), 0.0, PoolReadings(signals={Signal(k): v for k, v in signals.items()})
    )


def test_a_request_at_the_gateway_wakes_a_pool_that_sleeps() -> None:
    """keda#3065 and its kin: a signal that dies with the last replica never wakes the first."""
    assert propose(at_zero(offered_rate=ok(0.1)))[0].value == 1.0
    assert propose(at_zero(queue_depth=ok(1.0)))[0].value == 1.0
    assert propose(at_zero(offered_rate=ok(0.0), queue_depth=ok(0.0)))[0].value == 0.0
    assert propose(at_zero())[0].value == 0.0  # nothing can be read, and nothing is gained by guessing


def test_a_sleeping_pool_that_is_awake_already_is_not_woken_twice() -> None:
    waking = view(Estimate(evidence={"serving": 0.0}), 1.0, healthy(queue_depth=ok(9.0)),
                  pending=(Pending(1, Phase.LOADING, NOW),))  # fmt: skip

    assert propose(waking)[0].value == 1.0


def lulled(minutes: float, **signals: Reading) -> float:
    """What a pool of one is asked for after so many minutes of these readings."""
    law, value = law_of(idle=600.0), 1.0
    state = law.initial()
    quiet = healthy(**{"offered_rate": ok(0.0), "running": ok(0.0), **signals})
    for tick in range(int(minutes * 4) + 1):
        seen = view(estimate(0.0, offered=0.0, forecast=0.0), 1.0, quiet, at=NOW + 15.0 * tick)
        (proposal,), state = law.propose(seen, (TTFT,), BRIEF, state)
        value = proposal.value
    return value


def test_the_last_replica_goes_after_an_idle_time_of_readable_zero() -> None:
    assert lulled(9.0) == 1.0
    assert lulled(10.5) == 0.0
    assert lulled(60.0, running=ok(1.0)) == 1.0
    assert lulled(60.0, queue_depth=ok(1.0)) == 1.0
    assert lulled(60.0, offered_rate=Reading(State.MISSING)) == 1.0
    assert lulled(60.0, offered_rate=Reading(State.STALE, 0.0)) == 1.0


def test_spares_stay_whatever_is_asked() -> None:
    assert propose(view(estimate(3.4), 4.0), spare=2.0)[0].value == 6.0
    assert propose(view(estimate(0.0, offered=0.0, forecast=0.0), 5.0), spare=2.0)[0].value == 2.0


# --- known events ------------------------------------------------------------------------------------------------


MONDAY = 1_699_833_600.0  # 2023-11-13 00:00 UTC


def test_replicas_are_there_before_the_office_opens() -> None:
    """The horizon of 600 s is part of the floor: what is asked for at nine serves at ten past."""
    office = Floor(8.0, "09:00", "18:00", "mon-fri", "+01:00")
    calm = estimate(1.0, horizon=600.0)

    def wanted(hours: float) -> tuple[float, Why]:
        proposal, _ = propose(view(calm, 2.0, at=MONDAY + 3600 * hours), floors=(office,))
        return proposal.value, proposal.why

    assert wanted(7.8)[0] == 2.0
    assert wanted(7.84) == (8.0, Why.TIMETABLE)
    assert wanted(16.9) == (8.0, Why.TIMETABLE)
    assert wanted(17.0)[0] == 2.0
    assert wanted(5 * 24 + 10)[0] == 2.0  # Saturday


def test_a_floor_that_may_only_double_every_minute_is_there_at_nine_and_not_at_three_past() -> None:
    office = Floor(12.0, "09:00", "18:00", "mon-fri", "+01:00")
    pace = LeverRules(Lever.REPLICAS, "capacity", "none", limits=Limits(1, 50), rate_up=Rate(1.0, 60.0, True))

    def wanted(seconds: float, current: float, climb: Callable[[float, float], float] = pace.climb) -> float:
        seen = view(estimate(0.5, horizon=600.0), current, at=MONDAY + 8 * 3600.0 - 600.0 - seconds)
        return propose(replace(seen, climb=climb), floors=(office,))[0].value

    assert [wanted(181.0, 1.0), wanted(180.0, 1.0)] == [1.0, 12.0]  # 2, 4, 8, 12
    assert [wanted(seconds, have) for seconds, have in [(120.0, 2.0), (60.0, 4.0), (0.0, 8.0)]] == [12.0] * 3
    assert wanted(0.0, 1.0, climb=lambda _current, _goal: math.inf) == 12.0  # it never gets there: all the same


def test_a_floor_keeps_and_never_lowers() -> None:
    night = Floor(3.0, "22:00", "06:00")
    idle, busy = view(estimate(0.5), 6.0, at=MONDAY + 3600), view(estimate(9.0), 11.0, at=MONDAY + 3600)

    assert propose(idle, floors=(night,))[0].value == 3.0
    assert propose(busy, floors=(night,))[0].value == 11.0


def test_a_floor_tells_until_when_and_a_spare_that_there_is_one() -> None:
    """ "asked 5 (need 2.29, serving 4)", and nobody said that two are spare."""
    night, longer = Floor(3.0, "22:00", "06:00"), Floor(3.0, "22:00", "07:00")

    for current in (2.0, 3.0):
        proposal, _ = propose(view(estimate(0.5), current, at=MONDAY + 3600), floors=(night, longer))
        assert proposal.why is Why.TIMETABLE
        assert proposal.evidence["until"] == MONDAY + 7 * 3600
    assert propose(view(estimate(3.6)), spare=2.0)[0].evidence["spare"] == 2.0
    assert "spare" not in propose(view(estimate(3.6)))[0].evidence


@pytest.mark.parametrize("wrong", [{"begin": "9"}, {"end": "25:00"}, {"days": "mo-fr"}, {"zone": "Europe/Berlin"}])
def test_a_floor_that_nobody_can_read_is_refused_with_its_mend(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: .*; write "):
        Floor(**{"replicas": 1.0, "begin": "09:00", "end": "18:00", **wrong})  # type: ignore[arg-type]


# --- capacity that does not come ---------------------------------------------------------------------------------


def test_capacity_that_never_comes_is_given_up_and_asked_for_again_ever_more_rarely() -> None:
    """dynamo#14251: a pod that stays Pending froze the controller. A quota that is used up is no reason to ask for more
    and more, nor to stop asking for good."""
    law, current, ready = law_of(give_up=900.0), 6.0, 4.0
    state, asked = law.initial(), []
    for tick in range(4 * 60 * 4):
        owner = TargetState(current if tick else ready, ready)
        seen = View(Tick(tick, NOW + 15 * tick, 15.0), healthy(), {TARGET: owner}, {TARGET: Limits(0, 50)},
                    estimate(12.0, evidence={"serving": ready}))  # fmt: skip
        (proposal,), state = law.propose(seen, (TTFT,), BRIEF, state)
        asked.append(proposal.why)
        if tick == 0:
            assert proposal.value == 15.0
            asked[0] = Why.DEMAND
        if proposal.why == Why.CAPACITY_UNAVAILABLE:
            assert proposal.value == current
    given_up = [i for i, why in enumerate(asked) if why == Why.CAPACITY_UNAVAILABLE]
    tries = [b - a for a, b in pairwise(given_up) if b - a > 1]

    assert given_up[0] == 61  # 900 s after more was asked for
    assert len(tries) >= 2
    assert asked[given_up[0] - 1] == Why.DEMAND
    assert state.short is not None
    assert state.short.tries >= 3


def test_one_replica_that_comes_after_all_ends_the_giving_up() -> None:
    law = law_of(give_up=60.0)
    state = law.initial()

    def tick(number: int, ready: float, asked: float = 6.0) -> Proposal:
        nonlocal state
        seen = View(Tick(number, NOW + 15 * number, 15.0), healthy(), {TARGET: TargetState(asked, ready)},
                    {TARGET: Limits(0, 50)}, estimate(12.0, evidence={"serving": ready}))  # fmt: skip
        (proposal,), state = law.propose(seen, (TTFT,), BRIEF, state)
        return proposal

    tick(0, 4.0, asked=4.0)
    assert [tick(i, 4.0).why for i in range(1, 7)][-1] == Why.CAPACITY_UNAVAILABLE
    assert tick(7, 5.0).value == 15.0


def test_a_replica_that_is_lost_does_not_keep_others_from_being_asked_for() -> None:
    """One of fifty has a dead GPU for a quarter of an hour: that is no quota, and the morning ramp still comes."""
    law = law_of(give_up=60.0)
    state = law.initial()
    for number in range(80):
        asked = 6.0 if number < 40 else 7.0
        owner = TargetState(asked, 5.0 if number < 43 else 6.0)  # one lost; then one more asked for, and it comes
        seen = View(Tick(number, NOW + 15 * number, 15.0), healthy(), {TARGET: owner}, {TARGET: Limits(0, 50)},
                    estimate(12.0, evidence={"serving": 5.0}))  # fmt: skip
        (proposal,), state = law.propose(seen, (TTFT,), BRIEF, state)
        assert proposal.why != Why.CAPACITY_UNAVAILABLE


def test_a_slow_start_of_one_after_another_is_not_given_up() -> None:
    law = law_of(give_up=120.0)
    state = law.initial()
    for number in range(40):
        ready = 4.0 + number // 7
        seen = View(Tick(number, NOW + 15 * number, 15.0), healthy(), {TARGET: TargetState(12.0, ready)},
                    {TARGET: Limits(0, 50)}, estimate(12.0, evidence={"serving": ready}))  # fmt: skip
        (proposal,), state = law.propose(seen, (TTFT,), BRIEF, state)
        assert proposal.why != Why.CAPACITY_UNAVAILABLE


def test_the_memory_of_the_policy_survives_a_restart() -> None:
    state = Capacity.State(0.1, NOW, NOW - 60, Short(NOW, 4.0, 6.0, True, 2, NOW + 900))

    assert codec.decode(Capacity.State, codec.encode(state)) == state


def test_one_who_waits_by_chance_in_a_fleet_with_room_holds_no_fleet_up() -> None:
    """After a flash 17 replicas had the work of 7; one prompt that waited long asked for an eighteenth, and while it
    started for three minutes none of the others could go."""
    law = law_of()
    waiting = healthy(queue_depth=ok(1.0), queue_delay=ok(4.0))
    made = estimate(7.0, evidence={"serving": 17.0, "still_waiting": 1.0}, passing=2.5)
    once, state = propose(view(made, 17.0, pool=waiting))
    twice, _ = law.propose(view(made, 17.0, pool=waiting, at=NOW + 15), (TTFT,), BRIEF, state)
    many, _ = propose(view(replace(made, evidence={"serving": 17.0, "still_waiting": 9.0}), 17.0, pool=waiting))

    assert once.value < 17.0
    assert twice[0].value == 18.0
    assert many.value == 18.0


def test_the_trim_rests_while_its_window_holds_what_waited_for_capacity() -> None:
    """Capacity has come, and for a minute the latencies are still those of the queue before it: they bought two more
    replicas for a quarter of an hour."""
    law = law_of()
    slow = replace(healthy(), latencies={Signal.TTFT: {"p99": ok(8.0)}})
    made = estimate(3.4, evidence={"serving": 4.0})
    _, state = law.propose(
        view(made, pool=slow, pending=(Pending(1, Phase.LOADING, NOW),)), (TTFT,), BRIEF, Capacity.State()
    )
    _, during = law.propose(view(made, pool=slow, at=NOW + 45), (TTFT,), BRIEF, state)
    _, after = law.propose(view(made, pool=slow, at=NOW + 60), (TTFT,), BRIEF, during)

    assert during.trim == 0.0
    assert after.trim > 0.0
