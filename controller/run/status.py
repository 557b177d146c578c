"""The board: what the loop last did, as the HTTP threads may see it. Holds frozen values and hands out plain JSON data.

Time comes in as an argument. Liveness uses the monotonic clock, so that a step of the wall clock neither kills a
healthy process nor keeps a hung one.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from controller.core.model import Decision, PoolReadings, Target, TargetState
from controller.core.ports import Estimate
from controller.core.reading import Reading
from controller.core.slo import Objective
from controller.core.telling import because, holds_until
from controller.run.loop import TickResult
from controller.run.settings import Settings

Json = dict[str, Any]  # JSON has no better type in Python

HISTORY = 2000  # decisions kept for /api/v1/decisions; the ledger is the long memory


class Board:
    """Thread-safe. The daemon writes, HTTP reads."""

    def __init__(self, *, version: str, mode: str, at: float, monotonic: float) -> None:
        self._lock = threading.Lock()
        self._version, self._mode, self._started = version, mode, at
        self._beat = monotonic
        self._settings: Settings | None = None
        self._loaded_at: float | None = None
        self._problems: tuple[str, ...] = ()
        self._result: TickResult | None = None
        self._missed = 0
        self._error = ""
        self._history: deque[Json] = deque(maxlen=HISTORY)
        self._said: dict[Target, tuple[float | None, str]] = {}

    def configured(self, settings: Settings, *, at: float) -> None:
        """A config came into force."""
        with self._lock:
            self._settings, self._loaded_at, self._problems = settings, at, ()

    def rejected(self, problems: Sequence[str]) -> None:
        """The config on disk is not usable; the previous one stays in force."""
        with self._lock:
            self._problems = tuple(problems)

    def ticked(self, result: TickResult, *, monotonic: float) -> None:
        """A tick ran to its end."""
        with self._lock:
            self._result, self._beat, self._error = result, monotonic, ""
            outcomes = {applied.target: applied for applied in result.applied}
            before, self._said = self._said, {}  # made anew, so that targets that are gone are forgotten
            for decision in result.plan.decisions:
                # A decision that repeats the previous one would bury those that matter.
                said = self._said[decision.target] = (decision.final, decision.why.value)
                if before.get(decision.target) == said:
                    continue
                entry = {"at": result.plan.at, **_decision(decision, result.snapshot.targets.get(decision.target))}
                if decision.target in outcomes:
                    applied = outcomes[decision.target]
                    entry["outcome"] = {"outcome": applied.word, "detail": applied.detail}
                self._history.append(entry)

    def missed(self, slots: int) -> None:
        """Slots passed without a tick."""
        with self._lock:
            self._missed += slots

    def failed(self, error: str) -> None:
        """A tick raised. It gives no sign of life: a loop that only fails deserves a restart."""
        with self._lock:
            self._error = error

    def alive(self, monotonic: float) -> str:
        """ "" while the loop lives, else what is wrong."""
        with self._lock:
            if self._settings is None:
                return ""  # still starting
            allowed = 3 * self._settings.interval + self._settings.deadline
            silent = monotonic - self._beat
            return f"no tick ended for {silent:.0f} s, more than {allowed:.0f} s" if silent > allowed else ""

    def ready(self) -> str:
        """ "" once a config is in force and the first tick is done, else what is missing. An invalid config on disk
        does not count: the previous one is at work."""
        with self._lock:
            if self._settings is None:
                return "no config loaded yet"
            return "" if self._result is not None else "the first tick has not ended yet"

    def decisions(self, limit: int) -> list[Json]:
        """The newest `limit` changes of mind, newest first: decisions whose value or reason differs from the previous
        decision on the same target."""
        with self._lock:
            return list(reversed(self._history))[:limit]

    def status(self) -> Json:
        """Everything of `/api/v1/status`; times are unix seconds, readings in the unit of their signal."""
        with self._lock:
            settings, result, problems = self._settings, self._result, self._problems
            page: Json = {
                "version": self._version,
                "mode": self._mode,
                "started_at": self._started,
                "config": {
                    "hash": settings.config_hash if settings else None,
                    "valid": not problems,
                    "problems": list(problems),
                    "loaded_at": self._loaded_at,
                    "interval": settings.interval if settings else None,
                },
                "ticks_missed": self._missed,
                "last_error": self._error,
            }
        page["last_tick"] = None
        page["pools"], page["targets"] = {}, []
        if settings is None or result is None:
            return page
        snapshot = result.snapshot
        page["last_tick"] = {
            "number": snapshot.tick.number,
            "at": snapshot.tick.at,
            "seconds": dict(result.seconds),
            "source_error": snapshot.error,
            "summary": result.plan.summary,
            "pin_problems": list(result.pin_problems),
        }
        for pool in sorted(settings.pools):
            readings = snapshot.pools.get(pool, PoolReadings())
            promises = settings.objectives.get(pool, ())
            page["pools"][pool] = _pool(readings, promises, result.estimates.get(pool))
        for decision in result.plan.decisions:
            if decision.target.pool in settings.pools:
                state = snapshot.targets.get(decision.target)
                page["targets"].append({**_decision(decision, state), **(_state(state) if state else {})})
        return page


def _reading(reading: Reading) -> Json:
    numbers = {name: getattr(reading, name) for name in ("value", "lo", "hi", "count", "age", "window")}
    words = {"source": reading.source, "note": reading.note}
    return {
        "state": reading.state.value,
        **{name: number for name, number in numbers.items() if number is not None},
        **{name: word for name, word in words.items() if word},
    }


def _pool(readings: PoolReadings, promises: Sequence[Objective], estimate: Estimate | None) -> Json:
    return {
        "partial": readings.partial,
        "replicas_seen": len(readings.replicas),
        "signals": {signal.value: _reading(reading) for signal, reading in readings.signals.items()},
        "latencies": {
            signal.value: {stat: _reading(reading) for stat, reading in stats.items()}
            for signal, stats in readings.latencies.items()
        },
        "objectives": [_objective(promise, readings) for promise in promises],
        "estimate": None if estimate is None else _estimate(estimate),
    }


def _objective(promise: Objective, readings: PoolReadings) -> Json:
    attainment = readings.attainment.get(promise.name)
    return {
        "name": promise.name,
        "signal": promise.signal.value,
        "class": promise.klass,
        "target": promise.target,
        "share": promise.share,
        "stat": promise.stat,
        "window": promise.window,
        "attainment": None if attainment is None else _reading(attainment),
        "burn": {window: _reading(one) for window, one in readings.burn.get(promise.name, {}).items()},
    }


def _estimate(estimate: Estimate) -> Json:
    names = ("offered", "demand", "forecast", "backlog", "unit_rate", "hit_rate", "kappa", "horizon", "margin",
             "burning", "trusted")  # fmt: skip
    return {name: getattr(estimate, name) for name in names}


def _decision(decision: Decision, state: TargetState | None) -> Json:
    target = decision.target
    return {
        "target": str(target),
        "pool": target.pool,
        "lever": target.lever.value,
        "member": target.member,
        "current": decision.current,
        "final": decision.final,
        "why": decision.why.value,
        "sentence": because(decision, state=state),
        "mode": decision.mode.value,
        "sent": decision.send,
        "until": decision.until,
        "holds_until": holds_until(decision, state),
        "evidence": dict(decision.evidence),
        "steps": [
            {"by": step.by, "before": step.before, "after": step.after, "why": step.why.value, "detail": step.detail}
            for step in decision.steps
        ],
    }


def _state(state: TargetState) -> Json:
    pin = state.pin
    return {
        "accepted": state.accepted,
        "ready": state.ready,
        "pending": [
            {"count": one.count, "phase": one.phase.value, "since": one.since, "eta": one.eta} for one in state.pending
        ],
        "last_outcome": state.last_outcome.value if state.last_outcome else None,
        "last_change": state.last_change,
        "foreign_writer": state.foreign_writer,
        "foreign_until": state.foreign_until,
        "drift": state.drift.value if state.drift else None,
        "pin": None if pin is None else {"value": pin.value, "until": pin.until, "reason": pin.reason},
        "error": state.error,
    }


def health(problem: str) -> Mapping[str, str]:
    """Body of a probe."""
    return {"status": "failing", "reason": problem} if problem else {"status": "ok"}
