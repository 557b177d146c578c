"""One run of one contender, on the twin in virtual time or on Dynamo in real time, judged by the same rules.

python -m benchmarks.second_plant.run CASE CONTENDER SEED PROFILE.json OUT.json   (one real run; the page starts these)
"""

import asyncio
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.second_plant import cases, environment
from benchmarks.second_plant.cases import Case
from benchmarks.second_plant.client import Ask, play
from benchmarks.second_plant.plant import Plant
from controller.config import GovernorConfig
from controller.config.load import loads
from controller.core.step_model import Profile
from controller.simulate.load import Origin, Study
from controller.simulate.pilots import Alone, Governor, Nobody, Pilot
from controller.simulate.ports import Scenario, World
from controller.simulate.score import share
from controller.simulate.verdicts import judge

DYNAMO, TWIN = "dynamo", "twin"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of a run. `replica_seconds` and requests are those of the scored part; `most` is the largest number
    of replicas paid for at once; `ttft` and `tpot` 95th percentiles of answers, seconds; `moves` (seconds after the
    start, replicas before, after). Of real runs alone: `cold_start` the median that was measured, `lag` the 99th
    percentile of how late the client sent, `skipped` ticks that found no time, and the machine's `load`."""

    plant: str
    case: str
    contender: str
    seed: int
    offered: int
    good: int
    open: int
    missed: Mapping[str, int]
    replica_seconds: float
    most: int
    ttft: float
    tpot: float
    moves: Sequence[tuple[float, float, float]]
    cold_start: float | None = None
    lag: float | None = None
    skipped: int = 0
    load: float | None = None

    @property
    def attained(self) -> float:
        """Share of what was offered that was good."""
        return self.good / self.offered if self.offered else 1.0


def study(case: Case, profile: Profile, contender: str) -> Study:
    """The study of the twin. Raises ConfigError."""
    return Origin(json.dumps(cases.scenario(case, profile, contender)), case.name, ".").load()


def asks(case: Case, profile: Profile, seed: int) -> list[Ask]:
    """The requests of a seed, the same for both plants and all contenders."""
    scenario = study(case, profile, cases.STATIC).scenario
    world = scenario.world(seed)
    world.advance(scenario.start + scenario.duration)
    jobs = world.jobs()
    rows = zip(jobs.column("arrived"), jobs.column("prompt"), jobs.column("output"), strict=True)
    return sorted((Ask(float(at) - scenario.start, int(p), int(o)) for at, p, o in rows), key=lambda one: one.at)


def ticks(case: Case) -> list[float]:
    """When controllers look, seconds after the start."""
    count = math.ceil((case.seconds - cases.FIRST) / cases.INTERVAL)
    return [cases.FIRST + number * cases.INTERVAL for number in range(count)]


def on_twin(case: Case, profile: Profile, contender: str, seed: int) -> Outcome:
    """A run in virtual time."""
    one = study(case, profile, contender)
    world, scenario = one.scenario.world(seed), one.scenario
    pilot = _pilot(world, one.config, one, contender)
    try:
        for after in ticks(case):
            pilot.tick(scenario.start + after)
        world.advance(scenario.start + scenario.duration)
    finally:
        pilot.close()
    return _outcome(TWIN, case, contender, seed, world, scenario, scenario.start)


def on_dynamo(case: Case, profile: Profile, contender: str, seed: int, python: Path) -> Outcome:
    """A run in real time."""
    one = study(case, profile, contender)
    data = {"version": 1, "source": {"kind": "prometheus", "url": "http://none"}}
    config = loads(json.dumps({**data, **cases.governor(profile, "dynamo")}))
    load = asks(case, profile, seed)
    with (
        tempfile.TemporaryDirectory(prefix="second-plant-", ignore_cleanup_errors=True) as folder,
        Plant(python, Path(folder), cases.replicas(contender)) as plant,
    ):
        start = float(math.ceil(time.time()) + 1)
        pilot = _pilot(plant, config, one, contender)
        skipped = asyncio.run(_through(plant, pilot, load, start, start + case.seconds, ticks(case)))
        return _outcome(DYNAMO, case, contender, seed, plant, one.scenario, start, plant, skipped)


async def _through(
    plant: Plant, pilot: Pilot, load: Sequence[Ask], start: float, end: float, when: Sequence[float]
) -> int:
    """Client, ticks and processes side by side until the end. How many ticks were skipped."""
    watching = asyncio.create_task(_watch(plant))
    ticking = asyncio.create_task(_tick(pilot, start, when))
    try:
        plant.told = await play(load, plant.port, cases.MODEL, start, end, time.time)
        await asyncio.sleep(max(0.0, end - time.time()))
        return await ticking
    finally:
        watching.cancel()
        ticking.cancel()
        pilot.close()


async def _watch(plant: Plant) -> None:
    while True:
        await asyncio.to_thread(plant.fleet.poll, time.time())
        await asyncio.sleep(0.25)


async def _tick(pilot: Pilot, start: float, when: Sequence[float]) -> int:
    skipped = 0
    for after in when:
        at = start + after
        if time.time() > at + cases.INTERVAL:
            skipped += 1
            continue
        await asyncio.sleep(max(0.0, at - time.time()))
        await asyncio.to_thread(pilot.tick, at)
    return skipped


def _pilot(world: World, config: GovernorConfig, one: Study, contender: str) -> Pilot:
    if contender == cases.GOVERNOR:
        return Governor(world, config)
    if contender in (cases.NONE, cases.STATIC):
        return Nobody(world)
    return Alone(world, config, one.peers[contender])


def _outcome(
    plant: str, case: Case, contender: str, seed: int, world: World, scenario: Scenario, start: float,
    real: Plant | None = None, skipped: int = 0,
) -> Outcome:  # fmt: skip
    begin, end = start + cases.WARM_UP, start + case.seconds - cases.COOL_DOWN
    verdicts = judge(world.jobs(), scenario.promises, start + case.seconds)
    inside = (verdicts.arrived >= begin) & (verdicts.arrived < end)
    found = share(verdicts, inside)
    served = inside & verdicts.served
    ttft, tpot = (
        float(np.quantile(values[served], 0.95)) if served.any() else math.inf
        for values in (verdicts.ttft, verdicts.tpot)
    )
    colds = real.fleet.cold_starts() if real is not None else []
    lags = [told.sent - told.due for told in real.told] if real is not None else []
    return Outcome(
        plant, case.name, contender, seed, found.offered, found.good, found.open, dict(found.missed),
        world.gpu_seconds(begin, end), max(paid for _, paid, _ in world.history(cases.POOL)), ttft, tpot,
        [(round(move.at - start, 1), move.before, move.after) for move in world.moves()],
        median(colds) if colds else None,
        float(np.quantile(lags, 0.99)) if lags else None,
        skipped, os.getloadavg()[1] if real is not None else None,
    )  # fmt: skip


def main() -> None:
    """One real run, in a process of its own; when it is told to end, it ends the plant first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    name, contender, seed, profile, out = sys.argv[1:]
    case = next(one for one in cases.CASES if one.name == name)
    told = Profile(**json.loads(Path(profile).read_text("utf-8")))
    found = on_dynamo(case, told, contender, int(seed), environment.installed())
    Path(out).write_text(json.dumps(asdict(found)), encoding="utf-8")


if __name__ == "__main__":
    main()
