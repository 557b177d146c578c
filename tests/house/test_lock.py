"""The lock is what every machine installs from: it must be whole, hashed, and bound to no index."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.repository import ROOT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
RUN_LOCK = (ROOT / "requirements-run.lock").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def wanted() -> Iterator[Requirement]:
    yield from map(Requirement, PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        yield from map(Requirement, extra)
    for group in PROJECT["dependency-groups"].values():
        yield from map(Requirement, group)
    yield from map(Requirement, PROJECT["build-system"]["requires"])


def entries(lock: str = LOCK) -> list[str]:
    """A lock's requirements, each with its continuation lines."""
    return re.sub(r"\\\n", " ", "\n".join(line for line in lock.splitlines() if line[:1] != "#")).strip().splitlines()


def pinned() -> dict[str, Version]:
    """Name to version, for the Python that runs this."""
    found: dict[str, Version] = {}
    for entry in entries():
        requirement = Requirement(entry.split(" --hash")[0].strip())
        if requirement.marker is None or requirement.marker.evaluate():
            (spec,) = requirement.specifier
            assert spec.operator == "=="
            found[canonicalize_name(requirement.name)] = Version(spec.version)
    return found


@pytest.mark.parametrize("lock", [LOCK, RUN_LOCK], ids=["all", "run"])
def test_a_lock_that_names_an_index_works_on_one_machine_only(lock: str) -> None:
    assert not re.search(r"://|^-|@ ", lock, re.MULTILINE)


def test_the_container_runs_what_was_never_tested() -> None:
    def versions(lock: str) -> set[str]:  # without markers: they say who asked for it, which differs
        return {re.split(r"[ ;]", entry)[0] for entry in entries(lock)}

    assert versions(RUN_LOCK)
    assert versions(RUN_LOCK) < versions(LOCK)
    for requirement in map(Requirement, PROJECT["project"]["dependencies"]):
        assert re.search(rf"^{canonicalize_name(requirement.name)}==", RUN_LOCK, re.MULTILINE), requirement


def test_an_unhashed_line_lets_a_swapped_file_in() -> None:
    assert entries()
    assert [entry for entry in entries() if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


@pytest.mark.parametrize("requirement", tuple(wanted()), ids=str)
def test_a_stale_lock_installs_what_the_project_does_not_support(requirement: Requirement) -> None:
    version = pinned().get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement} is not in requirements.lock: run `make lock`"
    assert requirement.specifier.contains(version, prereleases=True), f"{requirement} but the lock has {version}"
