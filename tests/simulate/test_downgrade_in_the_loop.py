"""A flash with a smaller model beside it, in the closed loop: who consents goes there, and comes back afterwards."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from controller.core.model import Lever, Target
from controller.simulate.load import Origin
from controller.simulate.pilots import Governor
from controller.simulate.run import drive
from simulator.scenario import Scenario

FLASH = Path(__file__).parents[2] / "examples" / "scenarios" / "flash.yaml"
SHARE = Target("chat", Lever.DOWNGRADE, "small")
SMALL = {"kind": "profile", "a": "5ms", "b": 15e-6, "c": 14e-6, "d": 12e-9, "e": 0.8e-9, "kv_tokens": 300_000}


def scenario(*, downgrade: bool) -> Origin:
    """The flash that is shipped, 30 % of it in a class that consents; a pool of a smaller model that stands idle."""
    data: dict[str, Any] = yaml.safe_load(FLASH.read_text(encoding="utf-8"))
    data |= {"duration": "20m", "against": {"static": False, "oracle": False}}
    pools, config = data["fleet"]["pools"], data["governor"]["pools"]
    pools["small"] = {"replicas": 3, "gpus": 1, "engine": SMALL}
    pools["chat"]["gateway"] = {
        "knobs": {
            "concurrency": {"per_slot": 1}, "queue": {"fair": True, "wait": "10s"},
            "classes": {
                "web": {"rank": 0, "load_lo": 1.05, "load_hi": 1.3}, "batch": {"rank": 1, "load_lo": 0.85, "load_hi": 1}
            },
            "downgrade": [{"pool": "small", "classes": ["batch"], "tenants": ["*"]}],
        }
    }  # fmt: skip
    data["traffic"]["chat"][0]["classes"] = [{"name": "web", "share": 0.7}, {"name": "batch", "share": 0.3}]
    chat = config["chat"]
    chat["gateway"] = {
        "engine": "gaie", "selector": {"model_name": "chat"}, "labels": {"class": "request_class"}
    }  # fmt: skip
    chat["classes"] = {"web": {"rank": 0}, "batch": {"rank": 1, "sheddable": True, "consents": True}}
    levers = {
        "replicas": {**chat["levers"]["replicas"], "policy": {"kind": "capacity"}},  # without the spare that is shipped
        "downgrade": {"mode": "auto", "policy": {"kind": "downgrade"}, "receivers": ["small"]},
        "admission": {"mode": "auto", "policy": {"kind": "gate"}},
    }
    if not downgrade:
        del levers["downgrade"]
    chat["levers"] = levers
    config["small"] = {
        **{key: deepcopy(chat[key]) for key in ("engine", "window", "objectives")},
        "selector": {"model_name": "small"}, "workload": {"namespace": "default", "name": "small"},
        "levers": {"replicas": {"mode": "auto", "min": 3, "max": 3, "policy": {"kind": "capacity"}}},
    }  # fmt: skip
    return Origin(yaml.safe_dump(data, sort_keys=False), "flash with a smaller model", str(FLASH.parent))


class Outcome(NamedTuple):
    """Share of the web requests of the flash that kept their promise; requests refused; requests degraded, by class;
    the shares of the lever as they were moved."""

    web: float
    refused: int
    degraded: dict[str, int]
    shares: list[float]


@cache
def outcome(*, downgrade: bool) -> Outcome:
    found = scenario(downgrade=downgrade).load()
    assert isinstance(found.scenario, Scenario)
    world = found.scenario.world(1)
    pilot = Governor(world, found.config)
    score = drive(found.scenario, world, pilot, contender="five", seed=1, interval=found.config.interval).score
    jobs = world.truth.jobs
    klass, degraded = jobs.column("klass"), jobs.column("degraded") == 1
    web = score.events["flash"].classes["web"].attainment
    assert web is not None
    return Outcome(
        web,
        score.all.missed.get("rejected", 0),
        {name: int(np.sum(degraded & (klass == jobs.classes.number(name)))) for name in ("web", "batch")},
        [move.after for move in world.truth.moves if move.target == SHARE],
    )


def test_the_smaller_model_takes_what_would_be_refused_and_only_of_who_agreed() -> None:
    with_it, without = outcome(downgrade=True), outcome(downgrade=False)

    assert with_it.degraded["batch"] > 100
    assert with_it.degraded["web"] == 0
    assert with_it.refused < without.refused
    assert with_it.web >= without.web - 0.002


def test_it_goes_up_in_steps_and_comes_back_when_the_replicas_are_there() -> None:
    shares = outcome(downgrade=True).shares
    top = shares.index(max(shares))

    assert max(b - a for a, b in zip([0.0, *shares], shares, strict=False)) <= 0.1 + 1e-9
    assert shares[: top + 1] == sorted(shares[: top + 1])
    assert shares[top:] == sorted(shares[top:], reverse=True)
    assert shares[-1] == 0.0
