"""Case: what guards look at, and why its data justifies no relaxing.

What the targets of one lever of one pool have in common is said once, and worked out once. Work that waits, safety at
N-1, capacity on its way, replicas that are out and broken promises speak about replicas alone: a cap must be able to
rise while requests wait behind it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from controller.core import members
from controller.core.doubt import unproven
from controller.core.guard_state import GuardState, Pairs
from controller.core.model import Lever, PoolReadings, TargetState, Tick
from controller.core.ports import Estimate
from controller.core.reading import Reading, State
from controller.core.rules import PER_REPLICA, LeverRules
from controller.core.signals import Signal
from controller.core.why import Why

Doubt = tuple[Why, str]  # the reason and its detail


@dataclass(eq=False)  # a frozen one takes twice as long to make, and each lever of each pool has one a tick
class Common:
    """One lever of one pool at one tick. `window` seconds of the control window; `gain` is below 1 after the lever was
    seen to swing by itself; `out` is how many replicas of the pool a breaker holds out of rotation."""

    rules: LeverRules
    tick: Tick
    pool: PoolReadings | None
    estimate: Estimate
    window: float
    ledger_ok: bool = True
    gain: float = 1.0
    out: int = 0

    def __post_init__(self) -> None:
        # Since when wishes count for stabilising, unix seconds. A lever that swings by itself looks back further.
        self.stable_since = self.tick.at - self.rules.stabilise / self.gain - 1e-6

    @cached_property
    def unread(self) -> Doubt | None:
        """Nothing is read, or nothing of it would be remembered."""
        if not self.ledger_ok:
            return Why.LEDGER_FULL, ""
        if self.pool is None or not self.pool.signals:
            return Why.MISSING, "no reading of this pool"
        return None

    @cached_property
    def doubt(self) -> Doubt | None:
        """About a lever that is neither capacity nor moved by replica: what is offered must be known."""
        if self.unread is not None or self.pool is None:
            return self.unread
        reading = self.pool.get(Signal.OFFERED_RATE)
        if not reading.trusted and reading.state is not State.UNSUPPORTED:
            return _untrusted(Signal.OFFERED_RATE, reading)
        if self.pool.partial:
            return Why.PARTIAL, self.pool.partial
        return self.broken(self.window)

    def broken(self, need: float) -> Doubt | None:
        """Data that has not been unbroken for so many seconds."""
        filled = self.pool.filled_since if self.pool is not None else None
        if filled is None or self.tick.at - filled < need - 1e-6:
            seen = 0.0 if filled is None else self.tick.at - filled
            return Why.BOOT, f"{seen:.0f} of {need:.0f} s of unbroken data"
        return None


class Case(NamedTuple):
    """One target. `state` is what was remembered of it, `changes` those of its value up to this reading, `member` the
    replica or tenant whose value it is."""

    common: Common
    target: TargetState
    state: GuardState
    changes: Pairs
    current: float
    member: str = ""

    def relaxing(self, value: float) -> bool:
        return value < self.current if self.common.rules.relax_down else value > self.current

    def doubt(self) -> Doubt | None:
        """Why the data does not justify relaxing; None when it does."""
        lever = self.common.rules.lever
        if lever is Lever.REPLICAS:
            return self._doubt_of_capacity()
        return self._doubt_of_replica() if lever in PER_REPLICA else self.common.doubt

    def short(self) -> str | None:
        """Fewer replicas in the metrics than serve: what the others hold is not in any sum."""
        if self.common.rules.lever is not Lever.REPLICAS:
            return None
        seen = self.common.estimate.evidence.get("serving")
        there = self.target.ready if self.target.ready is not None else self.current
        if seen is None or seen >= there:
            return None
        return f"{seen:g} of {there:g} replicas are seen"

    def _doubt_of_replica(self) -> Doubt | None:
        """What a replica does must be known."""
        common, pool = self.common, self.common.pool
        if common.unread is not None or pool is None:
            return common.unread
        reading = members.member(pool, self.member).get(Signal.RUNNING)
        if not reading.trusted:
            return unproven(reading.state), f"{Signal.RUNNING} of {self.member}: {reading.state}"
        return common.broken(common.window)

    def _doubt_of_capacity(self) -> Doubt | None:
        common, pool, tick = self.common, self.common.pool, self.common.tick
        if common.unread is not None or pool is None:
            return common.unread
        depth = pool.get(Signal.QUEUE_DEPTH)
        if depth.value is not None and depth.value > 0 and not self._passing(pool):
            return Why.WORK_WAITING, f"{depth.value:g} requests wait"
        stuck = pool.get(Signal.STUCK)
        if stuck.value is not None and stuck.value > 0:
            return Why.STUCK_ENGINE, f"{stuck.value:g} stuck"
        # An engine that cannot count requests is judged by the work it holds, else its pool could never shrink.
        countable = pool.get(Signal.OFFERED_RATE).state != State.UNSUPPORTED
        for signal in (Signal.OFFERED_RATE if countable else Signal.RUNNING, Signal.QUEUE_DEPTH):
            reading = pool.get(signal)
            if reading.state == State.UNDERFILLED:
                return (Why.BOOT if tick.number < 2 else Why.UNDERFILLED), f"{signal}: {reading.note}"
            if not reading.trusted:
                return _untrusted(signal, reading)
        # A cache that was seen and is not seen now may be full. One that this engine never tells is no news.
        cache = pool.get(Signal.KV_USAGE)
        if common.estimate.cache_told and not cache.trusted and cache.state != State.UNSUPPORTED:
            return _untrusted(Signal.KV_USAGE, cache)
        if pool.partial:
            return Why.PARTIAL, pool.partial
        short = self.short()
        if short is not None:
            # Not for ever, because a job that scrapes half of a pool would keep it from shrinking for good.
            since = tick.at if self.state.short_since is None else self.state.short_since
            if tick.at - since < common.rules.give_up:
                return Why.PARTIAL, short
        return common.broken(max(common.window, common.rules.stabilise))

    def _passing(self, pool: PoolReadings) -> bool:
        """Whether those that wait are between two steps of an engine. In a large pool somebody is at every scrape, and
        a lowering that waits for a scrape at which nobody is would never come. A delay that is not told is no short
        one."""
        delay = pool.get(Signal.QUEUE_DELAY)
        return delay.trusted and delay.value is not None and delay.value < self.common.estimate.passing


def _untrusted(signal: Signal, reading: Reading) -> Doubt:
    note = f" ({reading.note})" if reading.note else ""
    return unproven(reading.state), f"{signal}: {reading.state}{note}"
