"""Weights: each replica gets the share of traffic that it can serve.

    w    = capacity * exp(-g * ln(pace / median pace)),  the largest scaled to 1, none below `floor`
    g    = min(gain, 0.5 * (1 - rho) / rho),  rho = demand / what is carried

Pace is seconds per token over what the step-time model says for the replica's batch (``policies.pace``), smoothed over
`smooth` in the logarithm, 0 within the dead band. At high load latency answers to a shift of load by rho/(1 - rho)
times as much, so g falls with it and the loop gain stays below a half. A new replica gets its share over
`slow_start`; the weight is the lower of the two factors, never their product. A weight moves by `slew` of a full share
a tick at most.

A member may be a zone: a region, a cluster, a GPU type. Its capacity is that of its replicas, each by its own slow
start, and its pace the mean of theirs, so that it gets its share by size and by speed:

    w    = sum of (capacity * slow start) * mean of e^(-g * ln(pace * capacity / median))  /  shares

There `capacity` is also how fast a replica is expected to be, and only what departs from it counts as pace.

A move that costs cache hits (the pool's hit rate falls beyond its noise after it, with the same replicas) is undone
once, and the weights rest for `rest`. Behind a router that balances load itself weights stay at 1, because the two
would pull at the same rope; where it divides what is in flight by the weight, who is slow by itself or fails has less
(``policies.relieved``). A replica whose data is missing keeps its weight. One that drains before it goes (`drain` of
the replicas) is not seen here.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from controller.core.estimate import READS
from controller.core.members import stands_for
from controller.core.model import Ask, Lever, Proposal, Target
from controller.core.params import Unit, param, refuse
from controller.core.ports import Brief, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from policies.pace import SIMILAR, known, paces
from policies.relieved import Ill, kept, queued, silent, watched

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every replica.
_SET, _AT_MOST, _MISSING = Ask.SET, Ask.AT_MOST, Why.MISSING
_tuple = tuple.__new__  # past the one of named tuples, which takes twice as long
ROUTERS = ("weighted", "load_aware", "least_loaded")
STEP = 0.04  # of a full share: less is not worth a write, but for the way back to 1
LOOP = 0.5  # what g * rho / (1 - rho) may be
MOVED = 0.05  # of a full share: what counts as a move that the cache can feel
WARM = 180.0  # seconds with the same replicas after which a move may be judged by the hit rate
LEAST_NOISE = 0.03  # of the hit rate
NOISE = 3.0  # times the mean deviation
CACHE_TIME = 60.0  # seconds over which the hit rate and its noise are averaged
SETTLE = 90.0  # seconds after which a move shows in the hit rate
OLD = 10.0  # times its slow start that a process must have lived to be no newcomer: loading a model takes minutes


class Member(NamedTuple):
    """One replica: `since` when it was first seen, or was started if it was there at the start, unix seconds, where
    that is told; and its smoothed ln(pace / median), None before there is one."""

    since: float | None = None
    pace: float | None = None


class Move(NamedTuple):
    """A move of ours that the cache has not answered to yet: the weights before it, when it was made, and the hit rate
    and its mean deviation then."""

    at: float
    before: Mapping[str, float]
    hit: float
    noise: float


class Weights:
    """Weights of the replicas of a pool, or of its zones."""

    levers = (Lever.WEIGHT,)
    reads = READS | {Signal.TPOT}

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the weights."""

        router: str = param(
            "`weighted` (round robin, random, hashing: follows weights alone), `load_aware` (balances load itself: "
            "weights stay neutral) or `least_loaded` (the same, and divides what is in flight by the weight: only who "
            "is slow by itself or fails has less than 1)", "weighted",
        )  # fmt: skip
        gain: float = param("largest g: 1 gives a replica that is twice as slow half a share", 1.0, gt=0, le=2)
        capacity: dict[str, float] = param(
            "capacity of the replicas by role, else by zone, relative to each other; 1 where it is not named", {}
        )
        shares: dict[str, float] = param(
            "what the router gives each member at weight 1, relative to each other; 1 where it is not named", {}
        )
        dead_band: float = param("|ln(pace / median)| below which nothing moves", 0.1, ge=0, le=1)
        smooth: float = param("smoothing of the pace", 60.0, unit=Unit.DURATION, ge=0)
        slew: float = param("largest change of a weight in one tick, of a full share", 0.2, gt=0, le=1)
        floor: float = param("smallest weight, of a full share", 0.05, gt=0, le=1)
        slow_start: float = param(
            "how long a new replica takes to get its full share; 0 is off", 120.0, unit=Unit.DURATION, ge=0
        )
        slow: float = param(
            "`least_loaded`: how many times as slow as the others a replica is at least to get less", 1.3, gt=1, le=10
        )
        patience: float = param(
            "`least_loaded`: how long it has to be so; a breaker needs a minute to see it", 90.0,
            unit=Unit.DURATION, ge=0,
        )  # fmt: skip
        rest: float = param("how long weights rest after a move that cost cache hits", 900.0, unit=Unit.DURATION, ge=0)

    class State(NamedTuple):
        """`members`, replicas by name; `at` the last tick; `hit` and `noise` mean and mean deviation of the pool's hit
        rate, with the same members `since` then; the weights when the last judgement ended are the `anchor`, and the
        `move` away from them is judged; `resting` until when; how `ill` each is behind a least-loaded router; `aside`
        the replicas that drain, as they were before. Unix seconds."""

        members: Mapping[str, Member] = {}
        at: float | None = None
        hit: float | None = None
        noise: float = 0.0
        since: float | None = None
        anchor: Mapping[str, float] = {}
        move: Move | None = None
        resting: float = 0.0
        ill: Mapping[str, Ill] = {}
        aside: Mapping[str, Member] = {}

    def __init__(self, config: "Weights.Config") -> None:
        refuse(self._mistakes(config))
        self.config = config

    def initial(self) -> "Weights.State":
        return self.State()

    @staticmethod
    def _mistakes(config: "Weights.Config") -> Iterator[str]:
        if config.router not in ROUTERS:
            yield f"router: unknown router {config.router!r}; write one of {', '.join(ROUTERS)}"
        for key, table in (("capacity", config.capacity), ("shares", config.shares)):
            for name, value in sorted(table.items()):
                if not 0 < value < math.inf:
                    yield f"{key}: {name} has {value:g}; write a number above 0"

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Weights.State"
    ) -> tuple[Sequence[Proposal], "Weights.State"]:
        """SET the weight of each replica; AT_MOST what it has where its pace or the load is not known."""
        current = {t.member: owner.accepted for t, owner in view.targets.items() if owner.accepted is not None}
        targets = {t.member: t for t in view.targets}
        parts = {name: stands_for(view.pool, name) or (name,) for name in targets}
        zoned = any(_zoned(name, own) for name, own in parts.items())
        if self.config.router == "least_loaded" and len(targets) > 1 and not zoned:
            return self._relieve(view, objectives, current, targets, state)
        if self.config.router != "weighted" or len(targets) < 2:
            why = Why.ROUTER_BALANCES if self.config.router != "weighted" else Why.STEADY
            alone = self._learn(view, parts, state, zoned=zoned) if zoned else self.State()  # who comes later is new
            return tuple(Proposal(targets[n], _SET, 1.0, "weights", why) for n in current), alone
        state = self._learn(view, parts, state, zoned=zoned)
        state, undo = self._cost(view, current, state)
        if undo is not None:
            back = [
                Proposal(targets[n], _SET, undo.get(n, w), "weights", Why.HIT_RATE_LOST) for n, w in current.items()
            ]
            return tuple(back), state
        gain = self._gain(view, brief)
        wishes = self._wishes(view, state, gain, parts) if view.tick.at >= state.resting else {}
        # In a fleet that has just begun nobody is new.
        ramps = {name: self._ramp(member, view.tick.at) for name, member in state.members.items()}
        oldest = max(*ramps.values(), self.config.floor)
        proposals = [
            self._one(targets[name], weight, wishes.get(name), gain, view, state, ramps, oldest, parts[name])
            for name, weight in current.items()
        ]
        return tuple(proposals), self._moving(view.tick.at, current, proposals, state)

    def _relieve(
        self, view: View, objectives: Sequence[Objective], current: Mapping[str, float],
        targets: Mapping[str, Target], state: "Weights.State",
    ) -> tuple[Sequence[Proposal], "Weights.State"]:  # fmt: skip
        """Less for who is slow by itself or fails; the router does the rest."""
        cut = {name: weight < 1.0 for name, weight in current.items()}
        ill = watched(view, objectives, state.ill, cut, self.config.slow, self.config.smooth)
        proposals = [
            self._relieved(view, objectives, targets[name], weight, ill[name]) for name, weight in current.items()
        ]
        return tuple(proposals), self.State(at=view.tick.at, ill=ill)

    def _relieved(
        self, view: View, objectives: Sequence[Objective], target: Target, weight: float, one: Ill
    ) -> Proposal:
        now, quiet = view.tick.at, silent(view, target.member, one)
        if one.sure and not quiet and (one.now or weight == 1.0):
            least = max(view.limits[target].min, view.limits[target].quantum)
            return Proposal(target, _SET, min(weight, least), "weights", Why.FAILING_REPLICA)
        wish = 1.0
        if weight < 1.0 and not one.now and not quiet:
            return Proposal(target, _AT_MOST, weight, "weights", _MISSING)
        if one.slow is not None and (weight < 1.0 or now - one.slow >= self.config.patience):
            share = kept(view, objectives, one.slowness)
            if weight < 1.0 and share is None:
                return Proposal(target, _AT_MOST, weight, "weights", _MISSING)
            wish = 1.0 if share is None else max(share, self.config.floor)
            if queued(view, target.member):
                wish = 1.0
        if wish == weight == 1.0:
            return Proposal(target, _SET, 1.0, "weights", Why.ROUTER_BALANCES)
        value = self._towards(wish, weight, STEP)
        why = Why.STEADY if value == weight else Why.PACE
        return Proposal(target, _SET, value, "weights", why, {"pace": one.slowness, "share": wish})

    def _towards(self, wish: float, weight: float, step: float) -> float:
        """One tick's way to what is wanted, where that is worth a write."""
        if abs(wish - weight) < step and wish < 1.0:
            return weight
        return _round(min(max(wish, weight - self.config.slew), weight + self.config.slew))

    # --- what is wanted ----------------------------------------------------------------------------------------------

    def _one(
        self, target: Target, weight: float, wish: float | None, gain: float, view: View, state: "Weights.State",
        ramps: Mapping[str, float], oldest: float, parts: Sequence[str],
    ) -> Proposal:  # fmt: skip
        known = [pace for one in parts if (pace := state.members[one].pace) is not None]
        ramp = (ramps[parts[0]] if len(parts) == 1 else max([ramps[one] for one in parts])) / oldest
        evidence = {"ramp": ramp, "gain": gain}
        if known:
            evidence = {"pace": math.exp(math.fsum(known) / len(known)), **evidence}
        if wish is not None:
            evidence["share"] = wish
        if ramp < 1.0 and (wish is None or ramp <= wish or _zoned(target.member, parts)):
            # It has no share yet that could be cut too fast. A zone's is what its size is worth, at most.
            value = max(ramp if wish is None else min(ramp, wish), self.config.floor)
            return Proposal(target, _SET, _round(value), "weights", Why.SLOW_START, evidence)
        if wish is None:
            why = Why.HIT_RATE_LOST if view.tick.at < state.resting else _MISSING
            return _tuple(Proposal, (target, _AT_MOST, weight, "weights", why, evidence))
        # A small zone has small shares.
        value = self._towards(wish, weight, STEP * min(wish, 1.0) if _zoned(target.member, parts) else STEP)
        why = Why.STEADY if value == weight else Why.PACE
        return _tuple(Proposal, (target, _SET, value, "weights", why, evidence))

    def _wishes(
        self, view: View, state: "Weights.State", gain: float, parts: Mapping[str, Sequence[str]]
    ) -> dict[str, float]:
        """The weight of every replica whose pace is known, and of every zone where that of half of its replicas is;
        the largest 1."""
        raw, known = {}, set[str]()
        for name, own in parts.items():
            members = state.members
            paces = [pace for one in own if (pace := members[one].pace) is not None and self._told(view, one)]
            unknown = not paces or 2 * len(paces) < len(own)
            if unknown and not _zoned(name, own):
                continue
            # A zone that nothing tells the pace of still has its size, else those that are known would get all.
            speeds = [1.0] if unknown else [math.exp(-gain * self._beyond(pace)) for pace in paces]
            speed = math.fsum(speeds) / len(speeds)
            size = math.fsum(
                self._capacity(view, one) * (self._ramp(members[one], view.tick.at) if _zoned(name, own) else 1.0)
                for one in own
            )
            raw[name] = size * speed / self.config.shares.get(name, 1.0)
            if not unknown:
                known.add(name)
        largest = max(raw.values(), default=1.0)
        return {name: max(value / largest, self.config.floor) for name, value in raw.items() if name in known}

    def _beyond(self, pace: float) -> float:
        """The logarithm of a pace without the dead band."""
        return math.copysign(max(abs(pace) - self.config.dead_band, 0.0), pace)

    def _told(self, view: View, name: str) -> bool:
        scope = view.pool.replicas.get(name)
        return scope is not None and scope.get(Signal.RUNNING).trusted

    def _capacity(self, view: View, name: str) -> float:
        for label in (view.pool.roles.get(name), view.pool.zones.get(name)):
            if label is not None and label in self.config.capacity:
                return self.config.capacity[label]
        return 1.0

    def _gain(self, view: View, brief: Brief) -> float:
        """0 at full load and beyond, and where the load is not known."""
        balance = brief.balance
        if balance.carried <= 0 or view.estimate.demand is None:
            return 0.0
        rho = max(balance.demand / balance.carried, 0.0)
        if rho >= 1:
            return 0.0
        return min(self.config.gain, LOOP * (1 - rho) / rho) if rho > 0 else self.config.gain

    def _ramp(self, member: Member, now: float) -> float:
        """The part of its share that a replica of its age gets."""
        if member.since is None or self.config.slow_start <= 0:
            return 1.0
        return min(max((now - member.since) / self.config.slow_start, 0.0), 1.0)

    # --- what is learned ---------------------------------------------------------------------------------------------

    def _learn(
        self, view: View, parts: Mapping[str, Sequence[str]], state: "Weights.State", *, zoned: bool
    ) -> "Weights.State":
        """Members as they are now, their paces, and the hit rate."""
        now, first = view.tick.at, state.at is None
        gone = now - state.at if state.at is not None else 0.0
        seen = self._ratios(view, zoned=zoned)
        members, knew = dict[str, Member](), {**state.aside, **state.members}
        aside = {name: knew[name] for name in sorted(view.away) if name in knew}
        for name in sorted({one for own in parts.values() for one in own}):
            # A process starts well before it serves, so that what it tells of its start is for want of better.
            member = knew.get(name) or self._met(view.pool.started.get(name), first=first, now=now)
            if name in seen:
                gain = gone / (self.config.smooth + gone) if self.config.smooth + gone > 0 else 1.0
                pace = seen[name] if member.pace is None else member.pace + gain * (seen[name] - member.pace)
                member = Member(member.since, pace)
            members[name] = member
        same = members.keys() == state.members.keys()
        hit, noise = state.hit, state.noise
        reading = view.pool.get(Signal.PREFIX_HIT_RATE)
        if reading.trusted and reading.value is not None:
            gain = gone / (CACHE_TIME + gone)
            before = reading.value if hit is None else hit
            noise += gain * (abs(reading.value - before) - noise)
            hit = before + gain * (reading.value - before)
        # The cold cache of a new replica, or what went with an old one, would be blamed on the move.
        since = now if state.since is None or not same else state.since
        move = state.move if same else None
        return state._replace(members=members, at=now, hit=hit, noise=noise, since=since, move=move, aside=aside)

    def _met(self, started: float | None, *, first: bool, now: float) -> Member:
        """A replica that was not there a tick ago. One that began long ago only vanished for a moment, as when a
        Prometheus hands over: it is not new, and half of a fleet must not fall to a trickle with it."""
        old = started is not None and started < now - OLD * max(self.config.slow_start, 1.0)
        return Member(started if first or old else now)

    def _ratios(self, view: View, *, zoned: bool) -> dict[str, float]:
        """ln(pace / median) of the replicas that can be compared; between zones, against what their capacity says."""
        found = {name: one for name, one in paces(view).items() if one.enough}
        if not known(view) and found:
            usual = median(one.batch for one in found.values())
            found = {n: one for n, one in found.items() if abs(one.batch - usual) <= SIMILAR * max(one.batch, usual)}
        if len(found) < 2:
            return {}
        own = {name: one.own * (self._capacity(view, name) if zoned else 1.0) for name, one in found.items()}
        middle = median(own.values())
        return {name: math.log(value / middle) for name, value in own.items()}

    def _moving(
        self, now: float, current: Mapping[str, float], proposals: Sequence[Proposal], state: "Weights.State"
    ) -> "Weights.State":
        """Opens a judgement when the weights have moved far enough from where the last one ended. They move a little
        each tick, and only the sum of it can be felt."""
        if state.move is not None:
            return state
        anchor = state.anchor if state.anchor.keys() == current.keys() else current
        moved = max((abs(p.value - anchor[p.target.member]) for p in proposals if p.ask is _SET), default=0.0)
        if moved >= MOVED and state.hit is not None and state.since is not None and now - state.since >= WARM:
            return state._replace(anchor=current, move=Move(now, anchor, state.hit, state.noise))
        return state if anchor is state.anchor else state._replace(anchor=anchor)

    def _cost(
        self, view: View, current: Mapping[str, float], state: "Weights.State"
    ) -> tuple["Weights.State", Mapping[str, float] | None]:
        """Judges the last move once it has settled. Returns the weights to go back to, where it cost cache hits."""
        move, hit, now = state.move, state.hit, view.tick.at
        if move is None or hit is None or now - move.at < SETTLE:
            return state, None
        state = state._replace(move=None, anchor=current)
        if hit >= move.hit - max(LEAST_NOISE, NOISE * move.noise):
            return state, None
        return state._replace(resting=now + self.config.rest), move.before


def _zoned(name: str, parts: Sequence[str]) -> bool:
    """Whether a member is a zone, and no replica."""
    return len(parts) != 1 or parts[0] != name


def _round(value: float) -> float:
    return round(value, 2)
