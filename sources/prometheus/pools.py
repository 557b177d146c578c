"""Pools: all answers of a tick to the facts of each pool. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from controller.core.facts import Fact, Kind
from controller.core.observation import Facts, HistogramIncrement, PoolFacts, ReplicaFacts
from controller.core.ports import PoolNeeds
from sources.contracts import load
from sources.contracts.contract import Candidate
from sources.contracts.late import late_facts
from sources.contracts.resolve import resolve
from sources.prometheus.assemble import Values
from sources.prometheus.discovery import Found
from sources.prometheus.family import Family, wanted
from sources.prometheus.plan import Question
from sources.prometheus.targets import Endpoint, Seat
from sources.prometheus.transport import Answer
from sources.splits import CLASS, MEANS, TENANT

T = TypeVar("T")
Seats = Mapping[str, Sequence[tuple[Seat, Endpoint]]]


@dataclass(slots=True)
class Gathered:
    """The answers of one tick. `unseen` says by engine why nobody knows what it exposes, so that nothing could be asked
    of it; `got` holds per pool and fact what came, `failures` why a question has no answer, and `doubts` per pool why
    its facts may not be all there is."""

    families: Sequence[tuple[Family, Found]]
    unseen: Mapping[str, str] = field(default_factory=dict)
    got: dict[str, dict[Fact, list[Values]]] = field(default_factory=dict)
    asked: set[tuple[str, Fact]] = field(default_factory=set)
    failures: dict[tuple[str, Fact], str] = field(default_factory=dict)
    class_failures: dict[tuple[str, Fact], str] = field(default_factory=dict)  # the pool could be read, its classes not
    back: dict[tuple[str, Fact], float] = field(default_factory=dict)  # seconds, of what was not answered at each tick
    warnings: set[str] = field(default_factory=set)
    doubts: Mapping[str, Collection[str]] = field(default_factory=dict)
    answered: bool = False
    of: dict[str, list[tuple[Family, Found]]] = field(default_factory=dict)  # the families that read a pool

    def __post_init__(self) -> None:
        for family, found in self.families:
            for pool in family.pools:
                self.of.setdefault(pool.pool, []).append((family, found))
            if why := self.unseen.get(family.contract.engine):
                self.failures.update({(family.contract.engine, fact): why for fact in family.facts})

    def take(self, question: Question, found: Mapping[str, Values], answer: Answer) -> None:
        self.answered = True
        if question.whole:
            self.asked.add((question.family.contract.engine, question.fact))
        self.warnings.update(answer.warnings)
        for pool, of in found.items():
            self.got.setdefault(pool, {}).setdefault(question.fact, []).append(of)

    def reaches(self, question: Question, back: float) -> None:
        """The answer to this question counts from so many seconds before this tick, as the tick before had none."""
        if question.whole:
            self.back[question.family.contract.engine, question.fact] = back

    def fail(self, question: Question, why: str) -> None:
        if question.split == MEANS:
            return  # the pool could be read; of single replicas nothing is known, and that is no number
        into = self.class_failures if question.split == CLASS and not question.whole else self.failures
        into[question.family.contract.engine, question.fact] = why


@dataclass(slots=True)
class _Bag:
    """Facts of one pool, replica or part of a split while they are collected."""

    histograms: dict[Fact, HistogramIncrement] = field(default_factory=dict)
    counters: dict[Fact, float] = field(default_factory=dict)
    gauges: dict[Fact, float] = field(default_factory=dict)

    def put(self, fact: Fact, number: float | None, histogram: HistogramIncrement | None) -> None:
        if histogram is not None:
            self.histograms[fact] = histogram
        elif number is not None:
            (self.gauges if fact.kind is Kind.GAUGE else self.counters)[fact] = number


def pool_facts(
    pool: PoolNeeds, gathered: Gathered, seats: Seats, has_up: bool, moment: float, lag: float, increments: bool
) -> PoolFacts:
    """The facts of one pool. `seats` are its endpoints by replica, `has_up` whether their health is known. `moment` is
    when the queries were evaluated, on the backend's clock; the slot is `lag` later. `increments` says that counters
    could be read at all."""
    own = _Bag()
    members: dict[str, dict[str, _Bag]] = {"": {}, TENANT: {}, CLASS: {}}
    sources: dict[Fact, str] = {}
    failed: dict[Fact, str] = {}
    class_failed = _mine(pool, gathered, gathered.class_failures)
    doubts = {*gathered.warnings, *gathered.doubts.get(pool.pool, ())}
    here = wanted(pool)
    for fact, several in gathered.got.get(pool.pool, {}).items():
        if fact not in here:
            continue
        for of in several:
            if of.problem and of.split == MEANS:
                continue
            if of.problem:
                (class_failed if of.split == CLASS and not of.whole else failed)[fact] = of.problem
                continue
            doubts.update({of.gap} - {""})
            if of.whole:
                sources[fact] = " + ".join(of.metrics)
                own.put(fact, of.number, of.histogram)
            into = members["" if of.split == MEANS else of.split]
            for member in of.numbers.keys() | of.histograms.keys():
                into.setdefault(member, _Bag()).put(fact, of.numbers.get(member), of.histograms.get(member))
    unsupported, unborn = _absent(pool, gathered, sources)
    unseen = gathered.unseen.get(load(pool.engine).engine, "")
    if any(target.up is not False for several in seats.values() for _, target in several):
        for fact, metric in unborn.items():
            if fact in failed or (not increments and fact.kind is not Kind.GAUGE):
                continue
            own.put(fact, 0.0, HistogramIncrement((), (), 0.0, 0.0) if fact.kind is Kind.HISTOGRAM else None)
            sources[fact] = metric
    if not any(pool.pool in found.by_pool for family, found in gathered.families if not family.platform):
        lost = here - sources.keys() - unsupported.keys()
        failed = dict.fromkeys(lost, unseen or f"no series matches the selector of pool {pool.pool}")
    failed |= _mine(pool, gathered, gathered.failures)
    health = [target.up for several in seats.values() for _, target in several]
    return PoolFacts(
        own.histograms,
        own.counters,
        own.gauges,
        replicas={
            name: _replica(several, members[""].get(name, _Bag()), pool, moment, lag)
            for name, several in seats.items()
            if name
        },
        tenants=_named(members[TENANT]),
        classes=_named(members[CLASS]),
        sources=sources,
        late=late_facts(pool.engine, sources),
        unsupported=unsupported,
        partial="; ".join(sorted(doubts)),
        failed=failed,
        class_failed=class_failed,
        since={fact: moment + lag - back for fact, back in _mine(pool, gathered, gathered.back).items()},
        front_age=_age([seat for seat, _ in seats[""]], moment, lag) if seats.keys() == {""} else None,
        targets_up=None if unseen or None in health or not has_up else health.count(True),
        targets_down=health.count(False),
    )


def _mine(pool: PoolNeeds, gathered: Gathered, found: Mapping[tuple[str, Fact], T]) -> dict[Fact, T]:
    """What concerns this pool."""
    mine = {family.contract.engine for family, _ in gathered.of.get(pool.pool, ())}
    return {fact: one for (engine, fact), one in found.items() if engine in mine and fact in wanted(pool)}


def _named(parts: Mapping[str, _Bag]) -> dict[str, Facts]:
    """The parts of a split, without what names none."""
    return {name: Facts(bag.histograms, bag.counters, bag.gauges) for name, bag in sorted(parts.items()) if name}


def _absent(pool: PoolNeeds, gathered: Gathered, got: Mapping[Fact, str]) -> tuple[dict[Fact, str], dict[Fact, str]]:
    """Facts without rows: why the engine cannot give them, and which are zero until their first event."""
    unsupported: dict[Fact, str] = {}
    unborn: dict[Fact, str] = {}
    families = gathered.of.get(pool.pool, ())
    served = frozenset[Fact]().union(*(family.facts for family, _ in families))
    for family, found in families:
        if family.platform:
            continue
        names = found.by_pool.get(pool.pool, frozenset())
        resolved = _resolved(family.contract.engine, names) if names else {}
        for fact in wanted(pool) - got.keys():
            choice = family.contract.unsupported.get(fact) if fact not in served else resolved.get(fact)
            if isinstance(choice, str):
                candidates = family.contract.candidates.get(fact, ())
                if (candidates or fact not in served) and not _partly(candidates, names):
                    unsupported[fact] = choice
            elif choice is not None and (family.contract.engine, fact) in gathered.asked and _unborn(choice, names):
                unborn[fact] = choice.metric
    return unsupported, unborn


@lru_cache(maxsize=1024)
def _resolved(engine: str, names: frozenset[str]) -> Mapping[Fact, Candidate | str]:
    """``resolve``; most pools of a fleet expose the same names, and the same ones at each tick."""
    return resolve(load(engine), names | {name.removesuffix("_count") for name in names})


def _partly(candidates: Sequence[Candidate], names: frozenset[str]) -> bool:
    """Whether a part of a sum is there: better that than nothing; the rest is zero, or served where nobody scrapes."""
    return any(part.metric in names for candidate in candidates for part in candidate.plus)


def _unborn(candidate: Candidate, names: frozenset[str]) -> bool:
    return any(name in names for name in candidate.born_with)


def _replica(
    several: Sequence[tuple[Seat, Endpoint]], bag: _Bag, pool: PoolNeeds, moment: float, lag: float
) -> ReplicaFacts:
    """One replica, which may have several endpoints (data-parallel ranks): as healthy as its worst one."""
    wanted_here = pool.replica_facts
    started = [target.since for _, target in several if target.since is not None]
    seat = several[0][0]
    return ReplicaFacts(
        {fact: h for fact, h in bag.histograms.items() if fact in wanted_here or fact in pool.replica_means},
        {fact: n for fact, n in bag.counters.items() if fact in wanted_here},
        {fact: n for fact, n in bag.gauges.items() if fact in wanted_here},
        up=all(target.up is not False for _, target in several),
        age=_age([seat for seat, _ in several], moment, lag),
        started_at=max(started, default=None),
        role=seat.role,
        zone=seat.zone,
        version=seat.version,
    )


def _age(seats: Sequence[Seat], moment: float, lag: float) -> float:
    """Seconds since the older of the newest samples. They are stamped in milliseconds; what floats add to that only
    fills the ledger."""
    return round(max(0.0, moment - min(seat.seen for seat in seats) + lag), 3)
