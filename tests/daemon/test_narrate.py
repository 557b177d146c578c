"""What a night of trouble leaves in the log."""

from dataclasses import replace

import pytest
import structlog
from structlog.testing import capture_logs

from controller.core.model import Lever, Target, TargetState
from controller.core.observation import Observation
from controller.run.ends import Watched
from controller.run.narrate import Narrator
from tests.support.build import START, snapshot
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
