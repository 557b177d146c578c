"""Verdict: what the readings say about one replica at one tick, against its peers, and about all of them. No memory.

    slow     own step time over the peers' median, where it is slower as it stands too; the time to the first token,
             over that of peers with a like batch, may raise it by a quarter, and stands for it, halved, where no time
             per token is told
    failing  share of errors >= max(limit, min(5 * rest, half way from rest to all)), of at least 20 requests that
             ended; the rest is the median of all others (``controller.core.worse``)
    stuck    work is there and nothing moved

An engine whose queue is long may be refusing what it has no place for, and that is not its fault; one that fails what
it is given has no queue. Times to the first token are mostly those of the longest prompts: on a healthy fleet the mean
of a replica is three times that of its peers for a minute now and then, where the step time is hardly ever twice
theirs. A first token within half of the tightest promise on it is soon enough, whatever the others do.
"""

import math
from collections.abc import Collection, Sequence
from statistics import median
from typing import NamedTuple

from controller.core.model import Scope
from controller.core.ports import Brief, View
from controller.core.reading import Reading
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.worse import LEAST_ENDED, ended, far_more, usual_of_others
from policies import pace

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every replica.
_RUNNING, _ERRORS, _STUCK = Signal.RUNNING, Signal.ERROR_RATIO, Signal.STUCK
_KILLED, _CRASHED, _FAULTS = Signal.OOM_RESTARTS, Signal.CRASH_RESTARTS, Signal.XID_ERRORS
PROBED = 0.75  # the same of a probe, whose batch is so small that a healthy one is far quicker as it stands
SLOWER = 1.25  # a replica that is hardly slower as it stands is not slow, whatever a model says
RAISE = 1.25  # what late first tokens may make of a slowness that tokens show
ALONE = 0.5  # what they count for alone
OVER = 1.5  # times its modelled step time at which the fleet as a whole is slow
_tuple = tuple.__new__  # past the one of named tuples, which takes two to three times as long
SOON = 0.5  # share of a promise on the first token within which none is slow


class Span(NamedTuple):
    """The seconds that a reading is about, unix."""

    begin: float
    end: float

    def within(self, since: float) -> bool:
        """Whether at least half of it is later than `since`."""
        return self.end > since and self.end - max(self.begin, since) >= 0.5 * (self.end - self.begin) - 1e-6


class Verdict(NamedTuple):
    """`heard` whether the replica's page was read; `ratio` how many times as slow as its peers at its batch and `raw`
    as it stands, over `paced` and `samples` gaps between tokens; `first` the same of its first tokens; `errors` the
    share of `ended` requests, over `counted`, and `rest` what is usual of the others; `restarts` of its containers in
    the window, None where not told; `idle` until when nothing was generated after `paced`, None where there was no look
    since."""

    heard: bool
    ratio: float | None = None
    raw: float | None = None
    first: float | None = None
    paced: Span | None = None
    samples: float = 0.0
    errors: float | None = None
    ended: float = 0.0
    counted: Span | None = None
    rest: float = 0.0
    stuck: bool = False
    faulty: bool = False
    restarts: float | None = None
    idle: float | None = None

    @property
    def slowness(self) -> float | None:
        """How many times as slow as its peers; None where nothing tells."""
        return self._slowness(SLOWER)

    @property
    def probed(self) -> float | None:
        """The same of a replica that is given less than the others: its small batch must not hide that it is slow."""
        return self._slowness(PROBED)

    def _slowness(self, least: float) -> float | None:
        if self.ratio is None or self.raw is None:
            return None if self.first is None else ALONE * self.first
        shown = self.ratio if self.raw >= least else min(self.ratio, 1.0)
        return max(shown, min(RAISE * shown, self.first or 0.0))

    def failing(self, limit: float, share: float = 1.0, least: float = LEAST_ENDED) -> bool:
        """Whether the share of errors is beyond `share` of the limit."""
        if not self.errors or self.ended < least:
            return False
        return self.errors >= share * far_more(limit, self.rest)

    def since(self, moment: float, idle: float = 0.0) -> "Verdict":
        """The same without what is mostly about the time before `moment`, unix seconds. What was generated since it was
        seen `idle` is no older than that, however long the reading looks back."""
        if moment <= 0:
            return self  # it was never out
        said = self
        if self.paced is not None and idle < self.paced.end:
            said = said._replace(paced=Span(max(self.paced.begin, idle), self.paced.end))
        if said.paced is not None and not said.paced.within(moment):
            said = said._replace(ratio=None, raw=None, first=None, paced=None)
        if self.counted is not None and not self.counted.within(moment):
            said = said._replace(errors=None, ended=0.0, counted=None)
        return said


def verdicts(
    view: View, objectives: Sequence[Objective], names: Collection[str], serving: Collection[str]
) -> dict[str, Verdict]:
    """Of each of `names`; `serving` are those in full rotation, against whom all are compared."""
    found = pace.paces(view)
    modelled = pace.known(view)
    peers = pace.Peers(found[name] for name in sorted(serving) if name in found and found[name].enough)
    full = set(serving)
    soon = SOON * min((o.target for o in objectives if o.signal is Signal.TTFT), default=0.0)
    ends = {name: ended(scope) for name, scope in view.pool.replicas.items()}
    rest = usual_of_others(ends)
    out = {}
    for name in sorted(names):
        scope = view.pool.replicas.get(name)
        if scope is None:
            out[name] = Verdict(heard=False)
            continue
        mine = found.get(name)
        if mine is not None and name in full and not mine.enough:
            mine = None  # what is out gets few requests, so that less must be enough to judge it by
        told = pace.against(mine, peers, inside=name in full, modelled=modelled) if mine is not None else None
        out[name] = _verdict(view.tick.at, scope, told, mine, soon, *ends[name], rest[name])
    return out


def heard(scope: Scope) -> bool:
    """Whether the page of a replica was read."""
    return (
        scope.usable(_RUNNING) is not None
        or scope.usable(Signal.QUEUE_DEPTH) is not None
        or scope.usable(Signal.KV_USAGE) is not None
    )


def span(now: float, reading: Reading) -> Span:
    """The seconds that a reading is about."""
    end = now - (reading.age or 0.0)
    return _tuple(Span, (end - (reading.window or 0.0), end))


def overloaded(view: View, brief: Brief, serving: Collection[str]) -> bool:
    """Whether load is beyond the fleet and most of `serving` are slow or queue: fewer replicas would make it worse."""
    if brief.left <= 0:
        return False
    paces = pace.paces(view) if pace.known(view) else {}
    steps = [one.own for name, one in paces.items() if one.enough and name in serving]
    depths = [view.pool.replicas[n].get(Signal.QUEUE_DEPTH).usable for n in serving if n in view.pool.replicas]
    queues = [depth for depth in depths if depth is not None]
    # Behind a gate they wait there and not inside, for any of them.
    inside = math.fsum(scope.get(Signal.QUEUE_DEPTH).usable or 0.0 for scope in view.pool.replicas.values())
    waiting = view.pool.get(Signal.QUEUE_DEPTH).usable or 0.0
    before = max(0.0, waiting - inside) / max(1, len(serving))
    return bool((steps and median(steps) >= OVER) or (queues and median(queues) + before >= 1.0))


def _verdict(
    now: float, scope: Scope, told: pace.Against | None, mine: pace.Pace | None, soon: float, share: float,
    count: float, rest: float,
) -> Verdict:  # fmt: skip
    killed, crashed = scope.usable(_KILLED), scope.usable(_CRASHED)
    looked = scope.get(_RUNNING)
    scraped = now - looked.age if looked.usable is not None and looked.age is not None else None
    idle = scraped if mine is not None and scraped is not None and mine.read < scraped - 1e-6 else None
    first = told.first if told is not None and mine is not None and (mine.first or 0.0) > soon else None
    stuck, faulty = bool(scope.usable(_STUCK)), bool(scope.usable(_FAULTS))
    restarts = None if killed is None and crashed is None else (killed or 0.0) + (crashed or 0.0)
    counted = span(now, scope.get(_ERRORS)) if count else None
    was_heard = looked.usable is not None or heard(scope)
    ratio, raw, paced, samples = None, None, None, 0.0
    if told is not None:
        ratio, raw = told.ratio, told.raw
    if mine is not None:
        paced, samples = Span(mine.since, mine.read), mine.samples
    said = (
        was_heard, ratio, raw, first, paced, samples, share if count else None, count, counted, rest, stuck, faulty,
        restarts, idle,
    )  # fmt: skip
    return _tuple(Verdict, said)
