"""The wheel: all of the product, nothing else, and it runs when installed as users install it."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from controller.registry import TOP_LEVEL
from tests.support.repository import PACKAGES, ROOT, tracked


def run(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=120, env={"PATH": "/usr/bin:/bin", **env},
    )  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel. The dependencies come from ours by a .pth line, so nothing is downloaded;
    a .pth that is found through a .pth is not read, so our own editable install stays out of it."""
    where = tmp_path_factory.mktemp("installed")
    done = run(sys.executable, "-m", "venv", "--without-pip", where, cwd=where)
    assert done.returncode == 0, done.stderr
    done = run(
        sys.executable, "-m", "pip", "--python", where / "bin" / "python",
        "install", "--no-deps", "--no-index", "--quiet", wheel, cwd=where,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (site,) = where.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return where


def test_a_wheel_that_installs_tests_and_scripts_into_site_packages(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES) == set(TOP_LEVEL)


def test_a_wheel_that_forgets_the_contracts_and_templates(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{package}/py.typed" for package in PACKAGES} <= inside
    assert [str(path) for path in tracked() if path.parts[0] in PACKAGES and str(path) not in inside] == []


def test_a_command_that_only_works_in_the_checkout(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "bin" / "python", "-c", "import controller; print(controller.__file__)", cwd=tmp_path)
    assert done.stdout.startswith(str(installed)), done.stdout + done.stderr
    done = run(installed / "bin" / "governor", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "dry-run" in done.stdout
    done = run(installed / "bin" / "governor", "check", ROOT / "examples" / "demo.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_programs_in_one_folder_are_a_third_that_nobody_wrote(installed: Path, tmp_path: Path) -> None:
    """pip lays one distribution's `policies/` over another's without a word; Governor must not start then."""
    (site,) = installed.glob("lib/python3*/site-packages")
    squatter = site / "squatter-1.0.dist-info"
    squatter.mkdir()
    (squatter / "METADATA").write_text("Metadata-Version: 2.1\nName: squatter\nVersion: 1.0\n", encoding="utf-8")
    (squatter / "RECORD").write_text("policies/__init__.py,,\nsquatter-1.0.dist-info/METADATA,,\n", encoding="utf-8")
    try:
        done = run(installed / "bin" / "governor", "check", ROOT / "examples" / "demo.yaml", cwd=tmp_path)
    finally:
        shutil.rmtree(squatter)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "squatter" in done.stderr
    assert "Traceback" not in done.stderr
