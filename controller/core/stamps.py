"""Stamps: which two samples an increment lies between.

A tick tells what was counted since the tick before as far as its samples reach, and while Prometheus is away there are
none. The first answer after an outage still shows old samples, and the next ones carry the growth of the whole gap:
taken as that of one tick, a load of 9/s looked like 30/s. So the increments of a replica are dated by the stamps of the
two samples that they lie between. What a sample lags behind the tick is mostly the same at both ends and left out of
it. Where a second outage follows the first at once, the sample that carries the growth of the first is old itself when
it is seen: how much older than one usually is says how much earlier its increments were.

Where a source tells no stamps, nobody knows which tick after a gap carries it. Then ticks are taken together, from the
one that bridged the gap to the one at which a replica moved again.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from controller.core.facts import Fact
from controller.core.observation import Facts, PoolFacts, ReplicaFacts

# What scrape jitter explains: a step beyond this many usual ones is a gap. A missed scrape is one.
GAP = 1.5
_STEPS = 9  # steps that the usual one is the median of: an outage is one or two of them
_OWN = 3  # steps of a replica, all of them longer than usual, by which it is scraped more rarely than the others
_SAME = 1e-3  # seconds; stamps are in milliseconds


class Dated(NamedTuple):
    """One replica at one tick: its increments are of the last `seconds` until `ago`, 0 where it has no newer sample;
    `seen` is the tick (unix seconds) at which its newest sample was new."""

    seconds: float
    seen: float
    ago: float = 0.0


class Dating(NamedTuple):
    """The replicas of a tick, a pool that tells none as the one "". `late` says that some increment is of more than the
    tick, `overdue` how many have had no sample for longer than jitter explains, and `together` that a gap is not
    closed, so that this tick and the ones before it since the gap are one."""

    replicas: Mapping[str, Dated]
    tick: float = 0.0  # seconds since the observation before
    late: bool = False
    overdue: int = 0
    together: bool = False

    def share(self, begin: float, end: float, at: float) -> float:
        """The part of the increments of the tick at `at` that is dated between two times."""
        spans = [(one.seconds, at - one.ago) for one in self.replicas.values() if one.seconds > 0] or [(self.tick, at)]
        return sum(overlap(span, begin, end, until) for span, until in spans) / sum(span for span, _ in spans)

    def of(self, replica: str, begin: float, end: float, at: float) -> float:
        """The same for the increments of one replica."""
        one = self.replicas.get(replica)
        if one is None or one.seconds <= 0:
            return overlap(self.tick, begin, end, at) / self.tick
        return overlap(one.seconds, begin, end, at - one.ago) / one.seconds

    def seen(self, replica: str = "") -> float | None:
        """When its newest sample was new; None where that is not known."""
        one = self.replicas.get(replica)
        return one.seen if one is not None else None


def overlap(span: float, begin: float, end: float, at: float) -> float:
    """Seconds of the `span` before `at` that lie between `begin` and `end`."""
    return max(0.0, min(end, at) - max(begin, at - span))


@dataclass(slots=True)
class _Known:
    stamp: float  # of its newest sample, unix seconds
    moved: float  # the tick at which that was new
    gauges: Mapping[Fact, float]
    lags: tuple[float, ...]  # how old its newest samples were when they were new here
    steps: tuple[float, ...] = ()  # the newest of its own

    @property
    def pace(self) -> float:
        """Seconds from sample to sample, also of one that is scraped more rarely than the others; 0 while that is not
        known."""
        return min(self.steps) if len(self.steps) == _OWN else 0.0


class Stamps:
    """Remembers the newest sample of every replica. `patience` is for how many seconds after a gap a replica without
    stamps that shows nothing new may yet bring what was counted in it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._known: dict[str, _Known] = {}
        self._steps: deque[float] = deque(maxlen=_STEPS)
        self._pending: set[str] = set()  # replicas that may yet bring the growth of a gap
        self._until = 0.0

    def read(self, facts: PoolFacts, at: float, since: float | None, *, stamped: bool) -> Dating:
        """The replicas at `at`. `stamped` says that ages are those of samples."""
        members: Mapping[str, Facts] = {name: r for name, r in facts.replicas.items() if r.up}
        if not facts.replicas:
            members = {"": facts}
        usual = median(self._steps) if self._steps else 0.0
        tick = at - since if since is not None else 0.0
        together = opened = False
        if not stamped:
            together, opened = self._open(members, usual, tick, at)
        dated: dict[str, Dated] = {}
        known: dict[str, _Known] = {}
        steps: list[float] = []
        overdue, late = 0, False
        for name, one in members.items():
            stamp = at - (_age(one) if stamped else 0.0)
            before = self._known.get(name)
            if before is None:
                known[name] = _Known(stamp, at, one.gauges, (at - stamp,))
                dated[name] = Dated(tick, at)
                continue
            if stamped:
                moved, step = stamp > before.stamp + _SAME, stamp - before.stamp
            else:
                moved, step = not self._pending or _changed(one, before), tick
            if not moved:
                known[name] = before
                # One that another job scrapes every minute is not overdue for most of it.
                waited = at - before.moved
                still = waited > GAP * (usual or tick) and waited > GAP * before.pace
                overdue += still
                dated[name] = Dated(0.0, before.moved if still else at)
                continue
            lags, own = (*before.lags[1 - _OWN :], at - stamp), (*before.steps[1 - _OWN :], step)
            known[name] = _Known(stamp, at, one.gauges, lags, own)
            if not opened:
                self._pending.discard(name)
            steps.append(step)
            since_start = _since_start(one, stamp)
            gap = min(step, since_start) if since_start is not None else step
            beyond = since is not None and gap > max(usual, tick) + (GAP - 1.0) * (usual or tick)
            late |= beyond
            dated[name] = Dated(gap, at, max(0.0, at - stamp - min(before.lags))) if beyond else Dated(tick, at)
        self._known = known
        if steps and since is not None:
            self._steps.append(median(steps))
        return Dating(dated, tick, late, overdue, together)

    def _open(self, members: Mapping[str, Facts], usual: float, tick: float, at: float) -> tuple[bool, bool]:
        """Without stamps: whether a gap that a tick before this one bridged may bring its growth now, and whether this
        one bridges another."""
        self._pending &= members.keys()
        if at - tick > self._until:  # it was read since, and not just missed
            self._pending.clear()
        was = bool(self._pending)
        opened = 0 < GAP * usual < tick
        if opened:
            self._pending, self._until = set(members), at + self._patience
        return was, opened


def _age(one: Facts) -> float:
    if isinstance(one, ReplicaFacts):
        return one.age
    return (one.front_age or 0.0) if isinstance(one, PoolFacts) else 0.0


def _since_start(one: Facts, stamp: float) -> float | None:
    """Seconds that a replica had been serving when it was sampled: it cannot have counted for longer."""
    started = one.started_at if isinstance(one, ReplicaFacts) else None
    return stamp - started if started is not None and started < stamp else None


def _changed(one: Facts, before: _Known) -> bool:
    return (
        any(value > 0 for value in one.counters.values())
        or any(h.count > 0 for h in one.histograms.values())
        or one.gauges != before.gauges
    )
