"""Measures over the seeds of a case, and how Governor stands against each of the others. Pure."""

from collections.abc import Callable, Sequence

from benchmarks.control.planner import Result
from benchmarks.control.stats import Mean, mean, paired
from benchmarks.control.task import SEARCHED, Outcome
from controller.simulate.jobs import GOVERNOR, NONE

NEAR = 0.002  # of attainment: a peer that is tuned to equal attainment on other seeds misses it by chance by as much
OUT = 0.05  # factor of a replica that is out of rotation, a probe apart
Get = Callable[[Outcome], float | None]


def runs(result: Result, name: str = GOVERNOR) -> list[Outcome]:
    """Those outcomes that there are."""
    return [one for one in result.runs.get(name, ()) if one is not None]


def average(outcomes: Sequence[Outcome], get: Get) -> float | None:
    """Over those that have it."""
    found = mean([value for one in outcomes if (value := get(one)) is not None])
    return None if found is None else found.value


def critical(one: Outcome) -> float:
    return one.critical.attained


def everything(one: Outcome) -> float:
    return one.all.attained


def hours(one: Outcome) -> float:
    return one.gpu_hours


def inside(event: str) -> Get:
    """Critical attainment in an event."""
    return lambda one: one.events[event].critical.attained if event in one.events else None


def difference(result: Result, name: str, get: Get) -> Mean | None:
    """Governor less another, seed by seed."""
    pair = [[None if one is None else get(one) for one in result.runs[who]] for who in (GOVERNOR, name)]
    return paired(*pair)


def ratio(result: Result, name: str) -> Mean | None:
    """Governor's GPU-hours over another's, seed by seed."""
    pairs = zip(result.runs[GOVERNOR], result.runs.get(name, ()), strict=False)
    return mean([own.gpu_hours / other.gpu_hours for own, other in pairs if own is not None and other is not None])


def rivals(result: Result) -> list[str]:
    """The peers that were run."""
    return [name for name in result.runs if name not in (GOVERNOR, NONE, *SEARCHED) and runs(result, name)]


def equals(result: Result) -> list[str]:
    """Peers that attain as much as Governor on the seeds that are scored, the cheapest first."""
    found = []
    for name in rivals(result):
        gaps = [difference(result, name, get) for get in (critical, everything)]
        if all(gap is not None and gap.value <= NEAR for gap in gaps):
            found.append(name)
    return sorted(found, key=lambda name: average(runs(result, name), hours) or 0.0)


def nearest(result: Result) -> str:
    """The peer that it is closest with: the cheapest of those that attain as much, else the one that misses least;
    empty where there is none."""
    if alike := equals(result):
        return alike[0]
    return min(rivals(result), key=lambda name: shortfall(result, name), default="")


def shortfall(result: Result, name: str) -> float:
    """By how much a peer attains less than Governor, where it is farther off; 0 where it does not."""
    gaps = [difference(result, name, get) for get in (critical, everything)]
    return max(0.0, *(0.0 if gap is None else gap.value for gap in gaps))


def dominating(result: Result) -> list[str]:
    """Peers with higher attainment, critical and in all, and fewer GPU-hours, by their means."""
    found = []
    for name in rivals(result):
        gaps = [difference(result, name, get) for get in (critical, everything, hours)]
        first, second, cost = (0.0 if gap is None else gap.value for gap in gaps)
        if max(first, second) <= 0 and min(first, second) < 0 and cost > 0:
            found.append(name)
    return found


def shed_share(one: Outcome, event: str) -> float | None:
    """The share of an event's requests that got no answer."""
    there = one.events.get(event)
    return None if there is None or not there.all.offered else there.all.shed / there.all.offered


def ejections(one: Outcome, begin: float = 0.0, end: float = float("inf")) -> list[tuple[float, str]]:
    """(seconds after the start, replica) of each that was taken out of rotation between two times."""
    return [(at, name) for at, name, before, after in one.breaks if begin <= at < end and after <= OUT < before]
