"""Real programs that tests run against: found on the PATH or in build/tools, ended by their pid."""

import os
import shutil
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "build" / "tools" / "bin"


def program(name: str) -> str:
    """Where the program is. Skips the test, or the module that asks while it is imported, where it is not."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), str(TOOLS)]))
    if found is None:
        pytest.skip(f"{name} is not installed; `scripts/real-programs.sh {name}` gets it", allow_module_level=True)
    return found
