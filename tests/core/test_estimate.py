"""What is learned: the capacity of a replica, demand ahead, how long a replica takes to come."""

import math
import random
from dataclasses import replace

import pytest

from controller.core import estimate
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import PoolReadings, Scope, TargetState
from controller.core.ports import Estimate
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import Profile, Shape, capacity, per_sequence, proven, step_time

ITL = Objective("itl", Signal.ITL, 0.05, 0.95, 60.0)
PROFILE = Profile(a=0.01, b=0.0, c=0.0003, d=0.0, e=0.0, max_num_seqs=64)
SPEC = EstimatorSpec("llm", (ITL,), PROFILE)
NOW = 1_000_000.0


def pool(
    *, rate: float = 10.0, batch: float = 13.5, itl: float | None = None, waiting: float = 0.0, replicas: int = 1,
    kv: float = 0.1, delay: float = 0.0,
) -> PoolReadings:  # fmt: skip
    """A pool of `replicas`, each with `batch` sequences, serving requests of 200 + 100 tokens."""
    step = itl if itl is not None else 0.01 + 0.0003 * batch
    return PoolReadings(
        signals={
            Signal.OFFERED_RATE: ok(rate), Signal.FINISHED_RATE: ok(rate), Signal.QUEUE_DEPTH: ok(waiting),
            Signal.PROMPT_TOKEN_RATE: ok(rate * 200), Signal.GENERATION_TOKEN_RATE: ok(rate * 100),
            Signal.RUNNING: ok(batch * replicas), Signal.KV_USAGE: ok(kv), Signal.QUEUE_DELAY: ok(delay),
        },
        latencies={Signal.ITL: {"mean": ok(step)}},
        replicas={f"pod-{i}": Scope({Signal.QUEUE_DEPTH: ok(0.0)}) for i in range(replicas)},
    )  # fmt: skip


def learn(*pools: PoolReadings, spec: EstimatorSpec = SPEC, every: float = 15.0) -> tuple[Estimate, EstimatorState]:
    state, made = EstimatorState(), None
    for i, readings in enumerate(pools):
        made, state = estimate.update(spec, readings, None, NOW + i * every, state)
    assert made is not None
    return made, state


def test_step_time_by_hand() -> None:
    """T = a + b*u/o*n + c*n + d*n*(p + o/2) + e*u*(cached + u/2)/o*n, by hand for round numbers."""
    profile, shape = Profile(1.0, 0.1, 0.2, 0.01, 0.001), Shape(prompt=100.0, output=50.0, hit_rate=0.2)
    by_hand = 0.1 * 80 / 50 + 0.2 + 0.01 * 125 + 0.001 * 80 * (20 + 40) / 50

    assert per_sequence(profile, shape) == pytest.approx(by_hand)
    assert step_time(profile, shape, 3.0, kappa=2.0) == pytest.approx(2 * (1.0 + 3 * by_hand))


@pytest.mark.parametrize(
    ("target", "kv", "full", "limit", "sequences"),
    [
        (None, None, None, "slots", 64.0),
        (0.04, None, None, "slots", 64.0),
        (0.02, None, None, "latency", (0.75 * 0.02 - 0.01) / 0.0003),
        (None, 20.0, None, "kv", 18.0),
        (None, None, 8.0, "slots", 8.0),
    ],
)
def test_the_tightest_constraint_is_the_operating_point(
    target: float | None, kv: float | None, full: float | None, limit: str, sequences: float
) -> None:
    found = capacity(PROFILE, Shape(200.0, 100.0), 1.0, target, kv, full)

    assert found.limit == limit
    assert found.sequences == pytest.approx(sequences)
    assert found.rate == pytest.approx(found.sequences / (100 * (0.01 + 0.0003 * found.sequences)))


def test_an_engine_whose_sequences_cost_nothing_is_planned_by_its_slots() -> None:
    """A profile of a base and prompts alone, and prompts that are all in the cache: nothing was estimated any more."""
    free = Profile(0.01, 2e-5, 0.0, 0.0, 0.0, max_num_seqs=64)
    cached = pool(itl=0.01)
    signals = {**cached.signals, Signal.PREFIX_HIT_RATE: ok(1.0)}
    made, _ = learn(*[replace(cached, signals=signals)] * 5, spec=replace(SPEC, profile=free))

    assert capacity(free, Shape(200.0, 100.0, 1.0), 1.0, 0.05, None)[::2] == (64.0, "slots")
    assert made.unit_sequences == 64.0


def test_the_kv_cache_of_a_replica_is_told_or_measured_or_not_known() -> None:
    """Ten sequences of 250 tokens on average, in a quarter of the cache."""
    measured, _ = learn(*[pool(batch=10.0, kv=0.25)] * 3)
    assert measured.evidence["kv_tokens"] == pytest.approx(10_000.0)
    told, _ = learn(*[pool(batch=10.0, kv=0.25)] * 3, spec=replace(SPEC, profile=replace(PROFILE, kv_tokens=7000.0)))
    assert told.evidence["kv_tokens"] == 7000.0
    assert "kv_tokens" not in learn(pool(kv=0.01))[0].evidence


def test_a_kv_signal_alone_is_blind_when_the_engine_is_bound_by_compute() -> None:
    """The WVA lesson: 20 % of the KV cache used, and no room left for latency."""
    made, _ = learn(*[pool(rate=20.0, batch=55.0, kv=0.2)] * 10)

    assert made.demand is not None
    assert made.demand > 0.9
    assert made.evidence["demand_kv"] < 0.3


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.4])
def test_kappa_finds_a_model_that_is_wrong_in_scale(factor: float) -> None:
    made, _ = learn(*[pool(itl=factor * (0.01 + 0.0003 * 13.5))] * 60)

    assert made.kappa == pytest.approx(factor, rel=0.02)


def test_kappa_rests_while_the_batch_ramps_or_replicas_come() -> None:
    """dynamo#12430: cold-start samples poisoned the capacity model and decode over-scaled."""
    ramp = [pool(batch=4.0 * 1.6**i, itl=0.5) for i in range(6)]
    grow = [pool(replicas=1 + i, itl=0.5) for i in range(6)]

    assert learn(*ramp)[0].kappa == 1.0
    assert learn(*grow)[0].kappa == 1.0


def test_one_absurd_latency_moves_kappa_within_its_bounds() -> None:
    made, _ = learn(*[pool()] * 20, pool(itl=900.0))

    assert made.kappa < 1.2


def test_the_batch_at_which_many_wait_for_long_is_the_limit() -> None:
    made, _ = learn(*[pool(batch=4.0, waiting=20.0, delay=60.0)] * 3, spec=replace(SPEC, profile=None))

    assert made.evidence["unit_sequences"] == 4.0


def test_a_batch_that_is_told_need_not_be_learned_by_keeping_requests_waiting() -> None:
    """A pool of small batches let requests wait for nine minutes until it knew how many a replica takes."""
    known, _ = learn(pool(batch=4.0), spec=replace(SPEC, profile=None, max_num_seqs=8))
    unknown, _ = learn(pool(batch=4.0), spec=replace(SPEC, profile=None))

    assert known.unit_sequences == known.evidence["slots"] == 8.0
    assert unknown.evidence["unit_sequences"] > 20.0
    assert "slots" not in unknown.evidence


def test_a_short_queue_between_two_steps_is_no_limit() -> None:
    made, _ = learn(*[pool(batch=4.0, waiting=3.0, delay=0.2)] * 5, spec=replace(SPEC, profile=None))

    assert made.evidence["unit_sequences"] > 20.0


def test_a_limit_learned_in_a_hiccup_is_forgotten_when_nobody_waits() -> None:
    """45 seconds of a small batch with a queue took a pool from 2 to 11 replicas, and kept it there for a day."""
    free = replace(SPEC, profile=None)
    hiccup = [pool(batch=3.0, waiting=20.0, delay=60.0)] * 3
    calm = [pool(batch=3.0)] * (4 * 60 * 8)

    assert learn(*hiccup, spec=free)[0].evidence["unit_sequences"] == 3.0
    assert learn(*hiccup, *calm, spec=free)[0].evidence["unit_sequences"] > 20.0


def test_a_batch_that_grows_second_by_second_is_not_full() -> None:
    """A gateway's slow start holds requests back for a minute: taken for full after two looks of a second each, a
    replica of 64 sequences was planned as one of two."""
    free = replace(SPEC, profile=None)
    ramp = [pool(batch=2.0 + i / 2, waiting=20.0 * (2.0 + i / 2), delay=10.0) for i in range(60)]
    stuck = [pool(batch=4.0, waiting=20.0, delay=10.0)] * 11

    assert all(learn(*ramp[:till], spec=free, every=1.0)[1].replica.full is None for till in range(1, len(ramp)))
    assert learn(*stuck[:-1], spec=free, every=1.0)[1].replica.full is None
    assert learn(*stuck, spec=free, every=1.0)[1].replica.full == 4.0


def test_a_batch_that_was_passed_is_no_limit() -> None:
    """A start that stood at four for twelve seconds and then grew was planned as one of four until it had stopped
    growing: sixteen times the replicas that were there."""
    free = replace(SPEC, profile=None)
    start = [pool(batch=4.0, waiting=40.0, delay=10.0)] * 12
    grows = [pool(batch=4.0 + i, waiting=200.0, delay=10.0) for i in range(1, 61)]

    for till in range(1, len(grows) + 1):
        made, state = learn(*start, *grows[:till], spec=free, every=1.0)
        assert state.replica.full is not None
        assert state.replica.full >= 4.0 + till
        assert made.unit_sequences is not None
        assert made.unit_sequences >= 4.0 + till


def test_a_batch_that_fell_and_grows_again_is_not_full() -> None:
    """Replicas came, so the batch of each fell from 20 to 5; on its way back it was below 20 for fifteen seconds."""
    free = replace(SPEC, profile=None)
    looks = [pool(batch=20.0, waiting=40.0, delay=10.0, replicas=2)]
    looks += [pool(batch=5.0 + i, waiting=100.0, delay=10.0, replicas=8) for i in range(14)]

    assert learn(*looks, spec=free, every=1.0)[1].replica.full is None


def test_a_full_batch_that_swings_is_full() -> None:
    """Where the KV cache is the limit, a batch is another one each second. One that was lower for a moment made the
    usual one look grown, and a replica was full after five minutes or never."""
    free, chance = replace(SPEC, profile=None), random.Random(1)
    looks = [pool(batch=24.0 * chance.gauss(1.0, 0.1), waiting=100.0, delay=10.0) for _ in range(40)]

    assert learn(*looks, spec=free, every=1.0)[1].replica.full is not None


def test_one_sample_that_is_looked_at_every_second_is_no_batch_that_stays() -> None:
    """Scraped every 15 s and looked at each second, the first moment of a start was the limit after ten looks."""
    free = replace(SPEC, profile=None)

    def look(second: int) -> PoolReadings:
        one = pool(batch=4.0 + 15 * (second // 15), waiting=100.0, delay=10.0)
        running = one.get(Signal.RUNNING)._replace(age=float(second % 15))
        return replace(one, signals={**one.signals, Signal.RUNNING: running})

    assert learn(*[look(second) for second in range(60)], spec=free, every=1.0)[1].replica.full is None
    assert learn(*[look(0)] * 12, spec=free, every=1.0)[1].replica.full == 4.0


def test_a_crowd_before_a_silence_is_not_the_one_after_it() -> None:
    free = replace(SPEC, profile=None)
    crowd = pool(batch=3.0, waiting=20.0, delay=10.0)

    assert learn(*[crowd] * 2, *[pool(rate=0.0)] * 100, crowd, spec=free, every=1.0)[1].replica.full is None


def test_what_an_engine_once_held_it_can_hold() -> None:
    seen = [pool(batch=40.0)] * 3
    made, _ = learn(*seen, *[pool(batch=3.0, waiting=20.0, delay=60.0)] * 3, spec=replace(SPEC, profile=None))

    assert made.evidence["unit_sequences"] >= 40.0


def test_a_replica_that_came_days_late_says_nothing_about_cold_starts() -> None:
    steps = [(0, 1, 1), (60, 2, 1), (180, 2, 2), (240, 3, 2), (360, 3, 3), (420, 4, 3), (259_620, 4, 4), (259_680, 5,
    4),
             (259_800, 5, 5)]  # fmt: skip
    state, made = EstimatorState(), Estimate()
    for at, wanted, serving in steps:
        made, state = estimate.update(SPEC, pool(replicas=serving), TargetState(float(wanted)), NOW + at, state)

    assert state.lags == (120.0, 120.0, 120.0)
    assert made.horizon == 120.0 + SPEC.lead


def test_a_smaller_fleet_has_a_smaller_prefix_cache() -> None:
    """Four replicas with three quarters of the prompts cached: with three, less is, and each carries less."""
    prefill = replace(SPEC, profile=Profile(0.01, 1e-4, 3e-4, 0.0, 0.0, 64))
    cached = pool(replicas=4, batch=60.0)
    cached = replace(cached, signals={**cached.signals, Signal.PREFIX_HIT_RATE: ok(0.75)})
    one = replace(cached, replicas=pool().replicas)

    assert (
        learn(*[cached] * 3, spec=prefill)[0].evidence["proven_rate"]
        < learn(*[one] * 3, spec=prefill)[0].evidence["unit_rate"]
    )


def test_what_was_never_shown_is_not_proven() -> None:
    shape = Shape(200.0, 100.0)
    at = capacity(PROFILE, shape, 1.0, None, None)

    assert proven(PROFILE, shape, 1.0, at, seen=30.0) == pytest.approx(39.0 / (100 * (0.01 + 0.0003 * 39)))
    assert proven(PROFILE, shape, 1.0, at, seen=None) == pytest.approx(16.0 / (100 * (0.01 + 0.0003 * 16)))
    assert proven(PROFILE, shape, 1.0, at, seen=500.0) == at.rate


def test_unreadable_demand_is_unknown_and_not_zero() -> None:
    silent = PoolReadings(signals={Signal.OFFERED_RATE: Reading(State.MISSING)})
    made, _ = learn(pool(), silent)

    assert made.offered is None
    assert made.forecast is None
    assert not made.trusted


def test_a_quiet_pool_is_trusted_even_before_anything_was_learned() -> None:
    idle = PoolReadings(signals={Signal.OFFERED_RATE: ok(0.0), Signal.QUEUE_DEPTH: ok(0.0)})

    assert learn(idle)[0].trusted


def test_retries_are_taken_off_once_and_not_twice() -> None:
    """The offered rate counts each request once already; less would starve whoever asks for the first time."""
    stormy = pool(rate=20.0)
    stormy = replace(stormy, signals={**stormy.signals, Signal.RETRY_SHARE: ok(0.5)})

    assert learn(stormy)[0].offered == pytest.approx(20.0)


@pytest.mark.parametrize(("leaving", "left"), [(10.0, 400.0), (11.0, 190.0), (20.0, 0.0), (5.0, 400.0)])
def test_only_what_outlasts_a_cold_start_is_a_backlog(leaving: float, left: float) -> None:
    """400 wait, 10/s come: a queue that clears by itself in the 210 s until a new replica is warm is not helped by
    it."""
    queue = pool(rate=10.0, waiting=400.0)
    queue = replace(queue, signals={**queue.signals, Signal.ADMITTED_RATE: ok(leaving)})

    assert learn(queue)[0].evidence["still_waiting"] == pytest.approx(left)


def test_cold_start_is_measured_from_the_raise_to_that_many_serving() -> None:
    state, horizons = EstimatorState(), []
    for i, (wanted, serving) in enumerate([(1, 1), (2, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 3), (4, 3), (4, 4)]):
        made, state = estimate.update(SPEC, pool(replicas=serving), TargetState(float(wanted)), NOW + 60.0 * i, state)
        horizons.append(made.horizon)

    assert state.lags == (120.0, 60.0, 120.0)
    assert horizons[0] == SPEC.cold_start + SPEC.lead
    assert horizons[-1] == 120.0 + SPEC.lead


def test_a_burning_budget_asks_for_a_margin() -> None:
    burn = {"ttft": {"1h": ok(20.0, count=500.0), "5m": ok(20.0), "6h": ok(1.0), "30m": ok(1.0)}}

    assert learn(replace(pool(), burn=burn))[0].margin > 0
    week = replace(SPEC, budget_period=7 * 86400.0)
    slow = {"ttft": {"1h": ok(5.0, count=500.0), "5m": ok(5.0)}}
    assert learn(replace(pool(), burn=slow))[0].margin == 0
    assert learn(replace(pool(), burn=slow), spec=week)[0].margin > 0
    few = {"ttft": {"1h": ok(20.0, count=20.0), "5m": ok(20.0)}}
    assert learn(replace(pool(), burn=few))[0].margin == 0


def test_longer_prompts_at_the_same_rate_are_demand() -> None:
    """What is forecast is work: an agent's prompts tripled at constant requests a second, and nothing was asked for."""
    deep = replace(SPEC, profile=Profile(0.01, 0.0, 3e-4, 1e-6, 0.0, 64))

    def asked(prompt: float) -> PoolReadings:
        made = pool(itl=0.01 + (3e-4 + 1e-6 * (prompt + 50)) * 13.5)
        return replace(made, signals={**made.signals, Signal.PROMPT_TOKEN_RATE: ok(10.0 * prompt)})

    before, _ = learn(*[asked(200)] * 40, spec=deep)
    after, _ = learn(*[asked(200)] * 40, *[asked(600)] * 40, spec=deep)

    assert before.forecast is not None
    assert after.forecast is not None
    assert after.forecast > 1.2 * before.forecast


def test_a_model_that_is_learned_anew_is_no_trend_of_the_load() -> None:
    """kappa went up by 40 % in three minutes, and the forecast drew it on."""
    slow = pool(itl=1.4 * (0.01 + 0.0003 * 13.5))
    made, state = learn(*[pool()] * 40, *[slow] * 12)

    assert state.replica.kappa > 1.2
    assert abs(state.forecast.laws.track.trend) < 1e-3
    assert made.forecast == pytest.approx(made.level, rel=0.02)


def test_half_of_the_tightest_promise_is_no_wait() -> None:
    ttft = Objective("ttft", Signal.TTFT, 3.0, 0.95, 60.0)

    assert learn(pool())[0].passing == 1.0
    assert learn(pool(), spec=replace(SPEC, objectives=(ITL, ttft)))[0].passing == 1.5


@pytest.mark.parametrize(("fixed", "grows"), [(1.6, 0.7), (0.7, 1.4)])
def test_a_model_learned_at_night_is_bent_by_the_morning_ramp(fixed: float, grows: float) -> None:
    """Wrong in structure, not in scale: what was learned at batches of 8 promised a third too much at 40."""
    wrong = replace(SPEC, profile=Profile(a=0.01 * fixed, b=0.0, c=0.0003 * grows, d=0.0, e=0.0, max_num_seqs=40),
                    objectives=())  # fmt: skip
    night = [pool(rate=6.0 * (1.1 if i % 2 else 0.9), batch=7.2 if i % 2 else 8.8) for i in range(240)]
    ramp = [pool(rate=12.0, batch=8.0 + 0.5 * i) for i in range(40)]
    true = 40.0 / (100 * (0.01 + 0.0003 * 40.0))
    asleep, awake = (learn(*night, *more, spec=wrong)[0].unit_rate for more in ([], ramp))

    assert asleep is not None
    assert awake is not None
    assert abs(math.log(awake / true)) < 0.5 * abs(math.log(asleep / true))
    assert awake == pytest.approx(true, rel=0.1)


def test_requests_do_not_look_longer_than_they_are_while_more_begin_than_end() -> None:
    """In its first minute a fleet has begun a hundred requests and ended ten: over those ten, its prompts looked ten
    times as long, and 27 replicas were asked for where 8 served."""
    young = pool()
    signals = {
        **young.signals, Signal.BEGUN_RATE: ok(10.0), Signal.FINISHED_RATE: ok(1.0),
        Signal.PROMPT_TOKEN_RATE: ok(10.0 * 1000), Signal.GENERATION_TOKEN_RATE: ok(10.0 * 55),
    }  # fmt: skip

    _, state = learn(*[replace(young, signals=signals)] * 3)

    assert state.shape is not None
    assert state.shape.prompt == pytest.approx(1000.0)
    assert state.shape.output == pytest.approx(100.0)


def with_replicas(slow: int, of: int = 9, factor: float = 3.0) -> PoolReadings:
    """Nine replicas with batches of 40, some of which are slower by a factor; the mean of the pool is by tokens."""
    step = 0.01 + 0.0003 * 40
    steps = [step * (factor if i < slow else 1.0) for i in range(of)]
    counts = [40 * 60 / one for one in steps]
    mean = sum(one * count for one, count in zip(steps, counts, strict=True)) / sum(counts)
    made = pool(rate=100.0, batch=40.0, replicas=of, itl=mean)
    scopes = {
        f"pod-{i}": Scope(
            {Signal.QUEUE_DEPTH: ok(0.0), Signal.RUNNING: ok(40.0)},
            {Signal.ITL: {"mean": ok(steps[i], count=counts[i], window=60.0)}},
        )
        for i in range(of)
    }  # fmt: skip
    return replace(made, replicas=scopes)


def test_one_slow_replica_does_not_make_all_of_its_pool_look_slow() -> None:
    """Its tokens were in the mean, so every replica was taken for a weaker one: the gate let fewer in everywhere."""
    healthy, _ = learn(*[with_replicas(0)] * 40)
    made, _ = learn(*[with_replicas(1)] * 40)

    assert made.kappa == pytest.approx(healthy.kappa, rel=0.01)
    assert made.unit_sequences == pytest.approx(healthy.unit_sequences, rel=0.01)
    assert (made.evidence["stragglers"], "stragglers" in healthy.evidence) == (1.0, False)


def test_a_fleet_most_of_which_is_slow_is_slow() -> None:
    """A model that leaves out whoever is late would call every fleet quick."""
    made, _ = learn(*[with_replicas(5, factor=1.9)] * 60)

    assert made.kappa > 1.2
    assert "stragglers" not in made.evidence
