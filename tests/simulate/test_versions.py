"""Rollouts and canaries in the closed loop, told apart by `labels.version` or not."""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

import yaml

from controller.core.model import Decision, Lever
from controller.simulate.load import Origin
from controller.simulate.pilots import Governor
from simulator.scenario import Scenario
from simulator.world import World

LATE = 0.04  # seconds per token
REPLICAS = {"replicas": {"mode": "auto", "min": 2, "max": 20, "policy": {"kind": "capacity"}}}
BREAKER = {"breaker": {"mode": "auto", "policy": {"kind": "breaker"}}}


class Tick(NamedTuple):
    """Seconds from the start; the replicas that there will be; who gets nothing or a probe; the plan's sentence."""

    at: float
    replicas: float
    out: tuple[str, ...]
    summary: str


class Run(NamedTuple):
    """What came of a run."""

    ticks: list[Tick]
    world: World
    begin: float

    def share(self, ending: str, since: float) -> float:
        """The share of what arrived later that ended so."""
        jobs = self.world.jobs()
        told = jobs.column("ending")[jobs.column("arrived") >= self.begin + since]
        return float((told == jobs.endings.index(ending)).mean())

    def in_time(self, since: float) -> float:
        """The share of what arrived later whose tokens came in time."""
        jobs = self.world.jobs()
        return float((jobs.column("tpot")[jobs.column("arrived") >= self.begin + since] <= LATE).mean())


def run(
    told: bool,
    levers: Mapping[str, Any],
    minutes: int,
    rate: float,
    pools: Mapping[str, Any],
    ill: Mapping[str, Any],
    seed: int = 1,
) -> Run:
    life = {"pull": "5s", "load": "20s", "warm": "10s"}
    stream = {
        "kind": "generated", "name": "web", "rate": rate,
        "prompt": {"kind": "lognormal", "mean": 1000, "p99": 6000},
        "answer": {"kind": "lognormal", "mean": 200, "p99": 1000},
    }  # fmt: skip
    data = {
        "version": 1, "name": "versions", "duration": f"{minutes}m", "warm_up": "30s", "cool_down": "0s",
        "promises": {"default": {"ttft": "2s", "tpot": f"{LATE}s"}},
        "fleet": {
            "prometheus": {"interval": "15s"},
            "pools": {
                name: {"gpus": 1, "engine": {"kind": "profile"}, "life": dict(life), **one}
                for name, one in pools.items()
            },
            "disturbances": [ill],
        },
        "traffic": {"chat": [stream]},
        "governor": {
            "interval": "15s", "deadline": "7s",
            "pools": {
                "chat": {
                    "engine": "vllm", "selector": {"model_name": "chat"},
                    "labels": {"version": "version"} if told else {}, "cold_start": "60s",
                    "objectives": [
                        {"signal": "ttft", "percentile": "p95", "target": "2s"},
                        {"signal": "tpot", "percentile": "p95", "target": f"{LATE}s"},
                    ],
                    "workload": {"namespace": "default", "name": "chat"},
                    "levers": dict(levers),
                }
            },
        },
    }  # fmt: skip
    found = Origin(yaml.safe_dump(data), "versions", "").load()
    scenario = found.scenario
    assert isinstance(scenario, Scenario)
    world = scenario.world(seed)
    pilot = Governor(world, found.config)
    ticks, at = [], scenario.start
    while at < scenario.start + scenario.duration - 1e-6:
        at += found.config.interval
        plan = pilot.tick(at)
        of = {
            lever: [d for d in plan.decisions if d.target.lever is lever] for lever in (Lever.REPLICAS, Lever.BREAKER)
        }
        out = tuple(d.target.member for d in of[Lever.BREAKER] if _out(d))
        ticks.append(Tick(at - scenario.start, of[Lever.REPLICAS][0].final or 0.0, out, plan.summary))
    pilot.close()
    return Run(ticks, world, scenario.start)


def _out(decision: Decision) -> bool:
    return decision.target.lever is Lever.BREAKER and decision.final is not None and decision.final < 0.25


def rollout(told: bool, seed: int = 1) -> Run:
    """All three replicas are replaced by ones whose steps take 1.6 times as long, one after another."""
    ill = {"kind": "rollout", "pool": "chat", "at": "150s", "version": "v2", "factor": 1.6}
    return run(told, REPLICAS, 9, 48.0, {"chat": {"replicas": 3}}, ill, seed)


def canary(told: bool, **ill: Any) -> Run:
    """Two of eight replicas are a canary, which turns bad after 75 seconds."""
    pools = {
        "chat": {"replicas": 6}, "canary": {"replicas": 2, "behind": "chat", "model_name": "chat", "version": "v2"}
    }  # fmt: skip
    ill = {"pool": "canary", "share": 1.0, "at": "75s", "duration": "10m", **ill}
    return run(told, {**BREAKER, **REPLICAS}, 4, 102.0, pools, ill)


def out_after(run: Run, since: float = 75.0) -> float:
    """Seconds until the whole canary is out, from when on it stays so."""
    whole = [tick.at for tick in run.ticks if tick.out == ("canary-v2-0", "canary-v2-1")]
    assert whole == [tick.at for tick in run.ticks if tick.at >= whole[0]]
    return whole[0] - since


def test_a_rollout_to_a_slower_version_is_met_as_it_goes() -> None:
    """What was learned was the mean of both, and most of that of the quicker one, which makes most tokens: replicas
    came a minute and a half late, with 85 % of all answers in time. Told apart it is 96 %, for 6 % more GPU time."""
    pairs = [(rollout(False, seed), rollout(True, seed)) for seed in range(1, 6)]

    def middle(of: Callable[[Run, Run], float]) -> float:
        return median(of(blind, aware) for blind, aware in pairs)

    assert pairs[0][1].in_time(150.0) > 0.975
    assert middle(lambda blind, aware: blind.in_time(150.0)) < 0.88
    assert middle(lambda blind, aware: aware.in_time(150.0) - blind.in_time(150.0)) > 0.07
    assert middle(lambda blind, aware: _spent(aware) / _spent(blind)) < 1.07
    assert middle(lambda blind, aware: _raised(aware) - _raised(blind)) <= -60.0


def _spent(run: Run) -> float:
    """GPU-seconds from the rollout's begin on."""
    return run.world.gpu_seconds(run.begin + 150.0, run.begin + 540.0)


def _raised(run: Run) -> float:
    """When a fourth replica was asked for."""
    return next(tick.at for tick in run.ticks if tick.replicas > 3)


def test_a_canary_that_fails_is_out_within_a_minute_and_asks_for_no_replicas() -> None:
    """Two of eight are more than may be out of any: none was, nearly all requests went to them, and failed at once."""
    blind, aware = canary(False, kind="errors"), canary(True, kind="errors")

    assert blind.share("failed", 75.0) > 0.8
    assert aware.share("failed", 75.0) < 0.4  # probes: the router sends what fails at once far more than its weight
    assert out_after(aware) <= 60.0
    assert not any(tick.out for tick in blind.ticks)
    assert max(tick.replicas for tick in aware.ticks) == 6.0
    said = next(tick.summary for tick in aware.ticks if tick.out)
    assert "version v2 of chat is worse: " in said
    assert "of the others' 0.0 %" in said


def test_a_canary_that_is_slow_is_out_within_a_minute_and_asks_for_no_replicas() -> None:
    """Two slow ones of eight looked like a slow fleet, so that none was taken out."""
    blind, aware = canary(False, kind="straggler", factor=3.5), canary(True, kind="straggler", factor=3.5)

    assert blind.in_time(75.0) < aware.in_time(75.0) - 0.01
    assert not any(tick.out for tick in blind.ticks)
    assert out_after(aware) <= 60.0
    assert max(tick.replicas for tick in aware.ticks) == 6.0
    assert any("version v2 of chat is worse: its steps take" in tick.summary for tick in aware.ticks)
