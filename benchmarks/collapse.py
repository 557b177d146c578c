"""Do mirrored fleets collapse when the recorded ones did? The 33 WVA runs, one profile and one rule for all of them.

docs/fidelity.md and its acceptance test are made from here. Needs ../shared/data.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median

from benchmarks import recorded
from controller.config import load
from controller.core.interval import Interval
from controller.rehearse.intervals import read_intervals
from controller.simulate import mirror
from controller.simulate.demand import demand
from controller.simulate.load import study_with
from simulator.calibrate.recording import RecordingFit, calibrate_recording
from sources.import_csv import import_csv

POOL = "llama"
PRIOR = "llama-3.1-8b/h100/1/bf16"
SEATS = 1024  # vLLM's own max_num_seqs on an H100; batches of 600 were seen, so the table's max_batch of 256 is not it
SEEDS = (1, 2, 3)

INTRO = """
## Who collapses, and when

All 33 runs, driven: nine of the recorded fleets reached a queue or a KV usage above {nearly:.0%}, 24 stayed calm. One
profile is fitted to the calm intervals of all runs together, KV cache included. Each run's twin gets the demand that
follows from its recording (completions, and by how much queue and batch grew) and the recorded replicas, and is sampled
when the fleet was. Nothing is set by run. The lengths of prompts and answers vary by {spread} of their mean, by
assumption. Fitted to {calm} calm intervals: {tokens:,.0f} tokens in the KV cache, and {host:.1f} µs of each step
for each sequence at least.

"""
TABLE = """\
| run | recorded: full at | peak KV | twin: full at | queues at | peak KV | |
| --- | --- | --- | --- | --- | --- | --- |
"""
OUTRO = """
Samples are a minute apart and count from 0; full: the first with a queue or a KV usage above {nearly:.0%}. The
twin's are of the seeds {seeds}, peak KV is the median. ok: for most seeds full within one sample of the recorded
fleet, or never a queue where the fleet was never full.

"""
WHY = """
Where it is off: a replica of 20251209-215450 made 12,100 tokens per second at its wall, 3 % more than the profile
says, with a demand just above both; so the twin's backlog grows faster. Runs that rise within one minute
(20251209-105715, 20251210-000154) depend on the draw of lengths: all that is known of that minute is one sample.
The rules of calibration and demand were written with these runs in sight, so this is no test on unseen fleets.
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What a fleet showed: the first sample at which it was full (a queue, or nearly no KV left), at which it had a
    queue, and its highest KV usage."""

    full: int | None
    queue: int | None
    peak: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A recorded fleet and its twin."""

    real: Told
    twin: Told

    @property
    def alike(self) -> bool:
        """Full within one sample of the recorded fleet, or never a queue where that was never full."""
        if self.real.full is None:
            return self.twin.queue is None
        return self.twin.full is not None and abs(self.twin.full - self.real.full) <= 1


def told(intervals: Sequence[Interval]) -> Told:
    """What the intervals of a fleet show."""
    waits = [(one.waiting or 0.0) > 0 for one in intervals]
    usage = [one.kv_usage or 0.0 for one in intervals]
    full = [waiting or kv > recorded.NEARLY_FULL for waiting, kv in zip(waits, usage, strict=True)]
    return Told(full.index(True) if any(full) else None, waits.index(True) if any(waits) else None, max(usage))


def runs() -> dict[str, tuple[Interval, ...]]:
    """The intervals of each run, those that were full first."""
    config = load(recorded.CONFIG)
    tables = [recorded.RECORDINGS / f"wva_llama31_8b_h100_{part}.csv.gz" for part in ("autoscaling", "pods")]
    mapping = recorded.ROOT / "examples" / "import" / "wva.yaml"
    with tempfile.TemporaryDirectory() as work:
        found = {
            run.group.removeprefix("model-based-"): tuple(read_intervals(run.path, config, POOL))
            for run in import_csv(tables, mapping, Path(work) / "runs")
        }
    return dict(sorted(found.items(), key=lambda item: (told(item[1]).full is None, item[0])))


def profile(found: Mapping[str, Sequence[Interval]]) -> RecordingFit:
    """One profile of all runs."""
    together = tuple(chain.from_iterable(found.values()))
    return calibrate_recording(together, entry=PRIOR, max_num_seqs=SEATS, spread=mirror.SPREAD)


def drive(intervals: tuple[Interval, ...], fit: RecordingFit, seed: int) -> Pair:
    """One run and its twin."""
    config = load(recorded.CONFIG)
    image = mirror.Image(POOL, intervals, fit, demand(intervals, fit.profile.kv_tokens, mirror.SPREAD))
    study = study_with(mirror.text(mirror.scenario(config, [image], cold_start=0.0)), "collapse", config)
    world = study.scenario.world(seed)
    return Pair(told(intervals), told(mirror.reflect(study.config, [image], world, study.scenario.start)[POOL]))


def drive_all(
    found: Mapping[str, tuple[Interval, ...]], fit: RecordingFit, seeds: Sequence[int] = SEEDS
) -> dict[str, list[Pair]]:
    """All runs with all seeds."""
    cases = [(name, seed) for name in found for seed in seeds]
    with ProcessPoolExecutor() as crew:
        pairs = crew.map(drive, [found[name] for name, _ in cases], [fit] * len(cases), [seed for _, seed in cases])
        done: dict[str, list[Pair]] = {}
        for (name, _), pair in zip(cases, pairs, strict=True):
            done.setdefault(name, []).append(pair)
    return done


def section() -> Iterator[str]:
    """The section of docs/fidelity.md."""
    found = runs()
    fit = profile(found)
    done = drive_all(found, fit)
    yield INTRO.format(
        nearly=recorded.NEARLY_FULL,
        calm=fit.calm,
        tokens=fit.profile.kv_tokens,
        host=fit.profile.host * 1e6,
        spread=mirror.SPREAD,
    )
    yield TABLE
    for name, pairs in done.items():
        yield row(name, pairs) + "\n"
    yield OUTRO.format(nearly=recorded.NEARLY_FULL, seeds=", ".join(map(str, SEEDS)))
    for index, seed in enumerate(SEEDS):
        collapsed, calm = (
            [pairs[index].alike for pairs in done.values() if (pairs[0].real.full is None) is never]
            for never in (False, True)
        )
        yield (
            f"* Seed {seed}: {sum(collapsed)} of the {len(collapsed)} that were full collapse within one sample, "
            f"{sum(calm)} of the {len(calm)} calm ones never queue.\n"
        )
    yield WHY


def row(name: str, pairs: Sequence[Pair]) -> str:
    """One row of the table."""
    real, twins = pairs[0].real, [pair.twin for pair in pairs]
    full, queue = (" ".join(map(_sample, values)) for values in zip(*((t.full, t.queue) for t in twins), strict=True))
    good = sum(pair.alike for pair in pairs) * 2 > len(pairs)
    peak = median(twin.peak for twin in twins)
    return (
        f"| {name} | {_sample(real.full)} | {real.peak:.2f} | {full} | {queue} | {peak:.2f} "
        f"| {'ok' if good else 'no'} |"
    )


def _sample(index: int | None) -> str:
    return "-" if index is None else str(index)
