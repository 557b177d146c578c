"""Weights between regions in the closed loop: three replicas in one, a single one in the other, half of the traffic for
each."""

from typing import Any

import numpy as np
import pytest
import yaml

from controller.simulate.load import Origin
from controller.simulate.pilots import Governor, Nobody
from simulator.scenario import Scenario
from simulator.world import World

WEIGHT = {"weight": {"mode": "auto", "by": "zone", "policy": {"kind": "weights"}}}


def run(*ills: dict[str, Any], rate: float = 14.0, governed: bool = True) -> tuple[dict[str, float], World, float]:
    """The last weights, the world, and when it began."""
    stream = {
        "kind": "generated", "name": "web", "rate": rate,
        "prompt": {"kind": "lognormal", "mean": 1000, "p99": 6000},
        "answer": {"kind": "lognormal", "mean": 200, "p99": 1000},
    }  # fmt: skip
    data = {
        "version": 1, "name": "zones", "duration": "12m", "warm_up": "30s", "cool_down": "0s",
        "promises": {"default": {"ttft": "2s", "tpot": "60ms"}},
        "fleet": {
            "prometheus": {"interval": "15s"},
            "pools": {
                "chat": {
                    "replicas": 4, "gpus": 1, "engine": {"kind": "profile"}, "zones": ["eu", "eu", "eu", "us"],
                    "gateway": {"strategy": "round-robin", "knobs": {"weights": {"eu": 1.0, "us": 1.0}}},
                }
            },
            "disturbances": [{"pool": "chat", **ill} for ill in ills],
        },
        "traffic": {"chat": [stream]},
        "governor": {
            "interval": "15s", "deadline": "7s",
            "pools": {
                "chat": {
                    "engine": "vllm", "selector": {"model_name": "chat"}, "labels": {"zone": "zone"},
                    "objectives": [{"signal": "ttft", "percentile": "p95", "target": "2s"}],
                    "workload": {"namespace": "default", "name": "chat"},
                    "levers": WEIGHT,
                }
            },
        },
    }  # fmt: skip
    found = Origin(yaml.safe_dump(data), "zones", "").load()
    scenario = found.scenario
    assert isinstance(scenario, Scenario)
    world = scenario.world(1)
    pilot = Governor(world, found.config) if governed else Nobody(world)
    at = scenario.start
    while at < scenario.start + scenario.duration - 1e-6:
        at += found.config.interval
        pilot.tick(at)
    pilot.close()
    weights = {"eu": 1.0, "us": 1.0}
    for move in world.moves():
        weights[move.target.member] = move.after
    return weights, world, scenario.start


def late(world: World, begin: float) -> float:
    """The ninety-fifth percentile of seconds per token of what arrived since then."""
    jobs = world.jobs()
    return float(np.nanpercentile(jobs.column("tpot")[jobs.column("arrived") >= begin], 95))


def test_a_small_region_is_given_no_more_than_its_size_is_worth() -> None:
    """Half of all traffic on a quarter of the fleet, while three replicas idle."""
    weights, world, start = run(rate=40.0)
    _, alone, _ = run(rate=40.0, governed=False)

    assert weights["eu"] == 1.0
    assert weights["us"] == pytest.approx(1 / 3, abs=0.08)
    assert late(world, start + 300.0) < 0.8 * late(alone, start + 300.0)


def test_a_region_that_turns_slow_loses_share() -> None:
    healthy, _, _ = run()
    slow, _, _ = run({"kind": "straggler", "replica": 3, "at": "240s", "duration": "400s", "factor": 3})

    assert 0.05 <= slow["us"] < 0.8 * healthy["us"]
    assert slow["eu"] == 1.0
