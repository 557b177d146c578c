"""Folding: the arithmetic of one selection, prepared as index arrays.

Increments are formed per original series and per frame, then duplicates are taken away, then all is summed into cells:
one per (scope, fact, edge). Because frames are the atoms, the sum over any ticking is the same.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.core.facts import Fact, Kind
from controller.core.observation import HistogramIncrement
from controller.core.ports import PoolNeeds
from sources.contracts.contract import Candidate
from sources.frames import Layout, Values
from sources.selection import Entry, Selection

Scope = tuple[int, str, str]  # (pool, "pool" | "replica" | the kind of a split, name)
_Place = tuple[int, Fact, str, tuple[tuple[str, str], ...]]  # pool, fact, replica, shares
Indexes = NDArray[np.intp]
Told = tuple[dict[Fact, str], dict[Fact, str], frozenset[Fact]]  # unsupported, sources, late


class Block(NamedTuple):
    """Where one fact of one scope lies among the cells: its edges, then count, then sum; or one cell for a counter.
    `summed` is whether the series of the sum is there."""

    scope: Scope
    fact: Fact
    edges: tuple[float, ...]
    start: int
    summed: bool


class GaugePart(NamedTuple):
    """One part of a gauge of one replica: per quantity the series that repeat it, and those it is divided by."""

    candidate: Candidate
    groups: tuple[tuple[int, ...], ...]
    over: tuple[int, ...]
    names: Mapping[int, int]  # for a value that is a list in a label: how long it is, by series


class Gauge(NamedTuple):
    """A gauge of one replica (or part of a split) of a pool."""

    pool: int
    fact: Fact
    replica: str
    shares: tuple[tuple[str, str], ...]
    parts: tuple[GaugePart, ...]


class Fold:
    """The plan for one selection."""

    def __init__(self, selection: Selection, layout: Layout, needs: Sequence[PoolNeeds], pool_first: bool) -> None:
        self.selection = selection
        self.told: dict[int, Told] = {}  # a cache of its user, per pool
        cumulative = [e for e in selection.entries if e.fact.kind is not Kind.GAUGE and e.slot != "gate"]
        ranked = sorted((e.child, _rung(e), number) for number, e in enumerate(cumulative))
        keys = [child for child, _, _ in ranked]
        cumulative = [cumulative[number] for _, _, number in ranked]
        self.gauges = _gauges([e for e in selection.entries if e.fact.kind is Kind.GAUGE], layout)
        self._series = np.array([e.series for e in cumulative], dtype=np.intp)
        self._scale = np.array([1.0 if e.fact.kind is Kind.HISTOGRAM and e.slot != "sum" else e.candidate.scale
                                for e in cumulative])  # fmt: skip
        self._health = _health(layout, cumulative)
        self._is_sum = np.array([e.slot == "sum" for e in cumulative], dtype=bool)
        members: dict[object, int] = {}
        self._member = np.array([members.setdefault(key, len(members)) for key in keys], dtype=np.intp)
        self._ladder = _ladder(cumulative, self._member)
        self._gates = _gates(cumulative, selection.entries)
        cells: dict[object, int] = {}
        ids = [cells.setdefault(e.cell, len(cells)) for e in cumulative]
        heads: dict[int, Entry] = {}
        for entry, cell in zip(cumulative, ids, strict=True):
            heads.setdefault(cell, entry)
        self._duplicated = len(cells) < len(cumulative)
        self._cell = np.array(ids, dtype=np.intp)
        self._cells = len(cells)
        selection.entries.clear()  # a fleet's are large, and plans are kept
        self.blocks, self._source, self._into, self.size = _blocks(list(heads.values()), needs, pool_first)

    def increments(self, before: Values, now: Values, odd: Sequence[int] = ()) -> Values:
        """Per cell, what was added between two consecutive frames. Values of series absent are NaN; `odd` are columns
        that were no number `before`: they are not born now, and what they counted since nobody knows."""
        v0, v1 = before[self._series], now[self._series]
        added = v1 - v0
        born = np.isnan(v0)
        fell = added < 0
        if fell.any():
            # One bucket that fell proves that the whole histogram was started anew, also where another bucket did not.
            again = np.isin(self._member, self._member[fell]) & ~born
            added[again] = v1[again]
        if self._ladder.size:
            self._repair(added)
        if born.any():
            healthy = np.zeros(len(v0), dtype=bool)
            for column in self._health:
                known = column >= 0
                healthy[known] |= before[column[known]] == 1.0
            if odd:
                healthy &= ~np.isin(self._series, odd)
            added[born] = np.where(healthy[born], v1[born], 0.0)
        if self._gates is not None:
            gated, where, partner = self._gates
            is_open = ~gated
            np.logical_or.at(is_open, where, now[partner] > 0)
            added[~is_open] = 0.0
        added *= self._scale
        if self._duplicated:
            most = np.zeros(self._cells)
            np.maximum.at(most, self._cell, added)
            added = most
        folded = np.bincount(self._into, weights=added[self._source], minlength=self.size)
        return folded.astype(np.float64, copy=False)

    def histogram(self, block: Block, totals: Sequence[float]) -> HistogramIncrement:
        end = block.start + len(block.edges)
        cumulative = tuple(totals[block.start : end])
        total = totals[end + 1] if block.summed else _middling(block.edges, cumulative, totals[end])
        return HistogramIncrement(block.edges, cumulative, totals[end], total)

    def _repair(self, added: Values) -> None:
        """Let cumulative buckets not fall along their edges. A restart that hid itself, or an exporter that was read in
        the middle of a write, makes them seem to; the larger count is believed."""
        low = self._ladder[added[self._ladder + 1] < added[self._ladder]]
        for member in np.unique(self._member[low]).tolist():
            rungs = np.flatnonzero(self._member == member)
            end = rungs[-1] + 1 - int(self._is_sum[rungs[-1]])  # the sum comes last
            added[rungs[0] : end] = np.maximum.accumulate(added[rungs[0] : end])


def _middling(edges: tuple[float, ...], cumulative: tuple[float, ...], count: float) -> float:
    """The sum of samples where only buckets are known: each sample in the middle of its bucket, those above the last
    edge on that edge."""
    lower, below, total = 0.0, 0.0, 0.0
    for edge, upto in zip(edges, cumulative, strict=True):
        total += (upto - below) * (lower + edge) / 2
        lower, below = edge, upto
    return total + (count - below) * lower


def merge(one: HistogramIncrement, other: HistogramIncrement) -> HistogramIncrement:
    """The sum of two increments on the edges that both have. One without samples says nothing about edges."""
    if one.edges == other.edges:
        added = tuple(a + b for a, b in zip(one.cumulative, other.cumulative, strict=True))
        return HistogramIncrement(one.edges, added, one.count + other.count, one.sum + other.sum)
    if not one.count or not other.count:
        return one if one.count else other
    theirs = dict(zip(other.edges, other.cumulative, strict=True))
    ours = dict(zip(one.edges, one.cumulative, strict=True))
    edges = tuple(edge for edge in one.edges if edge in theirs)
    added = tuple(ours[edge] + theirs[edge] for edge in edges)
    return HistogramIncrement(edges, added, one.count + other.count, one.sum + other.sum)


def gauge(parts: Sequence[GaugePart], values: Sequence[float]) -> float | None:
    """The value of one replica, in the unit of the fact; None when nothing of it can be read."""
    read = [value for part in parts if (value := _part(part, values)) is not None]
    return sum(read) if read else None


def combine(how: str, values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    if how == "max":
        return max(values)
    return sum(values) / len(values) if how == "mean" else sum(values)


def _part(part: GaugePart, values: Sequence[float]) -> float | None:
    candidate = part.candidate
    if not part.groups:
        return None
    if candidate.value_label:
        # The sample is the time at which the list was set; lists that were replaced stay exposed.
        return float(part.names[max((number for group in part.groups for number in group), key=values.__getitem__)])
    value = combine(candidate.within, [max(values[number] for number in group) for group in part.groups])
    if candidate.over is not None:
        below = combine(candidate.over.within, [values[number] for number in part.over]) if part.over else 0.0
        if below <= 0:
            return None
        value /= below * candidate.over.scale
    return value * candidate.scale


def _gauges(entries: Sequence[Entry], layout: Layout) -> list[Gauge]:
    places: dict[_Place, dict[int, tuple[Candidate, dict[object, list[int]], list[int]]]] = {}
    for entry in entries:
        parts = places.setdefault((entry.pool, entry.fact, entry.replica, entry.shares), {})
        _, groups, over = parts.setdefault(entry.part, (entry.candidate, {}, []))
        if entry.slot == "over":
            over.append(entry.series)
        elif entry.slot == "value":
            groups.setdefault(entry.member, []).append(entry.series)
    gauges = []
    for place, parts in places.items():
        pieces = tuple(
            GaugePart(candidate, tuple(map(tuple, groups.values())), tuple(over), _lengths(candidate, groups, layout))
            for candidate, groups, over in parts.values()
        )
        gauges.append(Gauge(*place, pieces))
    return gauges


def _lengths(candidate: Candidate, groups: Mapping[object, Sequence[int]], layout: Layout) -> Mapping[int, int]:
    if not candidate.value_label:
        return {}
    texts = {n: dict(layout.keys[n][1]).get(candidate.value_label, "") for group in groups.values() for n in group}
    return {number: len([name for name in text.split(",") if name.strip()]) for number, text in texts.items()}


def _health(layout: Layout, entries: Sequence[Entry]) -> list[Indexes]:
    """Columns of the numbers of each series' target's `up`, -1 where there is none (or no further one)."""
    ups: dict[tuple[str, str], list[int]] = {}
    for number, (name, pairs) in enumerate(layout.keys):
        if name == "up":
            labels = dict(pairs)
            ups.setdefault((labels.get("job", ""), labels.get("instance", "")), []).append(number)
    rows = [ups.get(entry.target, []) for entry in entries]
    width = max((len(row) for row in rows), default=0)
    return [np.array([row[i] if i < len(row) else -1 for row in rows], dtype=np.intp) for i in range(width)]


def _rung(entry: Entry) -> tuple[float, str]:
    """The order within one histogram: buckets by their edges, then the count, then the sum."""
    return (entry.slot, "") if isinstance(entry.slot, float) else (np.inf, entry.slot)


def _ladder(cumulative: Sequence[Entry], member: Indexes) -> Indexes:
    """Entries whose successor is the next rung of the same histogram and must not be less."""
    pairs = range(len(cumulative) - 1)
    rungs = [
        i for i in pairs if member[i] == member[i + 1] and "sum" not in (cumulative[i].slot, cumulative[i + 1].slot)
    ]
    return np.array(rungs, dtype=np.intp)


def _gates(cumulative: Sequence[Entry], entries: Sequence[Entry]) -> tuple[NDArray[np.bool_], Indexes, Indexes] | None:
    if not any(entry.candidate.only_with for entry in cumulative):
        return None
    partners: dict[object, list[int]] = {}
    for entry in entries:
        if entry.slot == "gate":
            partners.setdefault((entry.pool, entry.fact, entry.part, entry.member), []).append(entry.series)
    gated = np.array([entry.candidate.only_with is not None for entry in cumulative], dtype=bool)
    pairs = [
        (where, partner)
        for where, e in enumerate(cumulative)
        if e.candidate.only_with
        for partner in partners.get((e.pool, e.fact, e.part, e.member), ())
    ]
    return gated, np.array([p[0] for p in pairs], dtype=np.intp), np.array([p[1] for p in pairs], dtype=np.intp)


def _blocks(
    heads: Sequence[Entry], needs: Sequence[PoolNeeds], pool_first: bool
) -> tuple[list[Block], Indexes, Indexes, int]:
    """Lay out the cells; returns the blocks, and per contribution the source cell and the cell that it is added to."""
    grids: dict[object, set[float]] = {}
    counted: set[object] = set()
    summed: set[object] = set()
    whole = {(e.pool, e.fact) for e in heads if pool_first and not e.replica}
    for entry in heads:
        if entry.fact.kind is Kind.HISTOGRAM:
            key = (entry.pool, entry.fact, entry.part, entry.member)
            grid = grids.setdefault(key, set())
            if isinstance(entry.slot, float):
                grid.add(entry.slot)
            elif entry.slot == "count":
                counted.add(key)
            elif entry.slot == "sum":
                summed.add(key)
    edges_of = {key: tuple(sorted(edge for edge in grid if edge < np.inf)) for key, grid in grids.items()}
    means = [need.replica_means - need.replica_facts for need in needs]
    blocks: dict[tuple[Scope, Fact, tuple[float, ...], bool], Block] = {}
    size = 0
    source: list[int] = []
    into: list[int] = []
    for number, entry in enumerate(heads):
        key = (entry.pool, entry.fact, entry.part, entry.member)
        edges = edges_of.get(key, ())
        offset = _offset(entry, edges, key in counted)
        if offset is None:
            continue
        for scope in _scopes(entry, needs[entry.pool], whole):
            kept, at = edges, offset
            if scope[1] == "replica" and entry.fact in means[entry.pool]:
                kept, at = (), offset - len(edges)  # the count and the sum are enough
                if at < 0:
                    continue
            place = (scope, entry.fact, kept, key in summed)
            block = blocks.get(place)
            if block is None:
                block = blocks[place] = Block(scope, entry.fact, kept, size, key in summed)
                size += len(kept) + 2 if entry.fact.kind is Kind.HISTOGRAM else 1
            source.append(number)
            into.append(block.start + at)
    return list(blocks.values()), np.array(source, dtype=np.intp), np.array(into, dtype=np.intp), size


def _offset(entry: Entry, edges: tuple[float, ...], has_count: bool) -> int | None:
    if entry.fact.kind is not Kind.HISTOGRAM:
        return 0
    if entry.slot == "sum":
        return len(edges) + 1
    if entry.slot == "count":
        return len(edges)
    if isinstance(entry.slot, float) and entry.slot < np.inf:
        return edges.index(entry.slot)
    return None if has_count else len(edges)  # without a _count series, the bucket +Inf is the count


def _scopes(entry: Entry, need: PoolNeeds, whole: set[tuple[int, Fact]]) -> list[Scope]:
    scopes: list[Scope] = [(entry.pool, kind, name) for kind, name in entry.shares]
    if entry.fact in need.facts and (not entry.replica or (entry.pool, entry.fact) not in whole):
        scopes.append((entry.pool, "pool", ""))
    if entry.replica and (entry.fact in need.replica_facts or entry.fact in need.replica_means):
        scopes.append((entry.pool, "replica", entry.replica))
    return scopes


def gauges_by_scope(
    gauges: Sequence[Gauge], values: Sequence[float], needs: Sequence[PoolNeeds], pool_first: bool
) -> Mapping[Scope, Mapping[Fact, float]]:
    """The gauges of every pool, replica and part of a split at one frame."""
    whole = {(g.pool, g.fact) for g in gauges if pool_first and not g.replica}
    pooled: dict[tuple[int, Fact], dict[str, list[tuple[float, Candidate]]]] = {}
    found: dict[Scope, dict[Fact, float]] = {}
    for one in gauges:
        value = gauge(one.parts, values)
        if value is None:
            continue
        need, candidate = needs[one.pool], one.parts[0].candidate
        if one.fact in need.facts and (not one.replica or (one.pool, one.fact) not in whole):
            pooled.setdefault((one.pool, one.fact), {}).setdefault(one.replica, []).append((value, candidate))
        if one.replica and one.fact in need.replica_facts:
            _add(found.setdefault((one.pool, "replica", one.replica), {}), one.fact, value, candidate.within)
        for kind, name in one.shares:
            _add(found.setdefault((one.pool, kind, name), {}), one.fact, value, candidate.within)
    for (pool, fact), replicas in pooled.items():
        candidate = next(iter(replicas.values()))[0][1]
        per_replica = [combine(candidate.within, [value for value, _ in rows]) for rows in replicas.values()]
        found.setdefault((pool, "pool", ""), {})[fact] = combine(candidate.across, per_replica)
    return found


def _add(facts: dict[Fact, float], fact: Fact, value: float, how: str) -> None:
    facts[fact] = max(facts.get(fact, value), value) if how == "max" else facts.get(fact, 0.0) + value
