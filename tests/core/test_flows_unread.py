"""A query that fails now and then: over the seconds that were read, and known to be no whole window."""

import pytest

from controller.core import estimate
from controller.core.facts import Fact
from controller.core.learned import EstimatorState
from controller.core.meter import Meter, PoolSpec
from controller.core.observation import HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.step_model import Shape, step_time
from tests.core.test_shape import NOW, PROFILE, SPEC

EVERY, RATE, PROMPT, ANSWER = 15.0, 10.0, 4000.0, 100.0
COUNTED = {
    Fact.FINISHED: RATE, Fact.ADMITTED: RATE, Fact.ARRIVED: RATE, Fact.PROMPT_TOKENS: RATE * PROMPT,
    Fact.GENERATION_TOKENS: RATE * ANSWER,
}  # fmt: skip


def interval(failed: tuple[Fact, ...] = ()) -> PoolFacts:
    """Fifteen seconds of a steady load, of which some could not be read."""
    itl = step_time(PROFILE, Shape(PROMPT, ANSWER), 12.0)
    tokens = RATE * ANSWER * EVERY
    return PoolFacts(
        histograms={Fact.ITL: HistogramIncrement((), (), tokens, tokens * itl)},
        counters={fact: rate * EVERY for fact, rate in COUNTED.items() if fact not in failed},
        gauges={Fact.RUNNING: 24.0, Fact.WAITING: 0.0},
        replicas={name: ReplicaFacts({}, {}, {Fact.RUNNING: 12.0, Fact.WAITING: 0.0}, age=1.0) for name in "ab"},
        sources=dict.fromkeys(COUNTED, "x"),
        failed=dict.fromkeys(failed, "the query timed out"),
    )


@pytest.mark.parametrize("fact", [Fact.ADMITTED, Fact.PROMPT_TOKENS, Fact.FINISHED])
@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_one_query_that_fails_for_a_moment_does_not_triple_demand(fact: Fact, ticks: int) -> None:
    """Requests that begin were counted in 15 of 60 seconds and divided by 60: a quarter as many seemed to begin for the
    same tokens, so prompts seemed four times as long, and three times the replicas were asked for."""
    meter, state, since, demands = Meter([PoolSpec("llm", 60.0)]), EstimatorState(), None, []
    for tick in range(80):
        at = NOW + EVERY * tick
        failed = (fact,) if 40 <= tick < 40 + ticks else ()
        pool = meter.update(Observation(at, since, {"llm": interval(failed)}))["llm"]
        made, state = estimate.update(SPEC, pool, None, at, state)
        since = at
        if tick == 40 + ticks and fact is Fact.ADMITTED:
            begun = pool.get(Signal.BEGUN_RATE)
            assert begun.value == pytest.approx(RATE)
            assert begun.state is State.UNDERFILLED
        if tick >= 30:
            demands.append(made.demand or 0.0)

    assert max(demands) < 1.2 * demands[0]
    assert state.changed is None
