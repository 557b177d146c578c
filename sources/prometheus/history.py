"""History: the raw series of a past range, in pages, for a recording.

Every name that the needs may be read from is fetched, not only what is chosen today, so that a recording outlives a
change of contract. A page holds few enough samples that no answer is huge, whatever the size of the fleet.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Sample, labels
from sources.prometheus.assign import common_matchers
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.discovery import ALIVE
from sources.prometheus.errors import BadAnswer
from sources.prometheus.family import Family, families
from sources.prometheus.promql import literal, one_of, selector
from sources.prometheus.transport import Transport

_PAGE = 400_000  # samples in one answer
_STEPS = 10_000  # Prometheus refuses more than 11,000 per series
_BUDGET = 30.0  # seconds for one page
_FIRST = 10.0  # seconds for a sign of life: whoever typed the command waits for it


@dataclass(frozen=True, slots=True)
class _Want:
    """Names that are fetched with the same matchers."""

    names: tuple[str, ...]
    matchers: tuple[Matcher, ...]

    @property
    def selector(self) -> str:
        names = "|".join(literal(name) for name in self.names)
        return selector("", (Matcher("__name__", "=~", names), *self.matchers))


def read_range(
    config: PrometheusConfig,
    needs: Sequence[PoolNeeds],
    start: float,
    end: float,
    step: float,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[float, list[Sample]]]:
    """(unix seconds, samples) at start, start + step, ... up to end, in order, also where nothing is. `progress` gets
    the steps done and all steps. Raises PrometheusError: a recording with a hole would pass for an outage.
    """
    steps = math.floor((end - start) / step + 1e-9) + 1
    transport = Transport(config)
    try:
        transport.query("vector(1)", end, _FIRST)
        wants = _wants(transport, needs, start, end)
        width = _width(transport, wants, start, end)
        for first in range(0, steps, width):
            last = min(first + width, steps) - 1
            frames: dict[int, list[Sample]] = {number: [] for number in range(first, last + 1)}
            for want in wants:
                _fill(transport, want, start, step, frames)
            for number, samples in frames.items():
                yield start + number * step, samples
            if progress is not None:
                progress(last + 1, steps)
    finally:
        transport.close()


def _fill(transport: Transport, want: _Want, start: float, step: float, frames: Mapping[int, list[Sample]]) -> None:
    first, last = min(frames), max(frames)
    answer = transport.query_range(want.selector, start + first * step, start + last * step, step, _BUDGET)
    if answer.warnings:
        raise BadAnswer(f"only part of the backend answered: {'; '.join(answer.warnings)}")
    for metric, points in answer.series:
        name, pairs = metric.get("__name__", ""), labels(metric.items())
        for at, value in points:
            frames[round((at - start) / step)].append(Sample(name, pairs, value))


def _wants(transport: Transport, needs: Sequence[PoolNeeds], start: float, end: float) -> list[_Want]:
    wants: list[_Want] = []
    for family in families(needs):
        model = family.contract.model_label
        named, unnamed = _names(family)
        if family.platform:
            wants.append(_Want((*named, *unnamed), ()))
            continue
        if named:
            wants.append(_Want(named, common_matchers(family.pools)))
        if unnamed:
            wants.append(_Want(unnamed, common_matchers(family.pools, (model,))))
    wants = [want for want in wants if want.names]
    jobs = _jobs(transport, wants, start, end)
    return [*wants, _Want(("up", "process_start_time_seconds"), one_of("job", jobs))] if jobs else wants


def _names(family: Family) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sample names with and without the model label."""
    named: dict[str, None] = {}
    unnamed: dict[str, None] = {}
    for fact in sorted(family.facts | (frozenset() if family.platform else _alive(family))):
        for candidate in (part for c in family.contract.candidates[fact] for part in c.parts):
            into = unnamed if candidate.no_model else named
            if candidate.kind == "histogram":
                into |= dict.fromkeys(f"{candidate.metric}_{suffix}" for suffix in ("bucket", "sum", "count"))
            others = [name for name in candidate.metrics if candidate.kind != "histogram" or name != candidate.metric]
            into |= dict.fromkeys(others)
            unnamed |= dict.fromkeys(candidate.born_with)
    return tuple(named), tuple(name for name in unnamed if name not in named)


def _alive(family: Family) -> frozenset[Fact]:
    return frozenset(ALIVE) & family.contract.candidates.keys()


def _jobs(transport: Transport, wants: Sequence[_Want], start: float, end: float) -> set[str]:
    """Who scraped these series, at a few moments of the range."""
    jobs: set[str] = set()
    for want in wants:
        for at in _moments(start, end):
            rows = transport.query(f"count by (job) ({want.selector})", at, _BUDGET).rows
            jobs.update(row.get("job", "") for row, _ in rows)
    return jobs


def _width(transport: Transport, wants: Sequence[_Want], start: float, end: float) -> int:
    """Steps of a page."""
    most = 1.0
    for want in wants:
        for at in _moments(start, end):
            most = max([most, *(value for _, value in transport.query(f"count({want.selector})", at, _BUDGET).rows)])
    return max(1, min(_STEPS, int(_PAGE / most)))


def _moments(start: float, end: float) -> tuple[float, ...]:
    return tuple(start + (end - start) * part for part in (0.0, 0.25, 0.5, 0.75, 1.0))
