"""Numbers that are no quantities stop at the door: what is made of them would be infinite, or no number at all."""

import math

import pytest

from controller.core.facts import Fact, Kind
from controller.core.observation import Facts, HistogramIncrement, PoolFacts, ReplicaFacts
from controller.core.sane import MOST, clean

GAUGES = {Fact.RUNNING: 8.0, Fact.WAITING: 0.0}
COUNTERS = {Fact.FINISHED: 50.0, Fact.PROMPT_TOKENS: 20_000.0}
NOW = 1_790_000_000.0
TTFT = HistogramIncrement((0.1, 1.0), (40.0, 49.0), 50.0, 10.0)
BEYOND = [1.7976931348623157e308, 1e200, 1e19, math.inf, math.nan]


def replica(**changes: object) -> ReplicaFacts:
    fields = {"histograms": {Fact.TTFT: TTFT}, "counters": COUNTERS, "gauges": GAUGES, "age": 5.0, "started_at": NOW}
    return ReplicaFacts(**{**fields, **changes})  # type: ignore[arg-type]


def pool(**changes: object) -> PoolFacts:
    fields = {"histograms": {Fact.TTFT: TTFT}, "counters": COUNTERS, "gauges": GAUGES, "targets_up": 2}
    return PoolFacts(**{**fields, "replicas": {"a": replica(), "b": replica()}, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("fact", [fact for fact in Fact if fact.kind is not Kind.HISTOGRAM])
def test_a_number_that_no_fleet_has_is_not_read_and_told(fact: Fact, value: float) -> None:
    """It was finite, and so were not its rates, sums and means: each of them ended the tick of the whole fleet."""
    into, have = ("gauges", GAUGES) if fact.kind is Kind.GAUGE else ("counters", COUNTERS)
    seen = clean(pool(**{into: {**have, fact: value}}))

    assert fact not in {**seen.gauges, **seen.counters}
    assert f"{value:g}" in seen.failed[fact]
    assert {**seen.gauges, **seen.counters} == {f: v for f, v in {**GAUGES, **COUNTERS}.items() if f != fact}
    assert (list(seen.histograms), list(seen.replicas)) == ([Fact.TTFT], ["a", "b"])


@pytest.mark.parametrize(
    "h",
    [
        TTFT._replace(sum=1e200),
        TTFT._replace(sum=-1e200),
        TTFT._replace(count=1e200),
        TTFT._replace(cumulative=(1e200, 1e200), count=1e200),
        TTFT._replace(edges=(0.1, 1e200)),
        TTFT._replace(edges=(-1e200, 1.0)),
        TTFT._replace(sum=math.nan),
        TTFT._replace(cumulative=(math.nan, 49.0)),
        TTFT._replace(edges=(0.1, math.inf)),
    ],
)
def test_a_histogram_that_no_fleet_has_is_not_read(h: HistogramIncrement) -> None:
    seen = clean(pool(histograms={Fact.TTFT: h, Fact.ITL: TTFT}))

    assert (seen.histograms, list(seen.failed)) == ({Fact.ITL: TTFT}, [Fact.TTFT])


@pytest.mark.parametrize(
    "sick",
    [
        *(replica(gauges={**GAUGES, Fact.RUNNING: value}) for value in BEYOND),
        *(replica(counters={**COUNTERS, Fact.PROMPT_TOKENS: value}) for value in BEYOND),
        *(replica(age=value) for value in BEYOND),
        *(replica(started_at=value) for value in BEYOND),
        replica(histograms={Fact.TTFT: TTFT._replace(sum=1e200)}),
    ],
)
def test_one_absurd_pod_is_as_good_as_down_and_the_others_stay(sick: ReplicaFacts) -> None:
    seen = clean(pool(replicas={"a": replica(), "b": sick}))

    assert (seen.replicas, seen.targets_down) == ({"a": replica()}, 1)
    assert seen.gauges == GAUGES


@pytest.mark.parametrize("fact", [Fact.KV_USAGE, Fact.PREFIX_HIT_RATIO, Fact.GPU_UTILISATION])
def test_a_share_of_thousands_of_per_cent_fills_no_fleet_up_to_its_maximum(fact: Fact) -> None:
    seen = clean(pool(gauges={**GAUGES, fact: 37.0}, replicas={"a": replica(), "b": replica(gauges={fact: 37.0})}))

    assert (seen.gauges, "37" in seen.failed[fact]) == (GAUGES, True)
    assert (seen.replicas, seen.targets_down) == ({"a": replica()}, 1)
    full = pool(gauges={**GAUGES, fact: 1.02})
    assert clean(full) is full


def test_an_absurd_tenant_and_an_absurd_class_are_not_read() -> None:
    fine, odd = Facts(counters=COUNTERS), Facts(counters={**COUNTERS, Fact.FINISHED: 1e200})
    seen = clean(pool(tenants={"t": fine, "u": odd}, classes={"c": fine, "d": odd}))

    assert (seen.tenants, "tenant u" in seen.partial) == ({"t": fine}, True)
    assert Fact.FINISHED in seen.class_failed
    assert [list(one.counters) for one in seen.classes.values()] == [[Fact.PROMPT_TOKENS]] * 2


def test_the_largest_fleets_are_read_as_they_are() -> None:
    """100,000 GPUs of 192 GB, three hours of their tokens in one answer, and times of this century."""
    memory, tokens = 1e5 * 192e9, 1e5 * 1e4 * 3 * 3600.0
    facts = pool(
        gauges={**GAUGES, Fact.GPU_MEMORY: memory, Fact.QUEUED_TOKENS: 1e9},
        counters={**COUNTERS, Fact.PROMPT_TOKENS: tokens, Fact.PREFIX_QUERIES: 10 * tokens},
        histograms={Fact.PROMPT_LENGTHS: HistogramIncrement((1e3, 1e6), (1e9, 2e9), 2e9, tokens)},
        replicas={"a": replica(started_at=4e9, age=10 * 365 * 86400.0)},
    )

    assert clean(facts) is facts
    assert max(memory, 10 * tokens) > MOST / 10, "the bound is no wider than it must be"
