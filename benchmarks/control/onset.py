"""How much of what is shed in an event is the controller's: one that is told the size of the crowd beforehand, and may
ask for it in the very second of the onset, or some time later.

python -m benchmarks.control.onset [--only CASE,...] [--seeds N] [--after SECONDS,...]

All else is Governor with its config. What it sheds at 0 s is the plant's: cold starts as they are drawn, and replicas
that get their share slowly at first. What it sheds more at 60 s is the price of a minute until the crowd can be told
from noise. What Governor itself sheds beyond that is its own. The seeds are those of training.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from benchmarks.control.cases import Case, chosen, placed
from benchmarks.control.measures import shed_share
from benchmarks.control.planner import FIRST_TRAINING
from benchmarks.control.plant import CHAT, Data
from benchmarks.control.run import kept
from benchmarks.control.task import Outcome, Task, document
from controller.core.model import Ask, Proposal
from controller.core.params import param
from controller.core.ports import Brief, View
from controller.core.slo import Objective
from controller.core.why import Why
from controller.simulate.jobs import GOVERNOR
from controller.simulate.load import Origin, Study
from controller.simulate.pilots import Governor
from controller.simulate.run import drive
from policies.capacity import Capacity

AFTER = (0.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0)
PEAK = 0.9  # quantile of the need over the event
ROOM = 0.95  # of a replica's capacity that is planned with, as in Governor's config


class Told(Capacity):
    """Capacity that knows of one crowd: from `since` to `until` (unix seconds) there are `crowd` replicas."""

    @dataclass(frozen=True, slots=True)
    class Config(Capacity.Config):
        """Those of the capacity policy, and what it is told."""

        since: float = param("when the crowd is asked for, unix seconds", 0.0, ge=0)
        until: float = param("until when it is there, unix seconds", 0.0, ge=0)
        crowd: float = param("replicas for it", 1.0, ge=1)

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Capacity.State
    ) -> tuple[Sequence[Proposal], Capacity.State]:
        """As of the capacity policy, but for the time of the crowd."""
        made, state = super().propose(view, objectives, brief, state)
        config = self.config
        if isinstance(config, Told.Config) and config.since <= view.tick.at < config.until:
            made = tuple(one._replace(ask=Ask.SET, value=config.crowd, why=Why.TIMETABLE) for one in made)
        return made, state


def shed(case: Case, seed: int, after: float | None) -> Outcome:
    """A run of Governor, told of the crowd `after` seconds; as it is, with None."""
    data: Data = document(case, Task(case.name, GOVERNOR, seed))
    if after is not None:
        scenario = _load(case, data).scenario
        event = next(one for one in scenario.events if one.name == case.floor)
        need = scenario.needs(seed)[CHAT]
        inside = sorted(need.replicas[round(event.begin / need.step) : round(event.end / need.step)])
        lever = data["governor"]["pools"][CHAT]["levers"]["replicas"]
        lever["policy"] = {
            **lever["policy"],
            "kind": "benchmarks.control.onset:Told",
            "crowd": math.ceil(inside[int(PEAK * (len(inside) - 1))] / ROOM),
            "since": scenario.start + event.begin + after,
            "until": scenario.start + event.end - 120,
        }
    study = _load(case, data)
    world = study.scenario.world(seed)
    run = drive(
        study.scenario, world, Governor(world, study.config), contender=GOVERNOR, seed=seed,
        interval=study.config.interval,
    )  # fmt: skip
    return kept(case, study, run, world, 0.0)


def main(words: Sequence[str] | None = None) -> int:
    """A line for each case and seed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.control.onset", description=str(__doc__).split("\n", 1)[0]
    )
    parser.add_argument(
        "--only", default="flash-1.9,flash-3,step", help="names of cases that have a floor, with commas"
    )
    parser.add_argument("--seeds", type=int, default=2, help="how many training seeds")
    parser.add_argument("--after", default=",".join(f"{one:g}" for one in AFTER), help="seconds after the onset")
    given = parser.parse_args(words)
    console = Console(highlight=False, markup=False)
    wanted = [case for case in chosen(given.only.split(",")) if case.floor and not case.absent]
    for case in wanted:
        for seed in range(FIRST_TRAINING, FIRST_TRAINING + given.seeds):
            own = shed(case, seed, None)
            told = [f"Governor {_percent(own, case)}, floor {own.floor or 0.0:.1%}; told at the onset and"]
            told += [f"{at:g} s: {_percent(shed(case, seed, at), case)}" for at in map(float, given.after.split(","))]
            console.print(f"{case.name} {seed}: {' '.join(told)}", soft_wrap=True)
    return 0


def _percent(one: Outcome, case: Case) -> str:
    return f"{shed_share(one, case.floor) or 0.0:.1%}"


def _load(case: Case, data: Data) -> Study:
    return Origin(json.dumps(placed(data)), case.name, ".").load()


if __name__ == "__main__":
    sys.exit(main())
