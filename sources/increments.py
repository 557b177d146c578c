"""Increments in Python: a stream of frames in, observations out, by the rules of ``controller.core.observation``.

Used by recordings and by direct scrapes. Increments are formed between consecutive frames and added up until they are
taken, so the choice of tick boundaries changes nothing but the partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from controller.core.facts import Fact, Kind
from controller.core.observation import Facts, HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.ports import PoolNeeds
from sources import facts
from sources.contracts.late import late_facts
from sources.folding import Fold, Scope, Told, gauges_by_scope, merge
from sources.frames import Frame, Layout, SeriesKey, Values
from sources.selection import Selector, Target
from sources.sentences import not_a_number
from sources.splits import CLASS, TENANT

# A counter that was not read for longer than this says when nothing happened in between; what was added is dropped.
LONGEST_GAP = 300.0
# Plans are kept, since a target that fails now and then brings back the same set of series; of a large fleet fewer.
_PLANS = 64
_PLANNED = 1_000_000  # series in all plans together


@dataclass(slots=True)
class _Member:
    """What is remembered of a replica between frames."""

    target: Target
    labels: Mapping[str, str]
    seen: float
    stamp: float  # of its sample


@dataclass(slots=True)
class _Scoped:
    histograms: dict[Fact, HistogramIncrement] = field(default_factory=dict)
    counters: dict[Fact, float] = field(default_factory=dict)
    gauges: dict[Fact, float] = field(default_factory=dict)


class Increments:
    """Turns frames into observations. Not thread-safe.

    Longer than `longest_gap` seconds without a frame are bridged by no increment. `recorded` is given for recordings of
    facts: what each fact was read from, with those that are known at a request's end in `late`. There a series without
    a replica speaks for the whole pool, and the replicas' own series are not added to it.
    """

    def __init__(
        self,
        needs: Sequence[PoolNeeds],
        *,
        recorded: Mapping[str, str] | None = None,
        late: Iterable[str] = (),
        longest_gap: float = LONGEST_GAP,
    ) -> None:
        self._needs = tuple(needs)
        self._selector = Selector(self._needs, None if recorded is None else facts.contract(recorded))
        self._recorded = recorded
        self._late = frozenset(Fact(name) for name in late)
        self._pool_first = recorded is not None
        self._longest_gap = longest_gap
        self._plans: dict[tuple[int, bytes], Fold] = {}
        self._layout = Layout()
        self._totals: dict[int, tuple[Fold, Values]] = {}
        self._fold: Fold | None = None
        self._before: Values | None = None
        self._newest: float | None = None
        self._base: float | None = None  # since when the totals count
        self._taken = False
        self._stamped = False
        self._replicas: dict[tuple[int, str], _Member] = {}
        self._targets: dict[int, dict[Target, str]] = {}  # per pool: target -> replica
        self._sighted: dict[int, dict[Target, float]] = {}  # per pool: when a target showed any series of it
        self._odd: list[int] = []  # columns of series that were no number in the newest frame
        self._doubts: dict[int, dict[Fact, str]] = {}
        self._reasons: dict[int, Mapping[Fact, str]] = {}
        self._health: dict[Target, bool] = {}
        self._scanned = 0
        self._ups: list[tuple[int, Target]] = []
        self._starts: list[tuple[int, Target]] = []

    @property
    def newest(self) -> float | None:
        """When the newest frame was seen, unix seconds."""
        return self._newest

    @property
    def base(self) -> float | None:
        """Since when increments are being added up, unix seconds; None before the first observation."""
        return self._base

    @property
    def names(self) -> frozenset[str]:
        """Sample names that can be of use to these pools; all others may be left out of a frame."""
        return self._selector.names

    @property
    def matched(self) -> bool:
        """Whether any series so far belonged to any pool."""
        return bool(self._targets)

    def feed(
        self, frame: Frame, odd: Iterable[SeriesKey] = (), *, stamps: Mapping[Target, float] | None = None
    ) -> None:
        """Take in the next frame; `odd` are series that are absent in it because their value was no number. `stamps`
        are the times of the samples by target, unix seconds, None when they are not known; a target that has none was
        read at the time of the frame. Raises ValueError when it is not newer than the one before."""
        if self._newest is not None and frame.at <= self._newest:
            raise ValueError(f"frame of {frame.at:.3f} is not newer than the one before, {self._newest:.3f}")
        if self._before is None:
            self._layout = frame.layout
        elif frame.layout is not self._layout:
            frame = self._layout.frame(frame.at, frame.samples())
        now = np.full(len(self._layout), np.nan)
        now[: len(frame.values)] = frame.values
        now = self._selector.blank(self._layout, now)
        self._fold = fold = self._plan(now)
        if self._newest is not None and self._before is not None:
            if frame.at - self._newest > self._longest_gap:
                self._totals.clear()
                self._base = frame.at if self._taken else None
            elif self._taken:
                before = np.full(len(now), np.nan)
                before[: len(self._before)] = self._before
                self._add(fold, fold.increments(before, now, self._odd))
        self._before, self._newest = now, frame.at
        self._stamped = stamps is not None
        self._remember(fold, frame.at, stamps or {})
        was, self._odd = self._odd, [self._layout.number(key) for key in odd]
        self._doubts = self._doubt(self._odd, was)

    def take(self, at: float) -> Observation:
        """Everything since the previous observation, as seen at `at` (not before the newest frame)."""
        if self._newest is None or self._fold is None or self._before is None:
            return Observation(at, None, error="nothing has been read yet")
        since = self._base if self._base is not None and self._base < at else None
        scoped = self._totals_by_scope() if since is not None else {}
        values = self._before.tolist()
        for scope, gauges in gauges_by_scope(self._fold.gauges, values, self._needs, self._pool_first).items():
            scoped.setdefault(scope, _Scoped()).gauges.update(gauges)
        self._totals.clear()
        self._base, self._taken = at, True
        members: dict[int, list[str]] = {}
        for pool, replica in self._replicas:
            members.setdefault(pool, []).append(replica)
        shares: dict[int, dict[str, dict[str, Facts]]] = {}
        for (pool, kind, name), one in scoped.items():
            if kind in (TENANT, CLASS):
                part = Facts(one.histograms, one.counters, one.gauges)
                shares.setdefault(pool, {}).setdefault(kind, {})[name] = part
        started = {target: value for number, target in self._starts if (value := self._value(number)) is not None}
        pools = {
            need.pool: self._pool(pool, at, scoped, members.get(pool, ()), shares.get(pool, {}), started)
            for pool, need in enumerate(self._needs)
        }
        return Observation(at, since, pools, stamped=self._stamped)

    # --- frames ------------------------------------------------------------------------------------------------------

    def _plan(self, now: Values) -> Fold:
        present = ~np.isnan(now)
        key = (len(now), present.tobytes())
        fold = self._plans.get(key)
        if fold is None:
            selection = self._selector.select(self._layout, np.flatnonzero(present).tolist())
            if len(self._plans) >= max(4, min(_PLANS, _PLANNED // (len(now) + 1))):
                self._plans.pop(next(iter(self._plans)))
            fold = self._plans[key] = Fold(selection, self._layout, self._needs, self._pool_first)
        return fold

    def _add(self, fold: Fold, added: Values) -> None:
        known = self._totals.get(id(fold))
        self._totals[id(fold)] = (fold, added if known is None else known[1] + added)

    def _remember(self, fold: Fold, at: float, stamps: Mapping[Target, float]) -> None:
        for (pool, replica), labels in fold.selection.replicas.items():
            target = (labels.get("job", ""), labels.get("instance", ""))
            self._replicas[pool, replica] = _Member(target, labels, at, stamps.get(target, at))
        for pool, by_target in fold.selection.targets.items():
            self._targets.setdefault(pool, {}).update(by_target)
            self._sighted.setdefault(pool, {}).update(dict.fromkeys(by_target, at))
        self._health = self._read_health()
        for place, member in list(self._replicas.items()):
            if member.seen < at and self._left(member.target, member.seen, at):
                del self._replicas[place]
        for pool, sighted in self._sighted.items():
            for target in [target for target, seen in sighted.items() if self._left(target, seen, at)]:
                del sighted[target], self._targets[pool][target]

    def _left(self, target: Target, seen: float, at: float) -> bool:
        """Whether a target that was `seen` with a pool's series is no part of the pool any more: it is not scraped (so
        it is gone, not down), or it is up and has shown none of them for long."""
        up = self._health.get(target)
        return up is None or (up and at - seen > self._longest_gap)

    def _doubt(self, odd: Sequence[int], was: Sequence[int]) -> dict[int, dict[Fact, str]]:
        """Per pool and fact, which of its series are no number; of counters also which was none in the frame before,
        so that nobody knows what it counted since."""
        found: dict[tuple[int, Fact, str], set[str]] = {}
        for columns, gauges in ((odd, True), (was, False)):
            for entry in self._selector.select(self._layout, columns).entries if columns else ():
                if gauges or entry.fact.kind is not Kind.GAUGE:
                    found.setdefault((entry.pool, entry.fact, entry.candidate.metric), set()).add(entry.replica)
        doubts: dict[int, dict[Fact, str]] = {}
        for (pool, fact, metric), replicas in found.items():
            doubts.setdefault(pool, {})[fact] = not_a_number(metric, replicas)
        return doubts

    def _read_health(self) -> dict[Target, bool]:
        """Which targets are up, by the series ``up`` of the newest frame."""
        for number in range(self._scanned, len(self._layout)):
            name, pairs = self._layout.keys[number]
            if name in ("up", "process_start_time_seconds"):
                labels = dict(pairs)
                place = (number, (labels.get("job", ""), labels.get("instance", "")))
                (self._ups if name == "up" else self._starts).append(place)
        self._scanned = len(self._layout)
        health: dict[Target, bool] = {}
        for number, target in self._ups:
            if (value := self._value(number)) is not None:
                health[target] = health.get(target, False) or value == 1.0
        return health

    def _value(self, number: int) -> float | None:
        """The newest value of a series, None when it is absent."""
        if self._before is None or number >= len(self._before) or np.isnan(self._before[number]):
            return None
        return float(self._before[number])

    # --- observations ------------------------------------------------------------------------------------------------

    def _totals_by_scope(self) -> dict[Scope, _Scoped]:
        scoped: dict[Scope, _Scoped] = {}
        if self._fold is not None and id(self._fold) not in self._totals:
            # No new frame since: nothing was added, to what is there.
            self._totals[id(self._fold)] = (self._fold, np.zeros(self._fold.size))
        for fold, totals in self._totals.values():
            cells = totals.tolist()
            for block in fold.blocks:
                into = scoped.get(block.scope)
                if into is None:
                    into = scoped[block.scope] = _Scoped()
                if block.fact.kind is Kind.HISTOGRAM:
                    new = fold.histogram(block, cells)
                    old = into.histograms.get(block.fact)
                    into.histograms[block.fact] = new if old is None else merge(old, new)
                else:
                    into.counters[block.fact] = into.counters.get(block.fact, 0.0) + cells[block.start]
        if self._fold is not None:
            self._zeros(self._fold, scoped)
        return scoped

    def _zeros(self, fold: Fold, scoped: dict[Scope, _Scoped]) -> None:
        """Series that are born with their first event, and were not: nothing happened, and we know it."""
        for pool, replica, fact in fold.selection.zeros:
            need = self._needs[pool]
            scopes: list[Scope] = [(pool, "pool", "")] if fact in need.facts else []
            scopes += (
                [(pool, "replica", replica)] if replica and fact in need.replica_facts | need.replica_means else []
            )
            for scope in scopes:
                if fact.kind is Kind.HISTOGRAM:
                    scoped.setdefault(scope, _Scoped()).histograms.setdefault(
                        fact, HistogramIncrement((), (), 0.0, 0.0)
                    )
                elif fact.kind is Kind.COUNTER:
                    scoped.setdefault(scope, _Scoped()).counters.setdefault(fact, 0.0)

    def _pool(
        self,
        pool: int,
        at: float,
        scoped: Mapping[Scope, _Scoped],
        members: Sequence[str],
        shares: Mapping[str, Mapping[str, Facts]],
        started: Mapping[Target, float],
    ) -> PoolFacts:
        need = self._needs[pool]
        own = scoped.get((pool, "pool", ""), _Scoped())
        health = self._health
        targets = self._targets.get(pool, {})
        if self._pool_first and any(targets.values()):
            targets = {target: replica for target, replica in targets.items() if replica}  # the pool's row is no target
        endpoints: dict[str, list[Target]] = {}
        for target, replica in targets.items():
            endpoints.setdefault(replica, []).append(target)
        fold = self._fold
        sources: Mapping[Fact, str] = {}
        late: frozenset[Fact] = frozenset()
        failed: dict[Fact, str] = {}
        if fold is not None and pool in self._targets:
            self._reasons[pool], sources, late = self._told(pool, fold)
        else:
            failed = dict.fromkeys(need.facts, f"no series matches the selector of pool {need.pool}")
        doubts = {**(fold.selection.unread.get(pool, {}) if fold is not None else {}), **self._doubts.get(pool, {})}
        read = own.histograms.keys() | own.counters.keys() | own.gauges.keys()
        failed |= {fact: why for fact, why in doubts.items() if fact not in read}
        return PoolFacts(
            histograms=own.histograms,
            counters=own.counters,
            gauges=own.gauges,
            replicas={
                name: self._replica(pool, name, at, scoped, started, endpoints.get(name, ()))
                for name in sorted(members)
            },
            tenants=dict(sorted(shares.get(TENANT, {}).items())),
            classes=dict(sorted(shares.get(CLASS, {}).items())),
            sources=sources,
            late=late,
            unsupported=self._reasons.get(pool, {}),
            partial="; ".join(sorted({why for fact, why in doubts.items() if fact in read})),
            failed=failed,
            targets_up=sum(health.get(target, False) for target in targets) if health else None,
            targets_down=sum(not health.get(target, True) for target in targets),
        )

    def _told(self, pool: int, fold: Fold) -> Told:
        """Why facts of a pool are unsupported, where the others come from, and which are late: the same while the
        series are."""
        if pool not in fold.told:
            names = {fact: ", ".join(names) for (of, fact), names in fold.selection.sources.items() if of == pool}
            if self._recorded is not None:
                names = {fact: self._recorded[fact.value] for fact in names}
                late = self._late & names.keys()
            else:
                late = late_facts(self._needs[pool].engine, names)
            fold.told[pool] = self._selector.unsupported(pool, fold.selection), names, late
        return fold.told[pool]

    def _replica(
        self,
        pool: int,
        name: str,
        at: float,
        scoped: Mapping[Scope, _Scoped],
        started: Mapping[Target, float],
        endpoints: Sequence[Target],
    ) -> ReplicaFacts:
        need = self._needs[pool]
        member = self._replicas[pool, name]
        one = scoped.get((pool, "replica", name), _Scoped())
        return ReplicaFacts(
            one.histograms,
            one.counters,
            one.gauges,
            # With several endpoints (data-parallel ranks) it is as healthy as its worst one.
            up=all(self._health.get(target, member.seen == self._newest) for target in endpoints),
            age=round(max(0.0, at - member.stamp), 3),
            started_at=started.get(member.target),
            role=member.labels.get(need.role_label, "") if need.role_label else "",
            zone=member.labels.get(need.zone_label, "") if need.zone_label else "",
            version=member.labels.get(need.version_label, "") if need.version_label else "",
        )
