"""A prefix that becomes hot, in the closed loop: its home queues while five others idle, or its requests are spread."""

import json
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
AFFINITY = Target("chat", Lever.ROUTING, "affinity")
EVEN, HOT = (60.0, 120.0), (190.0, 300.0)  # seconds after the start


def scenario(affinity: float, *, lever: bool) -> Origin:
    """150 system prompts of 4,096 tokens, all used alike, at six replicas of which each has room for a third of them;
    after two minutes as many requests as more than half of those have one prompt."""
    data: dict[str, Any] = yaml.safe_load(FLASH.read_text(encoding="utf-8"))
    data |= {"duration": "5m", "warm_up": "1m", "cool_down": "0s", "events": []}
    data["against"] = {"static": False, "oracle": False}
    data["promises"] = {"default": {"ttft": "2s", "tpot": "80ms"}}
    chat = data["fleet"]["pools"]["chat"]
    chat |= {"replicas": 6, "gateway": {"strategy": "prefix-affinity", "knobs": {"affinity": affinity}}}
    chat["engine"]["kv_tokens"] = 250_000
    kind = {
        "kind": "generated", "prompt": {"kind": "lognormal", "mean": 300, "p99": 900, "longest": 3000},
        "answer": {"kind": "lognormal", "mean": 250, "p99": 900, "longest": 2000},
    }  # fmt: skip
    prompt = {"kind": "fixed", "tokens": 4096}
    data["traffic"]["chat"] = [
        {**kind, "name": "web", "rate": 24, "prefix": {"prompts": 150, "tokens": prompt, "zipf": 0}},
        {
            **kind, "name": "hot", "rate": 0.02, "prefix": {"prompts": 1, "tokens": prompt},
            "shapes": [{"kind": "flash", "at": "2m", "rise": "30s", "hold": "4m", "fall": "30s", "factor": 700}],
        },
    ]  # fmt: skip
    policy = {"mode": "auto", "policy": {"kind": "affinity"}}
    watch = {"mode": "observe", "min": 2, "max": 16, "policy": {"kind": "capacity"}}
    data["governor"]["pools"]["chat"]["levers"] = {"routing": policy} if lever else {"replicas": watch}
    return Origin(json.dumps(data), "a prefix becomes hot", str(FLASH.parent))


class Outcome(NamedTuple):
    """P95 of TTFT in seconds and the hit rate, while all is even and while one prefix is hot; the values of the lever,
    and when it was first moved."""

    even: tuple[float, float]
    hot: tuple[float, float]
    values: list[float]
    first: float


@cache
def outcome(affinity: float = 1.0, *, lever: bool = False) -> Outcome:
    found = scenario(affinity, lever=lever).load()
    assert isinstance(found.scenario, Scenario)
    world = found.scenario.world(1)
    drive(
        found.scenario, world, Governor(world, found.config), contender="five", seed=1, interval=found.config.interval
    )
    jobs, start = world.truth.jobs, found.scenario.start
    at = jobs.column("arrived") - start
    ttft, cached, prompt = (jobs.column(name) for name in ("ttft", "cached", "prompt"))

    def between(begin: float, end: float) -> tuple[float, float]:
        own = (at >= begin) & (at < end)
        late = np.where(np.isnan(ttft[own]), 600.0, ttft[own])
        return float(np.quantile(late, 0.95)), float(cached[own].sum() / prompt[own].sum())

    moves = [move for move in world.truth.moves if move.target == AFFINITY]
    first = moves[0].at - start if moves else 0.0
    return Outcome(between(*EVEN), between(*HOT), [move.after for move in moves], first)


def test_a_hot_prefix_queues_at_its_home_while_five_others_idle() -> None:
    full, moved = outcome(), outcome(lever=True)

    assert full.hot[0] > 10.0
    assert moved.hot[0] < 2.0
    assert moved.hot[1] > full.hot[1] - 0.02  # for next to no cache hits
    assert EVEN[1] < moved.first <= EVEN[1] + 60.0  # within a minute of its begin
    assert min(moved.values) >= 0.75


def test_while_load_is_even_the_cache_is_worth_more_than_balance() -> None:
    """Without affinity, as behind a router that looks at load alone, half of all prompts are computed again."""
    none, moved = outcome(0.0), outcome(lever=True)

    assert moved.even == outcome().even  # untouched
    assert moved.even[1] > none.even[1] + 0.3
    assert moved.hot[0] < none.hot[0]
