"""Tells a tick to the log: changes and the edges of conditions, never the same thing twice."""

import structlog

from controller.core.model import Applied, Decision, Drift, Outcome, Target
from controller.core.reading import State
from controller.core.telling import because
from controller.run.logs import Edges
from controller.run.loop import TickResult

_GOOD = frozenset({Outcome.DONE, Outcome.DRY_RUN})


class Narrator:
    """One per process; used by the ticking thread alone."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self.edges = Edges(log)
        self._pins: set[str] = set()
        self._said: dict[Target, tuple[float | None, float | None, str]] = {}

    def ticked(self, result: TickResult) -> None:
        """Reports what is new in `result`."""
        at = result.snapshot.tick.at
        error = result.snapshot.error
        if error:
            self.edges.failing("source", "source_failing", at=at, error=error)
        else:
            self.edges.fine("source", "source_recovered", at=at)
        self._targets(result, at)
        for line in self._pins - set(result.pin_problems):
            self.edges.fine(("pin", line), "pin_in_order", at=at, problem=line)
        for line in result.pin_problems:
            self.edges.failing(("pin", line), "pin_not_honoured", at=at, problem=line)
        self._pins = set(result.pin_problems)
        before, self._said = self._said, {}  # made anew, so that targets that are gone are forgotten
        for decision in result.plan.decisions:
            self._decision(decision, before.get(decision.target))
        for applied in result.applied:
            self._outcome(applied, at)

    def _targets(self, result: TickResult, at: float) -> None:
        for target, state in result.snapshot.targets.items():
            name = str(target)
            if state.error and state.error == result.snapshot.error:
                continue  # read off the source, whose failure has been told
            if state.error:
                self.edges.failing((target, "read"), "target_unreadable", at=at, target=name, error=state.error)
            else:
                self.edges.fine((target, "read"), "target_readable", at=at, target=name)
            if state.foreign_writer:
                self.edges.failing(
                    (target, "writer"), "foreign_writer", at=at, target=name, writer=state.foreign_writer
                )
            else:
                self.edges.fine((target, "writer"), "foreign_writer_gone", at=at, target=name)
            if state.drift in (Drift.RESTARTED, Drift.STALE):
                self.edges.failing((target, "drift"), f"target_{state.drift}", at=at, target=name)
            else:
                self.edges.fine((target, "drift"), "target_follows_again", at=at, target=name)
        for pool, readings in result.snapshot.pools.items():
            for objective, reading in readings.attainment.items():
                if reading.state in (State.MISSING, State.STALE):
                    self.edges.failing(
                        (pool, objective), "objective_blind", at=at, pool=pool, objective=objective, note=reading.note
                    )
                else:
                    self.edges.fine((pool, objective), "objective_seen", at=at, pool=pool, objective=objective)

    def _decision(self, decision: Decision, before: tuple[float | None, float | None, str] | None) -> None:
        """In observe mode the same wish comes back at every tick, so only a new wish is told."""
        said = self._said[decision.target] = (decision.current, decision.final, decision.why.value)
        if not decision.changed or before == said:
            return
        self._log.info(
            "decision",
            target=str(decision.target),
            current=decision.current,
            final=decision.final,
            why=decision.why.value,
            sentence=because(decision),
            sent=decision.send,
            steps=[f"{step.by}: {step.before:g} -> {step.after:g} ({step.why})" for step in decision.steps],
        )

    def _outcome(self, applied: Applied, at: float) -> None:
        target = str(applied.target)
        key = (applied.target, "apply")
        if applied.waits:
            return  # nothing was tried, so it neither fails nor is writable again
        if applied.outcome in _GOOD:
            self.edges.fine(key, "target_writable", at=at, target=target)
        else:
            self.edges.failing(
                key, "write_failed", at=at, target=target, outcome=applied.outcome.value, detail=applied.detail
            )
