"""An overload that no replica comes for, in the closed loop: what each set-point of admission is worth in it.

Twice the requests that two replicas serve, for six minutes, before a gateway whose queue is first in, first out, whose
classes have ranks and no ramps, and whose deadlines (20 s) are far beyond the promise (3 s to the first token).
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from controller.core.model import Lever, Target
from controller.simulate.load import Origin
from controller.simulate.pilots import Governor
from controller.simulate.run import drive
from simulator.scenario import Scenario

FLASH = Path(__file__).parents[2] / "examples" / "scenarios" / "flash.yaml"
RANKS = {"web": 0, "api": 1, "batch": 2}
RAMPS = {
    "web": {"load_lo": 1.05, "load_hi": 1.3}, "api": {"load_lo": 0.95, "load_hi": 1.1},
    "batch": {"load_lo": 0.85, "load_hi": 1},
}  # fmt: skip


def scenario(*setpoints: str, crowd: float, ramps: bool) -> Origin:
    """The flash that is shipped, on half of its replicas and none that come."""
    data: dict[str, Any] = yaml.safe_load(FLASH.read_text(encoding="utf-8"))
    data |= {
        "duration": "16m", "events": [{"name": "flash", "begin": "4m", "end": "11m"}],
        "against": {"static": False, "oracle": False},
    }  # fmt: skip
    pool, chat = data["fleet"]["pools"]["chat"], data["governor"]["pools"]["chat"]
    pool["replicas"] = 2
    pool["gateway"] = {
        "knobs": {
            "admission": {"deadlines": True}, "queue": {"fair": ramps},
            "classes": {name: {"rank": rank, **(RAMPS[name] if ramps else {})} for name, rank in RANKS.items()},
        }
    }  # fmt: skip
    stream = data["traffic"]["chat"][0]
    stream["rate"] = 3.5
    stream["shapes"] = [{"kind": "flash", "at": "4m", "rise": "30s", "hold": "6m", "fall": "30s", "factor": crowd}]
    stream["classes"] = [
        {"name": name, "share": share, "deadline": "20s", "priority": RANKS[name]}
        for name, share in (("web", 0.4), ("api", 0.4), ("batch", 0.2))
    ]
    chat["gateway"] = {"engine": "gaie", "selector": {"model_name": "chat"}, "labels": {"class": "request_class"}}
    chat["classes"] = {"web": {"rank": 0}, "api": {"rank": 1}, "batch": {"rank": 2, "sheddable": True}}
    chat["profile"] = {
        "base": "14.76ms", "prefill_token": "51.1us", "sequence": "36.2us", "kv_token": "27.1ns", "attention": "2.37ns",
        "max_num_seqs": 256, "kv_tokens": 400_000,
    }  # fmt: skip
    chat["levers"] = {"admission": {"mode": "auto", "setpoints": list(setpoints), "policy": {"kind": "gate"}}}
    return Origin(yaml.safe_dump(data, sort_keys=False), "overload without replicas", str(FLASH.parent))


class Outcome(NamedTuple):
    """Shares of the requests of the flash that kept their promise, over all and of each class; what was moved."""

    all: float
    classes: Mapping[str, float]
    moves: Mapping[str, list[float]]


@cache
def outcome(*setpoints: str, crowd: float = 2.2, ramps: bool = False, seed: int = 1) -> Outcome:
    found = scenario(*setpoints, crowd=crowd, ramps=ramps).load()
    assert isinstance(found.scenario, Scenario)
    world = found.scenario.world(seed)
    pilot = Governor(world, found.config)
    score = drive(found.scenario, world, pilot, contender="gate", seed=seed, interval=found.config.interval).score
    event = score.events["flash"]
    moves = {
        name: [m.after for m in world.truth.moves if m.target == Target("chat", Lever.ADMISSION, name)]
        for name in ("deadline", "priority")
    }
    return Outcome(event.all.attainment or 0.0, {n: one.attainment or 0.0 for n, one in event.classes.items()}, moves)


def test_what_is_served_in_an_overload_is_in_time_once_deadlines_follow_the_promise() -> None:
    """7 % of the requests kept their promise, and 57 % do: about what two replicas can serve of them."""
    as_configured, moved = outcome("concurrency"), outcome("concurrency", "deadline")

    assert as_configured.all < 0.15
    assert moved.all > 0.5
    assert max(moved.classes.values()) - min(moved.classes.values()) < 0.1  # it knows no ranks
    assert moved.moves["deadline"][0] < 0.5
    assert moved.moves["deadline"] != sorted(moved.moves["deadline"], reverse=True)  # and comes back


def test_the_first_rank_is_served_before_the_others_once_shedding_is_not_enough() -> None:
    """7 % of the first rank's requests kept their promise, and 71 % do; with deadlines moved as well, 86 %."""
    as_configured, moved = outcome("concurrency"), outcome("concurrency", "priority")
    both = outcome("concurrency", "deadline", "priority")

    assert as_configured.classes["web"] < 0.15
    assert moved.classes["web"] > 0.6
    assert moved.classes["web"] > moved.classes["api"] > moved.classes["batch"]
    assert moved.moves["priority"][0] < 1.0  # all of the last rank, and a part of the next
    assert min(moved.moves["priority"]) >= 0.0
    assert both.all > moved.all
    assert both.classes["web"] > 0.8


@pytest.mark.parametrize("setpoints", [("concurrency", "deadline"), ("concurrency", "priority")])
def test_behind_ramps_that_are_right_they_are_worth_little_and_cost_little(setpoints: tuple[str, ...]) -> None:
    """Where the gateway's own classes shed in time nothing is late and little is missing: within two points."""
    ramps, moved = outcome("concurrency", ramps=True), outcome(*setpoints, ramps=True)

    assert moved.all == pytest.approx(ramps.all, abs=0.02)
    assert moved.classes["web"] >= ramps.classes["web"] - 0.005


def test_in_a_calm_nothing_of_them_is_moved() -> None:
    calm = outcome("concurrency", "deadline", "priority", crowd=1.0)

    assert calm.moves == {"deadline": [], "priority": []}
    assert calm.all > 0.99
