"""Hand-made fleets for the laws of single replicas: readings in, proposals done at once, time by the tick."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core.guards import bounds
from controller.core.model import Ask, Lever, PoolReadings, Proposal, Scope, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.slo import Objective

BEGIN = 1_000_000.0
BASE, EACH = 0.006, 0.0003  # the step time of the model: T(20) is 12 ms


@dataclass(frozen=True)
class Seen:
    """What one replica shows over one interval: its step time, times that of the model; its batch and its queue;
    requests that ended and the share of them that failed; and what else goes wrong. Without `up` its page is not
    read."""

    slow: float = 1.0
    batch: float = 20.0
    waiting: float = 0.0
    ended: float = 30.0
    errors: float = 0.0
    ttft: float = 0.2
    stuck: bool = False
    restarts: float = 0.0
    xid: float = 0.0
    up: bool = True
    traffic: bool = True

    @property
    def itl(self) -> float:
        """Seconds per token."""
        return self.slow * (BASE + EACH * self.batch)

    def scope(self, window: float) -> Scope:
        """The readings, of the last `window` seconds."""
        if not self.up:
            gone = Reading(State.STALE, note="its scrape failed")
            return Scope({Signal.RUNNING: gone, Signal.QUEUE_DEPTH: gone})
        signals = {
            Signal.RUNNING: ok(self.batch if self.traffic else 0.0, age=0.0),
            Signal.QUEUE_DEPTH: ok(self.waiting, age=0.0),
            Signal.STUCK: ok(float(self.stuck)),
            Signal.OOM_RESTARTS: ok(self.restarts),
            Signal.XID_ERRORS: ok(self.xid),
        }
        if not self.traffic:
            return Scope(signals, {})
        if self.ended:
            signals[Signal.ERROR_RATIO] = ok(self.errors, count=self.ended, age=0.0, window=window)
        tokens = self.batch * window / self.itl
        return Scope(
            signals,
            {
                Signal.ITL: {"mean": ok(self.itl, count=tokens, age=0.0, window=window)},
                Signal.TTFT: {"mean": ok(self.ttft, count=self.ended, age=0.0, window=window)},
            },
        )


@dataclass
class Rotation:
    """A pool whose replicas a law moves. `factors` are what the target has; what is proposed is done at once, unless
    `obeys` is False."""

    law: Any
    lever: Lever
    names: list[str]
    step: float = 15.0
    modelled: bool = True
    brief: Brief = field(default_factory=lambda: Brief(Balance(2.0, 4.0), 0.0))
    objectives: tuple[Objective, ...] = ()
    hit_rate: float = 0.5
    queued: float | None = None  # requests that wait in all, also before the replicas; not told where None
    obeys: bool = True
    quantum: float = 0.01
    unread: frozenset[str] = frozenset()  # whose target cannot be read
    roles: Mapping[str, str] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)  # where there are any, they are what is moved
    versions: Mapping[str, str] = field(default_factory=dict)
    started: Mapping[str, float] = field(default_factory=dict)
    away: frozenset[str] = frozenset()  # who drains
    factors: dict[str, float] = field(default_factory=dict)
    now: float = BEGIN
    state: Any = None
    last: dict[str, Proposal] = field(default_factory=dict)

    def tick(self, usual: Seen | None = None, **others: Seen) -> dict[str, Proposal]:
        """One interval in which all are as usual but `others`."""
        self.now += self.step
        seen = {name: others.get(name, usual or Seen()) for name in self.names}
        pool = PoolReadings(
            signals={
                Signal.PREFIX_HIT_RATE: ok(self.hit_rate),
                **({} if self.queued is None else {Signal.QUEUE_DEPTH: ok(self.queued)}),
            },
            replicas={name: one.scope(self.step) for name, one in seen.items()},
            roles=self.roles,
            zones=self.zones,
            versions=self.versions,
            started=self.started,
        )
        targets = {
            Target("llm", self.lever, name): TargetState(None if name in self.unread else self.factors.get(name, 1.0))
            for name in (sorted({self.zones[one] for one in self.names}) if self.zones else self.names)
        }
        evidence = {"step_base": BASE, "step_each": EACH, "step_least": 0.0} if self.modelled else {}
        limits = Limits(0.0, 1.0, self.quantum)
        view = View(
            Tick(1, self.now, self.step), pool, targets, dict.fromkeys(targets, limits),
            Estimate(demand=2.0, evidence=evidence), away=self.away,
        )  # fmt: skip
        state = self.law.initial() if self.state is None else self.state
        proposals, self.state = self.law.propose(view, self.objectives, self.brief, state)
        self.last = {proposal.target.member: proposal for proposal in proposals}
        for name, proposal in self.last.items():
            if self.obeys:
                value = done(proposal, self.factors.get(name, 1.0))
                self.factors[name] = bounds(limits, value, up=True)[0] if self.lever is Lever.BREAKER else value
        return self.last

    def run(self, seconds: float, usual: Seen | None = None, **others: Seen) -> None:
        """The same for a while."""
        end = self.now + seconds
        while self.now < end - 1e-6:
            self.tick(usual, **others)

    def until(self, name: str, value: float, limit: float, usual: Seen | None = None, **others: Seen) -> float:
        """Seconds until the replica has the value; fails after `limit`."""
        begin = self.now
        while self.factors.get(name, 1.0) != value:
            assert self.now - begin < limit, f"{name} has {self.factors.get(name, 1.0)} after {limit:g} s"
            self.tick(usual, **others)
        return self.now - begin

    def out(self) -> list[str]:
        """Who gets nothing."""
        return [name for name in self.names if self.factors.get(name, 1.0) == 0.0]


def done(proposal: Proposal, current: float) -> float:
    """What a target has after the proposal."""
    if proposal.ask is Ask.AT_MOST:
        return min(proposal.value, current)
    return proposal.value


def named(count: int) -> list[str]:
    """Names of that many replicas."""
    return [f"r{number}" for number in range(count)]


def but(seen: Seen, **changes: Any) -> Seen:
    """The same with changes."""
    return replace(seen, **changes)
