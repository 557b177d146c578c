"""What a night of trouble leaves in the log."""

from dataclasses import replace

import pytest
import structlog
from structlog.testing import capture_logs

from controller.core.model import Lever, Target, TargetState
from controller.core.observation import Observation
from controller.run.ends import Watched
from controller.run.narrate import Narrator
from controller.run.samples import of_tick
from controller.run.status import Board
from tests.support.build import START, snapshot
from tests.support.rich_tick import SETTINGS
from tests.support.toy_loop import result

TARGETS = [Target(f"pool-{n}", Lever.REPLICAS) for n in range(50)]


class Blind:
    """A source that fails, or raises."""

    def __init__(self) -> None:
        self.raises = False

    def observe(self, at: float, deadline: float) -> Observation:
        if self.raises:
            raise RuntimeError("boom")
        return Observation(at, None, error="connection refused")

    def close(self) -> None:
        """Nothing is open."""


def test_one_failing_source_writes_a_line_for_each_pool_that_is_read_off_it() -> None:
    with capture_logs() as lines:
        narrator = Narrator(structlog.get_logger())
        watched = Watched(Blind())
        for tick in range(6):
            error = ""
            states = {target: TargetState(2.0) for target in TARGETS}
            if tick % 2:
                error = watched.observe(START, 1.0).error
                states = dict(watched.read(TARGETS, START))
            narrator.ticked(result(snapshot(tick, START + tick, {}, states, error)))
    assert [line["event"] for line in lines] == ["source_failing", "source_recovered"] * 2 + ["source_failing"]


def test_a_target_with_trouble_of_its_own_is_told_also_while_the_source_fails() -> None:
    with capture_logs() as lines:
        narrator = Narrator(structlog.get_logger())
        states = {TARGETS[0]: replace(TargetState(None), error="403 Forbidden")}
        narrator.ticked(result(snapshot(0, START, {}, states, "connection refused")))
    assert [line["event"] for line in lines] == ["source_failing", "target_unreadable"]


def test_a_source_that_raises_leaves_the_targets_of_its_last_good_answer() -> None:
    blind = Blind()
    watched = Watched(blind)
    blind.raises = True
    with pytest.raises(RuntimeError):
        watched.observe(START, 1.0)
    state = watched.read(TARGETS[:1], START)[TARGETS[0]]
    assert state.accepted is None
    assert "RuntimeError: boom" in state.error


def test_a_pin_that_cannot_be_honoured_is_told_once_and_when_it_is_mended() -> None:
    with capture_logs() as lines:
        narrator = Narrator(structlog.get_logger())
        for tick in range(9):
            problems = ("pins.json: is no file of pins",) if 2 <= tick < 6 else ()
            narrator.ticked(replace(result(snapshot(tick, START + tick, {})), pin_problems=problems))
    assert [line["event"] for line in lines] == ["pin_not_honoured", "pin_in_order"]
    assert lines[0]["log_level"] == "warning"


def test_the_status_and_the_metrics_say_what_is_wrong_with_pins() -> None:
    problem = "llama/weight/pod-9: is pinned, and there is no such target"
    told = replace(result(snapshot(0, START, {})), pin_problems=(problem,))
    board = Board(version="1", mode="live", at=START, monotonic=0.0)
    board.configured(SETTINGS, at=START)
    board.ticked(told, monotonic=1.0)

    assert board.status()["last_tick"]["pin_problems"] == [problem]
    assert ("pin_problems", (), 1.0) in set(of_tick(told, frozenset()))
