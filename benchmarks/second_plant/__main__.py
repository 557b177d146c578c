"""The order of policies on Dynamo's mock workers, beside that on the twin; writes docs/second-plant.md.

python -m benchmarks.second_plant [--seeds 2] [--page]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.second_plant import calibrate, cases, environment
from benchmarks.second_plant.page import Results, Step, text
from benchmarks.second_plant.run import Outcome, on_twin
from controller.core.step_model import Profile

PAGE = environment.ROOT / "docs" / "second-plant.md"
RESULTS = Path(__file__).with_name("results.json")
SPARE = 240.0  # seconds beyond its scenario that a run may take, to come to stand and to end


def loaded(path: Path = RESULTS) -> Results:
    """The results of a file."""
    data = json.loads(path.read_text("utf-8"))
    return Results(
        data["date"], data["version"], data["cores"], Profile(**data["profile"]), data["error"],
        tuple(Step(**one) for one in data["steps"]), tuple(Outcome(**one) for one in data["outcomes"]),
    )  # fmt: skip


def measure(seeds: Sequence[int]) -> Iterator[Results]:
    """Everything anew: install, calibrate, run; what there is after each seed. Raises what the first of these that
    fails does."""
    python = environment.installed()
    with tempfile.TemporaryDirectory(prefix="second-plant-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        print("calibrating one mock worker", flush=True)
        rows = calibrate.measured(python, folder / "calibration")
        profile, error = calibrate.fit(rows)
        told = folder / "profile.json"
        told.write_text(json.dumps(asdict(profile)), encoding="utf-8")
        steps = tuple(Step(one.prefill, one.sequences, one.kv, one.seconds, one.fitted(profile)) for one in rows)
        outcomes: list[Outcome] = []
        for seed in seeds:
            print(f"seed {seed}: {len(cases.CASES) * len(cases.contenders())} plants at once", flush=True)
            outcomes += _real(seed, told, folder)
            outcomes += [on_twin(case, profile, one, seed) for case in cases.CASES for one in cases.contenders()]
            day = datetime.fromtimestamp(time.time(), UTC).date().isoformat()
            cores = os.cpu_count() or 1
            yield Results(day, environment.version(), cores, profile, error, steps, tuple(outcomes))


def _real(seed: int, profile: Path, folder: Path) -> list[Outcome]:
    """All contenders in all scenarios at the same time, each with a plant and a process of its own."""
    runs = []
    for case in cases.CASES:
        for contender in cases.contenders():
            out = folder / f"{case.name}-{contender}-{seed}.json"
            command = [sys.executable, "-m", "benchmarks.second_plant.run", case.name, contender, str(seed)]
            process = subprocess.Popen([*command, str(profile), str(out)], cwd=environment.ROOT)
            runs.append((case, contender, out, process))
    found = []
    try:
        for case, contender, out, process in runs:
            if process.wait(case.seconds + SPARE) != 0:
                raise RuntimeError(f"the run of {contender} in {case.name} failed; its reason is above")
            found.append(Outcome(**json.loads(out.read_text("utf-8"))))
    finally:
        for *_, process in runs:
            process.terminate()
    return found


def main() -> None:
    """Five minutes for each seed."""
    words = argparse.ArgumentParser(prog="python -m benchmarks.second_plant", description=__doc__)
    words.add_argument("--seeds", type=int, default=2, help="how many seeds are run")
    words.add_argument("--page", action="store_true", help="write the page from the results that are there")
    chosen = words.parse_args()
    if not chosen.page:
        for results in measure(range(1, chosen.seeds + 1)):
            RESULTS.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(text(loaded()), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
