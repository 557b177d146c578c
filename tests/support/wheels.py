"""Distributions of strangers, installed for a test."""

import subprocess
import sys
import zipfile
from pathlib import Path

from controller import registry


def wheel(folder: Path, name: str, entries: str, module: str = "", files: dict[str, str] | None = None) -> Path:
    """A real wheel, written by hand: building one would need the network."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    contents = {
        f"{name}_plugin.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entries,
        **(files or {}),
    }
    contents[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in contents.items():
            archive.writestr(file, text)
    return path


def install(target: Path, *wheels: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(target), *map(str, wheels)], check=True, timeout=60)
    registry.refresh()
