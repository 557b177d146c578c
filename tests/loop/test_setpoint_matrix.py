"""The set-points of their own unit by every law that may drive them, through a config and a decision: the same promises
as of any lever (see ``test_lever_matrix``)."""

import pytest

from controller.core.model import Lever
from controller.core.why import Why
from tests.loop import test_lever_matrix as matrix
from tests.loop.test_lever_matrix import World

REST = {"deadline": 1.0, "priority": 100.0}


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    member, kind = request.param
    monkeypatch.setitem(matrix.MORE, Lever.ADMISSION, f"setpoints: [{member}]")
    monkeypatch.setitem(matrix.MEMBERS, Lever.ADMISSION, (member,))
    monkeypatch.setitem(matrix.NEUTRAL, Lever.ADMISSION, REST[member])
    monkeypatch.setitem(matrix.STEP, Lever.ADMISSION, 0.1)
    return World(Lever.ADMISSION, kind)


CELLS = [("deadline", "gate"), ("deadline", "pid"), ("deadline", "threshold"), ("priority", "gate")]


@pytest.mark.parametrize("world", CELLS, indirect=True, ids=[" by ".join(cell) for cell in CELLS])
def test_each_protects_in_trouble_holds_still_when_blind_and_comes_all_the_way_back(world: World) -> None:
    (target,) = world.values
    rest = world.values[target]
    world.tick(trouble=False)
    assert world.values[target] == rest
    for _ in range(12):
        (decision,) = world.tick(trouble=True).values()
        assert not any(step.why is Why.POLICY_ERROR for step in decision.steps)
        assert decision.until == world.at + 300.0 or decision.final == rest
    tight = world.values[target]
    assert tight < rest

    for _ in range(8):
        world.tick(trouble=False, blind=True)
    assert world.values[target] == tight, "relaxed without data"
    (decision,) = world.tick(trouble=False, blind=True).values()
    assert decision.send
    assert decision.until == world.at + 300.0  # what is lost is the data, not the reason

    for _ in range(240):
        world.tick(trouble=False)
    assert world.values[target] == rest
    (decision,) = world.tick(trouble=False).values()
    assert not decision.send
