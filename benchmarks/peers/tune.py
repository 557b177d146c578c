"""Tune a peer for a scenario on training seeds: `python -m benchmarks.peers.tune SCENARIO PEER [PARAMETER VALUE...]`.
The peer may be `governor`: what it is compared with is tuned by the same rule. Without a parameter it is the one that
the peer says is tuned, over its grid.

Chosen is, of the values with which the peer attains at least `--attain` of all offered and `--attain-critical` of what
the classes `--critical` offered, on average, the one with the fewest GPU-hours; if none does, the one that comes
closest in whichever of both it is farther off. Training seeds begin at 101, so that none is scored later.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from controller.config import GovernorConfig
from controller.config.plugins import choose
from controller.core.model import Lever
from controller.registry import Group
from controller.simulate.jobs import GOVERNOR, Task, do
from controller.simulate.load import open_study
from controller.simulate.score import Score

FIRST_SEED = 101


@dataclass(frozen=True, slots=True)
class Trial:
    """One value of the parameter: mean attainment over all offered, mean GPU-hours, and mean attainment of what is
    critical."""

    value: float
    attained: float
    gpu_hours: float
    critical: float = 1.0


class Outcome(NamedTuple):
    """One run: attainment over all offered, GPU-hours, and attainment of what is critical."""

    attained: float
    gpu_hours: float
    critical: float


def chosen(trials: Sequence[Trial], attain: float, critical: float = 0.0) -> Trial:
    """The best of the trials; see the module's docstring. `attain` and `critical` are the marks."""
    good = [trial for trial in trials if trial.attained >= attain and trial.critical >= critical]
    if good:
        return min(good, key=lambda trial: (trial.gpu_hours, -trial.attained))

    def short(trial: Trial) -> float:
        return max(0.0, attain - trial.attained, critical - trial.critical)

    return min(trials, key=lambda trial: (short(trial), -trial.attained, trial.gpu_hours))


def once(
    path: Path, peer: str, parameter: str, value: float, seed: int, classes: Sequence[str] = ()
) -> Outcome:  # fmt: skip
    """One run; `classes` are those that are critical, all when none is named."""
    study = open_study(path)
    if peer == GOVERNOR:
        study = replace(study, config=_with(study.config, parameter, value))
    else:
        given: dict[str, Any] = {**study.scenario.against.peers[peer], parameter: value}
        study = replace(study, peers={peer: choose(Group.POLICY, given)})
    run = do(study, Task(peer, seed))
    if run is None:
        raise ValueError(f"{peer} is no policy that runs by itself")
    return outcome(run.score, classes)


def outcome(score: Score, classes: Sequence[str] = ()) -> Outcome:
    """What counts of a run for the choice. Nothing offered is all attained."""
    shares = [share for name, share in score.classes.items() if name in classes] if classes else [score.all]
    offered = sum(share.offered for share in shares)
    critical = sum(share.good for share in shares) / offered if offered else 1.0
    whole = score.all.attainment
    return Outcome(1.0 if whole is None else whole, score.gpu_hours, critical)


def _with(config: GovernorConfig, parameter: str, value: float) -> GovernorConfig:
    """The config with another value of a parameter of all policies for replicas."""
    pools = {}
    for name, pool in config.pools.items():
        lever = pool.levers[Lever.REPLICAS]
        policy = replace(lever.policy, settings=replace(lever.policy.settings, **{parameter: value}))
        levers = {**pool.levers, Lever.REPLICAS: lever.model_copy(update={"policy": policy})}
        pools[name] = pool.model_copy(update={"levers": levers})
    return config.model_copy(update={"pools": pools})


def tuned(path: Path, peer: str) -> tuple[str, tuple[float, ...]]:
    """The parameter that the peer says is tuned, and its grid. Raises ValueError where it says nothing."""
    study = open_study(path)
    cls = None if peer == GOVERNOR else study.peers[peer].cls
    name, grid = getattr(cls, "TUNED", ""), getattr(cls, "GRID", ())
    if not name or not grid:
        raise ValueError(f"{peer} names no parameter to tune; write one and its values")
    return name, tuple(grid)


def main() -> None:
    """Run all values on all training seeds, and print each and the choice."""
    parser = argparse.ArgumentParser(description="Tune a peer for a scenario on training seeds.")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("peer")
    parser.add_argument("parameter", nargs="?", default="")
    parser.add_argument("values", type=float, nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--attain", type=float, default=0.99)
    parser.add_argument("--critical", nargs="*", default=[], metavar="CLASS")
    parser.add_argument("--attain-critical", type=float, default=0.0)
    given = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    name, grid = given.parameter, tuple(given.values)
    if not name or not grid:
        name, grid = tuned(given.scenario, given.peer)
    trials = []
    with ProcessPoolExecutor() as pool:
        waiting = {
            value: [pool.submit(once, given.scenario, given.peer, name, value, seed, given.critical) for seed in seeds]
            for value in grid
        }
        for value, futures in waiting.items():
            attained, hours, critical = zip(*(future.result() for future in futures), strict=True)
            trial = Trial(value, fmean(attained), fmean(hours), fmean(critical))
            trials.append(trial)
            of_critical = f", critical {trial.critical:.2%}" if given.critical else ""
            print(f"{name} {value:g}: attained {trial.attained:.2%}{of_critical}, {trial.gpu_hours:.2f} GPU-hours")
    best = chosen(trials, given.attain, given.attain_critical)
    print(f"chosen: {name} {best.value:g}")


if __name__ == "__main__":
    main()
