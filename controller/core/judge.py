"""Judge: how good the data of one pool is at one tick, and readings in the state that they deserve."""

from collections.abc import Mapping
from itertools import islice

from controller.core.facts import Fact
from controller.core.observation import HistogramIncrement, PoolFacts
from controller.core.reading import Reading, State, unsupported
from controller.core.tally import Endings, endings
from controller.core.windows import NEWEST, History

STUCK_SCRAPES = NEWEST  # a replica that holds work and moved nothing over this many scrapes is stuck
_HOLDS_WORK = (Fact.WAITING, Fact.RUNNING)
_OWN = frozenset({State.CENSORED, State.SATURATED_TOP, State.UNSUPPORTED})  # states that say more than doubt does


_NOT_READ = Reading(State.MISSING, note="no sample")


class Judge:
    """Facts of one pool at `now` with their history. `window` is the control window and `stale_after` the age at which
    a sample says nothing any more, both in seconds; `fresh` is False on the first observation of a stretch, which has
    no increments. `overdue` replicas have had no sample for longer than scrape jitter explains."""

    def __init__(
        self, history: History, facts: PoolFacts, now: float, *, window: float, stale_after: float, fresh: bool,
        overdue: int = 0,
    ) -> None:  # fmt: skip
        self._overdue = overdue
        self.history, self.facts, self.now, self.fresh = history, facts, now, fresh
        self.window, self.stale_after = window, stale_after
        self.up = {name: r for name, r in facts.replicas.items() if r.up}
        ages = [r.age for r in self.up.values()]
        self.age = min(ages) if ages else None
        self._old = sum(age > stale_after for age in ages)
        self.covered = history.covered(now, window) if fresh else 0.0
        self.full = fresh and history.full(now, window)
        # Facts that could not be read at some tick of the window: their sums are too low, or crowded into the rest.
        self.unread = frozenset(f for e in history.within(now, window) for f in e.failed) if fresh else frozenset()
        # Counters of a healthy scrape that never appeared have no child yet: nothing was counted so far.
        self._front = front = facts.fronted
        self.healthy = (
            fresh and not facts.failed.keys() - front and bool({*facts.counters, *facts.histograms} - front)
            if front
            else fresh and not facts.failed and bool(facts.counters or facts.histograms)
        )
        self._front_healthy = self.healthy if not front else fresh and front.isdisjoint(facts.failed)
        self._sided = bool(front or facts.doubted)
        self.last = list(islice(reversed(history.entries), STUCK_SCRAPES))  # newest first
        self.sums = history.counters(now, window) if fresh else {}
        self._histograms: dict[tuple[Fact, float], HistogramIncrement | None] = {}
        self._counts: dict[Fact, Reading] = {}
        self._ended: dict[float, Endings] = {}
        self._states = {windowed: self._judge(windowed=windowed) for windowed in (True, False)}
        self._front_states = (
            {windowed: self._judge_front(windowed=windowed) for windowed in (True, False)} if front else self._states
        )
        self.inflight = total(facts.gauges.get(Fact.RUNNING), facts.gauges.get(Fact.WAITING))
        if (
            self._sided
            and self.inflight == 0
            and (Fact.WAITING in facts.doubted or (front and Fact.RUNNING not in facts.gauges))
        ):
            self.inflight = None  # nothing where somebody looked

    def histogram(self, fact: Fact, window: float) -> HistogramIncrement | None:
        """Samples of the last `window` seconds; quantiles and attainment share them."""
        key = (fact, window)
        if key not in self._histograms:
            self._histograms[key] = self.history.histogram(fact, self.now, window)
        return self._histograms[key]

    def counters(self, window: float) -> Mapping[Fact, float]:
        """Increments of the last `window` seconds."""
        return self.sums if window == self.window else self.history.counters(self.now, window)

    def ended(self, window: float) -> Endings:
        """How the requests of the last `window` seconds ended; all objectives of a window share it."""
        known = self._ended.get(window)
        if known is None:
            known = self._ended[window] = endings(self.counters(window))
        return known

    def source(self, fact: Fact) -> str:
        return self.facts.sources.get(fact, "")

    def partial_note(self) -> str:
        if self.facts.partial:
            return self.facts.partial
        if self.facts.targets_down:
            return f"{self.facts.targets_down} of the pool's targets are down"
        if self._old:
            return f"the samples of {self._old} of {len(self.up)} replicas are old"
        if self._overdue:
            return f"the next sample of {self._overdue} of {max(1, len(self.up))} replicas is overdue"
        silent = self._silent()
        return f"{', '.join(silent)} answers but no longer tells its work" if silent else ""

    def _silent(self) -> list[str]:
        """Replicas that are up and stopped telling what they hold: an empty page adds up to an empty queue."""
        return [
            name
            for name, r in self.up.items()
            for fact in _HOLDS_WORK
            if fact in self.facts.gauges and fact not in r.gauges and self.history.had(name, fact)
        ][:3]

    def absent(self, fact: Fact) -> Reading:
        if fact in self.facts.unsupported:
            return unsupported(self.facts.unsupported[fact])
        why = self.facts.failed.get(fact)
        return _NOT_READ if why is None else Reading(State.MISSING, note=why)

    def state(self, fact: Fact | None = None, *, windowed: bool) -> tuple[State, str]:
        """The state that the data as a whole deserves, and why; that of one fact where sides differ: what a gateway
        tells is as good as the gateway, and what is known in part is partial."""
        if not self._sided:
            return self._states[windowed]
        state = (self._front_states if fact in self._front else self._states)[windowed]
        if fact is not None and fact in self.facts.doubted and state[0] is not State.STALE:
            return State.PARTIAL, self.facts.doubted[fact]
        return state

    def doubt(self) -> str:
        """Why the facts of this pool are not all there is; "" when they are."""
        return self.partial_note() or next(iter(self.facts.doubted.values()), "")

    def is_healthy(self, fact: Fact) -> bool:
        """Whether a counter or histogram that is absent has had no event yet."""
        return self._front_healthy if fact in self._front else self.healthy

    def age_of(self, fact: Fact | None) -> float | None:
        """Seconds since the newest sample of whoever tells this fact."""
        return self.facts.front_age if fact in self._front else self.age

    def _judge(self, *, windowed: bool) -> tuple[State, str]:
        if self.age is not None and self.age > self.stale_after:
            return State.STALE, f"newest sample is {self.age:.0f} s old"
        note = self.partial_note()
        if note:
            return State.PARTIAL, note
        return self._judge_front(windowed=windowed)

    def _judge_front(self, *, windowed: bool) -> tuple[State, str]:
        """Of what does not depend on replicas: whether the window is full."""
        if windowed and not self.full:
            seen = 0.0 if self.history.filled_since is None else self.now - self.history.filled_since
            return State.UNDERFILLED, f"{seen:.0f} of {self.window:.0f} s seen"
        return State.OK, ""

    def gauge(self, value: float, fact: Fact) -> Reading:
        """A number read at the scrape."""
        state, note = self.state(fact, windowed=False)
        return Reading(state, value, age=self.age_of(fact), source=self.source(fact), note=note)

    def measured(self, reading: Reading, fact: Fact | None = None, *, windowed: bool = True) -> Reading:
        """The same reading in the state that the data deserves, as a whole or of the fact that it is made of; a worse
        state of its own stays."""
        state, note = self.state(fact, windowed=windowed) if self._sided else self._states[windowed]
        keeps = state is State.OK or reading.state in _OWN
        aged = reading.age is not None or self.age is None
        if keeps and aged and reading.state is not State.NO_TRAFFIC:
            return reading
        if keeps or (reading.state is State.NO_TRAFFIC and state is State.UNDERFILLED):
            state, note = reading.state, reading.note
        return Reading(
            state,
            reading.value if reading.state is not State.NO_TRAFFIC else None,
            reading.lo,
            reading.hi,
            reading.count,
            self.age_of(fact) if reading.age is None else reading.age,
            reading.window,
            reading.source,
            note,
        )

    def silence(self, fact: Fact, *, seen: bool) -> Reading:
        """No finished request in the window: because there was none, or because it has not finished."""
        if fact in self.facts.unsupported or fact in self.facts.failed or not self.fresh:
            return self.absent(fact)
        if not seen and self.facts.sources and fact not in self.facts.sources:
            return _NOT_READ  # what nobody asked for is not censored by what runs
        source = self.source(fact)
        if self.inflight is None:
            return Reading(State.MISSING, source=source, note="no finished request, and work in flight is unknown")
        if self.inflight > 0:
            return Reading(
                State.CENSORED, count=0.0, window=self.covered, source=source,
                note=f"{self.inflight:g} requests in flight, none finished in the window",
            )  # fmt: skip
        if not seen and not self.is_healthy(fact):
            return self.absent(fact)
        return self.measured(Reading(State.NO_TRAFFIC, count=0.0, window=self.covered, source=source), fact)

    def count(self, fact: Fact) -> Reading:
        """Events in the window. A labelled counter has no series before its first event, so absence is zero while the
        scrape is healthy."""
        known = self._counts.get(fact)
        if known is None:
            known = self._counts[fact] = self._count(fact)
        return known

    def _count(self, fact: Fact) -> Reading:
        if fact in self.facts.unsupported or fact in self.facts.failed or not self.fresh:
            return self.absent(fact)
        value = self.sums.get(fact)
        if value is None:
            if not self.is_healthy(fact):
                return self.absent(fact)
            value = 0.0
        state, note = self.windowed(fact)
        seconds, age = self.covered, self.age_of(fact) if self._sided else self.age
        if fact in self.unread and (seconds := self.seconds(fact)) <= 0:
            return Reading(State.MISSING, source=self.source(fact), note=note)
        return Reading(state, value, None, None, value, age, seconds, self.facts.sources.get(fact, ""), note)

    def seconds(self, fact: Fact) -> float:
        """Seconds of the window over which this fact was read."""
        if fact not in self.unread:
            return self.covered
        return sum(e.seconds for e in self.history.within(self.now, self.window) if fact not in e.failed)

    def windowed(self, fact: Fact) -> tuple[State, str]:
        """The state of a number over the window that is made of this fact."""
        state = self.state(fact, windowed=True) if self._sided else self._states[True]
        if fact in self.unread and state[0] is State.OK:
            return State.UNDERFILLED, f"{fact} could not be read over the whole window"
        return state

    def per_second(self, r: Reading) -> Reading:
        """A count over the window as a rate; `count` stays the number of events."""
        if r.value is None or not r.window:
            return r
        return Reading(r.state, r.value / r.window, None, None, r.value, r.age, r.window, r.source, r.note)


def total(*parts: float | None) -> float | None:
    """Sum of what is known; None when nothing is."""
    known = [p for p in parts if p is not None]
    return sum(known) if known else None
