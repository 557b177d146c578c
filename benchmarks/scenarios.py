"""Write docs/scenarios.md: the six disasters, what shows each of them, and what helps. python -m benchmarks.scenarios

Takes about two minutes. Numbers are those of the runs in `benchmarks.disasters`.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.disasters import DISASTERS, Disaster, Measure, Way, outcome

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scenarios.md"
SEEDS = (1, 2, 3, 4, 5)

HEAD = """\
# Six disasters

<!-- Made by `python -m benchmarks.scenarios`; edit the texts in benchmarks/disasters.py. -->

Scenarios in `examples/scenarios/` that show how inference fleets fail when nobody acts, and what helps. Each takes a
few seconds:

```
governor simulate examples/scenarios/tenant-flood.yaml
```

All run on step times from the [library](library.md); the laws are those of the [gateway](gateway.md), the strategies
those of [routing](routing.md). In a table, each row is the same scenario with the same requests and one thing changed.
Shares without a unit of their own are attainment: of all requests that came, those that kept their promise. Each cell
is the number with seed 1 and, in brackets, the least and the greatest with seeds 1 to 5. Tests
(`tests/simulate/test_disasters.py`) hold the claims, and compare this page with the code.
"""


def text(seeds: Sequence[int] = SEEDS) -> str:
    """The whole page. With one seed there are no ranges."""
    return "".join([HEAD, *(part for one in DISASTERS.values() for part in _section(one, seeds))])


def _section(disaster: Disaster, seeds: Sequence[int]) -> Iterator[str]:
    yield f"\n## {disaster.name}\n\n{disaster.about}\n\n"
    yield f"| | {' | '.join(measure.title for measure in disaster.measures)} |\n"
    yield f"| --- |{' --- |' * len(disaster.measures)}\n"
    for way in disaster.ways:
        cells = [_cell(disaster, way, measure, seeds) for measure in disaster.measures]
        yield f"| {way.name} | {' | '.join(cells)} |\n"
    yield f"\n{disaster.lesson}\n"


def _cell(disaster: Disaster, way: Way, measure: Measure, seeds: Sequence[int]) -> str:
    values = [measure.value(outcome(disaster, way.name, seed)) for seed in seeds]
    first, low, high = (_number(measure, value) for value in (values[0], min(values), max(values)))
    unit = " %" if measure.percent else ""
    return f"{first}{unit}" if low == high else f"{first}{unit} ({low} to {high})"


def _number(measure: Measure, value: float) -> str:
    if measure.percent:
        return f"{100 * value:.0f}"
    return f"{value:.0f}" if isinstance(value, int) else f"{value:.1f}"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
