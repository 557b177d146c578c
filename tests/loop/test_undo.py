"""What `governor undo` would take back, by the ledger."""

from collections.abc import Sequence

import pytest

from controller.core.model import Applied, Decision, Lever, Outcome, Plan, Snapshot, Target, Tick
from controller.core.why import Why
from controller.run.handback import Revert, reverts
from controller.run.ledger import Record

A = Target("a", Lever.REPLICAS)


def tick(
    at: float, current: float | None, final: float | None, outcome: Outcome | None = None, mode: str = "live",
    why: Why = Why.DEMAND,
) -> Record:  # fmt: skip
    """A tick with one decision, which is sent where it has an outcome."""
    one = Decision(A, current, final, why, send=outcome is not None)
    applied = (Applied(A, outcome),) if outcome is not None else ()
    return Record(at, Snapshot(Tick(0, at), {}, {}), Plan(at, (one,)), applied, mode=mode)


def crashed(at: float, current: float, final: float, mode: str = "live") -> Record:
    """Governor died before it could write down what became of it."""
    one = Decision(A, current, final, Why.DEMAND, send=True)
    return Record(at, Snapshot(Tick(0, at), {}, {}), Plan(at, (one,)), complete=False, mode=mode)


DONE, UNKNOWN = Outcome.DONE, Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("records", "before", "after"),
    [
        ([tick(1, 4, 6, DONE), tick(2, 6, 8, DONE), tick(3, 8, 8)], 4, 8),
        ([tick(1, 4, 6, UNKNOWN), tick(2, 4, 4, why=Why.OUTCOME_UNKNOWN), tick(3, 6, 6)], 4, 6),
        ([tick(1, 4, 6, UNKNOWN), tick(2, 6, 8, DONE)], 4, 8),
        ([tick(1, 4, 6, DONE), tick(2, 6, 8, UNKNOWN), tick(3, 6, 6)], 4, 6),
        ([tick(1, 4, 6, DONE), tick(2, 6, 8, UNKNOWN), tick(3, 8, 8)], 4, 8),
        ([tick(1, 4, 6, UNKNOWN)], 4, 6),
        ([crashed(1, 4, 6)], 4, 6),
        ([crashed(1, 4, 6), tick(2, 6, 7, DONE)], 4, 7),
        ([tick(1, 4, 6, DONE), tick(2, None, None)], 4, 6),
    ],
)
def test_a_change_whose_answer_was_lost_is_kept_by_undo(
    records: Sequence[Record], before: float, after: float
) -> None:  # fmt: skip
    assert reverts(records, 0.0) == [Revert(A, before, after)]


@pytest.mark.parametrize(
    "records",
    [
        [tick(1, 4, 6, Outcome.REFUSED), tick(2, 4, 4)],
        [tick(1, 4, 6, Outcome.FAILED), tick(2, 4, 4)],
        [tick(1, 4, 6, UNKNOWN), tick(2, 4, 4)],
        [tick(1, 4, 6, DONE), tick(2, 6, 4, DONE)],
        [tick(1, 4, 6, Outcome.DRY_RUN, mode="dry_run")],
        [crashed(1, 4, 6, mode="dry_run")],
    ],
)
def test_what_never_moved_or_is_back_is_taken_back(records: Sequence[Record]) -> None:
    assert reverts(records, 0.0) == []


def test_undo_tramples_on_what_a_person_has_set_since() -> None:
    theirs = [tick(1, 4, 6, DONE), tick(2, 6, 6), tick(3, 10, 10, why=Why.FOREIGN_WRITER)]
    assert reverts(theirs, 0.0) == []
    assert reverts([*theirs, tick(4, 10, 11, DONE)], 0.0) == [Revert(A, 10, 11)]
