"""A doubt holds for its moment: what stabilising remembers is what laws wanted, and not that they were in doubt."""

from dataclasses import replace

import pytest

from controller.core.decide import DecideState, decide
from controller.core.model import Ask, Decision, Lever, Snapshot, Target, TargetState, Tick
from controller.core.ports import Limits
from controller.core.rules import FleetRules, LeverRules, PoolRules
from tests.core.test_decide import Wants
from tests.support.cases import NOW, estimate, healthy

CHAT = Target("chat", Lever.REPLICAS)
LEVER = LeverRules(Lever.REPLICAS, "wants", "none", limits=Limits(1, 20), stabilise=180.0)
RULES = FleetRules((PoolRules("chat", (), (LEVER,), (CHAT,)),))
WINDOW = 12  # ticks of stabilising


class Life:
    """A pool of eight that needs two, tick by tick; nothing is carried out."""

    def __init__(self) -> None:
        self.number, self.state = 0, DecideState()

    def tick(self, *, doubt: bool = False) -> Decision:
        self.number += 1
        law = Wants({"chat": 8.0 if doubt else 2.0}, Ask.AT_LEAST if doubt else Ask.SET)
        at = NOW + 15.0 * self.number
        pools = {"chat": replace(healthy(), partial="a store did not answer" if doubt else "")}
        snapshot = Snapshot(Tick(self.number + 9, at, 15.0), pools, {CHAT: TargetState(8.0, 8.0)})
        known = {"chat": estimate(1.0, trusted=not doubt, evidence={"serving": 8.0})}
        plan, self.state = decide(snapshot, known, RULES, {"chat/replicas": law}, self.state)
        return plan.decisions[0]


@pytest.mark.parametrize("every", [3, 8, 12])
def test_one_partial_scrape_in_three_minutes_does_not_keep_a_pool_at_its_size_for_good(every: int) -> None:
    life = Life()
    finals = [life.tick(doubt=number % every == 0).final for number in range(1, 10 * WINDOW)]
    doubted = finals[every - 1 :: every]

    assert set(doubted) == {8.0}, "nothing is lowered while in doubt"
    assert finals.count(2.0) == len(finals) - len(doubted)


@pytest.mark.parametrize("longer", range(1, 2 * WINDOW, 5))
def test_after_a_doubt_as_long_as_the_window_one_good_scrape_is_no_evidence(longer: int) -> None:
    life = Life()
    for _ in range(WINDOW):
        life.tick()
    for _ in range(WINDOW + longer):
        assert life.tick(doubt=True).final == 8.0
    held = [life.tick().final for _ in range(WINDOW + 2)]

    assert held[0] == 8.0
    assert held[-1] == 2.0
    assert held.index(2.0) >= WINDOW - 1
