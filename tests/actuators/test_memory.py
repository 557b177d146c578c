"""Whose value is it: a write that arrives late is ours, and somebody else's is theirs for a while."""

import pytest

from actuators.memory import Memory
from controller.core.model import Outcome
from tests.support.decisions import replicas

A = replicas("a")


@pytest.fixture
def memory() -> Memory:
    memory = Memory(yield_for=600.0)
    memory.saw(A, 4.0, 0.0, "")
    return memory


def foreign(memory: Memory, now: float) -> str:
    return memory.state(A, 4.0, now).foreign_writer


def test_a_lost_write_that_arrives_after_the_next_read_is_still_ours(memory: Memory) -> None:
    memory.sent(A, 6.0, Outcome.UNKNOWN, 10.0)
    memory.saw(A, 4.0, 15.0, "x")
    memory.saw(A, 6.0, 30.0, "x")
    assert foreign(memory, 30.0) == ""


@pytest.mark.parametrize(("found", "writer"), [(4.0, ""), (6.0, ""), (9.0, "kubectl")])
def test_of_the_very_first_write_whose_answer_is_lost_both_values_are_ours(found: float, writer: str) -> None:
    memory = Memory(yield_for=60.0)
    memory.sent(A, 6.0, Outcome.UNKNOWN, 10.0, over=4.0)
    memory.saw(A, found, 15.0, "kubectl")
    assert foreign(memory, 15.0) == writer


def test_a_third_value_while_a_write_is_unknown_is_somebody_elses(memory: Memory) -> None:
    memory.sent(A, 6.0, Outcome.UNKNOWN, 10.0)
    memory.saw(A, 9.0, 15.0, "kubectl")
    assert foreign(memory, 15.0) == "kubectl"


def test_once_verified_as_failed_the_lost_value_is_no_longer_ours(memory: Memory) -> None:
    memory.sent(A, 6.0, Outcome.UNKNOWN, 10.0)
    memory.sent(A, 6.0, Outcome.FAILED, 15.0)
    memory.saw(A, 4.0, 15.0, "")
    memory.saw(A, 6.0, 30.0, "kubectl")
    assert foreign(memory, 30.0) == "kubectl"


def test_every_further_foreign_write_starts_the_time_anew(memory: Memory) -> None:
    memory.saw(A, 9.0, 100.0, "argocd")
    memory.saw(A, 8.0, 500.0, "argocd")
    assert foreign(memory, 1099.0) == "argocd"
    assert foreign(memory, 1100.0) == ""


def test_a_value_that_was_there_already_is_not_claimed_as_our_change(memory: Memory) -> None:
    memory.sent(A, 4.0, Outcome.DONE, 10.0, moved=False)
    assert memory.state(A, 4.0, 10.0).last_change is None


def test_a_successor_is_fought_for_a_quarter_of_an_hour(memory: Memory) -> None:
    memory.sent(A, 6.0, Outcome.DONE, 10.0)
    for now, value in ((15.0, 5.0), (30.0, 7.0), (45.0, 4.0)):
        memory.succeeded(A, value, now)
        memory.saw(A, value, now)
        assert foreign(memory, now) == ""


def test_two_governors_undo_each_other_for_ever_and_nobody_is_told(memory: Memory) -> None:
    memory.sent(A, 6.0, Outcome.DONE, 10.0)
    memory.succeeded(A, 3.0, 15.0)
    assert foreign(memory, 15.0) == ""
    memory.sent(A, 6.0, Outcome.DONE, 20.0)
    memory.succeeded(A, 6.0, 25.0)  # renewed by the other at the value that we want as well
    assert foreign(memory, 25.0) == ""
    memory.succeeded(A, 3.0, 30.0)
    assert foreign(memory, 30.0) == "another Governor"
    assert foreign(memory, 631.0) == ""


def test_one_that_took_over_twice_in_an_hour_is_a_rival(memory: Memory) -> None:
    memory.sent(A, 6.0, Outcome.DONE, 10.0)
    memory.succeeded(A, 3.0, 15.0)
    memory.sent(A, 6.0, Outcome.DONE, 20.0)
    memory.succeeded(A, 3.0, 700.0)
    assert foreign(memory, 700.0) == ""


def test_a_foreign_value_is_told_with_the_time_until_which_it_is_left_alone(memory: Memory) -> None:
    memory.saw(A, 9.0, 15.0, "kubectl")

    assert memory.state(A, 9.0, 30.0).foreign_until == 615.0
    assert memory.state(A, 9.0, 615.0).foreign_until is None
    assert memory.state(A, 9.0, 30.0, owner="an HPA").foreign_until is None, "who stands has no end"
