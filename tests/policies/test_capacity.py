"""Feed-forward and trim: what is asked for, and that nothing is asked for on silence."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Ask, Lever, Pending, Phase, PoolReadings, Proposal, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from policies.capacity import Capacity
from tests.support.cases import NOW, estimate, healthy

TARGET = Target("llm", Lever.REPLICAS)
TTFT = Objective("ttft", Signal.TTFT, 2.0, 0.99, 60.0)
BRIEF = Brief(Balance(0.0, 0.0), 0.0)


def view(
    made: Estimate, current: float = 4.0, pool: PoolReadings | None = None, at: float = NOW, **owner: object
) -> View:
    state = TargetState(current, current, **owner)  # type: ignore[arg-type]
    return View(Tick(9, at, 15.0), pool or healthy(), {TARGET: state}, {TARGET: Limits(1, 50)}, made)


def propose(seen: View, state: Capacity.State | None = None, **config: float) -> tuple[Proposal, Capacity.State]:
    law = Capacity(Capacity.Config(**config))
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
    made = estimate(1.0, evidence={"serving": 4.0, "still_waiting": 1.0})

    def wanted(delay: float, *objectives: Objective) -> float:
        waiting = healthy(queue_depth=ok(1.0), queue_delay=ok(delay))
        law = Capacity(Capacity.Config())
        (proposal,), _ = law.propose(view(made, 4.0, pool=waiting), objectives, BRIEF, law.initial())
        return proposal.value

    assert wanted(0.2) < 4.0
    assert wanted(0.2, TTFT) < 4.0
    assert wanted(12.0) == wanted(12.0, TTFT) == 5.0
    hasty = replace(TTFT, target=0.3)
    assert wanted(0.2, hasty) == 5.0


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
    gain: float = 1.0,
) -> float:
    law, state = Capacity(Capacity.Config()), Capacity.State()
    pool = replace(healthy(), latencies={Signal.TTFT: {"p99": latency}})
    for tick in range(ticks):
        seen = view(estimate(demand, evidence={"serving": 4.0}), pool=pool, at=NOW + 15.0 * tick, pending=pending)
        _, state = law.propose(seen, (promise,), replace(BRIEF, gain=gain), state)
    return state.trim


def test_latency_above_target_adds_within_bounds() -> None:
    assert 0.2 < trimmed(ok(4.0)) <= 0.35
    assert trimmed(ok(4.0), ticks=1000) == pytest.approx(0.35)


def test_a_lever_that_was_swinging_trims_more_slowly_and_its_feed_forward_does_not() -> None:
    assert trimmed(ok(3.0), ticks=4, gain=0.25) == pytest.approx(trimmed(ok(3.0), ticks=4) / 4, rel=0.05)
    seen = view(estimate(9.0, evidence={"serving": 4.0}))
    law = Capacity(Capacity.Config())
    calm, slow = (law.propose(seen, (TTFT,), replace(BRIEF, gain=g), Capacity.State())[0][0] for g in (1.0, 0.25))
    assert calm.value == slow.value > 4.0


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
