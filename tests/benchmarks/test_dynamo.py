"""The emulated planner of Dynamo forecasts, estimates and waits as its source says."""

import pytest

from benchmarks.peers import predictors
from benchmarks.peers.dynamo import Dynamo
from benchmarks.peers.predictors import ARIMA, CONSTANT, KALMAN, Noise, Series, add, predict
from controller.core.model import Pending, Phase
from controller.core.step_model import Shape
from controller.core.why import Why
from tests.support.peer_views import asked, view

ENGINE = {"a": 10e-3, "b": 10e-6, "c": 100e-6, "d": 0.0, "e": 0.0, "max_seqs": 100.0, "max_batched": 2000.0}
SHAPE, SLAS = Shape(1000.0, 100.0), (2.0, 0.08)
RATES = (60.0, 1000.0, 100.0)


def law(**more: object) -> Dynamo:
    settings: dict[str, object] = {**ENGINE, "learn": False, "predictor": CONSTANT, **more}
    return Dynamo(Dynamo.Config(**settings))  # type: ignore[arg-type]


def series(*values: float) -> Series:
    found = Series()
    for value in values:
        found = add(found, value, Noise())
    return found


def test_forecasts_are_those_computed_by_hand() -> None:
    assert predict(series(0, 0, 10, 20), CONSTANT) == 20
    assert series(0, 0, 10).values == (10,)  # idle before the first traffic
    # Gain (2001, 1000) / 2011 on a miss of 10: level 19.950, trend 4.973.
    assert predict(series(10, 20), KALMAN) == pytest.approx(24.923, abs=1e-3)
    # Gain (523.730, 507.808) / 533.730 on a miss of -4.923: level 20.092, trend 0.289.
    assert predict(series(10, 20, 20), KALMAN) == pytest.approx(20.381, abs=1e-3)
    assert predict(series(10, 14, 12, 13), ARIMA) == 13  # too few
    assert predict(series(10, 14, 12, 13, 12.5), ARIMA) == pytest.approx(12.75)  # phi = -10.5 / 21
    assert predict(series(10, 12, 16, 24, 40), ARIMA) == pytest.approx(40 + 0.99 * 16)
    assert predict(series(7, 7, 7, 7, 7), ARIMA) == 7
    assert predict(Series(), KALMAN) == 0
    assert len(series(*range(1, 100)).values) == predictors.KEPT


@pytest.mark.parametrize(
    ("more", "slas", "rate"),
    [
        ({}, SLAS, 100 / (100 * 0.030)),  # the slots: a step of 100 takes 10 + 20 ms
        ({}, (2.0, 0.020), 50 / (100 * 0.020)),  # the ITL: 10 + 0.2 n ms
        ({"kv_tokens": 21_000.0}, SLAS, 20 / (100 * 0.014)),  # the KV cache holds 20 of 1,050
        ({"max_batched": 110.0}, SLAS, 10 / (100 * 0.012)),  # prefill of 110 a step follows 10
        ({}, (2.0, 0.001), 1 / (100 * 0.0102)),  # no batch keeps it: a batch of one
        ({}, (0.025, 0.08), 25 / (100 * 0.015)),  # the TTFT: 10 + 0.1 n ms, and 10 us for each of 1,000 + 10 n tokens
    ],
)
def test_the_rate_of_an_engine_is_at_the_largest_batch_that_keeps_both(
    more: dict[str, float], slas: tuple[float, float], rate: float
) -> None:
    assert law(**more)._engine_rate(SHAPE, slas, 1.0) == pytest.approx(rate)  # noqa: SLF001 - the search is the point


def test_the_floor_comes_every_three_minutes_and_is_reached_at_once() -> None:
    planner = law(sla=0.25)  # ITL 20 ms: 25 requests/s of an engine
    state = planner.initial()
    for at in range(0, 180, 15):
        proposal, state = asked(planner, view(float(at), 1, [(20, 0)], rates=RATES), state)
        assert (state.floor, proposal.value) == (0, 1)
    proposal, state = asked(planner, view(180.0, 1, [(20, 0)], rates=RATES), state)
    assert (state.floor, proposal.value) == (3, 3)  # ceil(60 / 25)


def test_all_engines_must_be_too_slow_for_one_more() -> None:
    planner = law()
    both = [(400.0, 0.0)] * 2  # 10 + 40 + 40 ms
    one = [(400.0, 0.0), (300.0, 0.0)]  # 10 + 30 + 30 ms
    assert asked(planner, view(0.0, 2, both, rates=RATES), planner.initial())[0].value == 3
    assert asked(planner, view(0.0, 2, one, rates=RATES), planner.initial())[0].value == 2


def test_a_queue_of_prompts_shows_in_the_estimated_ttft() -> None:
    planner = law()
    # n = 100: chunks of 2,000 take 40 ms each; 151 prompts are 75.5 chunks: 75 x 40 + 30 = 3,030 ms.
    slow = view(0.0, 2, [(100, 150)] * 2, rates=RATES)
    assert asked(planner, slow, planner.initial())[0].value == 3
    one = view(0.0, 2, [(100, 150), (100, 0)], rates=RATES)
    assert asked(planner, one, planner.initial())[0].value == 2
    fine = view(0.0, 2, [(100, 90)] * 2, rates=RATES)
    assert asked(planner, fine, planner.initial())[0].value == 2


def test_one_fewer_only_where_the_others_can_carry_it() -> None:
    planner = law()
    idle = view(0.0, 2, [(10, 0)] * 2, rates=RATES)
    assert asked(planner, idle, planner.initial())[0].value == 1
    # 200 each are 50 ms now; 400 would be 10 + 40 + 20 ms, above 0.8 x 80.
    busy = view(0.0, 2, [(200, 0)] * 2, rates=RATES)
    assert asked(planner, busy, planner.initial())[0].value == 2
    # The KV cache of one does not hold twice 0.5.
    full = law(kv_tokens=30_000.0)
    assert asked(full, view(0.0, 2, [(10, 0, 0.5)] * 2, rates=RATES), full.initial())[0].value == 2
    assert asked(full, view(0.0, 2, [(10, 0, 0.4)] * 2, rates=RATES), full.initial())[0].value == 1
    # 70 prompts wait: 142,000 tokens after it are 71 chunks, of which one is its own; 2.8 s are more than 0.8 x 1.97.
    waiting = view(0.0, 2, [(100, 70)] * 2, rates=RATES)
    assert asked(planner, waiting, planner.initial())[0].value == 2


def test_nothing_moves_while_something_is_under_way() -> None:
    planner = law()
    slow = [(400.0, 0.0)] * 2
    coming = view(0.0, 3, slow, rates=RATES, pending=[Pending(1, Phase.PENDING, -9000.0)])
    proposal, _ = asked(planner, coming, planner.initial())
    assert (proposal.value, proposal.why) == (3, Why.IN_FLIGHT)  # for two hours and a half, as issue 14251 has it
    leaving, _ = asked(planner, view(0.0, 1, slow, rates=RATES), planner.initial())
    assert leaving.why == Why.IN_FLIGHT


def test_requests_that_cannot_be_read_lower_the_floor_but_blind_engines_lower_nothing() -> None:
    planner = law(sla=0.25)
    state = planner.initial()
    for at in range(0, 195, 15):
        _, state = asked(planner, view(float(at), 3, [(60, 0)] * 3, rates=RATES), state)
    assert state.floor == 3
    for at in range(195, 600, 15):
        proposal, state = asked(planner, view(float(at), 3, unreachable=True), state)
        assert (proposal.value, proposal.why) == (3, Why.MISSING)
    assert state.floor == 1  # an interval without requests, as issue 14765 has it
    mended = law(sla=0.25, unreadable_zero=False)
    state = mended.initial()
    for at in range(0, 195, 15):
        _, state = asked(mended, view(float(at), 3, [(60, 0)] * 3, rates=RATES), state)
    for at in range(195, 600, 15):
        _, state = asked(mended, view(float(at), 3, unreachable=True), state)
    assert state.floor == 3


def test_the_throughput_loop_alone_follows_its_floor_down_as_well() -> None:
    planner = law(sla=0.25, load=False)
    state, seen = planner.initial(), {}
    for at in range(0, 375, 15):
        rates = RATES if at <= 180 else (20.0, 1000.0, 100.0)
        proposal, state = asked(planner, view(float(at), 5, [(60, 0)] * 5, rates=rates), state)
        seen[at] = proposal.value
    assert (seen[165], seen[180], seen[195], seen[360]) == (5, 3, 5, 1)


def test_the_scale_of_the_model_follows_what_is_measured() -> None:
    planner = law(learn=True)
    state = planner.initial()
    for at in range(0, 75, 15):
        slow = view(float(at), 2, [(200, 0)] * 2, rates=RATES, itl=0.075)  # 50 ms by the model
        proposal, state = asked(planner, slow, state)
        assert proposal.value == 2
    assert state.ratios == pytest.approx((1.5,) * 5)
    slower = view(75.0, 2, [(220, 0)] * 2, rates=RATES, itl=0.081)  # 54 ms by the model
    assert asked(planner, slower, state)[0].value == 3
    assert asked(law(), slower, law().initial())[0].value == 2


def test_what_is_no_planner_is_refused() -> None:
    with pytest.raises(ValueError, match="predictor: unknown"):
        law(predictor="prophet")
    with pytest.raises(ValueError, match="load: neither"):
        law(load=False, throughput=False)
