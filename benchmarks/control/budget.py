"""What a bench will take, told before it begins: from the requests of each case and how many runs it is in for."""

from collections.abc import Sequence

from benchmarks.control import contenders
from benchmarks.control.cases import Case
from benchmarks.control.planner import Program
from benchmarks.control.plant import INTERVAL, PER_REPLICA
from benchmarks.control.task import SEARCHED
from benchmarks.control.tune import COARSE, FINALISTS
from controller.simulate.jobs import GOVERNOR, NONE

PER_REQUEST = 9e-5  # core-seconds of the twin, measured
PER_TICK = 7e-3  # of a loop with some ten replicas, measured
TICKS = 240  # of an hour, at the usual interval
TRIES = {"static": 5, "oracle": 9}  # of a search, of which about half are given up early
EARLY = 0.7


def estimate(case: Case, program: Program) -> float:
    """Core-seconds of a case."""
    names = contenders.names(case, program.wanted)
    minutes = float(case.scenario["duration"].removesuffix("m"))
    requests = minutes * 60 * PER_REPLICA * 9  # nine replicas' worth, on average
    twin, loop = requests * PER_REQUEST, minutes / 60 * TICKS * PER_TICK * INTERVAL / case.interval
    seeds, training = len(program.seeds), len(program.training)
    own = seeds * (1 + len(program.subsets.get(case.name, ())))
    total = own * (twin + loop) + (seeds * twin if NONE in names else 0.0)
    rivals = [name for name in names if name not in (GOVERNOR, NONE, *SEARCHED)]
    if rivals:
        total += training * (twin + loop)
    for name in rivals:
        tries = len(contenders.peer(name).grid) // COARSE + 4 + FINALISTS * (training - 1)
        total += (tries + seeds) * (twin + loop)
    return total + sum(seeds * TRIES[name] * EARLY * twin for name in names if name in SEARCHED)


def total(cases: Sequence[Case], program: Program) -> float:
    """Core-seconds of all."""
    return sum(estimate(case, program) for case in cases)
