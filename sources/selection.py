"""Selection: which series feed which fact of which pool, replica, tenant and class.

Done once per set of present series, not once per frame. Rules: a pool sees the series that its matchers accept; per
replica the best candidate whose names are exposed is read, so a pool in the middle of an upgrade is read by both
contracts at once and no quantity is counted twice under two names.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.contracts import engines, load
from sources.contracts.contract import Candidate, Contract
from sources.contracts.resolve import resolve
from sources.frames import Layout, SeriesKey, Values
from sources.roles import Use, announcing, best, member_of, roles, slot_of
from sources.splits import splits
from sources.workloads import fits, workload_replica

Target = tuple[str, str]  # (job, instance)


@cache
def accepts(matcher: Matcher) -> Callable[[str], bool]:
    """Whether a label value passes; regular expressions are anchored. An absent label has the value ""."""
    if matcher.op in ("=", "!="):
        return lambda value: (value == matcher.value) == (matcher.op == "=")
    pattern = re.compile(matcher.value)
    return lambda value: (pattern.fullmatch(value) is not None) == (matcher.op == "=~")


class Entry(NamedTuple):
    """One series in one role for one pool. `slot` is the upper edge of a bucket in the unit of the fact, or the role;
    entries that differ only in `series` within one `cell` repeat the same quantity. `shares` are the (kind, value) of
    the splits that want it. What has the same `child` is one counter or histogram of one process, and resets together;
    `target` is who was scraped for it."""

    pool: int
    fact: Fact
    rank: int
    part: int
    candidate: Candidate
    replica: str
    shares: tuple[tuple[str, str], ...]
    slot: float | str
    member: SeriesKey
    series: int
    child: tuple[object, ...]
    target: Target

    @property
    def cell(self) -> tuple[int, Fact, int, float | str, SeriesKey]:
        return (self.pool, self.fact, self.part, self.slot, self.member)


class _Sight(NamedTuple):
    """What one series is to one pool, whatever else is there. `follows` when it belongs to the pool only if its replica
    (or target) does by other series; a `platform` series says nothing of targets."""

    pool: int
    replica: str
    target: Target
    labels: dict[str, str]
    names: frozenset[str]
    follows: bool
    platform: bool
    entries: tuple[Entry, ...]
    bare: tuple[tuple[str, str], ...] = ()  # (metric, label): it lacks a label that the contract selects by


@dataclass(slots=True)
class Selection:
    """What was selected. `zeros` are facts whose series are born with their first event and were not born yet; they are
    known to be 0. `targets` maps each target of a pool to its replica."""

    entries: list[Entry] = field(default_factory=list)
    zeros: set[tuple[int, str, Fact]] = field(default_factory=set)
    sources: dict[tuple[int, Fact], dict[str, None]] = field(default_factory=dict)
    given: set[tuple[int, Fact]] = field(default_factory=set)
    targets: dict[int, dict[Target, str]] = field(default_factory=dict)
    replicas: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)  # its labels
    names: dict[tuple[int, str], set[str]] = field(default_factory=dict)  # (pool, contract) -> names seen
    bare: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)  # (pool, replica): metric -> label absent
    unread: dict[int, dict[Fact, str]] = field(default_factory=dict)  # per pool, why what is counted cannot be read


class Selector:
    """Selects for a fixed set of pools. `contracts` replaces the contract of every engine, for recordings of facts."""

    def __init__(self, needs: Sequence[PoolNeeds], contract: Contract | None = None) -> None:
        self.needs = needs
        self._engines = [contract or load(need.engine) for need in needs]
        platforms = [] if contract else [c for c in map(load, engines()) if c.scope == "platform"]
        self._splits = [splits(need, own) for need, own in zip(needs, self._engines, strict=True)]
        self._wanted = [need.wanted for need in needs]
        self._homes: list[
            dict[str, tuple[Contract, frozenset[Fact]]]
        ] = []  # per pool: which contract gives which facts
        self._bare: set[str] = set()  # names without a model label that announce others
        self._announces: dict[str, str] = {}  # sample name -> the name in `born_with` that it stands for
        self._uses: dict[str, dict[str, list[Use]]] = {}  # name -> contract -> uses
        self._pools: dict[str, list[int]] = {}
        self._ignored: dict[str, tuple[float, float]] = {}
        for pool, own in enumerate(self._engines):
            homes: dict[str, tuple[Contract, frozenset[Fact]]] = {}
            left = self._wanted[pool]
            for home in (own, *(platforms if needs[pool].workload else ())):
                facts = frozenset(left & home.candidates.keys())
                if facts or home is own:
                    homes[home.engine] = (home, facts)
                    left -= facts
                    self._pools.setdefault(home.engine, []).append(pool)
                    self._register(home, facts)
            self._homes.append(homes)
        self._seen = 0
        self._bounded: list[tuple[int, float, float]] = []  # series whose values may be blanks
        self._labels: list[dict[str, str]] = []
        self._sights: dict[tuple[int, str], tuple[_Sight, ...]] = {}  # by number of the series and contract
        self._matched: dict[tuple[str, bool, tuple[str, ...]], list[int]] = {}
        self._selectors = {
            engine: tuple(sorted({m.label for pool in pools for m in needs[pool].matchers}))
            for engine, pools in self._pools.items()
        }

    def _register(self, contract: Contract, facts: frozenset[Fact]) -> None:
        for fact in sorted(facts):
            for rank, candidate in enumerate(contract.candidates[fact]):
                for part, piece in enumerate(candidate.parts):
                    for name, role in roles(piece):
                        uses = self._uses.setdefault(name, {}).setdefault(contract.engine, [])
                        if (use := Use(fact, rank, part, piece, role)) not in uses:
                            uses.append(use)
                    if piece.ignore_below is not None or piece.ignore_above is not None:
                        low = -np.inf if piece.ignore_below is None else piece.ignore_below
                        high = np.inf if piece.ignore_above is None else piece.ignore_above
                        self._ignored[piece.metric] = (low, high)
                for spelling, name in announcing(candidate):
                    self._announces[spelling] = name
                    self._bare |= {spelling} if candidate.no_model else set()
                    self._uses.setdefault(spelling, {}).setdefault(contract.engine, [])

    @property
    def names(self) -> frozenset[str]:
        """Every sample name that can be of use, partners and targets' health included."""
        partners = {
            piece.only_with.metric
            for uses in self._uses.values()
            for rows in uses.values()
            for piece in (use.candidate for use in rows)
            if piece.only_with
        }
        return frozenset(self._uses) | partners | {"up", "process_start_time_seconds"}

    def blank(self, layout: Layout, values: Values) -> Values:
        """`values` with the exporter's blanks (-1 for "off", 9.2e18 for "no data") made absent."""
        if not self._ignored:
            return values
        for number in range(self._seen, len(layout)):
            if bounds := self._ignored.get(layout.keys[number][0]):
                self._bounded.append((number, *bounds))
        self._seen = len(layout)
        if not self._bounded:
            return values
        values = values.copy()
        for number, low, high in self._bounded:
            if number < len(values) and not low <= values[number] <= high:
                values[number] = np.nan
        return values

    def select(self, layout: Layout, present: Sequence[int]) -> Selection:
        """The selection for the series that are present, by number."""
        self._labels.extend(dict(pairs) for _, pairs in layout.keys[len(self._labels) :])
        found = Selection()
        later: list[tuple[int, str]] = []
        exposed: dict[tuple[int, str], dict[str, set[str]]] = {}
        for number in present:
            for engine, uses in self._uses.get(layout.keys[number][0], {}).items():
                if any(use.candidate.no_model for use in uses) or (not uses and layout.keys[number][0] in self._bare):
                    later.append((number, engine))
                else:
                    self._visit(layout, number, engine, uses, False, found, exposed)
        for number, engine in later:
            self._visit(layout, number, engine, self._uses[layout.keys[number][0]][engine], True, found, exposed)
        self._choose(found, exposed)
        self._gate(layout, present, found)
        return found

    def unsupported(self, pool: int, found: Selection) -> dict[Fact, str]:
        """The reason for each wanted fact that no contract of this pool can give."""
        reasons: dict[Fact, str] = {}
        homes = self._homes[pool]
        for engine, (contract, facts) in homes.items():
            if names := found.names.get((pool, engine)):
                chosen = resolve(contract, names)
                absent = {fact for fact in facts if (pool, fact) not in found.given}
                reasons.update({fact: why for fact in absent if isinstance(why := chosen[fact], str)})
        given = frozenset[Fact]().union(*(facts for _, facts in homes.values()))
        own = self._engines[pool]
        reasons.update({fact: own.unsupported[fact] for fact in self._wanted[pool] - given if fact in own.unsupported})
        return reasons

    # --- one series ------------------------------------------------------------------------------------------------

    def _visit(
        self,
        layout: Layout,
        number: int,
        engine: str,
        uses: list[Use],
        no_model: bool,
        found: Selection,
        exposed: dict[tuple[int, str], dict[str, set[str]]],
    ) -> None:
        sights = self._sights.get((number, engine))
        if sights is None:
            sights = self._sights[number, engine] = tuple(self._sight(layout, number, engine, uses, no_model))
        for sight in sights:
            pool, replica, target = sight.pool, sight.replica, sight.target
            if sight.follows:
                known = (pool, replica) in found.replicas if replica else target in found.targets.get(pool, {})
                if not known:
                    continue
            elif not sight.platform:
                found.targets.setdefault(pool, {})[target] = replica
                if replica:
                    found.replicas.setdefault((pool, replica), sight.labels)
            exposed.setdefault((pool, replica), {}).setdefault(engine, set()).update(sight.names)
            found.names.setdefault((pool, engine), set()).update(sight.names)
            found.entries += sight.entries
            if sight.bare:
                found.bare.setdefault((pool, replica), {}).update(sight.bare)

    def _sight(self, layout: Layout, number: int, engine: str, uses: list[Use], no_model: bool) -> Iterator[_Sight]:
        """What one series is to each pool that it may belong to."""
        name, pairs = layout.keys[number]
        labels = self._labels[number]
        target = (labels.get("job", ""), labels.get("instance", ""))
        rest = tuple(pair for pair in pairs if pair[0] != "le")
        names = frozenset({name, self._announces.get(name, name)})
        for pool in self._pools_of(engine, labels, no_model):
            need = self.needs[pool]
            contract, facts = self._homes[pool][engine]
            platform = contract.scope == "platform"
            if platform:
                found = workload_replica(need, labels, [use.candidate for use in uses])
                if found is None:
                    continue
                replica = found
            else:
                replica = labels.get(need.replica_label, "")
            # Series that do not name their model belong to the pool that their replica belongs to.
            follows = not platform and no_model and _by_model(contract, need)
            entries: list[Entry] = []
            bare = {(use.candidate.metric, label) for use in uses for label in _lacks(use.candidate, labels)}
            for use in uses:
                if use.fact in facts and _passes(use.candidate, labels) and fits(use.candidate, need, labels):
                    slot, member = slot_of(use, labels), member_of(use, name, labels, replica)
                    if slot is None:
                        continue
                    shares = tuple(
                        (split.kind, value)
                        for split in self._splits[pool]
                        if use.fact in split.facts and (value := labels.get(split.label, ""))
                    )
                    child = (pool, use.fact.value, use.part, use.candidate.metric, rest)
                    entries.append(
                        Entry(
                            pool, use.fact, use.rank, use.part, use.candidate, replica, shares, slot, member, number,
                            child, target,
                        )
                    )  # fmt: skip
            yield _Sight(pool, replica, target, labels, names, follows, platform, tuple(entries), tuple(sorted(bare)))

    def _pools_of(self, engine: str, labels: dict[str, str], no_model: bool) -> list[int]:
        values = tuple(labels.get(label, "") for label in self._selectors[engine])
        key = (engine, no_model, values)
        if (pools := self._matched.get(key)) is None:
            pools = self._matched[key] = [
                pool
                for pool in self._pools[engine]
                if self._is_of(pool, self._homes[pool][engine][0], labels, no_model)
            ]
        return pools

    def _is_of(self, pool: int, contract: Contract, labels: dict[str, str], no_model: bool) -> bool:
        if contract.scope == "platform":
            return self.needs[pool].workload is not None  # who it belongs to is told by the workload's name
        return all(
            accepts(matcher)(labels.get(matcher.label, ""))
            for matcher in self.needs[pool].matchers
            if not (no_model and matcher.label == contract.model_label)
        )

    # --- which candidate -------------------------------------------------------------------------------------------

    def _choose(self, found: Selection, exposed: dict[tuple[int, str], dict[str, set[str]]]) -> None:
        ranks: dict[tuple[int, str, Fact], tuple[int, Candidate]] = {}
        told: set[tuple[int, Fact]] = set()  # by replicas, each for itself
        read = {(e.pool, e.replica, e.fact, e.rank) for e in found.entries} if found.bare else set()
        for (pool, replica), by_engine in exposed.items():
            for engine, names in by_engine.items():
                contract, facts = self._homes[pool][engine]
                for fact in facts:
                    rank = best(contract.candidates[fact], names, self.needs[pool])
                    if rank is None:
                        continue
                    chosen = contract.candidates[fact][rank]
                    label = found.bare.get((pool, replica), {}).get(chosen.metric, "")
                    if label and (pool, replica, fact, rank) not in read:
                        # It was counted, and nobody can tell what of it is meant: that is not nothing.
                        why = f"{chosen.metric} does not carry the label {label}"
                        found.unread.setdefault(pool, {})[fact] = why
                        continue
                    ranks[pool, replica, fact] = rank, chosen
                    if not chosen.whole:
                        told.add((pool, fact))
                    if names.intersection(chosen.born_with):
                        found.zeros.add((pool, replica, fact))
                    found.given.add((pool, fact))
        for (pool, replica, fact), (_, chosen) in list(ranks.items()):
            if chosen.whole and (pool, fact) in told:
                del ranks[pool, replica, fact]
                found.zeros.discard((pool, replica, fact))
            else:
                found.sources.setdefault((pool, fact), {})[chosen.metric] = None
        known = {key: rank for key, (rank, _) in ranks.items()}
        found.entries = [e for e in found.entries if known.get((e.pool, e.replica, e.fact)) == e.rank]

    def _gate(self, layout: Layout, present: Sequence[int], found: Selection) -> None:
        """Make the partners of `only_with` entries known, as entries of their own with the slot "gate"."""
        gated = [entry for entry in found.entries if entry.candidate.only_with]
        partners: dict[str, list[int]] = {}
        wanted = {entry.candidate.only_with.metric for entry in gated if entry.candidate.only_with}
        for number in present if wanted else ():
            if (name := layout.keys[number][0]) in wanted:
                partners.setdefault(name, []).append(number)
        index: dict[tuple[Candidate, tuple[str, ...]], list[int]] = {}
        for candidate in {entry.candidate for entry in gated}:
            for number in partners.get(candidate.only_with.metric, ()) if candidate.only_with else ():
                labels = self._labels[number]
                if candidate.only_with and _passes(candidate.only_with, labels):
                    key = tuple(labels.get(name, "") for name in candidate.on)
                    index.setdefault((candidate, key), []).append(number)
        for entry in gated:
            labels = self._labels[entry.series]
            key = tuple(labels.get(name, "") for name in entry.candidate.on)
            for number in index.get((entry.candidate, key), ()):
                found.entries.append(entry._replace(slot="gate", series=number))


def _passes(candidate: Candidate, labels: dict[str, str]) -> bool:
    return all(accepts(matcher)(labels.get(matcher.label, "")) for matcher in candidate.where)


def _lacks(candidate: Candidate, labels: dict[str, str]) -> Iterator[str]:
    """Labels by which a candidate is selected and that a series does not have."""
    return (m.label for m in candidate.where if m.label not in labels and not accepts(m)(""))


def _by_model(contract: Contract, need: PoolNeeds) -> bool:
    return any(matcher.label == contract.model_label for matcher in need.matchers)
