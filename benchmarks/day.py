"""A day of a fleet, recorded pool by pool, rehearsed by the command that people type."""

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fleet import DAY, Fleet, Shape, config
from controller.run.ledger import ledger_files
from sources.frames import Frame, Layout
from sources.recording_file import Header, RecordingWriter

BEGIN = 1_790_000_000.0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One run of ``governor dry-run``: seconds of wall clock and CPU from start to exit, and bytes of the files."""

    wall: float
    cpu: float
    ticks: int
    recording: int
    ledger: int
    report: int


def write_day(path: Path, shape: Shape, frames: int, interval: float = 15.0, seed: int = 1) -> None:
    """A recording of `frames` frames."""
    fleet = Fleet(shape, BEGIN, seed)
    layout = Layout(fleet.keys)
    with RecordingWriter(path, Header("series", interval, comment="made up", engines=("vllm",))) as out:
        for number in range(frames):
            fleet.advance(BEGIN + 2.0 + number * interval)
            out.write(Frame(fleet.at, layout, np.asarray(fleet.values)))


def rehearse(folder: Path, shape: Shape, *, hours: float = 24.0, seed: int = 1) -> Rehearsal:
    """Make the recording, which is not timed, and rehearse it with a ledger and a report."""
    frames = int(hours / 24 * DAY / 15)
    recording, settings, ledger, report = (folder / n for n in ("day.jsonl.gz", "day.yaml", "ledger", "report.html"))
    write_day(recording, shape, frames, seed=seed)
    settings.write_text(config(shape), encoding="utf-8")
    # What the console script does, by this very interpreter.
    command = (
        sys.executable, "-c", "from controller.cli import main; main()", "dry-run", "--config", str(settings),
        "--recording", str(recording), "--ledger", str(ledger), "--report", str(report),
    )  # fmt: skip
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Rehearsal(
        wall,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        frames,
        recording.stat().st_size,
        sum(file.stat().st_size for file in ledger_files(ledger)),
        report.stat().st_size,
    )
