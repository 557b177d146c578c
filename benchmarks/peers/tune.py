"""Tune a peer for a scenario on training seeds: `python -m benchmarks.peers.tune SCENARIO PEER PARAMETER VALUE...`.
The peer may be `governor`: what it is compared with is tuned by the same rule.

Chosen is, of the values with which the peer attains at least `--attain` of all offered on average, the one with the
fewest GPU-hours; if none does, the one that attains most. Training seeds begin at 101, so that none is scored later.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from controller.config import GovernorConfig
from controller.config.plugins import choose
from controller.core.model import Lever
from controller.registry import Group
from controller.simulate.jobs import GOVERNOR, Task, do
from controller.simulate.load import open_study

FIRST_SEED = 101


@dataclass(frozen=True, slots=True)
class Trial:
    """One value of the parameter: mean attainment over all offered, and mean GPU-hours."""

    value: float
    attained: float
    gpu_hours: float


def chosen(trials: list[Trial], attain: float) -> Trial:
    """The best of the trials; see the module's docstring."""
    good = [trial for trial in trials if trial.attained >= attain]
    if good:
        return min(good, key=lambda trial: (trial.gpu_hours, -trial.attained))
    return max(trials, key=lambda trial: (trial.attained, -trial.gpu_hours))


def once(path: Path, peer: str, parameter: str, value: float, seed: int) -> tuple[float, float]:
    """(attainment, GPU-hours) of one run."""
    study = open_study(path)
    if peer == GOVERNOR:
        study = replace(study, config=_with(study.config, parameter, value))
    else:
        given: dict[str, Any] = {**study.scenario.against.peers[peer], parameter: value}
        study = replace(study, peers={peer: choose(Group.POLICY, given)})
    run = do(study, Task(peer, seed))
    if run is None:
        raise ValueError(f"{peer} is no policy that runs by itself")
    return run.score.all.attainment or 0.0, run.score.gpu_hours


def _with(config: GovernorConfig, parameter: str, value: float) -> GovernorConfig:
    """The config with another value of a parameter of all policies for replicas."""
    pools = {}
    for name, pool in config.pools.items():
        lever = pool.levers[Lever.REPLICAS]
        policy = replace(lever.policy, settings=replace(lever.policy.settings, **{parameter: value}))
        levers = {**pool.levers, Lever.REPLICAS: lever.model_copy(update={"policy": policy})}
        pools[name] = pool.model_copy(update={"levers": levers})
    return config.model_copy(update={"pools": pools})


def main() -> None:
    """Run all values on all training seeds, and print each and the choice."""
    parser = argparse.ArgumentParser(description="Tune a peer for a scenario on training seeds.")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("peer")
    parser.add_argument("parameter")
    parser.add_argument("values", type=float, nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--attain", type=float, default=0.99)
    given = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    trials = []
    with ProcessPoolExecutor() as pool:
        waiting = {
            value: [pool.submit(once, given.scenario, given.peer, given.parameter, value, seed) for seed in seeds]
            for value in given.values
        }
        for value, futures in waiting.items():
            attained, hours = zip(*(future.result() for future in futures), strict=True)
            trials.append(Trial(value, fmean(attained), fmean(hours)))
            print(
                f"{given.parameter} {value:g}: attained {trials[-1].attained:.2%}, {trials[-1].gpu_hours:.2f} GPU-hours"
            )
    best = chosen(trials, given.attain)
    print(f"chosen: {given.parameter} {best.value:g}")


if __name__ == "__main__":
    main()
