"""From a real Prometheus: what it remembers is rehearsed on the same path as a recording, and gives the same answer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.recording_file import Recording
from tests.support.cli import ROOT, governor
from tests.support.prometheus import needs_prometheus, prometheus, write_blocks

pytestmark = needs_prometheus
DEMO = ROOT / "examples" / "demo.yaml"
RECORDING = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that holds the shipped recording."""
    storage = tmp_path_factory.mktemp("shipped") / "tsdb"
    write_blocks(((frame.at, frame.samples()) for frame in Recording(RECORDING).frames()), storage)
    with prometheus(storage) as address:
        yield address


@pytest.fixture(scope="module")
def span() -> tuple[str, str]:
    times = Recording(RECORDING).times()
    return str(times[0]), str(times[-1])


def proposals(text: str) -> list[tuple[float, float | None]]:
    ticks = [json.loads(line) for line in text.splitlines()][:-1]
    return [(tick["at"], tick["decisions"][0]["final"]) for tick in ticks]


def test_a_rehearsal_from_prometheus_proposes_what_the_recording_proposes(url: str, span: tuple[str, str]) -> None:
    there = governor("dry-run", "-c", DEMO, "--prometheus", url, "--from", span[0], "--to", span[1], "--json")
    assert there.returncode == 0, there.stderr
    here = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--json")
    assert proposals(there.stdout) == proposals(here.stdout)


def test_record_keeps_the_range_for_later(url: str, span: tuple[str, str], tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl.gz"
    done = governor("record", "-c", DEMO, "--prometheus", url, "--from", span[0], "--to", span[1], "-o", kept)
    assert done.returncode == 0, done.stderr
    assert "kept.jsonl.gz: " in done.stdout
    assert governor("dry-run", "-c", DEMO, "-r", kept).returncode == 0


def test_a_range_without_data_is_told_and_leaves_no_file(url: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl.gz"
    done = governor(
        "record", "-c", DEMO, "--prometheus", url, "--from", "2020-01-01", "--to", "2020-01-01T01:00:00Z", "-o", kept
    )
    assert done.returncode == 2
    assert "has nothing of pools tiny-llama" in done.stderr
    assert not kept.exists()


def test_doctor_on_a_live_prometheus_names_what_is_missing(url: str) -> None:
    done = governor("doctor", "-c", DEMO, "--prometheus", url, "--json")
    found = json.loads(done.stdout)
    assert found["findings"]
    assert done.returncode == (1 if found["failed"] else 0)
    assert governor("doctor", "-c", DEMO, "--prometheus", url).stdout.startswith(("error: ", "warning: ", "info: "))
