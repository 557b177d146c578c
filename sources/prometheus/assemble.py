"""Assemble: rows of one answer to values per pool, and per replica or part of a split. Pure.

Pods of one pool may have different bucket edges (a rolling upgrade, an override on one pod). Summed by ``le`` their
counts are not cumulative any more, so only the edges that all of them have are kept: coarser, and true.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from controller.core.facts import Kind
from controller.core.observation import HistogramIncrement
from controller.core.ports import PoolNeeds
from sources.prometheus.errors import BadAnswer
from sources.prometheus.family import ByLabels, ByWorkload
from sources.prometheus.plan import Part, Question, split_labels
from sources.prometheus.promql import PART
from sources.prometheus.targets import Targets
from sources.prometheus.transport import Row
from sources.sentences import not_a_number
from sources.splits import MEANS

_AMBIGUOUS = "the endpoint serves several pools and this metric does not name the model"
Edges = Mapping[str, frozenset[float]]  # part -> edges that all series have, as on the wire


@dataclass(slots=True)
class Values:
    """What one pool got from one question: `number` or `histogram` for all of it, the plurals by replica or by part of
    the `split`. The key "" of these is what names none. `problem` is why there is no value, `gap` what is missing in
    the one that there is."""

    split: str = ""
    whole: bool = True

    numbers: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, HistogramIncrement] = field(default_factory=dict)
    number: float | None = None
    histogram: HistogramIncrement | None = None
    metrics: tuple[str, ...] = ()
    problem: str = ""
    gap: str = ""


# Rows of one replica (or part of a split), by part of the question: values to combine, or buckets to add (the edge None
# is the sum).
Numbers = dict[str, list[float]]
Buckets = dict[str, dict[float | None, float]]


def values(
    question: Question,
    rows: Iterable[Row],
    targets: Targets,
    edges: Mapping[str, Edges],
    dropped: Iterable[Mapping[str, str]] = (),
) -> dict[str, Values]:
    """Values by pool. `edges` are the common edges per pool, where they are known to differ; `dropped` are the labels
    of rows that were NaN or infinite."""
    parts = {part.tag: part for part in question.parts}
    used: dict[str, dict[str, None]] = {}
    ambiguous: set[str] = set()
    found: dict[str, Values] = {}
    lost = _lost(question, parts, dropped, targets)
    if question.fact.kind is Kind.HISTOGRAM:
        for pool, buckets in _buckets(question, parts, rows, targets, used, ambiguous).items():
            without = lost[pool][1] if pool in lost else ()  # a histogram that lacks a row is none
            whole = {member: of for member, of in buckets.items() if member not in without}
            found[pool] = _histograms(question, parts, whole, edges.get(pool, {}))
    else:
        for pool, all_cells in _numbers(question, parts, rows, targets, used, ambiguous).items():
            cells = _each_for_itself(parts, all_cells, used[pool])
            numbers = {member: _number(question, parts, cell) for member, cell in cells.items()}
            number = _combine(question.parts[0].candidate.across, list(numbers.values()))
            found[pool] = Values(question.split, question.whole, numbers, number=number)
    for pool, of in found.items():
        of.metrics = tuple(used[pool])
    for pool in ambiguous:
        found.setdefault(pool, Values(question.split, question.whole)).problem = _AMBIGUOUS
    for pool, (metric, members) in lost.items():
        of = found.setdefault(pool, Values(question.split, question.whole))
        of.gap = not_a_number(metric, members)
        if of.number is None and of.histogram is None:
            of.problem = of.gap
    return found


def _lost(
    question: Question, parts: Mapping[str, Part], dropped: Iterable[Mapping[str, str]], targets: Targets
) -> dict[str, tuple[str, set[str]]]:
    """By pool: the metric of the rows that are not there, and whose they are."""
    lost: dict[str, tuple[str, set[str]]] = {}
    for row in dropped:
        if (part := parts.get(row.get(PART, ""))) is not None:
            for pool, member in _owners(question, part, row, targets, set()):
                lost.setdefault(pool, (part.candidate.metric, set()))[1].add(member)
    return lost


def _buckets(
    question: Question, parts: Mapping[str, Part], rows: Iterable[Row], targets: Targets,
    used: dict[str, dict[str, None]], ambiguous: set[str],
) -> dict[str, dict[str, Buckets]]:  # fmt: skip
    """By pool and member."""
    cells: dict[str, dict[str, Buckets]] = {}
    # Rows of one group differ in `le` alone, so whose they are is found once for all of them.
    owners: dict[tuple[str | None, ...], list[dict[float | None, float]]] = {}
    for row, value in rows:
        tag = row.get(PART, "")
        part = parts.get(tag)
        if part is None:
            continue
        key = (tag, *map(row.get, part.labels))
        own = owners.get(key)
        if own is None:
            own = owners[key] = []
            for pool, member in _owners(question, part, row, targets, ambiguous):
                own.append(cells.setdefault(pool, {}).setdefault(member, {}).setdefault(tag, {}))
                used.setdefault(pool, {})[part.candidate.metric] = None
        edge = _edge(row["le"]) if "le" in row else None
        for buckets in own:
            buckets[edge] = buckets.get(edge, 0.0) + value
    return cells


def _numbers(
    question: Question, parts: Mapping[str, Part], rows: Iterable[Row], targets: Targets,
    used: dict[str, dict[str, None]], ambiguous: set[str],
) -> dict[str, dict[str, Numbers]]:  # fmt: skip
    """By pool and member."""
    cells: dict[str, dict[str, Numbers]] = {}
    newest: dict[tuple[str, str, str], float] = {}
    for row, value in rows:
        tag = row.get(PART, "")
        part = parts.get(tag)
        if part is None:
            continue
        candidate = part.candidate
        for pool, member in _owners(question, part, row, targets, ambiguous):
            of = cells.get(pool)
            if of is None:
                of, used[pool] = {}, {}
                cells[pool] = of
            used[pool][candidate.metric] = None
            cell = of.get(member)
            if cell is None:
                cell = of[member] = {}
            if not candidate.value_label:
                known = cell.get(tag)
                if known is None:
                    cell[tag] = [value]
                else:
                    known.append(value)
            elif value > newest.get((pool, member, tag), -math.inf):
                # The sample is the time at which the list was set; lists that were replaced stay exposed.
                newest[pool, member, tag] = value
                cell[tag] = [_names_in(row.get(candidate.value_label, ""))]
    return cells


def _each_for_itself(
    parts: Mapping[str, Part], cells: dict[str, Numbers], used: dict[str, None]
) -> dict[str, Numbers]:  # fmt: skip
    """Without what is told of the whole pool, where a replica tells the same for itself."""
    whole = {tag: part.candidate.metric for tag, part in parts.items() if part.candidate.whole}
    if not whole:
        return cells
    bare = {member: {tag: of for tag, of in cell.items() if tag not in whole} for member, cell in cells.items()}
    kept = {member: cell for member, cell in bare.items() if cell}
    if kept:
        for metric in whole.values():
            used.pop(metric, None)
    return kept or cells


def common_edges(question: Question, rows: Iterable[Row], targets: Targets, *, common: bool = True) -> dict[str, Edges]:
    """From the answer to ``Question.grid``: per pool and part, the edges that every series has (or any, if not
    `common`). "10" and "10.0" are one edge."""
    parts = {part.tag: part for part in question.parts}
    counts: dict[str, dict[str, dict[float, float]]] = {}
    for row, count in rows:
        part = parts.get(row.get(PART, ""))
        if part is None or "le" not in row:
            continue
        for pool, _ in _owners(question, part, row, targets, set()):
            of = counts.setdefault(pool, {}).setdefault(part.tag, {})
            edge = _edge(row["le"])
            of[edge] = of.get(edge, 0.0) + count
    return {
        pool: {
            tag: frozenset(edge for edge, count in of.items() if not common or count == max(of.values()))
            for tag, of in by_tag.items()
        }
        for pool, by_tag in counts.items()
    }


def members(question: Question, rows: Iterable[Row], targets: Targets) -> dict[str, set[str]]:
    """From the answer to ``Question.grid``: per pool, the replicas or parts of the split that have series."""
    parts = {part.tag: part for part in question.parts}
    found: dict[str, set[str]] = {}
    for row, _ in rows:
        if (part := parts.get(row.get(PART, ""))) is not None:
            for pool, member in _owners(question, part, row, targets, set()):
                found.setdefault(pool, set()).add(member)
    return found


def _owners(
    question: Question, part: Part, row: Mapping[str, str], targets: Targets, ambiguous: set[str]
) -> Sequence[tuple[str, str]]:
    """(pool, replica or part of a split) of a row."""
    place = part.place
    if part.by_target and isinstance(place, ByLabels):
        # From the target's side: of the pools that these labels fit, which may be the whole fleet, it serves a few.
        seats, fitting = targets.pool_of(row), place.by_name(row)
        pools = tuple(fitting[name] for name in seats if name in fitting)
        if len(seats) > 1:
            ambiguous.update(pool.pool for pool in pools)
            return ()
    else:
        pools = place.pools(row)
    if question.split and question.split != MEANS:
        labels = split_labels(question.family, question.fact, question.split)
        return [(pool.pool, row.get(labels.get(pool.pool, ""), "")) for pool in pools]
    return [(pool.pool, _replica(part, pool, row)) for pool in pools]


def _replica(part: Part, pool: PoolNeeds, row: Mapping[str, str]) -> str:
    if isinstance(part.place, ByWorkload):
        return "" if part.candidate.workload_kind else part.place.name(row)
    if pool.replica_label in part.labels:
        return row.get(pool.replica_label) or row.get("instance", "")
    return ""


def _histograms(question: Question, parts: Mapping[str, Part], cells: Mapping[str, Buckets], edges: Edges) -> Values:
    # The pods of a part of a split may have different edges, as those of the pool.
    keep = edges if question.split else {}
    each = {member: _histogram(parts, cell, keep) for member, cell in cells.items()}
    found = Values(question.split, question.whole, {}, {member: h for member, h in each.items() if h is not None})
    found.histogram = _histogram(parts, _added(cells.values()), edges)
    if found.histogram is None:
        found.problem = f"{question.parts[0].candidate.metric}: buckets without a sum or a count"
    return found


def _number(question: Question, parts: Mapping[str, Part], values: Mapping[str, Sequence[float]]) -> float:
    """The rows of one replica: each candidate is the sum of its parts. Of a gauge, or where candidates read the same
    thing side by side (a platform exporter), the best candidate counts; counters of several targets add up."""
    if len(values) == 1:
        [(tag, of)] = values.items()
        candidate = parts[tag].candidate
        return _combine(candidate.within, of) * candidate.scale
    by_candidate: dict[str, float] = {}
    for tag, of in values.items():
        candidate = parts[tag].candidate
        first = tag.partition(".")[0]
        by_candidate[first] = by_candidate.get(first, 0.0) + _combine(candidate.within, of) * candidate.scale
    if question.fact.kind is Kind.GAUGE or question.family.platform:
        return by_candidate[min(by_candidate, key=lambda first: int(first or 0))]
    return math.fsum(by_candidate.values())


def _added(cells: Collection[Buckets]) -> Buckets:
    if len(cells) == 1:
        return next(iter(cells))
    total: Buckets = {}
    for cell in cells:
        for tag, buckets in cell.items():
            of = total.setdefault(tag, {})
            for edge, count in buckets.items():
                of[edge] = of.get(edge, 0.0) + count
    return total


def _histogram(
    parts: Mapping[str, Part], by_part: Mapping[str, Mapping[float | None, float]], edges: Edges
) -> HistogramIncrement | None:
    """One histogram of all parts, on the edges that all of them have, in seconds. None without a sum or a count."""
    scaled: list[dict[float, float]] = []
    total = 0.0
    for tag, buckets in by_part.items():
        if None not in buckets or math.inf not in buckets:
            return None
        scale = parts[tag].candidate.scale
        total += buckets[None] * scale
        keep = edges.get(tag)
        scaled.append(
            {
                (edge * scale if math.isfinite(edge) else edge): count
                for edge, count in buckets.items()
                if edge is not None and (keep is None or edge in keep or edge == math.inf)
            }
        )
    if not scaled:
        return None
    if len(scaled) == 1:
        [only] = scaled
        common = sorted(only)
        cumulative = tuple(accumulate((only[edge] for edge in common), max))
        return HistogramIncrement(_shared(tuple(common[:-1])), cumulative[:-1], cumulative[-1], total)
    common = sorted(frozenset.intersection(*(frozenset(of) for of in scaled)))
    # A restart that only some buckets show as a fall can leave a lower bucket above a higher one.
    cumulative = tuple(accumulate((math.fsum(of[edge] for of in scaled) for edge in common), max))
    return HistogramIncrement(_shared(tuple(common[:-1])), cumulative[:-1], cumulative[-1], total)


@lru_cache(maxsize=1024)
def _shared(edges: tuple[float, ...]) -> tuple[float, ...]:
    """One and the same tuple for equal edges: a fleet has few grids, and remembers each increment for a while."""
    return edges


def _combine(how: str, numbers: Sequence[float]) -> float:
    if len(numbers) == 1:
        return numbers[0]
    if how == "max":
        return max(numbers)
    total = math.fsum(numbers)
    return total / len(numbers) if how == "mean" else total


def _edge(text: str) -> float:
    """A bucket edge; "10" and "10.0" alike. Raises BadAnswer."""
    try:
        return float(text)
    except ValueError as error:
        raise BadAnswer(f"a bucket edge le={text!r} is not a number") from error


def _names_in(text: str) -> float:
    return float(len([name for name in text.split(",") if name.strip()]))
