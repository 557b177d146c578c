"""A downgrade of short prompts alone, in the closed loop: only they go, and only their work counts as relief.

The flash with a smaller model beside it (see ``test_downgrade_in_the_loop``), where prompts above 2,000 tokens stay: a
third of the requests of the class that consents, and a ninth of its work.
"""

from functools import cache
from typing import Any, NamedTuple

import yaml

from controller.core.model import Lever, Plan, Target
from controller.simulate.load import Origin
from controller.simulate.pilots import Governor
from controller.simulate.run import drive
from simulator.scenario import Scenario
from tests.simulate.test_downgrade_in_the_loop import FLASH, scenario

SHARE = Target("chat", Lever.DOWNGRADE, "small")
MOST = 2000  # tokens


class Watched(Governor):
    """Also keeps the plans."""

    plans: list[Plan]

    def tick(self, at: float) -> Plan:
        plan = super().tick(at)
        self.__dict__.setdefault("plans", []).append(plan)
        return plan


class Outcome(NamedTuple):
    """Longest prompt that went elsewhere; how many went; the largest share; and what consents of all demand, as the law
    saw it before the flash."""

    longest: int
    sent: int
    share: float
    agreed: float


@cache
def outcome(*, told: bool) -> Outcome:
    """`told` whether Governor knows of the limit that the gateway has."""
    data: dict[str, Any] = yaml.safe_load(scenario(downgrade=True).text)
    data["fleet"]["pools"]["chat"]["gateway"]["knobs"]["downgrade"][0]["longest_prompt"] = MOST
    if told:
        data["governor"]["pools"]["chat"]["levers"]["downgrade"]["prompt"] = {"max": MOST}
    found = Origin(yaml.safe_dump(data, sort_keys=False), "downgrade by size", str(FLASH.parent)).load()
    assert isinstance(found.scenario, Scenario)
    world = found.scenario.world(1)
    pilot = Watched(world, found.config)
    drive(found.scenario, world, pilot, contender="size", seed=1, interval=found.config.interval)
    jobs = world.truth.jobs
    gone = jobs.column("prompt")[jobs.column("degraded") == 1]
    seen = [
        decision.evidence["consenting"]
        for plan in pilot.plans
        if plan.at < found.scenario.start + 480.0
        for decision in plan.decisions
        if decision.target == SHARE and decision.evidence.get("consenting")
    ]
    shares = [move.after for move in world.truth.moves if move.target == SHARE]
    return Outcome(int(gone.max()), len(gone), max(shares), seen[-1])


def test_no_prompt_goes_that_is_longer_than_may() -> None:
    assert outcome(told=True).longest <= MOST


def test_a_share_of_short_prompts_is_no_share_of_the_whole_class() -> None:
    """Where Governor takes it for one, it believes nine times what it gave, and sends two thirds as many."""
    blind, told = outcome(told=False), outcome(told=True)

    assert 0.07 < told.agreed / blind.agreed < 0.2
    assert told.share >= 1.5 * blind.share - 1e-9
    assert told.sent > 1.5 * blind.sent
