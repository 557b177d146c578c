"""Drain: before capacity falls, the replicas that will go give up their traffic and finish what they have. Pure.

Where `drain` of the replicas is above 0, a fall that all guards let through is done in steps:

    choose as many victims as go, the fewest in flight first -> their weights to 0, while the count is held
    -> each seen empty after it got nothing any more, or the time-out -> the lower count, with their names

A fall that only waits for its cool-down begins with it: that time may be spent on finishing.

Weights are asked for as any law asks (`ask`), so mode, pins, pace and evidence hold for them. A victim is hidden from
the law of the weights, which would take its silence for something else. When the fall is not wanted any more, the drain
is dropped and the weights come back to what they were; until they are there no law is asked about them, since one that
moves a value from where it stands would leave it there. After the fall the victims keep 0 while they are seen, for as
long as the time-out. A fall that is not waited for, as a person's, takes those first that have begun to drain.

What is not read is not zero: a victim is empty when a sample from after its weight stood at 0 says so. A fall that is
held because something is not known waits for the time-out, and is then given up: a drain alone lowers nothing. A raise
is never held; where another pool needs the room of this fall in a budget, nobody is waited for.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.core.model import Ask, Decision, Lever, PoolReadings, Proposal, Snapshot, Step, Target
from controller.core.movable import UNREAD, moves, stands
from controller.core.relief import OUT
from controller.core.rules import PER_REPLICA, FleetRules, LeverRules
from controller.core.signals import Signal
from controller.core.why import Why

BY = "drain"
_NEAR = 1e-6
_TOLD = 3  # names in a sentence
_GONE = 120.0  # seconds in which a pod ends, where no drain says how long
_FORGET = 900.0  # seconds after which nothing is owed to a replica that is not seen any more
_HELD = (Signal.RUNNING, Signal.QUEUE_DEPTH)  # what a replica has to finish
# The fall is held because something is not known. It may go on when it is known again.
_DOUBTS = frozenset(
    {
        Why.STALE, Why.MISSING, Why.PARTIAL, Why.UNDERFILLED, Why.UNSUPPORTED, Why.BOOT, Why.LEDGER_FULL,
        Why.UNREADABLE_TARGET, Why.OUTCOME_UNKNOWN,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drain:
    """Memory of one pool. `victims` in the order of their choice and `zero` since when the weight of each is read back
    as 0; `goal` the lower count once it was asked for, and `since` when that was, before that when they were chosen.
    `leaving` until when those that were taken away get nothing, should they still be seen; `taken` the weights that are
    to be given back, and `unseen` since when those are not seen to which they belong. Unix seconds."""

    since: float = 0.0
    victims: tuple[str, ...] = ()
    zero: Mapping[str, float] = field(default_factory=dict)
    goal: float | None = None
    leaving: Mapping[str, float] = field(default_factory=dict)
    taken: Mapping[str, float] = field(default_factory=dict)
    unseen: Mapping[str, float] = field(default_factory=dict)

    @property
    def idle(self) -> frozenset[str]:
        """Replicas that get nothing."""
        return frozenset((*self.victims, *self.leaving))


NOTHING = Drain()


def ask(
    held: Drain, targets: Collection[Target], wanted: Mapping[Target, Sequence[Proposal]]
) -> dict[Target, list[Proposal]]:
    """What is asked of the weights, with what the drain wants of them. Of a weight that it took nobody else is asked
    before it is back: a law that sets what stands, or that knows nothing where nothing comes, would leave it there."""
    out = {target: list(proposals) for target, proposals in wanted.items()}
    idle = held.idle
    for target in targets:
        name = target.member
        if name in idle:
            out[target] = [Proposal(target, Ask.AT_MOST, 0.0, BY, Why.LEAVES)]
        elif name in held.taken:
            out[target] = [Proposal(target, Ask.SET, held.taken[name], BY, Why.STAYS)]
    return out


def hold(
    decisions: Mapping[Target, Decision], rules: FleetRules, snapshot: Snapshot, before: Mapping[str, Drain],
    hurried: Collection[str] = (),
) -> tuple[dict[Target, Decision], dict[str, Drain]]:  # fmt: skip
    """The decisions with falls that wait for their victims, and what is remembered, by pool. In pools that are
    `hurried` nobody is waited for."""
    out, after = dict(decisions), dict[str, Drain]()
    factors: dict[tuple[str, Lever], dict[str, Decision]] = {}
    for target, decision in decisions.items():
        if target.lever in PER_REPLICA and (target.pool in rules.draining or target.pool in before):
            factors.setdefault((target.pool, target.lever), {})[target.member] = decision
    for pool in sorted(rules.draining.keys() | before.keys()):
        fall, held = decisions.get(Target(pool, Lever.REPLICAS)), before.get(pool, NOTHING)
        weights = factors.get((pool, Lever.WEIGHT), {})
        was = held.idle
        if pool not in rules.draining or fall is None:
            made, held = _given_up(held, fall, weights, snapshot.tick.at)
        else:
            one = _Pool(*rules.draining[pool], fall, weights, factors.get((pool, Lever.BREAKER), {}), snapshot)
            made, held = one.step(held, hurried=pool in hurried)
        if made is not None:
            out[made.target] = made
        out |= {weights[name].target: _kept(weights[name]) for name in was - held.idle if name in weights}
        if held != NOTHING:
            after[pool] = held
    return out, after


def asked(decision: Decision) -> bool:
    """Whether a weight is what it is because of a drain, or on its way back from one."""
    return decision.why is Why.LEAVES or any(step.by == BY for step in decision.steps)


def stranded(drains: Mapping[str, Drain], rules: FleetRules) -> list[str]:
    """What is to be told of replicas that a drain took out where the config has no weights any more."""
    if not any(held.taken for held in drains.values()):
        return []  # nearly always
    weighed = {pool.pool for pool in rules.pools for lever in pool.levers if lever.lever is Lever.WEIGHT}
    return [
        f"{listed(sorted(held.taken))} of {pool} got a weight of 0 by a drain, and no lever gives it back"
        for pool, held in sorted(drains.items()) if held.taken and pool not in weighed
    ]  # fmt: skip


def _owed(held: Drain, weights: Mapping[str, Decision], now: float) -> tuple[dict[str, float], dict[str, float]]:
    """Weights that were taken and are still to be given back, and since when who lacks them is not seen: for a scrape
    that was missed nobody is left at nothing."""
    taken, unseen = dict[str, float](), dict[str, float]()
    sent = {*held.leaving, *(held.victims if held.goal is not None else ())}  # away, as it was told
    for name, value in held.taken.items():
        one = weights.get(name)
        if one is None:
            since = held.unseen.get(name, now)
            if name not in sent and now - since < _FORGET:
                taken[name], unseen[name] = value, since
        elif name in held.idle or one.current is None or one.current < value - _NEAR:
            taken[name] = value
    return taken, unseen


def _kept(decision: Decision) -> Decision:
    """A weight that was asked for by a drain which has just ended: it is not lowered to be raised a tick later. One
    that is down already stays so until the next tick gives it back, and says by whom it is."""
    if decision.blocked or decision.current is None or not asked(decision):
        return decision
    down = decision.current == decision.final
    steps = (Step(BY, decision.current, decision.current, Why.STAYS, "its drain is over"),) if down else ()
    return decision._replace(final=decision.current, why=Why.STAYS, steps=steps)


def _goes(weight: Decision | None) -> bool:
    """Whether a victim is still one: it is seen, and no person gives it requests."""
    return weight is not None and (weight.why is not Why.PIN or weight.final == 0.0)


def _first(fall: Decision, victims: Sequence[str], absent: float = 0.0) -> tuple[str, ...]:
    """Of those that have begun to drain the ones that go with a fall that nobody waits for."""
    if fall.current is None or fall.final is None or fall.final >= fall.current or not moves(fall):
        return ()
    return tuple(victims[: max(0, math.floor(fall.current - fall.final - absent + _NEAR))])


def _given_up(
    held: Drain, fall: Decision | None, weights: Mapping[str, Decision], now: float
) -> tuple[Decision | None, Drain]:
    """A config that no longer drains gives back what was taken. Where the count falls at once, those go first that have
    begun to drain: they have least to lose."""
    victims = tuple(name for name in held.victims if not weights or _goes(weights.get(name)))
    leaving = {name: until for name, until in held.leaving.items() if name in weights and now < until}
    taken, unseen = _owed(held, weights, now)
    if held.goal is not None and fall is not None and fall.current is not None and fall.current <= held.goal:
        leaving |= {name: now + _GONE for name in victims if name in weights}
        victims = ()
    named = _first(fall, victims) if fall is not None else ()
    if fall is None or not named:
        return None, Drain(leaving=leaving, taken=taken, unseen=unseen)
    return fall._replace(leaving=named), Drain(held.since, named, {}, fall.final, leaving, taken, unseen)


class _Pool:
    """One pool at one tick."""

    def __init__(
        self, replicas: LeverRules, weight: LeverRules, fall: Decision, weights: Mapping[str, Decision],
        breakers: Mapping[str, Decision], snapshot: Snapshot,
    ) -> None:  # fmt: skip
        self._rules, self._settle, self._fall, self._now = replicas, weight.settle, fall, snapshot.tick.at
        self._readings: PoolReadings | None = snapshot.pools.get(fall.target.pool)
        self._ready = snapshot.targets.get(fall.target, UNREAD).ready
        self._weights = weights
        self._out = {name for name, d in breakers.items() if (value := stands(d)) is not None and value < OUT}

    def step(self, before: Drain, *, hurried: bool) -> tuple[Decision, Drain]:
        """One step on, or back."""
        now, fall, current = self._now, self._fall, self._fall.current
        victims = tuple(name for name in before.victims if _goes(self._weights.get(name)))
        leaving = {name: until for name, until in before.leaving.items() if name in self._weights and now < until}
        taken, unseen = _owed(before, self._weights, now)
        if before.goal is not None and current is not None and current <= before.goal:  # it went through
            leaving |= dict.fromkeys(victims, now + self._rules.drain)
            before, victims = NOTHING, ()
        rest = Drain(leaving=leaving, taken=taken, unseen=unseen)
        lower, due = self._lower(draining=bool(victims)), True
        if lower is None:
            lower, due = self._soon(), False
        # Those that are not ready go first, and hold nothing.
        absent = max(0.0, current - self._ready) if self._ready is not None and current is not None else 0.0
        if lower is None or current is None:
            zero = self._zero(victims, before.zero)
            if named := _first(fall, sorted(victims, key=lambda name: name not in zero), absent):
                return fall._replace(leaving=named), replace(rest, since=now, victims=named, zero=zero, goal=fall.final)
            if not victims or not self._waits(before):
                return fall, rest
            return fall, replace(rest, since=before.since, victims=victims, zero=zero, goal=before.goal)
        count = max(0, math.floor(current - lower - absent + _NEAR))
        if not victims:
            victims, before = self._chosen(count, leaving), Drain(since=now)
        victims = victims[:count]
        goal = max(lower, current - self._whole(absent + len(victims)))
        if not victims or goal >= current:
            return fall, rest  # there is nobody to wait for
        taken |= {n: self._weights[n].current or 1.0 for n in victims if n not in taken}
        held = Drain(before.since, victims, self._zero(victims, before.zero), before.goal, leaving, taken, unseen)
        busy = [name for name in victims if not self._empty(name, held.zero)]
        left = held.since + self._rules.drain - now
        if not due:
            return fall, held
        if busy and left > _NEAR and held.goal is None and not hurried:
            return self._at(current, f"{listed(busy)} may still hold work, for at most {left:.0f} s more"), held
        made = self._at(goal, "")._replace(leaving=victims)
        return made, replace(held, goal=goal, since=now if held.goal is None else held.since)

    def _lower(self, *, draining: bool) -> float | None:
        """The count to which the guards let the pool fall now; None where they do not, or where it is no fall to wait
        for: a person's, or one back into the bounds."""
        fall = self._fall
        if fall.current is None or fall.final is None or not moves(fall):
            return None
        if fall.current > self._rules.limits.max or any(step.why is Why.PIN for step in fall.steps):
            return None
        lower = fall.final
        if draining and fall.steps and fall.steps[-1].why is Why.FLEET_GUARD:
            lower = fall.steps[-1].before  # it was let go when the drain began, and counted then
        return lower if lower < fall.current else None

    def _soon(self) -> float | None:
        """The count to which the pool may fall when its cool-down is over, which whoever goes may spend on finishing;
        None where anything else holds the fall."""
        fall, limits, most = self._fall, self._rules.limits, self._rules.rate_down
        if fall.current is None or fall.current > limits.max or not moves(fall):
            return None
        if not fall.steps or fall.steps[-1].why is not Why.COOLDOWN:
            return None
        lower = fall.steps[-1].before
        if most is not None:
            lower = max(lower, fall.current - self._whole(most.allowance(fall.current, limits.quantum)))
        return lower if lower < fall.current else None

    def _waits(self, held: Drain) -> bool:
        """Whether a fall that is held may go on soon: it is not its turn, or there is a doubt that may pass."""
        reasons = {self._fall.why, *(step.why for step in self._fall.steps)}
        if Why.NOT_DUE in reasons:
            return True
        blind = self._readings is None or not reasons.isdisjoint(_DOUBTS)
        return blind and self._now - held.since < self._rules.drain - _NEAR

    def _chosen(self, count: int, leaving: Mapping[str, float]) -> tuple[str, ...]:
        """So many of those whose weight is ours to take, who loses least first: all, or nobody where that would leave
        nobody to serve."""
        own = _pods(self._weights, self._rules.workload)
        free = [name for name, d in self._weights.items() if name in own and name not in leaving and _free(d)]
        # Who gets nothing yet, because a drain has just ended, has begun to finish: nobody else is to take its place.
        had = {name for name in free if self._weights[name].current != 0.0}
        order = sorted(free, key=lambda name: (name not in self._out, name in had, self._in_flight(name), name))
        victims = order[:count]
        away = {*victims, *leaving, *self._out}
        serves = any(stands(d) for name, d in self._weights.items() if name not in away)
        return tuple(victims) if serves and len(victims) == count else ()

    def _in_flight(self, name: str) -> float:
        """Requests that a replica has; infinite where nobody knows."""
        scope = self._readings.replicas.get(name) if self._readings is not None else None
        told = [scope.get(signal) for signal in _HELD] if scope is not None else []
        known = [one.value for one in told if one.trusted and one.value is not None]
        return math.fsum(known) if len(known) == len(_HELD) else math.inf

    def _zero(self, victims: Sequence[str], before: Mapping[str, float]) -> dict[str, float]:
        """Since when each gets nothing, as read back."""
        return {name: before.get(name, self._now) for name in victims if self._weights[name].current == 0.0}

    def _empty(self, name: str, zero: Mapping[str, float]) -> bool:
        """Whether it was seen without work after it got nothing new any more."""
        if name not in zero or self._readings is None or self._in_flight(name) > 0:
            return False
        ages = [self._readings.replicas[name].get(signal).age for signal in _HELD]
        oldest = max(math.inf if age is None else age for age in ages)
        return self._now - oldest >= zero[name] + self._settle - _NEAR

    def _whole(self, count: float) -> float:
        """So many replicas in whole steps."""
        quantum = self._rules.limits.quantum
        return math.floor(count / quantum + _NEAR) * quantum if quantum > 0 else count

    def _at(self, value: float, detail: str) -> Decision:
        fall = self._fall
        if fall.final is None or fall.final == value:
            return fall
        step = Step(BY, fall.final, value, Why.DRAINING, detail)
        return fall._replace(final=value, why=step.why, steps=(*fall.steps, step))


def _free(decision: Decision) -> bool:
    """Whether a weight is ours to take."""
    return decision.final is not None and moves(decision) and decision.why is not Why.PIN


def _pods(names: Collection[str], deployment: str) -> Collection[str]:
    """Those that are pods of the Deployment: behind its selector there may be another one, as a canary, whose pods do
    not go when this one falls. All where nobody tells which one it is, or where none is called as its pods are."""
    start = f"{deployment}-"
    own = [name for name in names if name.startswith(start) and name.removeprefix(start).count("-") == 1]
    return own if deployment and own else names


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = (f"{len(names) - _TOLD} more",) if len(names) > _TOLD else ()
    return " and ".join((", ".join(names[:_TOLD]), *more))
