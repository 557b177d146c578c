"""Health: one replica of a breaker, from tick to tick: when it should be out, and what it needs to come back. Pure.

    out at once  errors far beyond those of the others (``policies.verdict``); stuck; a fault of its GPU; errors and
                 slowness both beyond half of their limits
    out when     slow_ratio times as slow as its peers, mean over the tokens of the last seconds, and slow for
    it lasts     `slow_windows` judgements in a row, twice as many while demand is beyond what is carried; or half a
                 minute; or two judgements of ten seconds, when it is slower than that by far

Slow replicas stay open shorter: they still answer, so a probe costs little and tells much. What one that is out still
has running is a probe already: when it is answered at the pace of the others, it goes on the ramp at once, unless it
came back in vain before. A probe is judged by its own latency and errors against those in full rotation, at its batch:
with one sequence a slow replica is as quick as others are with thirty. A restart puts a replica on probation. Data that
is missing neither takes out nor lets back.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.judge import STUCK_SCRAPES
from controller.core.model import TargetState, Tick
from controller.core.why import Why
from policies.verdict import Verdict
from policies.wayback import CLOSED, OPEN, PROBE, RAMP, SILENT, Phase, arrived, due, moved, onward, opened

LASTS = 3.0  # seconds from the first to the newest judgement after which `slow_windows` of them are enough
LONG = 28.0  # the same after which two are: of three scrapes of fifteen seconds
APART = 10.0  # the same for a replica that is slower than that by far
CLEAR = 1.15  # times the ratio which is by far: what chance does to full batches of long prompts stays below it
MEMORY = 2.0  # seconds over which slowness is averaged, by tokens: one long prompt blocks few of them
STUCK = 15.0  # seconds without a move that are no long prompt any more, however often it is looked at
CHANCE = 1e-6  # of a run of slow judgements that may still be chance
SILENT_SLOW = 45.0  # seconds after which a probe that got no request is given more, of a replica that was only slow
FEW = 300.0  # seconds after which the few requests of a quiet pool are enough: errors would have shown in them
TRIED = 2.5  # seconds of its own data by which one that is not in full rotation is judged
ENOUGH = 20.0  # gaps between tokens of one that is out by which it may be let back


class Health(NamedTuple):
    """One replica: where it stands (as ``policies.wayback.Stand``); why it went out; how often it came back to full
    rotation `vainly` since the last quiet time; `slow` judgements in a row, the first on a sample taken at `slow_from`;
    `slowness` its mean over `tokens`, which fade; `judged` when the newest sample that was judged was taken; since when
    it is on `trial`; until when it was seen `idle`; `restarts` as last told; `stuck` since when; whether it went out
    for what its `version` did."""

    phase: Phase = CLOSED
    since: float = 0.0
    until: float = 0.0
    relapses: int = 0
    cause: Why = Why.STEADY
    vainly: int = 0
    slow: int = 0
    slow_from: float = 0.0
    slowness: float = 0.0
    tokens: float = 0.0
    judged: float = 0.0
    trial: float = 0.0
    idle: float = 0.0
    restarts: float = 0.0
    stuck: float | None = None
    version: bool = False

    @property
    def failed(self) -> bool:
        """Whether it went out for its errors."""
        return self.cause is Why.FAILING_REPLICA


@dataclass(frozen=True, slots=True)
class Judge:
    """What takes a replica out, and for how long; parameters as those of ``Breaker.Config``."""

    slow_ratio: float
    slow_windows: int
    errors: float
    open_time: float
    open_max: float
    quiet: float

    def adopted(self, owner: TargetState, now: float) -> Health:
        """A replica that is seen for the first time. One that is not in full rotation was taken out before this process
        remembers, so it is let back as any other."""
        if owner.accepted is None or owner.accepted >= 1.0:
            return Health()
        return Health(OPEN, now, now + self.open_time, cause=Why.PROBE)

    def after(
        self, name: str, one: Health, verdict: Verdict, owner: TargetState, now: float, patience: float, most: float
    ) -> Health:
        """Its health after this tick, before anybody is taken out; `patience` is how many times as long it must be
        looked at as in a fleet without noise, `most` how long it is out at most when it is only slow."""
        if not verdict.heard:
            return one
        if verdict.idle is not None:
            one = one._replace(idle=verdict.idle)
        # On the ramp also what the probe began counts, where some of it is of the ramp.
        told = verdict.since(one.trial if one.phase is RAMP else one.since, one.idle)
        if one.phase is CLOSED:
            return self._watched(one, told, now)
        one = _averaged(one, told, told.probed, MEMORY * patience)
        tried = one.tokens > 0 and one.judged - one.since >= TRIED * patience - 1e-6
        slowness, least = one.slowness if tried else None, math.sqrt(self.slow_ratio)
        if one.phase is OPEN:
            if verdict.stuck:
                return one
            running = one.cause is Why.SLOW_REPLICA and not one.vainly and one.tokens >= ENOUGH
            if running and slowness is not None and slowness < least and not told.failing(self.errors, 0.5):
                return fresh(moved(one, RAMP, now))._replace(trial=one.since)
            return fresh(moved(one, PROBE, now))._replace(trial=now) if due(one, now) else one
        if not arrived(one, owner.accepted):
            return fresh(one._replace(since=now))  # it has not got its trickle yet
        if verdict.stuck or verdict.faulty:
            return self.taken_out(name, one, Why.STUCK_REPLICA if verdict.stuck else Why.FAULTY_REPLICA, now, most)
        if told.failing(self.errors, least=1.0) and (told.errors or 0.0) * told.ended >= 2 - 1e-6:
            return self.taken_out(name, one, Why.FAILING_REPLICA, now, most)
        if slowness is not None and slowness >= (self.slow_ratio if one.phase is RAMP else least):
            return self.taken_out(name, one, Why.SLOW_REPLICA, now, most)
        # Of what it went out for it has to be free: answers without an error are no sign that a GPU has cooled.
        few = 1.0 if now - one.since >= FEW else 3.0
        answered = told.ended >= few and not told.failing(self.errors, 0.5, least=few)
        lasted, only_slow = now - one.since >= SILENT, one.cause is Why.SLOW_REPLICA
        quick = slowness is not None and (slowness < least or lasted)
        well = quick or (answered and lasted) if only_slow else answered or (quick and not one.failed)
        after = onward(one, now, well=well, silent=SILENT_SLOW if only_slow else SILENT)
        return after if after.phase is one.phase else fresh(after._replace(slow=0))

    def _watched(self, one: Health, told: Verdict, now: float) -> Health:
        """A replica in rotation: counts the judgements by which it is slow, each on data that is new."""
        if (one.stuck is not None) != told.stuck:
            one = one._replace(stuck=now if told.stuck else None)
        if one.relapses and now - one.since >= self.quiet:
            one = one._replace(relapses=0, vainly=0)
        if told.restarts is not None and told.restarts < one.restarts:
            one = one._replace(restarts=told.restarts)
        if told.paced is None:
            return one  # nothing to judge
        slowness = told.slowness
        after = _averaged(one, told, slowness, MEMORY)
        if after is one or slowness is None:
            return one
        slow = one.slow + 1 if slowness >= math.sqrt(self.slow_ratio) else 0
        if slow == one.slow:
            return after  # it was not slow and is not
        return after._replace(slow=slow, slow_from=after.judged if slow == 1 else one.slow_from)

    def why_out(self, one: Health, verdict: Verdict, told: Verdict, patience: float, tick: Tick) -> Why | None:
        """Why this replica, in rotation, should be out. None when it should not. `told` is the part of the verdict that
        is about its present phase; `patience` is how many times as long slowness must last."""
        if not verdict.heard:
            return None
        if not (told.errors or one.slow or one.stuck is not None or verdict.faulty or verdict.restarts):
            return None  # nearly always: nothing is the matter
        looked = (STUCK_SCRAPES - 1) * (tick.since_last or 0.0)  # what the reading itself has waited for
        if one.stuck is not None and tick.at - one.stuck + looked >= STUCK - 1e-6:
            return Why.STUCK_REPLICA
        if verdict.faulty:
            return Why.FAULTY_REPLICA
        if told.failing(self.errors):
            return Why.FAILING_REPLICA
        if told.failing(self.errors, 0.5) and (told.slowness or 0.0) >= max(self.slow_ratio / 2, 1.25):
            return Why.FAILING_REPLICA
        lasts = one.judged - one.slow_from
        often = one.slow >= self.slow_windows * patience and lasts >= LASTS * patience - 1e-6
        long = LONG if one.slowness < CLEAR * self.slow_ratio else APART
        lasting = often or (one.slow >= 2 and lasts >= long - 1e-6)
        if lasting and one.slowness >= self.slow_ratio:
            return Why.SLOW_REPLICA
        if verdict.restarts is not None and verdict.restarts > one.restarts:
            return Why.RESTARTED
        return None

    def taken_out(self, name: str, one: Health, cause: Why, now: float, most: float) -> Health:
        """Out, for longer each time."""
        if cause is Why.RESTARTED:
            return one._replace(phase=PROBE, since=now, trial=now, cause=cause, slow=0)
        cap = most if cause is Why.SLOW_REPLICA else self.open_max
        vainly = one.vainly + (one.phase is CLOSED and one.relapses > 0)
        out = opened(one, name, now, self.open_time, cap)
        return out._replace(cause=cause, vainly=vainly, slow=0, tokens=0.0, stuck=None, version=one.version)

    def patience(self, rough: float) -> float:
        """How many times as many judgements in a row are no chance, in a fleet whose replicas look slow that often."""
        if rough <= 0:
            return 1.0
        return max(1.0, math.log(CHANCE) / math.log(min(rough, 0.5)) / self.slow_windows)


def fresh(one: Health) -> Health:
    """The same at the start of a phase, of which nothing was seen yet."""
    return one._replace(slowness=0.0, tokens=0.0, judged=one.since)


def _averaged(one: Health, told: Verdict, slowness: float | None, memory: float) -> Health:
    """With a sample that was not judged yet in its mean; the tokens of older ones fade over `memory` seconds."""
    if told.paced is None or slowness is None or told.paced.end <= one.judged + 1e-6:
        return one
    end = told.paced.end
    kept, new = one.tokens * math.exp(-(end - one.judged) / memory), max(told.samples, 1.0)
    return one._replace(slowness=(kept * one.slowness + new * slowness) / (kept + new), tokens=kept + new, judged=end)
