"""Rig of ``file``: a file with a reload command."""

import json
from contextlib import ExitStack
from pathlib import Path

from actuators.file import File, FileConfig
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.decisions import replicas

A, B, C = replicas("a"), replicas("b"), replicas("c")
START = {A: 4.0, B: 6.0, C: 2.0}


def file_rig(folder: Path, _: ExitStack) -> Rig:
    path = folder / "fleet.json"
    path.write_text(json.dumps({str(target): value for target, value in START.items()}))
    runs = folder / "runs"
    runs.write_text("")
    ending = folder / "ending"
    ending.write_text("exit 0")
    script = ("sh", "-c", 'echo x >> "$0"; . "$1"', str(runs), str(ending))
    config = FileConfig(path=str(path), reload=script, timeout=0.3)

    def now() -> dict[Target, float]:
        return {replicas(key.partition("/")[0]): float(value) for key, value in json.loads(path.read_text()).items()}

    return Rig(
        File(config, Binding(tuple(START), "governor")),
        File.describe(config)[Lever.REPLICAS],
        START,
        up=5,
        down=3,
        other=7,
        values=now,
        touched=lambda: runs.read_text().count("x"),
        edit=lambda value: path.write_text(json.dumps({str(target): v for target, v in (now() | {A: value}).items()})),
        fail=lambda: ending.write_text("exit 1"),
        lose=lambda: ending.write_text("exec tail -f /dev/null"),
        lost=Outcome.FAILED,  # a reload that hangs puts the file back
        cannot={"refuse": "a file without a check has nobody who could refuse"},
    )


RIGS = {"file": file_rig}
