"""When an error budget burns, and when it has burnt."""

import pytest

from controller.core.burn import BudgetLedger, burning

TICK = 15.0
GOAL = 0.95  # of the requests
USUAL, CROWD = 75.0, 300.0  # requests a tick


def ledger(*spells: tuple[float, float, float]) -> tuple[BudgetLedger, float]:
    """What happened in spells of (seconds, requests a tick, bad share), one after the other; and when it ended."""
    made, now = BudgetLedger(GOAL), 0.0
    for seconds, requests, bad in spells:
        for _ in range(int(seconds / TICK)):
            now += TICK
            made.add(now, bad * requests, requests)
    return made, now


def burns(*spells: tuple[float, float, float]) -> bool:
    made, now = ledger(*spells)
    return burning(made.burns(now))


def test_a_crowd_that_was_too_much_burns_the_budget() -> None:
    assert not burns((3600.0, USUAL, 0.01))
    assert burns((3600.0, USUAL, 0.01), (600.0, CROWD, 0.9))


def test_a_crowd_that_is_gone_holds_all_its_replicas_for_half_an_hour() -> None:
    crowd = ((3600.0, USUAL, 0.01), (600.0, CROWD, 0.9))
    assert burns(*crowd, (120.0, USUAL, 0.0))  # the last five minutes still hold the crowd's
    made, now = ledger(*crowd, (330.0, USUAL, 0.0))
    slow = made.burns(now)["30m"].value
    assert slow is not None
    assert slow > 6.0  # which says nothing of now
    assert not burning(made.burns(now))
    assert burns(*crowd, (330.0, USUAL, 0.0), (60.0, CROWD, 0.9))  # it came back


@pytest.mark.parametrize("bad", [0.06, 0.4])
def test_promises_that_are_still_missed_are_not_called_over(bad: float) -> None:
    assert burns((3600.0, USUAL, 0.01), (600.0, CROWD, 0.9), (330.0, USUAL, bad))


def test_silence_after_a_crowd_is_no_proof_that_it_is_served_well() -> None:
    made, now = ledger((3600.0, USUAL, 0.01), (600.0, CROWD, 0.9))
    assert burning(made.burns(now + 330.0))
