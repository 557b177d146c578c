"""Breakers and weights in the closed loop: the whole controller on a twin, with one replica that is not well."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from controller.core.group import most_out
from controller.simulate.load import Origin, Study
from controller.simulate.pilots import Governor, Nobody
from simulator.scenario import Scenario
from simulator.truth import Move
from simulator.world import World

ILL = "chat-v1-1"
BREAKER = {"breaker": {"mode": "auto", "policy": {"kind": "breaker"}}}
WEIGHT = {"weight": {"mode": "auto", "policy": {"kind": "weights"}}}


def study(
    replicas: int, every: float, *ills: dict[str, Any], minutes: float, rate: float = 2.0,
    strategy: str = "round-robin", levers: dict[str, Any] | None = None, prompt: tuple[int, int] = (1000, 9000),
) -> Study:  # fmt: skip
    """A healthy fleet at half of its load, with bursts and prompts and answers of all lengths, scraped and judged
    `every` seconds. Nothing is known of its engines beforehand."""
    stream = {
        "kind": "generated", "name": "web", "rate": rate * replicas, "arrivals": {"kind": "gamma", "cv": 2.5},
        "prompt": {"kind": "lognormal", "mean": prompt[0], "p99": prompt[1]},
        "answer": {"kind": "lognormal", "mean": 200, "p99": 1200},
    }  # fmt: skip
    data = {
        "version": 1, "name": "rotation", "duration": f"{minutes:g}m", "warm_up": "30s", "cool_down": "0s",
        "promises": {"default": {"ttft": "2s", "tpot": "60ms"}},
        "fleet": {
            "prometheus": {"interval": f"{every:g}s"},
            "pools": {
                "chat": {
                    "replicas": replicas, "gpus": 1, "engine": {"kind": "profile"},
                    "limits": {"max_context": 32768}, "gateway": {"strategy": strategy},
                }
            },
            "disturbances": [{"pool": "chat", "replica": 1, **ill} for ill in ills],
        },
        "traffic": {"chat": [stream]},
        "governor": {
            "interval": f"{every:g}s", "deadline": f"{every / 2:g}s",
            "pools": {
                "chat": {
                    "engine": "vllm", "selector": {"model_name": "chat"},
                    "objectives": [{"signal": "ttft", "percentile": "p95", "target": "2s"}],
                    "workload": {"namespace": "default", "name": "chat"},
                    "levers": levers or BREAKER,
                }
            },
        },
    }  # fmt: skip
    return Origin(yaml.safe_dump(data), "rotation", "").load()


class Run(NamedTuple):
    """What was moved, by seconds from the start, and the world at the end."""

    moves: Sequence[tuple[float, Move]]
    world: World

    def first(self, value: float, after: float, member: str = ILL) -> float:
        """Seconds from `after` until the replica was given the value."""
        mine = [at for at, move in self.moves if move.target.member == member and move.after == value and at >= after]
        assert mine, f"{member} was never given {value:g} after {after:g} s"
        return mine[0] - after

    def out(self) -> set[str]:
        """All that were ever out."""
        return {move.target.member for _, move in self.moves if move.after == 0.0}

    def late(self, begin: float, end: float) -> float:
        """The ninety-ninth percentile of seconds per token, of what arrived between."""
        jobs = self.world.jobs()
        arrived, tpot = jobs.column("arrived") - self.moves_from, jobs.column("tpot")
        return float(np.nanpercentile(tpot[(arrived >= begin) & (arrived < end)], 99))

    @property
    def moves_from(self) -> float:
        """When the run began, unix seconds."""
        return float(self.world.history("chat")[0][0])


def run(found: Study, seed: int = 1, *, governed: bool = True) -> Run:
    scenario = found.scenario
    assert isinstance(scenario, Scenario)
    world = scenario.world(seed)
    pilot = Governor(world, found.config) if governed else Nobody(world)
    at, end = scenario.start, scenario.start + scenario.duration
    while at < end - 1e-6:
        at += found.config.interval
        pilot.tick(at)
    pilot.close()
    return Run([(move.at - scenario.start, move) for move in world.moves()], world)


def ill(kind: str, at: float, duration: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at": f"{at}s", "duration": f"{duration}s", **more}


@pytest.mark.parametrize(
    ("replicas", "factor", "strategy", "at", "duration"),
    [
        (2, 4, "round-robin", 121.0, 100.0),
        (4, 3, "least-loaded", 124.0, 61.0),
        (8, 3, "round-robin", 129.0, 160.0),
        (8, 4, "least-loaded", 134.5, 75.0),
    ],
)  # fmt: skip
def test_a_slow_replica_answers_every_probe_and_a_share_of_all_requests_waits_for_it(
    replicas: int, factor: float, strategy: str, at: float, duration: float
) -> None:
    """Scraped every 15 s: out within a minute, back within two of its recovery, and nobody else is touched."""
    found = run(study(replicas, 15, ill("straggler", at, duration, factor=factor), minutes=7, strategy=strategy))

    assert found.first(0.0, at) <= 60.0
    assert found.first(1.0, at + duration) <= 120.0
    assert found.out() == {ILL}


@pytest.mark.parametrize(("replicas", "factor", "at"), [(4, 3, 90.3), (8, 4, 90.9)])
def test_scraped_directly_a_slow_replica_is_out_within_seconds(replicas: int, factor: float, at: float) -> None:
    found = run(study(replicas, 1, ill("straggler", at, 30.0, factor=factor), minutes=3))

    assert found.first(0.0, at) <= 8.0
    assert found.first(1.0, at + 30.0) <= 60.0
    assert found.out() == {ILL}


@pytest.mark.parametrize("replicas", [4, 8])
def test_breakers_take_down_half_a_fleet_that_is_slow(replicas: int) -> None:
    """Each ejection would load the rest, until none is left."""
    half = {"kind": "straggler", "at": "121s", "duration": "120s", "factor": 4, "share": 0.5}
    found = run(study(replicas, 15, half, minutes=6))
    factors: dict[str, float] = {}
    worst = 0
    for _, move in found.moves:
        factors[move.target.member] = move.after
        worst = max(worst, sum(value < 1.0 for value in factors.values()))

    assert worst <= most_out(replicas, 0.2)


@pytest.mark.parametrize(
    ("replicas", "every", "strategy"), [(2, 15, "round-robin"), (4, 5, "least-loaded"), (8, 15, "prefix-affinity")]
)
def test_bursts_and_long_prompts_look_like_a_slow_replica(replicas: int, every: float, strategy: str) -> None:
    """A healthy fleet loses nobody: prompts of up to 32,000 tokens, bursts at two and a half times Poisson's."""
    found = run(study(replicas, every, minutes=20, strategy=strategy, prompt=(2000, 24000)))

    assert found.moves == []


@pytest.mark.parametrize("replicas", [2, 8])
def test_a_replica_that_fails_fast_looks_idle_and_draws_the_traffic(replicas: int) -> None:
    found = run(study(replicas, 15, ill("errors", 121.0, 120.0), minutes=8, strategy="least-loaded"))

    assert found.first(0.0, 121.0) <= 60.0
    assert found.first(1.0, 241.0) <= 180.0
    assert found.out() == {ILL}


def test_a_hung_engine_holds_its_requests_while_its_page_is_served() -> None:
    found = run(study(4, 15, ill("hang", 121.0, 120.0), minutes=7))

    assert found.first(0.0, 121.0) <= 90.0
    assert found.first(1.0, 241.0) <= 120.0


@cache
def uneven(weighted: bool) -> Run:
    """One replica is 1.6 times as slow: too little for a breaker."""
    slow = {"kind": "straggler", "at": "60s", "factor": 1.6}
    return run(study(4, 15, slow, minutes=15, rate=5.0, levers=WEIGHT), governed=weighted)


def test_round_robin_gives_the_slowest_replica_as_much_as_the_others() -> None:
    """Who is unlucky waits for it; with weights fewer are."""
    assert uneven(True).late(300.0, 800.0) < 0.95 * uneven(False).late(300.0, 800.0)
    mine = [move.after for _, move in uneven(True).moves if move.target.member == ILL]
    assert 0.6 < mine[-1] < 0.9
    assert len(uneven(True).moves) < 20
