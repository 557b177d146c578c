"""Bring docs/routing.md up to date: its tables of parameters from the dataclasses, and with --measure the comparison.

python -m benchmarks.routing_page [--measure]
"""

import argparse
import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from routing.parameters import Value, bounds
from routing.strategies import NAMES, STRATEGIES, make
from routing.strategies.cost import CostParameters
from routing.strategies.prefix import PrefixParameters
from tests.support.loads import mixed_lengths, shared_prefixes
from tests.support.queues import DECODE, PREFILL, Arrival, Plant, Served, fleet, hit_rate, quantile

PAGE = Path(__file__).resolve().parents[1] / "docs" / "routing.md"
_PRICES: dict[str, Value] = {"prefill_cost": PREFILL, "decode_cost": DECODE}
# As a user who knows the plant would set them; everything else is at its default.
TUNED: dict[str, dict[str, Value]] = {
    "consistent-hash": {"by": "prefix"},
    "prefix-tree": {"balance_abs": 8.0},
    "cost": _PRICES,
    "hybrid": _PRICES,
    "prefill-decode": {"prefill_cost": PREFILL},
}
AFFINITIES = (1.0, 0.9, 0.75, 0.5, 0.0)
SKIPPED = ("direct", "lora")  # nothing in these loads is for them


def render(page: str) -> str:
    """The page with its tables of parameters anew."""
    return re.sub(
        r"(<!-- parameters: ([\w-]+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{_table(found[2])}{found[3]}",
        page,
        flags=re.DOTALL,
    )


def _table(name: str) -> str:
    cls: type[Any] = PrefixParameters if name == "block-map" else STRATEGIES[name].Parameters
    shared: set[str] = set()
    for base in (PrefixParameters, CostParameters):
        if cls is not base and issubclass(cls, base):
            shared |= {field.name for field in dataclasses.fields(base)}
    fields = [field for field in dataclasses.fields(cls) if field.name not in shared]
    if not fields:
        return "It has no parameters of its own.\n"
    rows = ["| parameter | value | default | meaning |", "| --- | --- | --- | --- |"]
    rows.extend(
        f"| `{field.name}` | {bounds(field)} | {_default(getattr(cls(), field.name))} | {field.metadata['doc']} |"
        for field in fields
    )
    return "\n".join(rows) + "\n"


def _default(value: Value) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`" if value != "" else ""


def compare(count: int = 3000, seeds: tuple[int, ...] = (1, 2, 3)) -> Iterator[str]:
    """Rows of the comparison: P99 of TTFT in seconds and true hit rate, means over the seeds."""
    loads: tuple[tuple[Callable[[int], list[Arrival]], int, int], ...] = (
        (lambda seed: mixed_lengths(count, 20.0, seed), 8, 4),
        (lambda seed: mixed_lengths(count, 10.0, seed), 16, 1),
        (lambda seed: shared_prefixes(count, 36.0, seed), 8, 1),
        (lambda seed: shared_prefixes(count, 36.0, seed, hot=0.5), 8, 1),
    )
    made = [([make_(seed) for seed in seeds], servers, slots) for make_, servers, slots in loads]
    for name in NAMES:
        if name in SKIPPED:
            continue
        cells = []
        for number, (arrivals, servers, slots) in enumerate(made):
            runs = [_served(name, load, servers, slots) for load in arrivals]
            cells.append(f"{sum(_late(run) for run in runs) / len(runs):.1f}")
            if number > 1:
                cells.append(f"{sum(hit_rate(run) for run in runs) / len(runs):.0%}")
        yield f"| {name} | {' | '.join(cells)} |"


def _served(name: str, load: list[Arrival], servers: int, slots: int, affinity: float = 1.0) -> list[Served]:
    strategy = make(name, TUNED.get(name))
    strategy.lean(affinity)
    return Plant(strategy, fleet(servers), slots=slots, cache_blocks=640, events=True, report=1.0).run(load)


def compare_affinity(count: int = 3000, seeds: tuple[int, ...] = (1, 2, 3)) -> Iterator[str]:
    """Rows of the same with less affinity, of the strategies that have one."""
    made = [[shared_prefixes(count, 36.0, seed, hot=hot) for seed in seeds] for hot in (0.0, 0.5)]
    for name in (one for one in NAMES if STRATEGIES[one].leans):
        cells = []
        for loads in made:
            for affinity in AFFINITIES:
                runs = [_served(name, load, 8, 1, affinity) for load in loads]
                late, hits = (sum(of(run) for run in runs) / len(runs) for of in (_late, hit_rate))
                cells.append(f"{late:.1f} / {hits:.0%}")
        yield f"| {name} | {' | '.join(cells)} |"


def _late(served: list[Served]) -> float:
    return quantile((one.ttft for one in served), 0.99)


def leaning(page: str, rows: Iterator[str]) -> str:
    """The page with what less affinity does anew."""
    columns = [f"{load}, {affinity:g}" for load in ("40 prefixes", "one hot") for affinity in AFFINITIES]
    head = f"| strategy | {' | '.join(columns)} |\n|{' --- |' * (len(columns) + 1)}\n"
    table = head + "".join(f"{row}\n" for row in rows)
    return re.sub(
        r"(<!-- affinity -->\n).*?(<!-- end -->)", lambda found: f"{found[1]}{table}{found[2]}", page, flags=re.DOTALL
    )


def measured(page: str, rows: Iterator[str]) -> str:
    """The page with its comparison anew."""
    head = (
        "| strategy | lengths, 4 at once: P99 | 1 at once: P99 | 40 prefixes: P99 | hits | one hot: P99 | hits |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    table = head + "".join(f"{row}\n" for row in rows)
    return re.sub(
        r"(<!-- measured -->\n).*?(<!-- end -->)", lambda found: f"{found[1]}{table}{found[2]}", page, flags=re.DOTALL
    )


def main() -> None:
    """Write the page."""
    words = argparse.ArgumentParser(prog="python -m benchmarks.routing_page", description=__doc__)
    words.add_argument("--measure", action="store_true", help="run the comparisons anew too, some minutes")
    page = render(PAGE.read_text(encoding="utf-8"))
    if words.parse_args().measure:
        page = leaning(measured(page, compare()), compare_affinity())
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
