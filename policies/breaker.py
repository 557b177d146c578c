"""Breaker: takes the slow, failing or stuck replica out of rotation, and lets it back on evidence.

    out at once  errors >= max(20 %, 5 * all others) of >= 20 requests; stuck; a fault of its GPU; errors and slowness
                 both beyond half of their limits
    out when     slow_ratio times as slow as its peers, mean over the tokens of the last seconds, and slow for
    it lasts     `slow_windows` judgements in a row, twice as many while demand is beyond what is carried; or half a
                 minute; or two judgements of ten seconds, when it is slower than that by far
    never        more than max(1, share of the fleet); none for slowness or errors when more than that look bad at
                 once, or while load is beyond the fleet and the fleet as a whole is slow
    a version    all of its replicas, where they fail max(20 %, 5 * the rest) together or most of them are slow, while
                 it is no more than its share of the fleet and the rest is well (``policies.condemned``)
    the way back closed -> open 0 -> probe 0.05 -> ramp 0.25 -> closed 1

Open lasts open_time * 2^k (``policies.wayback``), where k is forgotten after a quiet time. Slow replicas stay open
shorter: they still answer, so a probe costs little and tells much. What one that is out still has running is a probe
already: when it is answered at the pace of the others, it goes on the ramp at once, unless it came back in vain before.
A probe is judged by its own latency and errors against those in full rotation, at its batch: with one sequence a slow
replica is as quick as others are with thirty. A restart puts a replica on probation. Data that is missing neither takes
out nor lets back, but the cap holds also when the fleet shrinks. It complements the proxy's own outlier detection,
which sees errors and not the slow-but-alive.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from controller.core.estimate import READS
from controller.core.group import most_out, of_one_version
from controller.core.judge import STUCK_SCRAPES
from controller.core.model import Ask, Lever, Proposal, Target, TargetState, Tick
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.relief import OUT
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from policies.condemned import Condemned, Looks, condemned
from policies.verdict import Verdict, fleet_pace, verdicts
from policies.wayback import (
    FACTOR,
    OPEN_MAX,
    OPEN_TIME,
    QUIET,
    SILENT,
    Phase,
    arrived,
    due,
    moved,
    onward,
    opened,
)

LASTS = 3.0  # seconds from the first to the newest judgement after which `slow_windows` of them are enough
LONG = 28.0  # the same after which two are: of three scrapes of fifteen seconds
APART = 10.0  # the same for a replica that is slower than that by far
CLEAR = 1.15  # times the ratio which is by far: what chance does to full batches of long prompts stays below it
MEMORY = 2.0  # seconds over which slowness is averaged, by tokens: one long prompt blocks few of them
SHORT = 2.0  # times as often while there are too few replicas: full batches of long prompts swing more
OVER = 1.5  # times its modelled step time at which the fleet as a whole is slow
STUCK = 15.0  # seconds without a move that are no long prompt any more, however often it is looked at
ROUGH = 120.0  # seconds over which it is averaged how often healthy replicas look slow
CHANCE = 1e-6  # of a run of slow judgements that may still be chance
SILENT_SLOW = 45.0  # seconds after which a probe that got no request is given more, of a replica that was only slow
FEW = 300.0  # seconds after which the few requests of a quiet pool are enough: errors would have shown in them
TRIED = 2.5  # seconds of its own data by which one that is not in full rotation is judged
ENOUGH = 20.0  # gaps between tokens of one that is out by which it may be let back
MOSTLY = 0.8  # share of errors of a replica that serves nothing to speak of, whatever the load
_URGENCY = {Why.FAILING_REPLICA: 1, Why.SLOW_REPLICA: 2}  # what is a matter of its fleet, and what goes first; else 0


class Health(NamedTuple):
    """One replica: where it stands (as ``policies.wayback.Stand``); why it went out; how often it came back to full
    rotation `vainly` since the last quiet time; `slow` judgements in a row, the first on a sample taken at `slow_from`;
    `slowness` its mean over `tokens`, which fade; `judged` when the newest sample that was judged was taken; since when
    it is on `trial`; until when it was seen `idle`; `restarts` as last told; `stuck` since when; whether it went out
    for what its `version` did."""

    phase: Phase = Phase.CLOSED
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


class _Judged(NamedTuple):
    """Of one replica in rotation: why it should be out, None when it should not; how bad it looks, whether it does
    so now, and by errors."""

    why: Why | None
    bad: float
    soft: bool
    fails: bool = False


class Breaker:
    """A breaker for each replica of a pool."""

    levers = (Lever.BREAKER,)
    reads = READS | {
        Signal.TPOT,
        Signal.TTFT,
        Signal.ERROR_RATIO,
        Signal.OOM_RESTARTS,
        Signal.CRASH_RESTARTS,
        Signal.XID_ERRORS,
    }  # fmt: skip

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the breaker."""

        slow_ratio: float = param("times as slow as its peers at a like batch that are too slow", 2.5, ge=1.5)
        slow_windows: int = param("judgements in a row, each on new data, that make a replica slow", 3, ge=2)
        errors: float = param("share of errors that is too much", 0.2, unit=Unit.RATIO, gt=0, le=1)
        share: float = param(
            "largest share of the fleet that is out at once; one may always be", 0.2, unit=Unit.RATIO, ge=0, lt=1
        )
        version_share: float = param(
            "the same where all of them run one version that is worse than the rest (`labels.version`)",
            0.5, unit=Unit.RATIO, ge=0, lt=1,
        )  # fmt: skip
        open_time: float = param("how long a replica is out the first time", OPEN_TIME, unit=Unit.DURATION, gt=0)
        open_max: float = param("longest time out before it is tried again", OPEN_MAX, unit=Unit.DURATION, gt=0)
        open_max_slow: float = param(
            "the same for replicas that are only slow: they answer, so a probe costs little; open_max where the target "
            "knows in and out alone, and a probe gets a full share", 15.0, unit=Unit.DURATION, gt=0,
        )  # fmt: skip
        quiet: float = param("time in rotation after which relapses are forgotten", QUIET, unit=Unit.DURATION, gt=0)

    class State(NamedTuple):
        """Health by replica; what part of the judgements of replicas in rotation found one slow, over `looked` seconds
        at most; what each replica runs, as last told."""

        replicas: Mapping[str, Health] = {}
        rough: float = 0.0
        looked: float = 0.0
        versions: Mapping[str, str] = {}

    def __init__(self, config: "Breaker.Config") -> None:
        for name in ("open_max", "open_max_slow"):
            if getattr(config, name) < config.open_time:
                raise ValueError(f"{name}: is shorter than open_time; write {config.open_time:g} s or longer")
        self.config = config

    def initial(self) -> "Breaker.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Breaker.State"
    ) -> tuple[Sequence[Proposal], "Breaker.State"]:
        """SET the factor of each replica's phase; AT_MOST what it has where its page was not read."""
        owners = {target.member: (target, owner) for target, owner in sorted(view.targets.items())}
        now = view.tick.at
        health = {name: state.replicas.get(name) or _adopted(owner, now, self) for name, (_, owner) in owners.items()}
        serving = [name for name, one in health.items() if one.phase is Phase.CLOSED]
        said = verdicts(view, objectives, owners, serving)
        long, most = self._patience(state.rough), self._longest(view)
        health = {
            name: self._next(name, one, said[name], owners[name][1], now, long, most) for name, one in health.items()
        }
        room = most_out(len(owners), self.config.share)
        versions = _versions(view, state, owners)
        before, health = health, self._within(health, room, now, versions)
        forced = {
            name for name, one in health.items()
            if (one is not before[name] or not room) and (owners[name][1].accepted or 0.0) < FACTOR[one.phase]
        }  # fmt: skip
        known = self._rough(state, before, serving, view.tick)
        patience = (SHORT if brief.left > 0 else 1.0) * self._patience(known.rough)
        judged = self._judged(health, said, patience, view.tick)
        overload = self._overload(view, brief, serving)
        whole = self._condemned(view, brief, versions, judged, health, room, overload) if versions else None
        health, held = self._eject(health, said, judged, whole, room, overload, view.tick, most)
        fleet = {"out": float(sum(one.phase is not Phase.CLOSED for one in health.values())), "most": float(room)}
        proposals = [
            _proposal(
                target,
                owner,
                health[name],
                said[name],
                Why.EJECTION_CAP if name in forced else held.get(name),
                {**fleet, **whole.evidence} if whole and name in whole.names else fleet,
            )
            for name, (target, owner) in owners.items()
            if owner.accepted is not None
        ]
        # One that could not be read yet is seen for the first time when it can: it may be out.
        seen = {n: one for n, one in health.items() if n in state.replicas or owners[n][1].accepted is not None}
        return tuple(proposals), known._replace(replicas=seen, versions=versions)

    # --- one replica -------------------------------------------------------------------------------------------------

    def _next(
        self, name: str, one: Health, verdict: Verdict, owner: TargetState, now: float, patience: float, most: float
    ) -> Health:
        """Its health after this tick, before anybody is taken out; `patience` is how many times as long it must be
        looked at as in a fleet without noise, `most` how long it is out at most when it is only slow."""
        if not verdict.heard:
            return one
        if verdict.idle is not None:
            one = one._replace(idle=verdict.idle)
        # On the ramp also what the probe began counts, where some of it is of the ramp.
        told = verdict.since(one.trial if one.phase is Phase.RAMP else one.since, one.idle)
        if one.phase is Phase.CLOSED:
            return self._watched(one, told, now)
        one = _averaged(one, told, told.probed, MEMORY * patience)
        tried = one.tokens > 0 and one.judged - one.since >= TRIED * patience - 1e-6
        slowness, least = one.slowness if tried else None, math.sqrt(self.config.slow_ratio)
        if one.phase is Phase.OPEN:
            if verdict.stuck:
                return one
            running = one.cause is Why.SLOW_REPLICA and not one.vainly and one.tokens >= ENOUGH
            if running and slowness is not None and slowness < least and not told.failing(self.config.errors, 0.5):
                return _fresh(moved(one, Phase.RAMP, now))._replace(trial=one.since)
            return _fresh(moved(one, Phase.PROBE, now))._replace(trial=now) if due(one, now) else one
        if not arrived(one, owner.accepted):
            return _fresh(one._replace(since=now))  # it has not got its trickle yet
        if verdict.stuck or verdict.faulty:
            return self._open(name, one, Why.STUCK_REPLICA if verdict.stuck else Why.FAULTY_REPLICA, now, most)
        if told.failing(self.config.errors, least=1.0) and (told.errors or 0.0) * told.ended >= 2 - 1e-6:
            return self._open(name, one, Why.FAILING_REPLICA, now, most)
        if slowness is not None and slowness >= (self.config.slow_ratio if one.phase is Phase.RAMP else least):
            return self._open(name, one, Why.SLOW_REPLICA, now, most)
        # Of what it went out for it has to be free: answers without an error are no sign that a GPU has cooled.
        few = 1.0 if now - one.since >= FEW else 3.0
        answered = told.ended >= few and not told.failing(self.config.errors, 0.5, least=few)
        lasted, only_slow = now - one.since >= SILENT, one.cause is Why.SLOW_REPLICA
        quick = slowness is not None and (slowness < least or lasted)
        well = quick or (answered and lasted) if only_slow else answered or (quick and not self._failed(one))
        after = onward(one, now, well=well, silent=SILENT_SLOW if only_slow else SILENT)
        return after if after.phase is one.phase else _fresh(after._replace(slow=0))

    @staticmethod
    def _failed(one: Health) -> bool:
        return one.cause is Why.FAILING_REPLICA

    def _watched(self, one: Health, told: Verdict, now: float) -> Health:
        """A replica in rotation: counts the judgements by which it is slow, each on data that is new."""
        if (one.stuck is not None) != told.stuck:
            one = one._replace(stuck=now if told.stuck else None)
        if one.relapses and now - one.since >= self.config.quiet:
            one = one._replace(relapses=0, vainly=0)
        if told.restarts is not None and told.restarts < one.restarts:
            one = one._replace(restarts=told.restarts)
        slowness = told.slowness
        after = _averaged(one, told, slowness, MEMORY)
        if after is one or slowness is None:
            return one
        slow = one.slow + 1 if slowness >= math.sqrt(self.config.slow_ratio) else 0
        if slow == one.slow:
            return after  # it was not slow and is not
        return after._replace(slow=slow, slow_from=after.judged if slow == 1 else one.slow_from)

    def _verdict(self, one: Health, verdict: Verdict, told: Verdict, patience: float, tick: Tick) -> Why | None:
        """Why this replica, in rotation, should be out. None when it should not. `told` is the part of the verdict that
        is about its present phase; `patience` is how many times as long slowness must last."""
        c = self.config
        if not verdict.heard:
            return None
        looked = (STUCK_SCRAPES - 1) * (tick.since_last or 0.0)  # what the reading itself has waited for
        if one.stuck is not None and tick.at - one.stuck + looked >= STUCK - 1e-6:
            return Why.STUCK_REPLICA
        if verdict.faulty:
            return Why.FAULTY_REPLICA
        if told.failing(c.errors):
            return Why.FAILING_REPLICA
        if told.failing(c.errors, 0.5) and (told.slowness or 0.0) >= max(c.slow_ratio / 2, 1.25):
            return Why.FAILING_REPLICA
        lasts = one.judged - one.slow_from
        often = one.slow >= c.slow_windows * patience and lasts >= LASTS * patience - 1e-6
        long = LONG if one.slowness < CLEAR * c.slow_ratio else APART
        lasting = often or (one.slow >= 2 and lasts >= long - 1e-6)
        if lasting and one.slowness >= c.slow_ratio:
            return Why.SLOW_REPLICA
        if verdict.restarts is not None and verdict.restarts > one.restarts:
            return Why.RESTARTED
        return None

    def _longest(self, view: View) -> float:
        """How long one that is only slow is out at most. Where the target knows in and out alone, a probe gets the
        share of a healthy replica, and costs as much."""
        whole = any(limits.quantum > OUT for limits in view.limits.values())
        return self.config.open_max if whole else self.config.open_max_slow

    def _open(self, name: str, one: Health, cause: Why, now: float, most: float) -> Health:
        """Out, for longer each time."""
        if cause is Why.RESTARTED:
            return one._replace(phase=Phase.PROBE, since=now, trial=now, cause=cause, slow=0)
        cap = most if cause is Why.SLOW_REPLICA else self.config.open_max
        vainly = one.vainly + (one.phase is Phase.CLOSED and one.relapses > 0)
        out = opened(one, name, now, self.config.open_time, cap)
        return out._replace(cause=cause, vainly=vainly, slow=0, tokens=0.0, stuck=None, version=one.version)

    def _patience(self, rough: float) -> float:
        """How many times as many judgements in a row are no chance, in a fleet whose replicas look slow that often."""
        if rough <= 0:
            return 1.0
        return max(1.0, math.log(CHANCE) / math.log(min(rough, 0.5)) / self.config.slow_windows)

    # --- the fleet ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _rough(
        state: "Breaker.State", health: Mapping[str, Health], serving: Sequence[str], tick: Tick
    ) -> "Breaker.State":
        """How often replicas in rotation look slow. Looked at every second, long prompts make it often: one of 8,000
        tokens blocks all sequences of its engine for most of a second."""
        new = [health[n] for n in serving if health[n].judged > (state.replicas.get(n) or Health()).judged]
        spent = tick.since_last or 0.0
        if not new or spent <= 0:
            return state
        looked = min(state.looked + spent, max(ROUGH, spent))
        part = sum(one.slow > 0 for one in new) / len(new)
        return state._replace(rough=state.rough + spent / looked * (part - state.rough), looked=looked)

    def _most(self, members: int) -> int:
        """How many replicas of one version may be out."""
        return math.floor(self.config.version_share * members + 1e-9)

    def _within(
        self, health: Mapping[str, Health], room: int, now: float, versions: Mapping[str, str]
    ) -> dict[str, Health]:
        """No more out than may be, also when the fleet has shrunk: who is out longest gets its part of the traffic."""
        after = dict(health)
        out = sorted((one.since, name) for name, one in health.items() if one.phase in (Phase.OPEN, Phase.PROBE))
        one_cause = of_one_version([name for _, name in out], health, versions, self._most(len(health)))
        left = room
        if len(one_cause) > room:
            out, left = [(since, name) for since, name in out if name not in one_cause], 0
        for _, name in out[: max(0, len(out) - left)]:
            after[name] = health[name]._replace(phase=Phase.RAMP if room else Phase.CLOSED, since=now, trial=now)
        if not room:
            after = {name: one._replace(phase=Phase.CLOSED) for name, one in after.items()}
        return after

    def _judged(
        self, health: Mapping[str, Health], said: Mapping[str, Verdict], patience: float, tick: Tick
    ) -> "dict[str, _Judged]":
        """What is to be said of each replica in rotation."""
        judged = {}
        for name, one in health.items():
            if one.phase is Phase.CLOSED:
                told = said[name].since(one.since)
                slowness, fails = told.slowness or 0.0, told.failing(self.config.errors)
                soft = slowness >= self.config.slow_ratio or fails
                bad = max(slowness, told.errors or 0.0)
                judged[name] = _Judged(self._verdict(one, said[name], told, patience, tick), bad, soft, fails)
        return judged

    def _condemned(
        self, view: View, brief: Brief, versions: Mapping[str, str], judged: "Mapping[str, _Judged]",
        health: Mapping[str, Health], room: int, overload: bool,
    ) -> Condemned | None:  # fmt: skip
        """The version that is worse than the rest, where one is."""
        slow = {name for name, one in judged.items() if one.why in (Why.SLOW_REPLICA, Why.FAILING_REPLICA)}
        bad = {name for name in health if name not in judged or judged[name].soft or judged[name].why is not None}
        closed = {name: one.bad for name, one in judged.items()}
        return condemned(
            view, brief, versions, Looks(health, closed, slow, bad), room, self._most(len(health)), self.config.errors,
            overload=overload,
        )  # fmt: skip

    def _eject(
        self, health: Mapping[str, Health], said: Mapping[str, Verdict], judged: "Mapping[str, _Judged]",
        whole: Condemned | None, room: int, overload: bool, tick: Tick, most: float,
    ) -> tuple[dict[str, Health], dict[str, Why]]:  # fmt: skip
        """The health after ejections, and why some that look bad were left where they are."""
        after, held = dict(health), dict[str, Why]()
        together = whole.names if whole is not None else ()
        bad: list[tuple[int, float, str, Why]] = []
        looks = failing = 0  # bad now, also where it has not lasted yet; and of those, who answer errors
        for name, one in health.items():
            if one.phase is not Phase.CLOSED:
                looks += 1
                failing += self._failed(one)
                continue
            mine = judged[name]
            looks += mine.soft and not said[name].stuck
            failing += mine.fails and not said[name].stuck
            if name in together:
                why = mine.why or (Why.FAILING_REPLICA if whole and whole.fails is not None else Why.SLOW_REPLICA)
                after[name] = self._open(name, one, why, tick.at, most)._replace(version=True)
            elif mine.why is not None:
                bad.append((_URGENCY.get(mine.why, 0), -mine.bad, name, mine.why))
        free = room - sum(one.phase is not Phase.CLOSED for one in after.values())
        for urgency, _, name, why in sorted(bad):
            # Another that is slow is no sign that errors are the fleet's, and who fails most of what it gets is no
            # capacity that an overload could miss.
            fails = why is Why.FAILING_REPLICA
            many = (failing if fails else looks) > room
            if urgency and (many or (overload and not (fails and (said[name].errors or 0.0) >= MOSTLY))):
                held[name] = Why.FLEET_SLOW
                continue
            if free == 0 and why not in (Why.SLOW_REPLICA, Why.RESTARTED):
                # Who is slow still answers, who fails or stands still does not, and looks idle to the router.
                called = _called_back(after)
                if called is not None:
                    after[called] = _fresh(moved(after[called], Phase.CLOSED, tick.at)._replace(relapses=0, vainly=0))
                    held[called] = Why.EJECTION_CAP
                    free += 1
            if free <= 0:
                held[name] = Why.EJECTION_CAP
            else:
                restarts = said[name].restarts
                after[name] = self._open(name, health[name]._replace(version=False), why, tick.at, most)
                if restarts is not None:
                    after[name] = after[name]._replace(restarts=restarts)
                free -= 1
        return after, held

    def _overload(self, view: View, brief: Brief, serving: Sequence[str]) -> bool:
        """Whether load is beyond the fleet and most of the fleet is slow or queues: fewer replicas would make it
        worse."""
        if brief.left <= 0:
            return False
        steps = sorted(fleet_pace(view, serving).values())
        depths = [view.pool.replicas[n].get(Signal.QUEUE_DEPTH).usable for n in serving if n in view.pool.replicas]
        queues = sorted(depth for depth in depths if depth is not None)
        # Behind a gate they wait there and not inside, for any of them.
        inside = math.fsum(scope.get(Signal.QUEUE_DEPTH).usable or 0.0 for scope in view.pool.replicas.values())
        waiting = view.pool.get(Signal.QUEUE_DEPTH).usable or 0.0
        before = max(0.0, waiting - inside) / max(1, len(serving))
        return bool((steps and median(steps) >= OVER) or (queues and median(queues) + before >= 1.0))


def _versions(view: View, state: Breaker.State, names: Collection[str]) -> Mapping[str, str]:
    """What each replica runs; while nobody tells it, what was told last."""
    told = view.pool.versions or state.versions
    return {name: told[name] for name in sorted(names) if name in told}


def _averaged(one: Health, told: Verdict, slowness: float | None, memory: float) -> Health:
    """With a sample that was not judged yet in its mean; the tokens of older ones fade over `memory` seconds."""
    if told.paced is None or slowness is None or told.paced.end <= one.judged + 1e-6:
        return one
    end = told.paced.end
    kept, new = one.tokens * math.exp(-(end - one.judged) / memory), max(told.samples, 1.0)
    return one._replace(slowness=(kept * one.slowness + new * slowness) / (kept + new), tokens=kept + new, judged=end)


def _called_back(health: Mapping[str, Health]) -> str | None:
    """Of those that are out because they are slow, the one that gives its place to one that does not answer at all:
    who is furthest on its way back, then who is out longest."""
    slow = [
        (-FACTOR[one.phase], one.since, name) for name, one in health.items()
        if one.phase is not Phase.CLOSED and one.cause is Why.SLOW_REPLICA and not one.version
    ]  # fmt: skip
    return min(slow)[2] if slow else None


def _fresh(one: Health) -> Health:
    """The same at the start of a phase, of which nothing was seen yet."""
    return one._replace(slowness=0.0, tokens=0.0, judged=one.since)


def _adopted(owner: TargetState, now: float, law: Breaker) -> Health:
    """A replica that is seen for the first time. One that is not in full rotation was taken out before this process
    remembers, so it is let back as any other."""
    if owner.accepted is None or owner.accepted >= 1.0:
        return Health()
    return Health(Phase.OPEN, now, now + law.config.open_time, cause=Why.PROBE)


def _proposal(
    target: Target, owner: TargetState, one: Health, verdict: Verdict, held: Why | None, fleet: Mapping[str, float]
) -> Proposal:
    current, value = owner.accepted or 0.0, FACTOR[one.phase]
    numbers = {
        "slowness": verdict.slowness, "errors": verdict.errors, "ended": verdict.ended or None,
        "relapses": float(one.relapses) or None, "ratio": verdict.ratio, "raw": verdict.raw, "first": verdict.first,
    }  # fmt: skip
    evidence = {name: number for name, number in numbers.items() if number is not None}
    evidence.update(fleet)
    if not verdict.heard and value >= current and held is not Why.EJECTION_CAP:
        return Proposal(target, Ask.AT_MOST, current, "breaker", Why.MISSING, evidence)
    if held is not None and (one.phase is Phase.CLOSED or held is Why.EJECTION_CAP):
        why = held
    elif one.phase is Phase.CLOSED:
        why = Why.WELL_AGAIN if current < value else Why.STEADY
    elif one.phase is Phase.OPEN:
        why = Why.WORSE_VERSION if one.version else one.cause
    else:
        why = Why.RESTARTED if one.cause is Why.RESTARTED else Why.PROBE
    return Proposal(target, Ask.SET, value, "breaker", why, evidence)
