"""A pool seen from two sides: its engines know the batch, its gateway knows who came.

The gateway alone sees what is offered, refused and tried again, what waits before the engines, and latencies as clients
have them; batch, cache, pace and tokens are the engines'. One quantity is never taken from both: a request that an
engine refused is an error at the gateway too, and an attempt that failed and was repeated is none to its client. So the
losses come from the gateway as a whole wherever it counts errors.

What waits is the sum of the engines' queues, as they tell them themselves, and of the gateway's own queue. A gateway
that does not tell the latter apart, but counts everything that waits, gives the larger of two views.

Silence is not zero. While the gateway does not answer, its facts have failed, and the engines' queue is known to be a
part of what waits; while the engines do not, the gateway's facts stay as good as they are.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from controller.core.facts import Fact
from controller.core.observation import PoolFacts
from controller.core.tally import LOST

# What a gateway knows better than engines.
FIRST = frozenset(
    {
        Fact.ARRIVED, Fact.RETRIES, *LOST, Fact.TTFT, Fact.E2E, Fact.QUEUE_TIME, Fact.SATURATION,
    }
)  # fmt: skip
# All that is read of it for the pool.
READ = FIRST | {Fact.HELD, Fact.WAITING}
_NO_ANSWER = "the gateway does not answer"
_T = TypeVar("_T")


def silence(gateway: PoolFacts | None, stale_after: float) -> str:
    """Why the gateway says nothing now; "" when it answers. A sample older than `stale_after` seconds says nothing."""
    if gateway is None:
        return f"{_NO_ANSWER}: it was not read"
    if gateway.replicas:
        up = [one.age for one in gateway.replicas.values() if one.up]
        if not up:
            return f"{_NO_ANSWER}: its scrape failed"
        if min(up) > stale_after:
            return f"{_NO_ANSWER}: its newest sample is {min(up):.0f} s old"
        return ""
    if gateway.targets_up == 0 and gateway.targets_down:
        return f"{_NO_ANSWER}: its scrape failed"
    if gateway.counters or gateway.histograms or gateway.gauges:
        return ""
    return f"{_NO_ANSWER}: {next(iter(gateway.failed.values()), 'no series of it was seen')}"


def told(gateway: PoolFacts) -> frozenset[Fact]:
    """The facts for which the gateway has shown that it can tell them."""
    return FIRST.intersection((*gateway.counters, *gateway.histograms, *gateway.gauges))


def owned(gateway: PoolFacts | None, before: frozenset[Fact]) -> frozenset[Fact]:
    """The facts that are taken from the gateway: those it can tell. `before` are those that it told at some time: a
    gateway that was started anew counts a thing again from its first event on, and has not forgotten how."""
    untold = (gateway.unsupported.keys() if gateway is not None else frozenset()) - before
    own = FIRST - untold
    return own | set(LOST) if Fact.ERRORS in own else own


def join(
    engines: PoolFacts, gateway: PoolFacts | None, own: frozenset[Fact], stale_after: float, *,
    tenants: bool, classes: bool,
) -> PoolFacts:  # fmt: skip
    """The facts of both. `own` are the facts that are the gateway's (``owned``); `tenants` and `classes` say that it is
    the gateway that tells them."""
    why = silence(gateway, stale_after)
    if gateway is None or why:
        gateway = PoolFacts(failed=dict.fromkeys(own | {Fact.HELD}, why), partial=why)
    doubt = _doubt(gateway, stale_after)
    front = own | {Fact.HELD}
    gauges = _mix(engines.gauges, gateway.gauges, own)
    waiting, in_part = _waiting(engines, gateway)
    if waiting is not None:
        gauges[Fact.WAITING] = waiting
    if Fact.HELD in gateway.gauges:
        gauges[Fact.HELD] = gateway.gauges[Fact.HELD]
    doubted: dict[Fact, str] = dict.fromkeys(front, doubt) if doubt else {}
    if in_part or doubt:
        doubted[Fact.WAITING] = in_part or doubt
    failed = _mix(engines.failed, gateway.failed, front)
    if waiting is not None:
        failed.pop(Fact.WAITING, None)
    ages = [one.age for one in gateway.replicas.values() if one.up]
    return replace(
        engines,
        histograms=_mix(engines.histograms, gateway.histograms, own),
        counters=_mix(engines.counters, gateway.counters, own),
        gauges=gauges,
        tenants=gateway.tenants if tenants else engines.tenants,
        classes=gateway.classes if classes else engines.classes,
        sources=_sources(engines, gateway, own),
        late=(engines.late - own) | (gateway.late & own),
        unsupported=_mix(engines.unsupported, gateway.unsupported, own),
        failed=failed,
        class_failed=(gateway if classes else engines).class_failed,
        doubted=doubted,
        since=_mix(engines.since, gateway.since, own),
        fronted=front,
        front_age=min(ages) if ages else gateway.front_age,
    )


def _mix(engines: Mapping[Fact, _T], gateway: Mapping[Fact, _T], own: Collection[Fact]) -> dict[Fact, _T]:
    """The gateway's where it is the owner, else the engines'."""
    return {
        **{fact: value for fact, value in engines.items() if fact not in own},
        **{fact: value for fact, value in gateway.items() if fact in own},
    }


def _doubt(gateway: PoolFacts, stale_after: float) -> str:
    """Why the gateway's facts are not all there is: several pickers, of which some are silent."""
    if gateway.partial:
        return gateway.partial if gateway.partial.startswith(_NO_ANSWER) else f"the gateway: {gateway.partial}"
    if gateway.targets_down:
        return f"{gateway.targets_down} of the gateway's targets are down"
    old = sum(one.up and one.age > stale_after for one in gateway.replicas.values())
    return f"the samples of {old} of the gateway's targets are old" if old else ""


def _waiting(engines: PoolFacts, gateway: PoolFacts) -> tuple[float | None, str]:
    """How many wait, and why that is not all of them, if so."""
    inside, held = engines.gauges.get(Fact.WAITING), gateway.gauges.get(Fact.HELD)
    if held is None and Fact.HELD in gateway.unsupported:
        everything = gateway.gauges.get(Fact.WAITING)  # counted by the gateway, wherever they wait
        if everything is None:
            return inside, ""
        return max(everything, inside or 0.0), ""
    if held is None:
        return inside, gateway.failed.get(Fact.HELD, "what waits at the gateway was not read")
    if inside is None and Fact.WAITING not in engines.unsupported:
        return held, "what waits at the engines is not known"
    return held + (inside or 0.0), ""


def _sources(engines: PoolFacts, gateway: PoolFacts, own: Collection[Fact]) -> dict[Fact, str]:
    sources = _mix(engines.sources, gateway.sources, own)
    waits = [engines.sources.get(Fact.WAITING, ""), gateway.sources.get(Fact.HELD, "")]
    if any(waits):
        sources[Fact.WAITING] = " + ".join(filter(None, waits))
    return sources
