"""Meter: observations in, canonical readings with states out.

The one place where windows, quantiles, attainment and states come from, for every source. Deterministic: the same
observations give the same readings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.core import classes, flows, gauges, latency, lengths, queueing, replica, shares
from controller.core import join as sides
from controller.core.burn import BudgetLedger
from controller.core.facts import Fact
from controller.core.judge import Judge
from controller.core.model import PoolReadings
from controller.core.observation import Observation, PoolFacts
from controller.core.reading import Reading, State
from controller.core.sane import clean
from controller.core.signals import INFO, Signal
from controller.core.sizes import Sizes
from controller.core.slo import Objective
from controller.core.stamps import Dating, Stamps, overlap
from controller.core.tally import LATENCY, Endings, endings, tally
from controller.core.windows import NO_FACTS, Entry, History, ReplicaEntry, scaled

QUEUE_MEMORY = 900.0  # seconds of queue history for the age of the oldest waiting request


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """The gateway before a pool: the name under which a source tells its facts, and whether it is the one that tells
    tenants and request classes."""

    name: str
    tenants: bool = False
    classes: bool = False


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What the meter must know of a pool: the control window in seconds, when a sample is stale, its objectives.
    `class_label` is the label that names the request class, "" where no objective names one. `gateway` is None where
    the pool is read at one place alone; `singles` says that levers move single replicas, or that versions are told
    apart, so that what each does is looked at. `tenants` and `classes` are the names of those that were promised
    something."""

    name: str
    window: float
    objectives: tuple[Objective, ...] = ()
    stale_after: float = 60.0
    class_label: str = ""
    gateway: GatewaySpec | None = None
    singles: bool = False
    tenants: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class Meter:
    """Readings of all pools from successive observations."""

    def __init__(self, pools: Sequence[PoolSpec]) -> None:
        self.pools = {spec.name: PoolMeter(spec) for spec in pools}

    def update(self, observation: Observation) -> dict[str, PoolReadings]:
        """One tick. A pool that the observation lacks gets readings that are all ``missing``."""
        return {name: meter.update(observation) for name, meter in sorted(self.pools.items())}

    def adopt(self, previous: "Meter") -> None:
        """Carry windows and budgets over a reload, by pool and by objective."""
        for name, meter in self.pools.items():
            if name in previous.pools:
                meter.adopt(previous.pools[name])


class PoolMeter:
    """Windows, budgets and lengths of one pool."""

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        reach = max([spec.window, queueing.ADMIT_WINDOW, *(o.window for o in spec.objectives)])
        self.history = History(max(reach, QUEUE_MEMORY), reach)
        self.classes = frozenset(o.klass for o in spec.objectives if o.klass)
        self.budgets = {o.name: BudgetLedger(o.share) for o in spec.objectives if o.share is not None}
        self.lengths = lengths.Lengths()
        self.unpaired = 0.0  # finished requests whose response has not been counted yet
        self.told: frozenset[Fact] = frozenset()  # what the gateway told at some time
        self.silent = False  # whether it was silent at the last tick
        self.uncounted: frozenset[Fact] = frozenset()  # what it could not count in this interval
        self.stamps, self.front_stamps = Stamps(spec.stale_after), Stamps(spec.stale_after)

    def adopt(self, previous: "PoolMeter") -> None:
        """Carry over what still means the same; a changed share would make another budget of the same counts."""
        own, self.history = self.history, previous.history
        self.history.stretch(own.keep, own.reach)
        self.lengths = previous.lengths
        self.stamps = previous.stamps
        if self.spec.gateway == previous.spec.gateway:
            self.told, self.front_stamps = previous.told, previous.front_stamps
        for objective in self.spec.objectives:
            same = objective in previous.spec.objectives and (
                not objective.klass or self.spec.class_label == previous.spec.class_label
            )
            if same and objective.name in previous.budgets:
                self.budgets[objective.name] = previous.budgets[objective.name]

    def anew(self) -> "PoolMeter":
        """The same pool without its windows: budgets stay, and who has told what."""
        fresh = PoolMeter(self.spec)
        fresh.budgets, fresh.told = self.budgets, self.told
        return fresh

    def update(self, observation: Observation) -> PoolReadings:
        facts = observation.pools.get(self.spec.name)
        if facts is None:
            return PoolReadings(burn=self._burns(observation.at))
        facts = engines = clean(facts)
        aborts = self._aborts(facts.counters) if observation.since is not None else {}
        at, since, stamped = observation.at, observation.since, observation.stamped
        dating = front = self.stamps.read(engines, at, since, stamped=stamped)
        if self.spec.gateway is not None:
            facts, front = self._join(facts, observation, self.spec.gateway)
        if since is None:
            self.history.begin(self._entry(at, at, facts, facts.counters, dating, front))
        else:
            counters = {**facts.counters, **aborts} if aborts else facts.counters
            self._remember(self._entry(since, at, facts, counters, dating, front), facts, dating, front)
        judge = Judge(
            self.history,
            facts,
            at,
            window=self.spec.window,
            stale_after=self.spec.stale_after,
            fresh=since is not None,
            overdue=dating.overdue,
        )
        return self._readings(judge, engines)

    def _join(self, engines: PoolFacts, observation: Observation, spec: GatewaySpec) -> tuple[PoolFacts, Dating]:
        """The facts of engines and gateway as those of one pool, and how the gateway's are dated."""
        gateway = observation.pools.get(spec.name)
        dating = Dating({}, observation.at - (observation.since or observation.at))
        if gateway is not None:
            gateway = clean(gateway)
            self.told |= sides.told(gateway)
            dating = self.front_stamps.read(gateway, observation.at, observation.since, stamped=observation.stamped)
        own = sides.owned(gateway, self.told)
        was, self.silent = self.silent, bool(sides.silence(gateway, self.spec.stale_after))
        self.uncounted = NO_FACTS
        if was and not self.silent and gateway is not None:
            # Who comes back tells how much it has counted, not since when.
            self.uncounted = own | {Fact.HELD}
            gateway = replace(gateway, counters={}, histograms={}, tenants={}, classes={})
        joined = sides.join(
            engines, gateway, own, self.spec.stale_after, tenants=spec.tenants, classes=spec.classes
        )  # fmt: skip
        if dating.overdue:
            late = dict.fromkeys(joined.fronted, "the gateway's next sample is overdue")
            joined = replace(joined, doubted={**late, **joined.doubted})
        return joined, dating

    def _aborts(self, counters: Mapping[Fact, float]) -> Mapping[Fact, float]:
        """The aborts of this interval, where they are only the responses that no finished request explains. A request
        that finishes just before a scrape and answers just after it is paired over the two intervals, else it would be
        a miss that nobody had."""
        if Fact.ABORTED in counters or not {Fact.RESPONSES, Fact.FINISHED} <= counters.keys():
            return {}
        ended = counters[Fact.FINISHED] + counters.get(Fact.ERRORS, 0.0)
        left = self.unpaired + counters[Fact.RESPONSES] - ended
        self.unpaired = min(0.0, left)
        return {Fact.ABORTED: max(0.0, left)}

    def _entry(
        self, since: float, at: float, facts: PoolFacts, counters: Mapping[Fact, float], dating: Dating, front: Dating
    ) -> Entry:
        replicas = {
            name: ReplicaEntry(r.counters, r.gauges, r.histograms, dating.seen(name))
            for name, r in facts.replicas.items()
            if r.up
        }
        seen = [one.seen for one in front.replicas.values()]
        own = facts.classes
        told = classes.named(facts) if self.classes else NO_FACTS
        failed = frozenset(facts.failed) if facts.failed else NO_FACTS
        failed |= self.uncounted
        return Entry(
            since, at, facts.histograms, counters, facts.gauges, replicas, own, told, failed, facts.tenants,
            min(seen, default=None),
        )  # fmt: skip

    def _remember(self, entry: Entry, facts: PoolFacts, dating: Dating, front: Dating) -> None:
        if dating.together or front.together:
            self.history.join(entry)
        elif dating.late or front.late or facts.since:
            self._spread(entry, facts, dating, front)
        else:
            self.history.push(entry)
        ended = endings(entry.counters)
        for objective in self.spec.objectives:
            if objective.name in self.budgets:
                self._spend(objective, entry, ended)

    def _spread(self, entry: Entry, facts: PoolFacts, dating: Dating, front: Dating) -> None:
        """Remember an entry of which a part was counted before it began, in the time in which it was counted."""
        gateway, at = self.spec.gateway, entry.at

        def part(begin: float, end: float) -> Entry:
            own, theirs = dating.share(begin, end, at), front.share(begin, end, at)
            late = {
                fact: overlap(at - since, begin, end, at) / (at - since)
                for fact, since in facts.since.items()
                if since < entry.since
            }
            alone = {name: dating.of(name, begin, end, at) for name in entry.replicas}
            return scaled(
                entry, lambda fact: late.get(fact, theirs if fact in facts.fronted else own),
                lambda fact, name: late.get(fact, alone[name]),
                tenants=theirs if gateway is not None and gateway.tenants else own,
                classes=theirs if gateway is not None and gateway.classes else own,
            )  # fmt: skip

        self.history.push(part(entry.since, at))
        self.history.spread(part)

    def _spend(self, objective: Objective, entry: Entry, ended: Endings) -> None:
        if objective.klass:
            offered, hit = classes.spent(objective, entry)
        else:
            offered, hit = tally(objective, entry.histograms, ended)
        if offered:
            self.budgets[objective.name].add(entry.at, offered.hi - hit.lo, offered.hi)

    def _burns(self, now: float) -> dict[str, dict[str, Reading]]:
        return {name: ledger.burns(now) for name, ledger in self.budgets.items()}

    def _readings(self, j: Judge, engines: PoolFacts) -> PoolReadings:
        gateway = self.spec.gateway
        signals = gauges.pool_gauges(j)
        latencies = {signal: latency.quantiles(j, signal, self.spec.objectives) for signal in LATENCY}
        signals.update({signal: stats["p99"] for signal, stats in latencies.items()})
        signals[Signal.QUEUE_DELAY] = _queue_delay(j, signals[Signal.QUEUE_DEPTH], signals[Signal.QUEUE_TIME])
        signals.update(flows.flows(j))
        self.lengths.learn(signals)
        signals.update(lengths.tokens(j, self.lengths, signals))
        singles = replica.Singles(j, engines) if self.spec.singles else None
        replicas = {name: replica.replica(j, name, r, singles) for name, r in j.facts.replicas.items()}
        signals[Signal.STUCK] = replica.stuck_total(replicas)
        return PoolReadings(
            signals=signals,
            latencies=latencies,
            replicas=replicas,
            tenants=shares.tenants(j, self.spec.tenants, fronted=gateway is not None and gateway.tenants),
            classes=shares.classes(j, self.spec.classes, fronted=gateway is not None and gateway.classes),
            attainment={o.name: self._attainment(j, o) for o in self.spec.objectives if o.share is not None},
            burn=self._burns(j.now),
            roles={name: r.role for name, r in j.facts.replicas.items() if r.role},
            zones={name: r.zone for name, r in j.facts.replicas.items() if r.zone},
            versions={name: r.version for name, r in j.facts.replicas.items() if r.version},
            sizes=_sizes(j),
            started={n: r.started_at for n, r in j.facts.replicas.items() if r.started_at is not None},
            filled_since=self.history.filled_since if j.fresh else None,
            partial=j.doubt(),
            unheard=gateway is not None and Fact.ARRIVED not in j.facts.fronted and Fact.HELD not in j.facts.gauges,
        )

    def _attainment(self, j: Judge, objective: Objective) -> Reading:
        if objective.klass:
            return classes.attainment(j, objective, self.spec.class_label)
        return latency.attainment(j, objective)


def _sizes(j: Judge) -> Sizes | None:
    """The prompts that finished in the window; None where nothing tells their lengths."""
    told = j.histogram(Fact.PROMPT_LENGTHS, j.window) if j.fresh else None
    return Sizes(told.edges, told.cumulative, told.count) if told is not None else None


def _queue_delay(j: Judge, depth: Reading, finished: Reading) -> Reading:
    if not j.fresh or depth.value is None:
        state = depth.state if depth.value is None else State.MISSING
        return Reading(state, note=depth.note or "first observation")
    return j.measured(queueing.delay(j.history, j.now, depth, finished), Fact.WAITING, windowed=False)


if set(LATENCY) != {signal for signal, info in INFO.items() if info.latency}:
    raise AssertionError("every latency signal needs its histogram")
