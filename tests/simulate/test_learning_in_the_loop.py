"""What is learned of a replica, in the closed loop: taken for less than it is, a fleet is asked for many times over."""

import json
from typing import Any

import pytest

from benchmarks.control.plant import gate, web
from benchmarks.control.plant import lengths as of
from benchmarks.control.plant import pool as of_large_engines
from controller.core.model import Lever
from controller.simulate.load import Origin
from controller.simulate.pilots import Governor
from controller.simulate.run import drive
from controller.simulate.score import Score

POLICY = {"kind": "capacity", "utilisation": "95%"}


def run(
    *streams: dict[str, Any], replicas: int, minutes: float, every: float = 15.0, seed: int = 1
) -> tuple[list[tuple[float, float]], Score]:
    """(seconds from the begin, replicas) of each order to a pool of the bench's engines, steered every so many seconds,
    whose gateway begins with it; and what the run came to."""
    data = {
        "version": 1, "name": "learning", "duration": f"{minutes:g}m", "warm_up": "1m", "cool_down": "0s",
        "promises": {"default": {"ttft": "5s", "tpot": "120ms"}},
        "fleet": {
            "prometheus": {"interval": f"{every:g}s"},
            "pools": {"chat": of_large_engines(replicas, knobs=gate())},
        },
        "traffic": {"chat": list(streams)},
        "governor": {
            "interval": f"{every:g}s", "deadline": f"{every / 2:g}s",
            "pools": {
                "chat": {
                    "engine": "vllm", "selector": {"model_name": "chat"}, "gpus_per_replica": 4,
                    "gateway": {"engine": "gaie", "selector": {"model_name": "chat"}},
                    "objectives": [
                        {"signal": "ttft", "percentile": "p95", "target": "5s"},
                        {"signal": "itl", "percentile": "p95", "target": "120ms"},
                    ],
                    "workload": {"namespace": "default", "name": "chat"}, "window": "60s",
                    "levers": {
                        "replicas": {"mode": "auto", "min": 2, "max": 40, "policy": POLICY},
                        "admission": {"mode": "auto", "policy": {"kind": "gate"}},
                    },
                }
            },
        },
    }  # fmt: skip
    study = Origin(json.dumps(data), "learning", "").load()
    world = study.scenario.world(seed)
    pilot = Governor(world, study.config)
    made = drive(study.scenario, world, pilot, contender="governor", seed=seed, interval=study.config.interval)
    start = study.scenario.start
    moved = [(move.at - start, move.after) for move in world.moves() if move.target.lever is Lever.REPLICAS]
    return moved, made.score


@pytest.mark.parametrize("every", [1.0, 5.0, 15.0])
def test_a_fleet_that_begins_with_its_gateway_is_not_asked_for_four_times(every: float) -> None:
    """While the gateway gave each replica a small share, all ran two requests and others waited: scraped every second,
    32 replicas were asked for within five seconds, where six carry the load."""
    asked, score = run({**web(12.8), **of(1000, 300)}, replicas=8, minutes=6, every=every)

    assert max((replicas for _, replicas in asked), default=8) <= 10
    assert score.all.good > 0.97 * score.all.offered


def test_prompts_three_times_as_long_do_not_bend_the_model_for_an_hour() -> None:
    """The steps of a batch full of long prompts, held against a model of short ones, taught it that a replica serves
    less than two thirds of what it does: 33 replicas were asked for, where 18 were enough."""
    short = {**web(7, name="short", end="12m"), "prompt": {"kind": "lognormal", "mean": 4000, "p99": 12_000}}
    long = {**web(7, name="long", start="12m"), "prompt": {"kind": "lognormal", "mean": 12_000, "p99": 30_000}}
    asked, _ = run(short, long, replicas=7, minutes=28)

    assert max(replicas for at, replicas in asked if at < 720) <= 9
    assert 15 <= max(replicas for _, replicas in asked) <= 24
    assert next(at for at, replicas in asked if replicas >= 12) < 720 + 105  # it took three minutes
