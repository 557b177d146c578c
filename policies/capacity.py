"""Capacity: feed-forward on demand, with a slow trim from measured latency. The main law for replicas.

    doubt = hypot(ln(1 + spread * noise), ln(1 + margin))
    load = max(demand now * exp(doubt), demand ahead * exp(hypot(doubt, ln(upper / demand ahead))))
    need = (load + backlog) / rho * exp(trim), rounded up, + spare

Demand now is without its noise and demand ahead a forecast with its upper quantile, in replica-equivalents, at the
horizon of the measured cold start. What demand jumps by from one reading to the next (noise) is kept in hand: few
requests and bursts need more room than many even ones, as in square-root staffing. rho leaves the rest. margin comes
from a budget of errors that burns although all that was asked for serves. These answer one doubt, how much will be
asked for, each from its own side, so they add up as independent errors do: one on top of the other they ask for half
as much again in every crowd. The trim integrates ln(latency / target), slowly and within bounds, while nothing is
pending and no other lever relieves: it corrects a model that is wrong in a way that kappa cannot see. Because the need
is absolute, capacity that was asked for and is still on its way is not asked for twice.

Use it where the engine tells tokens and inter-token latency; it also runs, more coarsely, on queue and KV alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from controller.core import timetable
from controller.core.doubt import of_demand
from controller.core.elapsed import elapsed
from controller.core.model import Ask, Lever, Proposal, Target, TargetState
from controller.core.params import Unit, param, refuse
from controller.core.ports import Brief, Estimate, View
from controller.core.reading import Reading, State
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.telling import UNTIL
from controller.core.why import Why
from policies.error import log_error

UNFORESEEN = 0.1  # share of the load to keep in hand where it cannot be forecast
FEW = 0.25  # requests that wait per replica, below which a queue in a fleet with room is looked at twice
LONGEST = 3600.0  # seconds between two tries to get capacity that does not come


@dataclass(frozen=True, slots=True)
class Floor:
    """Replicas that are wanted at some times of the week, whatever the load."""

    replicas: float = param("replicas that are there at least", gt=0)
    begin: str = param("when they must be warm: a time of day, 08:30", check=timetable.of_day)
    end: str = param("until when; not after the begin means the next day", check=timetable.of_day)
    days: str = param("`daily`, or days of the week: `mon-fri`, `sat,sun`", "daily", check=timetable.days)
    zone: str = param(
        "offset of these times from UTC, without daylight saving: `UTC`, `+02:00`", "UTC", check=timetable.offset
    )

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        for one in fields(self):
            check = one.metadata["check"]
            if check is None:
                continue
            try:
                check(getattr(self, one.name))
            except ValueError as error:
                yield f"{one.name}: {error}"

    def at(self, now: float, early: float) -> tuple[float, float]:
        """Replicas at `now`, when they take `early` seconds to come, and until when; 0 and 0 outside its times. Unix
        seconds."""
        begin, end = timetable.of_day(self.begin), timetable.of_day(self.end)
        left = timetable.left(now, timetable.days(self.days), begin, end, timetable.offset(self.zone), early)
        return (0.0, 0.0) if left is None else (self.replicas, now + left)


class Short(NamedTuple):
    """Capacity that is missing: `serving` of the `asked`, since when (unix seconds), and whether it was `refused`: more
    was asked for and none has come since. What was lost without anybody asking is not. `tries` how often it was given
    up, and `again` when it is asked for next, unix seconds."""

    since: float
    serving: float
    asked: float
    refused: bool = False
    tries: int = 0
    again: float | None = None


class Capacity:
    """Replicas by feed-forward and trim."""

    levers = (Lever.REPLICAS,)
    absolute = True
    reads = frozenset(
        {
            Signal.ITL, Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE, Signal.FINISHED_RATE, Signal.RUNNING,
            Signal.ADMITTED_RATE, Signal.BEGUN_RATE, Signal.QUEUE_DELAY, Signal.PREFIX_HIT_RATE, Signal.RETRY_SHARE,
            Signal.RECENT_RATE,
        }
    )  # fmt: skip

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the capacity policy."""

        utilisation: float = param(
            "share of a replica's capacity to plan with (rho*)", 0.92, unit=Unit.RATIO, gt=0, le=1
        )
        spread: float = param("times the usual jump of demand between two readings to keep in hand", 2.75, ge=0, le=5)
        trim_time: float = param("seconds in which the trim corrects one e-fold", 900.0, unit=Unit.DURATION, gt=0)
        trim_down: float = param("largest reduction by the trim, in ln", 0.0, ge=0, le=1)
        trim_up: float = param("largest addition by the trim, in ln", 0.35, ge=0, le=2)
        dead_band: float = param("ln(latency/target) within which the trim rests", 0.1, ge=0, le=1)
        hysteresis: float = param("replicas by which the need must pass a whole number to raise", 0.1, ge=0, lt=0.5)
        keep: float = param("replicas that must be too many beyond a whole number to lower", 0.25, ge=0, lt=0.5)
        spare: float = param("warm replicas beyond the need", 0.0, ge=0)
        idle: float = param(
            "how long nothing must be asked before the last replica goes", 600.0, unit=Unit.DURATION, gt=0
        )
        give_up: float = param(
            "how long replicas that were asked for may fail to come before no more are asked for",
            900.0, unit=Unit.DURATION, gt=0,
        )  # fmt: skip
        floors: tuple[Floor, ...] = param("replicas for events that are known beforehand", ())

    class State(NamedTuple):
        """`trim` in ln; `at` of the last update and `busy` when something was asked last, unix seconds; `short` of
        capacity that does not come; `rested` when the trim had to rest last, unix seconds; `queued` whether a queue
        that lasts was there at the last tick."""

        trim: float = 0.0
        at: float | None = None
        busy: float | None = None
        short: Short | None = None
        rested: float | None = None
        queued: bool = False

    def __init__(self, config: "Capacity.Config") -> None:
        self.config = config

    def initial(self) -> "Capacity.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Capacity.State"
    ) -> tuple[Sequence[Proposal], "Capacity.State"]:
        """One proposal per target: SET while demand is trusted, AT_LEAST while it is not, none when nothing is known
        but the queue is empty."""
        rested = view.tick.at if _relieved(view, brief) else state.rested
        trim = self._trim(view, objectives, brief, state, rested)
        busy = state.busy if state.busy is not None and _idle(view) else view.tick.at
        short, queued = state.short, _long_queue(view)
        state = self.State(trim, view.tick.at, busy, short, rested, state.queued)
        made = []
        for target in sorted(view.targets):
            short = self._waiting(view, target, short)
            made.append(self._given_up(view, target, self._one(view, target, state), short))
        return tuple(made), self.State(trim, view.tick.at, busy, short, rested, queued)

    def _one(self, view: View, target: Target, state: "Capacity.State") -> Proposal:
        estimate, config = view.estimate, self.config
        owner = view.targets[target]
        current = owner.accepted if owner.accepted is not None else view.limits[target].min
        floor, ends = max((_floor(view, one, view.limits[target].min) for one in config.floors), default=(0.0, 0.0))
        depth = view.pool.get(Signal.QUEUE_DEPTH)
        if current < 1 and _asked(view):
            # Nobody serves, so nothing is known of what is asked: one replica will tell.
            return Proposal(target, Ask.SET, max(1.0, floor), "capacity", Why.BACKLOG, {"waiting": depth.usable or 0.0})
        if estimate.demand is None:
            if depth.usable and self._all_serve(view, owner, current):
                return self._blind(target, current, depth.usable)
            return Proposal(target, Ask.AT_LEAST, max(current, floor), "capacity", of_demand(view.pool))
        load = _load(estimate, _doubt(estimate, config.spread, owner)) + estimate.backlog
        need = load / config.utilisation * math.exp(state.trim)
        evidence = {**estimate.evidence, "need": need, "trim": state.trim, "backlog": estimate.backlog}
        if config.spare:
            evidence["spare"] = config.spare
        spare = math.ceil(config.spare)
        up, down = math.ceil(need - config.hysteresis) + spare, math.ceil(need + config.keep) + spare
        if load <= 0:
            # The hysteresis would keep the last replica for ever; how long it is kept is said by `idle`.
            gone = view.tick.at - (state.busy if state.busy is not None else view.tick.at)
            down = spare if spare or gone >= config.idle else 1
        # Where there is more than enough by all that is known, a few that wait may be chance: the next reading tells.
        sure = up >= current or state.queued or estimate.evidence.get("still_waiting", 0.0) >= FEW * current
        if sure and self._queue_outlasts(view, owner, current):
            up = max(up, int(current) + 1)
        if floor > max(up, current):
            evidence |= {"floor": floor, UNTIL: ends}
            return Proposal(target, Ask.SET, floor, "capacity", Why.TIMETABLE, evidence)
        if up > current:
            return Proposal(target, Ask.SET, float(up), "capacity", self._reason(view, owner, state), evidence)
        blind = estimate.unit_rate is None and depth.usable is not None and depth.usable >= max(current, 1.0)
        if blind and self._all_serve(view, owner, current):
            return self._blind(target, current, depth.usable or 0.0)
        if not estimate.trusted:
            return Proposal(target, Ask.AT_LEAST, current, "capacity", of_demand(view.pool), evidence)
        why = Why.STEADY
        if depth.usable:
            why = Why.QUEUE_CLEARS
        elif max(down, floor) < current:
            why = Why.NO_TRAFFIC if not estimate.offered else Why.SURPLUS
        elif floor > down:
            why, evidence = Why.TIMETABLE, {**evidence, "floor": floor, UNTIL: ends}
        return Proposal(target, Ask.SET, min(max(float(down), floor), current), "capacity", why, evidence)

    def _waiting(self, view: View, target: Target, short: Short | None) -> Short | None:
        """What is known of capacity that does not come, after this tick."""
        owner, now = view.targets[target], view.tick.at
        if owner.accepted is None or owner.ready is None:
            return short
        if short is None or owner.ready >= owner.accepted:
            return Short(now, owner.ready, owner.accepted)
        if owner.ready > short.serving:
            # Some came: one that never does must not keep others from being asked for.
            return Short(now, owner.ready, owner.accepted)
        if owner.accepted > short.asked:
            short = short._replace(since=short.since if short.refused else now, refused=True)
        short = short._replace(serving=owner.ready, asked=owner.accepted)
        if not short.refused:
            return short
        if short.again is None:
            if now - short.since < self.config.give_up:
                return short
            pause = min(self.config.give_up * 2.0 ** min(short.tries, 8), LONGEST)
            return short._replace(tries=short.tries + 1, again=now + pause)
        return short._replace(since=now, again=None) if now >= short.again else short

    def _given_up(self, view: View, target: Target, proposal: Proposal, short: Short | None) -> Proposal:
        """No more than there is, while what was asked for does not come: the other levers carry the rest."""
        current = view.targets[target].accepted
        if short is None or short.again is None or current is None or proposal.value < current:
            return proposal
        if proposal.value == current and proposal.ask is not Ask.SET:
            return proposal  # a doubt is no wish, and stays one
        evidence = {**proposal.evidence, "again_in": short.again - view.tick.at, "tries": float(short.tries)}
        return proposal._replace(ask=Ask.SET, value=current, why=Why.CAPACITY_UNAVAILABLE, evidence=evidence)

    def _queue_outlasts(self, view: View, owner: TargetState, current: float) -> bool:
        """Whether requests will still wait when one more replica is warm, with all that was asked for serving already:
        then one more helps whatever the model says. One at a time, because the next answer comes with the next one. A
        prompt that a full step has left out for the next one is no queue, and a large pool has one at every scrape."""
        return _long_queue(view) and self._all_serve(view, owner, current)

    def _all_serve(self, view: View, owner: TargetState, current: float) -> bool:
        """Whether all that was asked for serves: what was added last must show before one more is added."""
        return not owner.pending and view.estimate.evidence.get("serving", current) >= current

    def _blind(self, target: Target, current: float, waiting: float) -> Proposal:
        """A queue and no idea of a replica's capacity: one more at a time."""
        return Proposal(target, Ask.SET, current + 1, "capacity", Why.BACKLOG, {"waiting": waiting})

    def _reason(self, view: View, owner: TargetState, state: "Capacity.State") -> Why:
        """What tipped the scale: the first of load, KV, queue, trim without which the need would fit."""
        estimate = view.estimate
        demand = estimate.demand or 0.0
        if estimate.backlog > demand * 0.2 or estimate.evidence.get("still_waiting", 0.0) >= 1.0:
            return Why.BACKLOG
        if estimate.forecast is not None and estimate.forecast > demand:
            return Why.FORECAST
        if _burnt(estimate, owner) and estimate.worse is None:  # what one version fails asks for no capacity
            return Why.BUDGET_BURN
        if demand > estimate.evidence.get("demand_compute", math.inf) + 1e-9:
            return Why.KV_PRESSURE
        return Why.TRIM if state.trim > 0.1 else Why.DEMAND

    def _trim(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Capacity.State", rested: float | None
    ) -> float:
        now, config = view.tick.at, self.config
        gone = elapsed(state.at, now)
        # While work is shed or waits for capacity, latency says nothing of the model: what helps is on its way. Nor
        # does it while the window still holds what was served meanwhile.
        window = max((one.window for one in objectives), default=0.0)
        rests = rested is not None and now - rested < max(window, 1e-3)
        error = max((e for o in objectives if (e := _error(view, o)) is not None), default=0.0)
        trim = state.trim * math.exp(-gone / (4 * config.trim_time))  # leaky: an old correction fades
        if not rests and abs(error) > config.dead_band and (error > 0 or self._loaded(view)):
            trim += gone / config.trim_time * error * brief.gain
        return min(max(trim, -config.trim_down), config.trim_up)

    def _loaded(self, view: View) -> bool:
        """Whether replicas work near the operating point: only there does a low latency say that the model is too
        careful. Everywhere else it is low because there is little to do."""
        serving = view.estimate.evidence.get("serving", 0.0)
        return (view.estimate.demand or 0.0) >= 0.8 * self.config.utilisation * serving > 0


def _floor(view: View, floor: Floor, least: float) -> tuple[float, float]:
    """Replicas that a floor asks for now and until when, as much earlier as they take to be asked for and to come. The
    way up is counted from the least there may be: from where it is it would get shorter with each step, and the next
    one would not be wanted yet."""
    climb = view.climb(least, floor.replicas)
    return floor.at(view.tick.at, view.estimate.horizon + (climb if math.isfinite(climb) else 0.0))


def _relieved(view: View, brief: Brief) -> bool:
    """Whether other levers relieve, or capacity is on its way. The whole shortage counts: a rung above this one may
    leave nothing of it."""
    return max(brief.short, brief.left) > 0 or any(owner.pending for owner in view.targets.values())


def _long_queue(view: View) -> bool:
    """Whether requests wait for longer than between two steps, and will when a replica asked for now is warm."""
    delay = view.pool.get(Signal.QUEUE_DELAY).usable
    if delay is not None and delay < view.estimate.passing:
        return False
    return view.estimate.evidence.get("still_waiting", 0.0) >= 1.0


def _burnt(estimate: Estimate, owner: TargetState) -> bool:
    """Whether promises are broken by what serves: while some of what was asked for is still to come, that they are
    says nothing of how much was asked for."""
    return estimate.burning and not owner.pending


def _doubt(estimate: Estimate, spread: float, owner: TargetState) -> float:
    """ln of what is kept in hand beyond any load, forecast or not."""
    margin = estimate.margin if _burnt(estimate, owner) else 0.0
    return math.hypot(math.log1p(spread * estimate.noise), math.log1p(margin))


def _load(estimate: Estimate, doubt: float) -> float:
    """What must be carried until capacity that is asked for now is warm: the load ahead, the load of now without its
    noise, and what lies in the caches. Where nothing can be forecast, the load as it is read and a little more."""
    if estimate.forecast is None:
        return (estimate.demand or 0.0) * (1 + UNFORESEEN) * math.exp(doubt)
    now = estimate.level if estimate.level is not None else estimate.demand or 0.0
    here = max(now, estimate.evidence.get("demand_kv", 0.0)) * math.exp(doubt)
    point = estimate.forecast if estimate.point is None else estimate.point
    if point <= 0:
        return max(here, estimate.forecast * math.exp(doubt))
    return max(here, point * math.exp(math.hypot(doubt, math.log(max(estimate.forecast / point, 1.0)))))


def _asked(view: View) -> bool:
    """Whether anything is known to be asked for or to wait."""
    return any(view.pool.get(signal).usable for signal in (Signal.OFFERED_RATE, Signal.QUEUE_DEPTH))


def _idle(view: View) -> bool:
    """Whether it can be read that nothing is asked for; what cannot be read may be something."""
    offered = view.pool.get(Signal.OFFERED_RATE)
    return offered.trusted and not offered.usable and not _asked(view) and _empty(view.pool.get(Signal.RUNNING))


def _empty(running: Reading) -> bool:
    """Whether batches are known to be empty; an engine that cannot tell is judged by the rest."""
    return running.state is State.UNSUPPORTED or (running.trusted and not running.value)


def _error(view: View, objective: Objective) -> float | None:
    """ln(measure / target), clamped; None when the reading is no evidence. A latency that is fine is only counted when
    trusted, one that is not always."""
    if not INFO[objective.signal].latency or objective.klass:  # quantiles are the pool's; those of a class are unknown
        return None
    reading = view.pool.latency(objective.signal, objective.stat)
    if reading.usable is None or reading.usable <= 0 or reading.state == State.CENSORED:
        return None
    error = log_error(reading.usable, objective.target)
    return error if error > 0 or reading.trusted else None
