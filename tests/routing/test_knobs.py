"""Knobs: neutral by default, wrong ones refused with field and mend, and the page says what the code says."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from controller.config.errors import BadParts
from controller.config.plugins import build
from routing.gateway import Gateway
from routing.knobs import (
    Admission,
    Breaker,
    Concurrency,
    Downgrade,
    Klass,
    Knobs,
    Queue,
    Retries,
    Tenant,
)
from routing.model import Replica, Request
from routing.strategies import make

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
GROUPS = {
    "concurrency": Concurrency,
    "queue": Queue,
    "classes.<name>": Klass,
    "admission": Admission,
    "tenants.<name>": Tenant,
    "downgrade[]": Downgrade,
    "breaker": Breaker,
    "retries": Retries,
}


def _written(value: Any, unit: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value * 100:g} %" if unit == "ratio" else f"{value:g} s" if unit == "duration" else f"{value:g}"
    return "empty" if not value else str(value)


def _row(name: str, field: "dataclasses.Field[Any]") -> str:
    default = field.default if field.default is not dataclasses.MISSING else ()
    return f"| `{name}` | {_written(default, field.metadata.get('unit', ''))} | {field.metadata['doc']} |"


def rows() -> list[str]:
    """The table as the code has it: groups in the order of `Knobs`, then what stands alone."""
    made = [_row(f"{group}.{field.name}", field) for group, cls in GROUPS.items() for field in dataclasses.fields(cls)]
    single = {"longest_prompt", "weights", "slow_start", "strategy", "parameters", "affinity", "expected_output"}
    return made + [_row(field.name, field) for field in dataclasses.fields(Knobs) if field.name in single]


def test_the_page_lists_every_knob_with_its_default_and_no_other() -> None:
    listed = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]

    assert listed == rows()


def test_every_group_is_on_the_page() -> None:
    kinds = {field.name for field in dataclasses.fields(Knobs)}
    listed = {name.partition("`")[2].partition("`")[0].partition(".")[0].rstrip("[]") for name in rows()}

    assert kinds - listed == {"other_classes", "other_tenants"}  # as classes.<name> and tenants.<name>


def test_by_default_nothing_is_refused_held_or_lost() -> None:
    gateway = Gateway(Knobs(), make("round-robin"))
    gateway.joined(Replica("r", slots=1), 0.0)
    for i in range(2000):
        gateway.arrive(Request(i, 100_000, 10_000, tenant="t", attempt=i % 3, deadline=-1.0), 0.0)

    assert gateway.inflight == 2000
    assert gateway.next_at == float("inf")


@pytest.mark.parametrize(
    ("make_it", "words"),
    [
        (lambda: Concurrency(per_slot=0.0), "per_slot: is 0; write a number above 0"),
        (lambda: Queue(wait=float("nan")), "wait: is nan; write a finite number"),
        (lambda: Queue(prompt_price=0.0, output_price=0.0), "output_price: no token has a price; write 2"),
        (
            lambda: Klass(delay_lo=0.5, target=1.0),
            "delay_lo: stands without its other end; write delay_lo and delay_hi",
        ),
        (lambda: Klass(load_lo=1.0, load_hi=0.5), "load_hi: is below load_lo; write at least 1"),
        (lambda: Klass(delay_lo=0.5, delay_hi=1.0), "target: is missing; delay_lo"),
        (lambda: Klass(floor=0.1), "rank: is missing; a floor is the share of a rank"),
        (lambda: Tenant(tokens_per_s=-1.0), "tokens_per_s: is -1; write a number at least 0"),
        (lambda: Downgrade(""), "pool: is empty; write the pool"),
        (lambda: Downgrade("small", 1.5), "share: is 1.5; write a number at least 0, at most 1"),
        (lambda: Breaker(open_time=60.0, open_limit=30.0), "open_limit: is below open_time; write at least 60"),
        (lambda: Retries(budget=2.0), "budget: is 2; write a number at least 0, at most 1"),
        (
            lambda: Knobs(classes={"a": Klass(rank=0, floor=0.7), "b": Klass(rank=1, floor=0.4)}),
            "classes: their floors add up to 1.1; lower them to 1 together",
        ),
        (
            lambda: Knobs(other_classes=Klass(rank=0, floor=0.1)),
            "other_classes: a floor is for a class that is named; ",
        ),
        (lambda: Knobs(weights={"r": float("inf")}), "weights: r is inf; write a number at least 0"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_mend(make_it: Any, words: str) -> None:
    with pytest.raises(ValueError, match="; ") as error:
        make_it()
    assert str(error.value).startswith(words)


def test_floors_of_classes_of_one_rank_add_up() -> None:
    classes = {"a": Klass(rank=1, floor=0.25), "b": Klass(rank=1, floor=0.5), "c": Klass(rank=2)}

    assert Knobs(classes=classes).floors == {1: 0.75}


def test_a_scenario_file_writes_them_with_units_and_learns_the_path_of_a_mistake() -> None:
    knobs = build(
        Knobs,
        {
            "queue": {"wait": "30s", "fair": True},
            "classes": {"critical": {"rank": 0, "floor": "50%", "target": "2s"}},
            "downgrade": [{"pool": "small", "share": "10%", "tenants": ["a"], "classes": ["*"]}],
        },
    )
    assert knobs.queue == Queue(wait=30.0, fair=True)
    assert knobs.classes["critical"].floor == 0.5
    assert knobs.downgrade == (Downgrade("small", 0.1, frozenset({"a"}), frozenset({"*"})),)

    with pytest.raises(BadParts) as error:
        build(Knobs, {"tenants": {"t": {"tokens_per_s": -1}}})
    assert error.value.problems[0][0] == ("tenants", "t", "tokens_per_s")


def test_tenants_by_the_thousand_are_counted_together_at_last() -> None:
    gateway = Gateway(Knobs(), make("round-robin"))
    gateway.joined(Replica("r"), 0.0)
    for i in range(11_000):
        gateway.arrive(Request(i, 1, 1, tenant=f"t{i}"), 0.0)
        gateway.finished(i, 1, 0.0)
    counts = gateway.counts()

    assert len(counts.streams) == 10_001
    assert counts.total.finished == 11_000
