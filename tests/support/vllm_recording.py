"""The one-second recording of a real vLLM 0.32, with the labels and the `up` that a Prometheus would add."""

import gzip
import re
from collections.abc import Mapping
from functools import cache

import pytest

from sources.frames import Sample
from tests.support.repository import ROOT

PATH = ROOT.parent / "shared" / "data" / "metrics" / "vllm-0.32.0-cpu_recording_1s.txt.gz"
TARGET = {"job": "vllm", "instance": "10.0.0.1:8000", "namespace": "prod", "pod": "vllm-0"}
MODEL = "tiny-llama-random"
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_PAIR = re.compile(r'(\w+)="([^"]*)"')

Scrapes = tuple[tuple[float, tuple[Sample, ...]], ...]


def scrapes(target: Mapping[str, str] | None = None) -> Scrapes:
    """(unix seconds, samples) per scrape; skips the test where the recording is not there."""
    if not PATH.exists():
        pytest.skip("shared/data is not beside the repository")
    return _scrapes(tuple(sorted((target or TARGET).items())))


@cache
def _scrapes(target: tuple[tuple[str, str], ...]) -> Scrapes:
    found: list[tuple[float, tuple[Sample, ...]]] = []
    samples: list[Sample] = []
    health = tuple(sorted((k, v) for k, v in target))
    with gzip.open(PATH, "rt") as lines:
        for line in lines:
            if line.startswith("# SCRAPE "):
                samples = [Sample("up", health, 1.0)]
                found.append((float(line.split()[2]), ()))
            elif match := _LINE.match(line.rstrip("\n")):
                pairs = tuple(sorted((*_PAIR.findall(match[2] or ""), *target)))
                samples.append(Sample(match[1], pairs, float(match[3])))
            if found:
                found[-1] = (found[-1][0], samples)  # type: ignore[assignment]
    return tuple((at, tuple(of)) for at, of in found)
