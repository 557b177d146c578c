"""Meter: observations in, canonical readings with states out.

The one place where windows, quantiles, attainment and states are computed, for every source. Deterministic: the same
observations give the same readings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.core import histogram, queueing
from controller.core.burn import WINDOWS, BudgetLedger
from controller.core.facts import Fact
from controller.core.model import PoolReadings, Scope
from controller.core.observation import HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.reading import Reading, State, unsupported
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.windows import Entry, History, ReplicaEntry

STATS = (0.5, 0.95, 0.99)
STUCK_SCRAPES = 4  # a replica that holds work and moved nothing over this many scrapes is stuck
QUEUE_MEMORY = 900.0  # seconds of queue history for the age of the oldest waiting request
FILLED = 0.9  # share of a window that must be covered for it to count as full

_LATENCY: Mapping[Signal, Fact] = {
    Signal.TTFT: Fact.TTFT, Signal.TPOT: Fact.TPOT, Signal.ITL: Fact.ITL, Signal.E2E: Fact.E2E,
    Signal.QUEUE_TIME: Fact.QUEUE_TIME,
}  # fmt: skip
_RATES: Mapping[Signal, Fact] = {
    Signal.FINISHED_RATE: Fact.FINISHED, Signal.PROMPT_TOKEN_RATE: Fact.PROMPT_TOKENS,
    Signal.GENERATION_TOKEN_RATE: Fact.GENERATION_TOKENS,
}  # fmt: skip
_COUNTS: Mapping[Signal, Fact] = {
    Signal.TIMEOUTS: Fact.TIMEOUTS, Signal.PREEMPTIONS: Fact.PREEMPTIONS, Signal.OOM_RESTARTS: Fact.OOM_RESTARTS,
}  # fmt: skip
_GAUGES: Mapping[Signal, Fact] = {
    Signal.RUNNING: Fact.RUNNING, Signal.QUEUE_DEPTH: Fact.WAITING, Signal.KV_USAGE: Fact.KV_USAGE,
    Signal.GPU_MEMORY: Fact.GPU_MEMORY, Signal.GPU_UTILISATION: Fact.GPU_UTILISATION,
    Signal.READY_REPLICAS: Fact.READY_REPLICAS, Signal.LORA_LOADED: Fact.LORA_LOADED,
}  # fmt: skip
# Failures that never reach a latency histogram.
_LOST = (Fact.ERRORS, Fact.REJECTED, Fact.TIMEOUTS)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What the meter must know of a pool: the control window in seconds, when a sample is stale, its objectives."""

    name: str
    window: float
    objectives: tuple[Objective, ...] = ()
    stale_after: float = 60.0


class Meter:
    """Readings of all pools from successive observations."""

    def __init__(self, pools: Sequence[PoolSpec]) -> None:
        self._pools = {spec.name: _PoolMeter(spec) for spec in pools}

    def update(self, observation: Observation) -> dict[str, PoolReadings]:
        """One tick. A pool that the observation lacks gets readings that are all ``missing``."""
        return {name: meter.update(observation) for name, meter in sorted(self._pools.items())}

    def adopt(self, previous: "Meter") -> None:
        """Carry windows and budgets over a reload, by pool and by objective."""
        for name, meter in self._pools.items():
            if name in previous._pools:
                meter.adopt(previous._pools[name])


class _PoolMeter:
    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        keep = max([spec.window, queueing.ADMIT_WINDOW, QUEUE_MEMORY, *(o.window for o in spec.objectives)])
        self.history = History(keep)
        self.budgets = {o.name: BudgetLedger(o.share) for o in spec.objectives if o.share is not None}
        self.lengths: list[tuple[float, float]] = []  # window means of prompt and output tokens seen, newest last
        self.counters_seen: set[Fact] = set()

    def adopt(self, previous: "_PoolMeter") -> None:
        keep = self.history.keep
        self.history, self.history.keep = previous.history, keep
        self.lengths, self.counters_seen = previous.lengths, previous.counters_seen
        for name, ledger in previous.budgets.items():
            if name in self.budgets and self.budgets[name].share == ledger.share:
                self.budgets[name] = ledger

    def update(self, observation: Observation) -> PoolReadings:
        facts = observation.pools.get(self.spec.name)
        now = observation.at
        if facts is None:
            self.history.break_off()
            return PoolReadings(burn=self._burns(now))
        self._remember(observation, facts)
        return _Readings(self, facts, now, fresh=observation.since is not None).build()

    def _remember(self, observation: Observation, facts: PoolFacts) -> None:
        if observation.since is None:
            self.history.break_off()
            return
        self.counters_seen.update(facts.counters)
        entry = Entry(
            observation.since,
            observation.at,
            facts.histograms,
            facts.counters,
            facts.gauges,
            {name: ReplicaEntry(r.counters, r.gauges) for name, r in facts.replicas.items() if r.up},
        )
        self.history.push(entry)
        for objective in self.spec.objectives:
            if objective.name in self.budgets:
                self._spend(objective, entry)

    def _spend(self, objective: Objective, entry: Entry) -> None:
        offered, hit = tally(objective, entry.histograms, entry.counters)
        if offered:
            self.budgets[objective.name].add(entry.at, offered.hi - hit.lo, offered.hi)

    def _burns(self, now: float) -> dict[str, dict[str, Reading]]:
        return {name: {w: ledger.burn(now, w) for w in WINDOWS} for name, ledger in self.budgets.items()}


@dataclass(frozen=True, slots=True)
class Span:
    """A count that is known to lie between two bounds."""

    lo: float
    hi: float

    def __bool__(self) -> bool:
        return self.hi > 0


def aborts(counters: Mapping[Fact, float]) -> float:
    """Requests whose client went away: counted, or responses of the HTTP layer minus finished requests (vLLM counts an
    aborted stream as a 2xx response and nowhere else)."""
    if Fact.ABORTED in counters:
        return counters[Fact.ABORTED]
    if Fact.RESPONSES in counters and Fact.FINISHED in counters:
        return max(0.0, counters[Fact.RESPONSES] - counters[Fact.FINISHED] - counters.get(Fact.ERRORS, 0.0))
    return 0.0


def tally(
    objective: Objective, histograms: Mapping[Fact, HistogramIncrement], counters: Mapping[Fact, float]
) -> tuple[Span, Span]:
    """Offered requests and those that met the objective, with bounds.

    Only a first token can be observed before the client leaves, so for ttft the aborted requests may or may not be in
    the histogram already: offered is between the two. For the others an aborted request is never observed.
    """
    lost = sum(counters.get(fact, 0.0) for fact in _LOST)
    if objective.signal == Signal.ERROR_RATIO:
        failed = counters.get(Fact.ERRORS, 0.0)
        ended = max(counters.get(Fact.RESPONSES, 0.0), counters.get(Fact.FINISHED, 0.0) + failed)
        return Span(ended, ended), Span(ended - failed, ended - failed)
    h = histograms.get(_LATENCY[objective.signal])
    if h is None:
        return Span(0.0, 0.0), Span(0.0, 0.0)
    gone = aborts(counters)
    most = h.count + lost + gone
    least = h.count + lost if objective.signal == Signal.TTFT else most
    hit = histogram.met(h, objective.target)
    return Span(max(least, 0.0), most), Span(hit.lo, hit.hi)


class _Readings:
    """Readings of one pool at one tick; a namespace for what its parts share."""

    def __init__(self, meter: _PoolMeter, facts: PoolFacts, now: float, *, fresh: bool) -> None:
        self.meter, self.spec, self.history = meter, meter.spec, meter.history
        self.facts, self.now, self.fresh = facts, now, fresh
        self.up = {name: r for name, r in facts.replicas.items() if r.up}
        ages = [r.age for r in self.up.values()]
        self.age = max(ages) if ages else None
        self.covered = self.history.covered(now, self.spec.window) if fresh else 0.0
        self.full = self.covered >= self.spec.window * FILLED
        # Counters of a healthy scrape that never appeared have no child yet: nothing was counted so far.
        self.healthy = fresh and not facts.failed and bool(facts.counters or facts.histograms)

    def build(self) -> PoolReadings:
        signals = self._gauges()
        self.inflight = _sum(signals[Signal.RUNNING].value, signals[Signal.QUEUE_DEPTH].value)
        latencies = {signal: self._latency(signal, fact) for signal, fact in _LATENCY.items()}
        for signal, stats in latencies.items():
            signals[signal] = stats["p99"]
        signals[Signal.QUEUE_DELAY] = self._queue_delay(signals[Signal.QUEUE_DEPTH], signals[Signal.QUEUE_TIME])
        signals.update(self._flows())
        signals.update(self._tokens(signals))
        replicas = {name: self._replica(name, r) for name, r in self.facts.replicas.items()}
        signals[Signal.STUCK] = self._stuck_total(replicas)
        return PoolReadings(
            signals=signals,
            latencies=latencies,
            replicas=replicas,
            tenants={name: Scope(signals=self._tenant(t.counters)) for name, t in self.facts.tenants.items()},
            attainment={o.name: self._attainment(o) for o in self.spec.objectives if o.share is not None},
            burn=self.meter._burns(self.now),
            roles={name: r.role for name, r in self.facts.replicas.items() if r.role},
            zones={name: r.zone for name, r in self.facts.replicas.items() if r.zone},
            filled_since=self.history.filled_since if self.fresh else None,
            partial=self._partial_note(),
        )

    # --- states ------------------------------------------------------------------------------------------------

    def _partial_note(self) -> str:
        if self.facts.partial:
            return self.facts.partial
        return f"{self.facts.targets_down} of the pool's targets are down" if self.facts.targets_down else ""

    def _absent(self, fact: Fact) -> Reading:
        if fact in self.facts.unsupported:
            return unsupported(self.facts.unsupported[fact])
        return Reading(State.MISSING, note=self.facts.failed.get(fact, "no sample"))

    def _state(self, *, windowed: bool) -> tuple[State, str]:
        if self.age is not None and self.age > self.spec.stale_after:
            return State.STALE, f"newest sample is {self.age:.0f} s old"
        note = self._partial_note()
        if note:
            return State.PARTIAL, note
        if windowed and not self.full:
            return State.UNDERFILLED, f"{self.covered:.0f} of {self.spec.window:.0f} s seen"
        return State.OK, ""

    def _measured(self, reading: Reading, *, windowed: bool = True) -> Reading:
        """The same reading in the state that the data as a whole deserves; a worse state of its own stays."""
        state, note = self._state(windowed=windowed)
        if state == State.OK or reading.state in (State.CENSORED, State.SATURATED_TOP, State.UNSUPPORTED):
            return _dated(reading, self.age)
        if reading.state == State.NO_TRAFFIC and state == State.UNDERFILLED:
            return _dated(reading, self.age)
        value = reading.value if reading.state != State.NO_TRAFFIC else None
        return Reading(
            state, value, reading.lo, reading.hi, reading.count, self.age, reading.window, reading.source, note,
        )  # fmt: skip

    # --- gauges ------------------------------------------------------------------------------------------------

    def _gauges(self) -> dict[Signal, Reading]:
        out: dict[Signal, Reading] = {}
        for signal, fact in _GAUGES.items():
            value = self.facts.gauges.get(fact)
            source = self.facts.sources.get(fact, "")
            if value is None:
                out[signal] = self._absent(fact)
            else:
                lo, hi = self._spread(fact)
                out[signal] = self._measured(Reading(State.OK, value, lo, hi, source=source), windowed=False)
        _, worst = self._spread(Fact.KV_USAGE)
        usage = out[Signal.KV_USAGE]
        out[Signal.KV_USAGE_MAX] = usage if worst is None else Reading(usage.state, worst, source=usage.source)
        return out

    def _spread(self, fact: Fact) -> tuple[float | None, float | None]:
        values = [r.gauges[fact] for r in self.up.values() if fact in r.gauges]
        return (min(values), max(values)) if values else (None, None)

    # --- latency -----------------------------------------------------------------------------------------------

    def _latency(self, signal: Signal, fact: Fact) -> dict[str, Reading]:
        shares = {*STATS, *(o.share for o in self.spec.objectives if o.signal == signal and o.share is not None)}
        names = {f"p{share * 100:g}": share for share in sorted(shares)}
        h = self.history.histogram(fact, self.now, self.spec.window) if self.fresh else None
        if h is None or h.count <= 0:
            nothing = self._silence(fact, seen=h is not None)
            return dict.fromkeys([*names, "mean"], nothing)
        source = self.facts.sources.get(fact, "")
        out = {
            name: self._measured(histogram.quantile(h, share, source, self.covered)) for name, share in names.items()
        }
        out["mean"] = self._measured(histogram.mean(h, source, self.covered))
        return out

    def _silence(self, fact: Fact, *, seen: bool) -> Reading:
        """No finished request in the window: because there was none, or because it has not finished."""
        if fact in self.facts.unsupported or fact in self.facts.failed or not self.fresh:
            return self._absent(fact)
        source = self.facts.sources.get(fact, "")
        if self.inflight is None:
            return Reading(State.MISSING, source=source, note="no finished request, and work in flight is unknown")
        if self.inflight > 0:
            return Reading(
                State.CENSORED, count=0.0, window=self.covered, source=source,
                note=f"{self.inflight:g} requests in flight, none finished in the window",
            )  # fmt: skip
        if not seen and not self.healthy:
            return self._absent(fact)
        return self._measured(Reading(State.NO_TRAFFIC, count=0.0, window=self.covered, source=source))

    def _queue_delay(self, depth: Reading, finished: Reading) -> Reading:
        if not self.fresh or depth.value is None:
            return Reading(depth.state if depth.value is None else State.MISSING, note=depth.note or "first observation")
        return self._measured(queueing.delay(self.history, self.now, depth, finished), windowed=False)

    # --- flows -------------------------------------------------------------------------------------------------

    def _count(self, fact: Fact) -> Reading:
        """Events in the window. A labelled counter has no series before its first event, so absence is zero while the
        scrape is healthy."""
        if fact in self.facts.unsupported or fact in self.facts.failed or not self.fresh:
            return self._absent(fact)
        value = self.history.counter(fact, self.now, self.spec.window)
        if value is None:
            if not self.healthy:
                return self._absent(fact)
            value = 0.0
        source = self.facts.sources.get(fact, "")
        return self._measured(Reading(State.OK, value, count=value, window=self.covered, source=source))

    def _per_second(self, reading: Reading) -> Reading:
        if reading.value is None or self.covered <= 0:
            return reading
        value = reading.value / self.covered
        return Reading(
            reading.state, value, count=reading.value, age=reading.age, window=self.covered, source=reading.source,
            note=reading.note,
        )  # fmt: skip

    def _flows(self) -> dict[Signal, Reading]:
        out = {signal: self._per_second(self._count(fact)) for signal, fact in _RATES.items()}
        out.update({signal: self._count(fact) for signal, fact in _COUNTS.items()})
        out[Signal.CRASH_RESTARTS] = self._crashes()
        out[Signal.ABORTS] = self._aborts()
        out[Signal.ADMITTED_RATE] = self._admitted()
        out[Signal.OFFERED_RATE] = self._offered()
        out[Signal.ERROR_RATIO] = self._error_ratio()
        out[Signal.RETRY_SHARE] = self._ratio(Fact.RETRIES, Fact.ARRIVED)
        out[Signal.PREFIX_HIT_RATE] = self._hit_rate()
        return out

    def _crashes(self) -> Reading:
        every, oom = self._count(Fact.RESTARTS), self._count(Fact.OOM_RESTARTS)
        if every.value is None:
            return every
        return Reading(every.state, max(0.0, every.value - (oom.value or 0.0)), source=every.source, note=every.note)

    def _aborts(self) -> Reading:
        direct = self._count(Fact.ABORTED)
        if direct.state != State.UNSUPPORTED:
            return direct
        responses, finished, errors = map(self._count, (Fact.RESPONSES, Fact.FINISHED, Fact.ERRORS))
        if responses.value is None or finished.value is None:
            return direct if responses.state == State.UNSUPPORTED else responses
        value = max(0.0, responses.value - finished.value - (errors.value or 0.0))
        return Reading(responses.state, value, window=self.covered, source=f"{responses.source} - {finished.source}")

    def _admitted(self) -> Reading:
        if not self.fresh:
            return self._absent(Fact.ADMITTED)
        window = queueing.ADMIT_WINDOW
        value, covered = queueing.admitted(self.history, self.now, window), self.history.covered(self.now, window)
        if value is None or covered <= 0:
            return self._absent(Fact.ADMITTED)
        source = self.facts.sources.get(Fact.ADMITTED) or self.facts.sources.get(Fact.TTFT, "")
        return self._measured(Reading(State.OK, value / covered, count=value, window=covered, source=source))

    def _offered(self) -> Reading:
        """Requests offered per second: counted arrivals, else what ended plus the change of what is in flight."""
        arrived = self._count(Fact.ARRIVED)
        if arrived.value is not None:
            return self._per_second(arrived)
        responses, finished = self._count(Fact.RESPONSES), self._count(Fact.FINISHED)
        ended = max((r.value for r in (responses, finished) if r.value is not None), default=None)
        if ended is None:
            return finished if finished.state != State.UNSUPPORTED else arrived
        rejected = self._count(Fact.REJECTED).value or 0.0
        first, last = (_inflight(gauges) for gauges in self.history.ends(self.now, self.spec.window))
        growth = (last - first) if first is not None and last is not None else 0.0
        value = max(0.0, ended + rejected + growth) / self.covered if self.covered > 0 else 0.0
        kind = "responses" if responses.value is not None else "finished"
        return Reading(finished.state, value, window=self.covered, source=f"{kind} + change of in-flight")

    def _ratio(self, part: Fact, whole: Fact) -> Reading:
        top, bottom = self._count(part), self._count(whole)
        if top.value is None or bottom.value is None:
            return top if top.value is None else bottom
        if bottom.value <= 0:
            return self._measured(Reading(State.NO_TRAFFIC, count=0.0, window=self.covered, source=bottom.source))
        return Reading(
            top.state, top.value / bottom.value, count=bottom.value, window=self.covered,
            source=f"{top.source} / {bottom.source}",
        )  # fmt: skip

    def _hit_rate(self) -> Reading:
        if Fact.PREFIX_QUERIES in self.facts.unsupported and Fact.PREFIX_HIT_RATIO in self.facts.gauges:
            value, source = self.facts.gauges[Fact.PREFIX_HIT_RATIO], self.facts.sources.get(Fact.PREFIX_HIT_RATIO, "")
            return self._measured(Reading(State.OK, value, source=source), windowed=False)
        return self._ratio(Fact.PREFIX_HITS, Fact.PREFIX_QUERIES)

    def _error_ratio(self) -> Reading:
        errors, finished, responses = map(self._count, (Fact.ERRORS, Fact.FINISHED, Fact.RESPONSES))
        if errors.value is None:
            return errors
        ended = max(responses.value or 0.0, (finished.value or 0.0) + errors.value)
        if ended <= 0:
            return self._silence(Fact.ERRORS, seen=True)
        return Reading(
            errors.state, errors.value / ended, count=ended, window=self.covered, source=errors.source, note=errors.note
        )

    # --- tokens ------------------------------------------------------------------------------------------------

    def _tokens(self, signals: Mapping[Signal, Reading]) -> dict[Signal, Reading]:
        """Tokens waiting and tokens still to come: exposed, or from the mean lengths seen, bounded by their extremes."""
        finished = signals[Signal.FINISHED_RATE].count or 0.0
        prompt, output = signals[Signal.PROMPT_TOKEN_RATE].count, signals[Signal.GENERATION_TOKEN_RATE].count
        if finished > 0 and prompt and output:
            self.meter.lengths = [*self.meter.lengths[-239:], (prompt / finished, output / finished)]
        waiting, running = signals[Signal.QUEUE_DEPTH].value, signals[Signal.RUNNING].value
        return {
            Signal.QUEUED_TOKENS: self._estimate(Fact.QUEUED_TOKENS, 0, waiting, 0.0),
            Signal.REMAINING_TOKENS: self._estimate(Fact.REMAINING_TOKENS, 1, waiting, running),
        }

    def _estimate(self, fact: Fact, which: int, waiting: float | None, running: float | None) -> Reading:
        if fact in self.facts.gauges:
            value, source = self.facts.gauges[fact], self.facts.sources.get(fact, "")
            return self._measured(Reading(State.OK, value, source=source), windowed=False)
        if waiting is None or running is None:
            return Reading(State.MISSING, note="queue depth or running unknown")
        if waiting + running == 0:
            return Reading(State.OK, 0.0, 0.0, 0.0, source="no work in flight")
        lengths = [pair[which] for pair in self.meter.lengths]
        if not lengths:
            return Reading(State.CENSORED, lo=waiting, note="no finished request yet to learn lengths from")
        # A running request is somewhere between its first and its last token: half of it is the middle guess.
        value, lo = (waiting + running / 2) * lengths[-1], waiting * min(lengths)
        hi = (waiting + running) * max(lengths)
        return self._measured(
            Reading(State.OK, value, min(lo, value), max(hi, value), source="estimated from mean lengths"),
            windowed=False,
        )

    # --- attainment --------------------------------------------------------------------------------------------

    def _attainment(self, objective: Objective) -> Reading:
        """Share of the offered requests that met the objective over its own window, with bounds."""
        fact = Fact.ERRORS if objective.signal == Signal.ERROR_RATIO else _LATENCY[objective.signal]
        if fact in self.facts.unsupported or fact in self.facts.failed or not self.fresh:
            return self._absent(fact)
        histograms = {}
        total = self.history.histogram(fact, self.now, objective.window) if fact.kind == "histogram" else None
        if total is not None:
            histograms[fact] = total
        counters = {
            f: value
            for f in (*_LOST, Fact.ABORTED, Fact.RESPONSES, Fact.FINISHED)
            if (value := self.history.counter(f, self.now, objective.window)) is not None
        }
        offered, hits = tally(objective, histograms, counters)
        if not offered:
            return self._silence(fact, seen=True)
        lo, hi = hits.lo / offered.hi, min(1.0, hits.hi / max(offered.lo, hits.hi))
        covered = self.history.covered(self.now, objective.window)
        value = lo + (hi - lo) / 2
        if total is not None:
            value = min(max(histogram.met(total, objective.target).value / offered.hi, lo), hi)
        reading = Reading(
            State.OK, value, lo, hi, count=offered.hi, window=covered, source=self.facts.sources.get(fact, "")
        )
        state, note = self._state(windowed=False)
        if state == State.OK and covered < objective.window * FILLED:
            state, note = State.UNDERFILLED, f"{covered:.0f} of {objective.window:.0f} s seen"
        return Reading(state, value, lo, hi, reading.count, self.age, covered, reading.source, note)

    # --- replicas and tenants ------------------------------------------------------------------------------------

    def _replica(self, name: str, facts: ReplicaFacts) -> Scope:
        if not facts.up:
            down = Reading(State.STALE, age=facts.age, note="its scrape failed")
            return Scope(signals={Signal.RUNNING: down, Signal.QUEUE_DEPTH: down, Signal.KV_USAGE: down})
        state = State.STALE if facts.age > self.spec.stale_after else State.OK
        signals = {
            signal: Reading(state, facts.gauges[fact], age=facts.age, source=self.facts.sources.get(fact, ""))
            for signal, fact in _GAUGES.items()
            if fact in facts.gauges
        }
        signals[Signal.STUCK] = self._stuck(name)
        return Scope(signals=signals)

    def _stuck(self, name: str) -> Reading:
        """1 when the replica held work at every one of the last scrapes and moved nothing between them."""
        entries = list(self.history.entries)[-STUCK_SCRAPES:]
        mine = [e.replicas[name] for e in entries if name in e.replicas]
        progress = [f for f in (Fact.GENERATION_TOKENS, Fact.PROMPT_TOKENS, Fact.FINISHED) if any(f in m.counters for m in mine)]
        if not self.fresh or len(mine) < STUCK_SCRAPES:
            return Reading(State.UNDERFILLED, note=f"{len(mine)} of {STUCK_SCRAPES} scrapes seen")
        if Fact.GENERATION_TOKENS not in progress:
            return unsupported("no token counter per replica")
        held = all(m.gauges.get(Fact.RUNNING, 0.0) + m.gauges.get(Fact.WAITING, 0.0) > 0 for m in mine)
        moved = any(m.counters.get(f, 0.0) > 0 for m in mine for f in progress)
        return Reading(State.OK, 1.0 if held and not moved else 0.0, window=sum(e.seconds for e in entries))

    def _stuck_total(self, replicas: Mapping[str, Scope]) -> Reading:
        known = [s.signals[Signal.STUCK] for s in replicas.values() if Signal.STUCK in s.signals]
        values = [r.value for r in known if r.value is not None]
        if not values:
            return known[0] if known else Reading(State.MISSING, note="no replica seen")
        return Reading(State.OK, sum(values), count=float(len(values)))

    def _tenant(self, counters: Mapping[Fact, float]) -> dict[Signal, Reading]:
        last = self.history.entries[-1] if self.history.entries else None
        if last is None or not self.fresh:
            return {}
        rates = {**_RATES, Signal.OFFERED_RATE: Fact.ARRIVED}
        return {
            signal: Reading(State.OK, counters[fact] / last.seconds, window=last.seconds)
            for signal, fact in rates.items()
            if fact in counters
        }


def _inflight(gauges: Mapping[Fact, float]) -> float | None:
    return _sum(gauges.get(Fact.RUNNING), gauges.get(Fact.WAITING))


def _sum(*parts: float | None) -> float | None:
    known = [p for p in parts if p is not None]
    return sum(known) if known else None


def _dated(reading: Reading, age: float | None) -> Reading:
    if age is None or reading.age is not None:
        return reading
    return Reading(
        reading.state, reading.value, reading.lo, reading.hi, reading.count, age, reading.window, reading.source,
        reading.note,
    )  # fmt: skip


assert set(_LATENCY) == {signal for signal, info in INFO.items() if info.latency}
