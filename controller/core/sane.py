"""What a source may not hand on: numbers that are no quantities. A plug-in can be wrong; one absurd pod must not
stop the others, so the number is dropped and the fact counts as failed."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from controller.core.facts import Fact
from controller.core.observation import Facts, HistogramIncrement, PoolFacts, ReplicaFacts

# What no fleet has or counts between two observations. 100,000 GPUs that read 100,000 tokens/s each, cached ones
# included, count a tenth of it in three hours; and what is summed, multiplied and divided from here on stays far from
# where floats end, which one number near there reached for every pool at once.
MOST = 1e15
# A share of all there is. Engines round, and some count what they are about to free; 37 is another unit.
_SHARES = (Fact.KV_USAGE, Fact.PREFIX_HIT_RATIO, Fact.GPU_UTILISATION)
MOST_SHARE = 2.0
_MORE: Mapping[Fact, float] = {Fact.GPU_MEMORY: 1e18}  # bytes: 10,000 GPUs of 192 GB have two times ten to the 15

_ABSURD = "the source gave a number that is no quantity"


def clean(facts: PoolFacts) -> PoolFacts:
    """The facts without NaN, infinities, negative increments, histograms that are not cumulative, shares of
    thousands of per cent, and what is beyond all fleets. The same object when there is nothing to drop, which is
    nearly always."""
    bad = [*_bad(facts.counters), *_odd(facts.gauges), *(f for f, h in facts.histograms.items() if not _cumulative(h))]
    sick = [name for name, r in facts.replicas.items() if _sick(r)]
    odd = [name for name, t in facts.tenants.items() if _bad(t.counters)]
    unclear = {
        fact
        for one in facts.classes.values()
        for fact in (*_bad(one.counters), *(f for f, h in one.histograms.items() if not _cumulative(h)))
    }
    if not bad and not sick and not odd and not unclear:
        return facts
    told = {**facts.counters, **facts.gauges}
    return replace(
        facts,
        counters={f: v for f, v in facts.counters.items() if f not in bad},
        gauges={f: v for f, v in facts.gauges.items() if f not in bad},
        histograms={f: h for f, h in facts.histograms.items() if f not in bad},
        replicas={name: r for name, r in facts.replicas.items() if name not in sick},
        tenants={name: t for name, t in facts.tenants.items() if name not in odd},
        partial=facts.partial or (f"{_ABSURD}, for tenant {odd[0]}" if odd else ""),
        classes={name: _without(one, unclear) for name, one in facts.classes.items()},
        class_failed={**facts.class_failed, **dict.fromkeys(unclear, _ABSURD)},
        failed={**facts.failed, **{f: f"{_ABSURD}: {told[f]:g}" if f in told else _ABSURD for f in bad}},
        targets_down=facts.targets_down + len(sick),
    )


def _sick(replica: ReplicaFacts) -> bool:
    if _bad(replica.counters) or _odd(replica.gauges) or not -MOST <= replica.age <= MOST:
        return True
    started, told = replica.started_at, replica.histograms
    if started is not None and not -MOST <= started <= MOST:
        return True
    return bool(told) and not all(map(_cumulative, told.values()))


def _without(facts: Facts, unclear: Collection[Fact]) -> Facts:
    return replace(
        facts,
        counters={f: v for f, v in facts.counters.items() if f not in unclear},
        histograms={f: h for f, h in facts.histograms.items() if f not in unclear},
    )


def _bad(values: Mapping[Fact, float]) -> list[Fact]:
    # No NaN lies between any bounds; that a fact may have a bound of its own is asked of those beyond the usual one.
    return [f for f, value in values.items() if not 0 <= value <= MOST and not 0 <= value <= _MORE.get(f, MOST)]


def _odd(gauges: Mapping[Fact, float]) -> list[Fact]:
    """The same of gauges, some of which are shares."""
    return [*_bad(gauges), *(f for f in _SHARES if MOST_SHARE < gauges.get(f, 0.0) <= MOST)]


def _cumulative(h: HistogramIncrement) -> bool:
    numbers = [*h.cumulative, h.count]
    return (
        len(h.edges) == len(h.cumulative)
        and -MOST <= sum(numbers) <= MOST
        and -MOST <= h.sum <= MOST
        and numbers[0] >= 0
        # Sorting what is in order already is the quickest way to see that it is.
        and (numbers == sorted(numbers) or all(a <= b + 1e-6 for a, b in pairwise(numbers)))
        and _ascending(h.edges)
    )


@lru_cache(maxsize=1024)
def _ascending(edges: tuple[float, ...]) -> bool:
    """Whether these are edges; an engine has the same ones at every tick."""
    return all(-MOST <= edge <= MOST for edge in edges) and all(a < b for a, b in pairwise(edges))
