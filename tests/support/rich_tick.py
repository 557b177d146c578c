"""One tick in which everything happens at once, so that every metric of the catalogue has a series."""

from controller.core.model import (
    Applied,
    Drift,
    Lever,
    Mode,
    Outcome,
    Pending,
    Phase,
    Pin,
    Plan,
    PoolReadings,
    Snapshot,
    Step,
    Target,
    TargetState,
    Tick,
)  # fmt: skip
from controller.core.ports import Estimate
from controller.core.reading import Reading, State, ok
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.why import Why
from controller.core.worse import Worse
from controller.run.loop import TickResult
from controller.run.settings import LeverSettings, Settings
from tests.support.build import decision
from tests.support.toy_loop import result

POOL = "llama-70b"
PROMISES = (
    Objective("ttft_p99", Signal.TTFT, 2.0, 0.99, 60.0),
    Objective("tpot_p95", Signal.TPOT, 0.08, 0.95, 60.0),
    Objective("e2e_p99", Signal.E2E, 30.0, 0.99, 60.0),
)
REPLICAS = Target(POOL, Lever.REPLICAS)
WEIGHT = Target(POOL, Lever.WEIGHT, "pod-1")

SETTINGS = Settings(
    15.0, 10.0, "127.0.0.1:0", "0a1b2c", {POOL: PROMISES},
    {POOL: {Lever.REPLICAS: LeverSettings(Mode.AUTO, 1, 8), Lever.WEIGHT: LeverSettings(Mode.OBSERVE)}},
)  # fmt: skip


def readings() -> PoolReadings:
    signals = {signal: ok(0.5, source="test") for signal, info in INFO.items() if not info.latency}
    signals[Signal.QUEUED_TOKENS] = Reading(State.MISSING, note="no such series")
    latencies = {
        signal: {"p95": ok(0.6, lo=0.5, hi=0.75), "p99": Reading(State.SATURATED_TOP, lo=2.5)}
        for signal, info in INFO.items()
        if info.latency
    }
    burn = {promise.name: {window: ok(2.0) for window in ("5m", "30m", "1h", "6h", "3d")} for promise in PROMISES}
    attained = {promise.name: ok(0.97, lo=0.96, hi=0.98) for promise in PROMISES}
    return PoolReadings(signals, latencies, attainment=attained, burn=burn, partial="a store did not answer")


def rich_tick(number: int, at: float) -> TickResult:
    """Tick `number` at slot `at`."""
    pending = (Pending(2, Phase.PULLING, at - 120, at + 60), Pending(1, Phase.PENDING, at - 600))
    pin = Pin(0.5, at + 3600, "canary")
    targets = {
        REPLICAS: TargetState(
            5.0, 4.0, pending, Outcome.DONE, at - 300, foreign_writer="kubectl-edit", drift=Drift.FOREIGN
        ),
        WEIGHT: TargetState(0.5, last_outcome=Outcome.UNKNOWN, pin=pin, error="503"),
    }
    grow = (Step("capacity", 5, 9, Why.DEMAND), Step("bounds", 9, 8, Why.MAX_BOUND))
    plan = Plan(at, (decision(5, 8, Why.MAX_BOUND, *grow, target=REPLICAS), decision(0.5, 0.5, Why.PIN, target=WEIGHT)))
    learned = Estimate(
        12.0, 4.5, 6.0, 0.5, 2.6, 0.3, 1.05, 180.0, 0.1, burning=True, trusted=True,
        versions={"v1": 2.6}, worse=Worse("v2", 0.3, 100.0, 0.01),
    )  # fmt: skip
    phases = {"observe": 0.4, "measure": 0.02, "decide": 0.01, "act": 0.1, "record": 0.01, "total": 0.54}
    snapshot = Snapshot(Tick(number, at, 15.0), {POOL: readings()}, targets)
    return result(snapshot, plan, {POOL: learned}, (Applied(REPLICAS, Outcome.DONE, "scaled"),), phases)
