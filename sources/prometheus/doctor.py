"""The live half of ``governor doctor``: what a Prometheus tells about itself that would mislead the loop."""

import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from controller.core.facts import Fact, Kind
from controller.core.needs import SIGNAL_FACTS, facts_for, way_for
from controller.core.ports import PoolNeeds
from sources.contracts.contract import Candidate
from sources.contracts.resolve import resolve
from sources.diagnosis.model import Finding, Level
from sources.prometheus.assemble import Edges, common_edges, members, values
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.discovery import ALIVE, Found, question, read, wanted_names
from sources.prometheus.errors import PrometheusError
from sources.prometheus.family import Family, families, wanted
from sources.prometheus.plan import Question, questions, sightings, split_labels
from sources.prometheus.promql import selector
from sources.prometheus.targets import Targets
from sources.prometheus.transport import Transport
from sources.splits import CLASS

SCRAPES_PER_WINDOW = 4  # with fewer, one missed scrape changes what a window says
_WINDOW = 300.0  # seconds over which scrapes are counted
_BUDGET = 30.0


def diagnose(
    config: PrometheusConfig, needs: Sequence[PoolNeeds], now: float | None = None, window: float = 60.0
) -> list[Finding]:
    """What is wrong or good to know at `now` (unix seconds; the present if not given). `window` is the shortest window
    that is judged, in seconds. A Prometheus that does not answer is a finding, too."""
    transport = Transport(config)
    try:
        return list(_findings(transport, needs, time.time() if now is None else now, window))
    except PrometheusError as error:
        return [Finding(Level.ERROR, "prometheus", str(error))]
    finally:
        transport.close()


def _findings(transport: Transport, needs: Sequence[PoolNeeds], now: float, window: float) -> Iterator[Finding]:
    for family in families(needs):
        if not wanted_names(family):
            continue
        answer = transport.query(question(family), now, _BUDGET)
        for warning in answer.warnings:
            yield Finding(Level.WARNING, "prometheus", f"only part of the backend answered: {warning}")
        found = read(family, answer.rows)
        if family.platform:
            yield from _platform(transport, family, found, now)
            continue
        yield from _missing(transport, family, found, now)
        if found.names:
            yield from _targets(transport, family, found, now, window)
            yield from _edges(transport, family, found, now)
    if abs(transport.skew) > 1.0:
        text = f"its clock is {abs(transport.skew):.0f} s {'ahead of' if transport.skew > 0 else 'behind'} ours"
        yield Finding(Level.WARNING, "prometheus", f"{text}; times of plans and metrics will not agree")


def _platform(transport: Transport, family: Family, found: Found, now: float) -> Iterator[Finding]:
    """A platform exporter that is not scraped, or whose series do not say to which object they belong."""
    contract = family.contract
    if not found.names:
        facts = ", ".join(sorted(family.facts))
        yield Finding(
            Level.WARNING, contract.engine, f"{contract.title} is not scraped here, so {facts} cannot be read"
        )
        return
    for item in questions(family, found):
        if item.fact.kind is not Kind.GAUGE:
            continue
        seen = values(item, transport.query(item.promql(None, ""), now, _BUDGET).rows, Targets(), {})
        for pool in family.pools:
            if pool.workload is None or item.fact not in wanted(pool) or pool.pool in seen:
                continue
            namespace, kind, name = pool.workload
            labels = ", ".join(dict.fromkeys(label for part in item.parts for label in part.candidate.workload_labels))
            text = (
                f"{contract.title} has no {item.fact} of {kind} {namespace}/{name}: wrong name or kind, or its series "
            )
            flags = f" ({contract.flags})" if contract.flags else ""
            yield Finding(Level.WARNING, pool.pool, f"{text}lack the labels namespace and {labels}{flags}")


def _missing(transport: Transport, family: Family, found: Found, now: float) -> Iterator[Finding]:
    """Pools without series, and what the series of the others cannot tell."""
    for pool in family.pools:
        names = found.by_pool.get(pool.pool)
        if not names:
            yield _silent(transport, family, pool, now)
            continue
        choices = resolve(family.contract, names | {name.removesuffix("_count") for name in names})
        if pool.fronts:
            yield from _gateway(pool, choices)
            continue
        for what, why in _untold(wanted(pool), family.facts, choices):
            yield Finding(Level.WARNING, pool.pool, f"{what} is unsupported: {why}")


def _gateway(pool: PoolNeeds, choices: Mapping[Fact, Candidate | str]) -> Iterator[Finding]:
    """What the gateway of a pool tells. The rest is left to the engines, but who comes is told here or nowhere."""
    told = sorted(fact for fact in pool.facts if isinstance(choices[fact], Candidate))
    left = {fact: choice for fact in sorted(pool.facts - set(told)) if isinstance(choice := choices[fact], str)}
    yield Finding(Level.INFO, pool.pool, f"the gateway tells {', '.join(told) or 'nothing'}")
    for fact, why in left.items():
        level = Level.WARNING if fact is Fact.ARRIVED else Level.INFO
        yield Finding(level, pool.pool, f"the gateway does not tell {fact}: {why}")


def _silent(transport: Transport, family: Family, pool: PoolNeeds, now: float) -> Finding:
    """A pool without series: its selector is wrong, or it is not scraped any more."""
    names = [c.metric for fact in ALIVE for c in family.contract.candidates.get(fact, ())]
    # Steps as far apart as Prometheus looks back, so that no sample falls between two.
    last = (
        f"max(max_over_time(timestamp({selector(name, pool.matchers)})[1d:5m]))"
        for name in dict.fromkeys(names or wanted_names(family))
    )
    rows = transport.query(" or ".join(last), now, _BUDGET).rows
    if rows:
        ago = max(0.0, now - rows[0][1]) / 60
        text = f"its series were last seen {ago:.0f} min ago; look whether its targets are up and still scraped"
        return Finding(Level.ERROR, pool.pool, text)
    text = "no series matches its selector; compare its labels with those of the targets"
    flags = f" ({family.contract.title}: {family.contract.flags})" if family.contract.flags else ""
    return Finding(Level.ERROR, pool.pool, text + flags)


def _untold(
    needed: Collection[Fact], exposable: Collection[Fact], choices: Mapping[Fact, Candidate | str]
) -> Iterator[tuple[str, str]]:
    """(signal or fact, why) of all that is needed and cannot be made. A fact that is missing while another way leads to
    its signal is no loss."""
    told = {fact for fact, choice in choices.items() if not isinstance(choice, str)}
    left = {fact for fact in needed if fact in exposable}
    for signal, ways in SIGNAL_FACTS.items():
        facts = facts_for(signal)
        if not facts <= set(needed) or not facts & set(exposable):
            continue
        left -= facts
        if way_for(signal, told) is None:
            missing = next(fact for fact in sorted(ways[0] & set(exposable) or facts) if fact not in told)
            yield signal, str(choices[missing])
    for fact in sorted(left - told):
        yield fact, str(choices[fact])


def _targets(transport: Transport, family: Family, found: Found, now: float, window: float) -> Iterator[Finding]:
    """Jobs that scrape the same replica, targets that are down or unknown, scrapes too rare for the windows."""
    targets = Targets()
    rows = transport.query(sightings(family, found), now, _BUDGET).rows
    targets.sight(family, bool(found.named), rows, first=True)
    health = transport.query(found.up(), now, _BUDGET).rows
    targets.health(health, now, ())
    if not targets.has_up:
        text = "there is no `up` for its targets: births are not told from old series, so the first count of a new "
        yield Finding(Level.WARNING, family.contract.engine, text + "series is lost")
    gaps = _scrape_gaps(transport, found, now)
    for pool in family.pools:
        jobs: dict[str, set[str]] = defaultdict(set)
        slowest = 0.0
        down = 0
        for key, target in targets.known.items():
            if (seat := target.seats.get(pool.pool)) is not None:
                jobs[seat.replica].add(key[0])
                slowest = max(slowest, gaps.get(key, 0.0))
                down += target.up is False
        several = next((sorted(names) for names in jobs.values() if len(names) > 1), None)
        if several:
            text = f"jobs {' and '.join(several)} scrape the same replica, so all is counted twice; select one by job"
            yield Finding(Level.ERROR, pool.pool, text)
        if down:
            yield Finding(Level.WARNING, pool.pool, f"{down} of {len(jobs)} targets are down")
        if slowest * SCRAPES_PER_WINDOW > window:
            text = (
                f"scraped every {slowest:.0f} s, so a window of {window:.0f} s holds fewer than {SCRAPES_PER_WINDOW} "
            )
            yield Finding(Level.WARNING, pool.pool, text + "scrapes; scrape more often or widen the window")


def _scrape_gaps(transport: Transport, found: Found, now: float) -> dict[tuple[str, str], float]:
    """Mean seconds between scrapes by target, from the samples themselves (a target list may be another server's)."""
    up = found.up()
    # A range includes both its ends, hence the millisecond less.
    counts = _by_target(transport, f"count_over_time({up}[{_WINDOW * 1000 - 1:.0f}ms]) > 1", now)
    first = _by_target(transport, f"min_over_time(timestamp({up})[{_WINDOW:.0f}s:5s])", now)
    last = _by_target(transport, f"timestamp({up})", now)
    gaps = {}
    for target, count in counts.items():
        born = first.get(target, -math.inf)
        young = born > now - _WINDOW and target in last  # then the window is longer than its life
        gaps[target] = (last[target] - born) / (count - 1) if young else _WINDOW / count
    return gaps


def _by_target(transport: Transport, query: str, now: float) -> dict[tuple[str, str], float]:
    rows = transport.query(query, now, _BUDGET).rows
    return {(row.get("job", ""), row.get("instance", "")): value for row, value in rows}


def _edges(transport: Transport, family: Family, found: Found, now: float) -> Iterator[Finding]:
    """The bucket edges per pool, and targets that fall between them."""
    for item in questions(family, found):
        if item.fact.kind is not Kind.HISTOGRAM or not item.whole or not (grid := item.grid()):
            continue
        rows = transport.query(grid, now, _BUDGET).rows
        scales = {part.tag: part.candidate.scale for part in item.parts}
        common = common_edges(item, rows, Targets())
        everything = common_edges(item, rows, Targets(), common=False)
        for pool in family.pools:
            if item.fact not in wanted(pool) or pool.pool not in common:
                continue
            edges = _seconds(common[pool.pool], scales)
            dropped = sorted(set(_seconds(everything[pool.pool], scales)) - set(edges))
            if dropped:
                text = f"{item.fact}: its pods have different buckets; edges that not all have are not used: "
                yield Finding(Level.WARNING, pool.pool, text + _list(dropped))
            yield from _between(pool, item.fact, edges)
        if item.split == CLASS:
            yield from _classes(item, members(item, rows, Targets()))


def _classes(item: Question, seen: Mapping[str, set[str]]) -> Iterator[Finding]:
    """The request classes there are, or that the label does not tell them: then promises for a class go unjudged."""
    for pool, label in split_labels(item.family, item.fact, CLASS).items():
        if pool not in seen:
            continue
        if names := sorted(seen[pool] - {""}):
            yield Finding(Level.INFO, pool, f"{item.fact}: classes by {label}: {', '.join(names)}")
        else:
            text = f"{item.fact}: no series has the label {label}, so promises for a class cannot be judged"
            yield Finding(Level.WARNING, pool, f"{text}; choose the label that names it, or promise for all requests")


def _between(pool: PoolNeeds, fact: Fact, edges: Sequence[float]) -> Iterator[Finding]:
    yield Finding(Level.INFO, pool.pool, f"{fact}: bucket edges {_list(edges)} s")
    for target in pool.edges.get(fact, ()):
        if target in edges or not edges:
            continue
        below = [edge for edge in edges if edge < target]
        above = [edge for edge in edges if edge > target]
        near = " or ".join(f"{edge:g} s" for edge in (*below[-1:], *above[:1]))
        if below and above:
            text = f"the target {target:g} s lies between two buckets, so attainment has bounds instead of a value"
        else:
            place = "above the last" if below else "below the first"
            text = f"the target {target:g} s is {place} bucket: that it is met can never be shown"
        yield Finding(Level.WARNING, pool.pool, f"{fact}: {text}; choose {near}")


def _seconds(edges: Edges, scales: dict[str, float]) -> list[float]:
    """Edges that all parts have, in seconds, without +Inf."""
    sets = [{edge * scales[tag] for edge in of if edge != math.inf} for tag, of in edges.items()]
    return sorted(set.intersection(*sets)) if sets else []


def _list(edges: Sequence[float]) -> str:
    return ", ".join(f"{edge:g}" for edge in edges)
