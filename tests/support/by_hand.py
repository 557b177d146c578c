"""Files of `examples/targets` as modules, as a user would run them."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

from tests.support.repository import ROOT

TARGETS = ROOT / "examples" / "targets"


def copied(folder: Path, *files: Path) -> ModuleType:
    """The first of `files` as a module, copied to `folder` with the others beside it."""
    for file in files:
        shutil.copy(file, folder / file.name)
    name = f"by_hand_{files[0].stem}"
    spec = importlib.util.spec_from_file_location(name, folder / files[0].name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
