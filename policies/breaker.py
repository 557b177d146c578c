"""Breaker: takes the slow, failing or stuck replica out of rotation, and lets it back on evidence.

    out          what errs, stands still or has been slow for a while (``policies.health``)
    never        more than max(1, share of the fleet); none for slowness or errors when more than that look bad at
                 once, or while load is beyond the fleet and the fleet as a whole is slow
    a version    all of its replicas, where they fail far more than the rest together or most of them are slow, while
                 it is no more than its share of the fleet and the rest is well (``policies.condemned``)
    the way back closed -> open 0 -> probe 0.05 -> ramp 0.25 -> closed 1

Open lasts open_time * 2^k (``policies.wayback``), where k is forgotten after a quiet time. The cap holds also when the
fleet shrinks. It complements the proxy's own outlier detection, which sees errors and not the slow-but-alive.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.estimate import READS
from controller.core.group import most_out, of_one_version
from controller.core.model import Ask, Lever, Proposal, Target, TargetState, Tick
from controller.core.params import Unit, param, refuse
from controller.core.ports import Brief, View
from controller.core.relief import OUT
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.telling import TRIED
from controller.core.why import Why
from policies.condemned import Condemned, Looks, condemned
from policies.health import Health, Judge, fresh
from policies.verdict import Verdict, overloaded, verdicts
from policies.wayback import CLOSED, FACTOR, OPEN, OPEN_MAX, OPEN_TIME, PROBE, QUIET, RAMP, moved

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every replica.
_SET, _STEADY = Ask.SET, Why.STEADY
_tuple = tuple.__new__  # past the one of named tuples, which takes twice as long
SHORT = 2.0  # times as often while there are too few replicas: full batches of long prompts swing more
ROUGH = 120.0  # seconds over which it is averaged how often healthy replicas look slow
MOSTLY = 0.8  # share of errors of a replica that serves nothing to speak of, whatever the load
_TOLD = ("slowness", "errors", "ended", "relapses", "ratio", "raw", "first")  # what is told as evidence
_URGENCY = {Why.FAILING_REPLICA: 1, Why.SLOW_REPLICA: 2}  # what is a matter of its fleet, and what goes first; else 0


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
        refuse(self._mistakes(config))
        self.config = config
        self._judge = Judge(
            config.slow_ratio, config.slow_windows, config.errors, config.open_time, config.open_max, config.quiet
        )

    def initial(self) -> "Breaker.State":
        return self.State()

    @staticmethod
    def _mistakes(config: "Breaker.Config") -> Iterator[str]:
        for name in ("open_max", "open_max_slow"):
            if getattr(config, name) < config.open_time:
                yield f"{name}: is shorter than open_time; write {config.open_time:g} s or longer"

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Breaker.State"
    ) -> tuple[Sequence[Proposal], "Breaker.State"]:
        """SET the factor of each replica's phase; AT_MOST what it has where its page was not read."""
        owners = {target.member: (target, owner) for target, owner in view.targets.items()}
        now = view.tick.at
        health = {n: state.replicas.get(n) or self._judge.adopted(owner, now) for n, (_, owner) in owners.items()}
        serving = [name for name, one in health.items() if one.phase is CLOSED]
        said = verdicts(view, objectives, owners, serving)
        long, most = self._judge.patience(state.rough), self._longest(view)
        health = {
            name: self._judge.after(name, one, said[name], owners[name][1], now, long, most)
            for name, one in health.items()
        }
        room = most_out(len(owners), self.config.share)
        versions = _versions(view, state, owners)
        before, health = health, self._within(health, room, now, versions)
        forced = {
            name for name, one in (health.items() if health is not before else ())
            if (one is not before[name] or not room) and (owners[name][1].accepted or 0.0) < FACTOR[one.phase]
        }  # fmt: skip
        known = self._rough(state, before, serving, view.tick)
        patience = (SHORT if brief.left > 0 else 1.0) * self._judge.patience(known.rough)
        judged = self._judged(health, said, patience, view.tick)
        overload = overloaded(view, brief, serving)
        whole = self._condemned(view, brief, versions, judged, health, room, overload) if versions else None
        health, held = self._eject(health, said, judged, whole, room, overload, view.tick, most)
        fleet = {"out": float(sum([one.phase is not CLOSED for one in health.values()])), "most": float(room)}
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
        return tuple(proposals), self.State(seen, known.rough, known.looked, versions)

    def _longest(self, view: View) -> float:
        """How long one that is only slow is out at most. Where the target knows in and out alone, a probe gets the
        share of a healthy replica, and costs as much."""
        whole = any(limits.quantum > OUT for limits in view.limits.values())
        return self.config.open_max if whole else self.config.open_max_slow

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
        part = sum([one.slow > 0 for one in new]) / len(new)
        return state._replace(rough=state.rough + spent / looked * (part - state.rough), looked=looked)

    def _most(self, members: int) -> int:
        """How many replicas of one version may be out."""
        return math.floor(self.config.version_share * members + 1e-9)

    def _within(
        self, health: dict[str, Health], room: int, now: float, versions: Mapping[str, str]
    ) -> dict[str, Health]:
        """No more out than may be, also when the fleet has shrunk: who is out longest gets its part of the traffic."""
        out = sorted([(one.since, name) for name, one in health.items() if one.phase in (OPEN, PROBE)])
        if room and not out:
            return health  # nearly always
        after = dict(health)
        one_cause = of_one_version([name for _, name in out], health, versions, self._most(len(health)))
        left = room
        if len(one_cause) > room:
            out, left = [(since, name) for since, name in out if name not in one_cause], 0
        for _, name in out[: max(0, len(out) - left)]:
            after[name] = health[name]._replace(phase=RAMP if room else CLOSED, since=now, trial=now)
        if not room:
            after = {name: one._replace(phase=CLOSED) for name, one in after.items()}
        return after

    def _judged(
        self, health: Mapping[str, Health], said: Mapping[str, Verdict], patience: float, tick: Tick
    ) -> "dict[str, _Judged]":
        """What is to be said of each replica in rotation."""
        judged = {}
        for name, one in health.items():
            if one.phase is CLOSED:
                told = said[name].since(one.since)
                slowness, fails = told.slowness or 0.0, told.failing(self.config.errors)
                soft = slowness >= self.config.slow_ratio or fails
                bad = max(slowness, told.errors) if told.errors else slowness
                why = self._judge.why_out(one, said[name], told, patience, tick)
                judged[name] = _tuple(_Judged, (why, bad, soft, fails))
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
        self, health: dict[str, Health], said: Mapping[str, Verdict], judged: "Mapping[str, _Judged]",
        whole: Condemned | None, room: int, overload: bool, tick: Tick, most: float,
    ) -> tuple[dict[str, Health], dict[str, Why]]:  # fmt: skip
        """The health after ejections, and why some that look bad were left where they are."""
        if whole is None and all(one.why is None for one in judged.values()):
            return health, {}  # nearly always
        after, held = dict(health), dict[str, Why]()
        together = whole.names if whole is not None else ()
        bad: list[tuple[int, float, str, Why]] = []
        looks = failing = 0  # bad now, also where it has not lasted yet; and of those, who answer errors
        for name, one in health.items():
            if one.phase is not CLOSED:
                looks += 1
                failing += one.failed
                continue
            mine = judged[name]
            looks += mine.soft and not said[name].stuck
            failing += mine.fails and not said[name].stuck
            if name in together:
                why = mine.why or (Why.FAILING_REPLICA if whole and whole.fails is not None else Why.SLOW_REPLICA)
                after[name] = self._judge.taken_out(name, one, why, tick.at, most)._replace(version=True)
            elif mine.why is not None:
                bad.append((_URGENCY.get(mine.why, 0), -mine.bad, name, mine.why))
        free = room - sum([one.phase is not CLOSED for one in after.values()])
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
                    after[called] = fresh(moved(after[called], CLOSED, tick.at)._replace(relapses=0, vainly=0))
                    held[called] = Why.EJECTION_CAP
                    free += 1
            if free <= 0:
                held[name] = Why.EJECTION_CAP
            else:
                restarts = said[name].restarts
                after[name] = self._judge.taken_out(name, health[name]._replace(version=False), why, tick.at, most)
                if restarts is not None:
                    after[name] = after[name]._replace(restarts=restarts)
                free -= 1
        return after, held


def _versions(view: View, state: Breaker.State, names: Collection[str]) -> Mapping[str, str]:
    """What each replica runs; while nobody tells it, what was told last."""
    told = view.pool.versions or state.versions
    return {name: told[name] for name in sorted(names) if name in told}


def _called_back(health: Mapping[str, Health]) -> str | None:
    """Of those that are out because they are slow, the one that gives its place to one that does not answer at all:
    who is furthest on its way back, then who is out longest."""
    slow = [
        (-FACTOR[one.phase], one.since, name) for name, one in health.items()
        if one.phase is not CLOSED and one.cause is Why.SLOW_REPLICA and not one.version
    ]  # fmt: skip
    return min(slow)[2] if slow else None


def _proposal(
    target: Target, owner: TargetState, one: Health, verdict: Verdict, held: Why | None, fleet: Mapping[str, float]
) -> Proposal:
    current, value = owner.accepted or 0.0, FACTOR[one.phase]
    numbers = (
        verdict.slowness, verdict.errors, verdict.ended or None, one.relapses or None, verdict.ratio, verdict.raw,
        verdict.first,
    )  # fmt: skip
    evidence = {name: float(number) for name, number in zip(_TOLD, numbers, strict=True) if number is not None}
    evidence |= fleet
    if one.phase is OPEN:
        evidence[TRIED] = one.until
    if not verdict.heard and value >= current and held is not Why.EJECTION_CAP:
        return Proposal(target, Ask.AT_MOST, current, "breaker", Why.MISSING, evidence)
    if held is not None and (one.phase is CLOSED or held is Why.EJECTION_CAP):
        why = held
    elif one.phase is CLOSED:
        why = Why.WELL_AGAIN if current < value else _STEADY
    elif one.phase is OPEN:
        why = Why.WORSE_VERSION if one.version else one.cause
    else:
        why = Why.RESTARTED if one.cause is Why.RESTARTED else Why.PROBE
    return _tuple(Proposal, (target, _SET, value, "breaker", why, evidence))
