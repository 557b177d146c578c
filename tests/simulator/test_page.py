"""docs/twin.md: its tables are the dataclasses, its example runs, and a fleet that cannot be is refused with a mend."""

import re
from typing import Any, get_args

import pytest
import yaml

from benchmarks.twin import PAGE, render
from controller.config.errors import BadParts
from controller.config.plugins import build
from simulator.cluster.disturbances import Disturbance
from simulator.spec import FleetSpec
from simulator.twin import Twin
from tests.support.twins import START, traffic

(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_a_table_that_says_what_the_code_no_longer_does() -> None:
    """Mend: `python -m benchmarks.twin`."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_every_disturbance_is_on_the_page() -> None:
    for one in get_args(Disturbance):
        assert f"### `kind: {one.__dataclass_fields__['kind'].default}`" in PAGE.read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    one = Twin(build(FleetSpec, yaml.safe_load(EXAMPLE)), {"chat": traffic(20.0, 60.0)}, seed=1, start=START)
    one.advance(START + 120.0)
    assert one.inflight == 0
    assert len(one.truth.jobs) > 1000


CHAT = {"replicas": 2}


@pytest.mark.parametrize(
    ("fleet", "path", "mistake", "mend"),
    [
        (
            {"pools": {"chat": {**CHAT, "gateway": {"strategy": "least-loded"}}}},
            ("pools", "chat", "gateway", "strategy"), "'least-loded' is unknown", "did you mean least-loaded?",
        ),
        (
            {"pools": {"chat": {**CHAT, "gateway": {"strategy": "hybrid", "parameters": {"spam": 1}}}}},
            ("pools", "chat", "gateway", "parameters", "spam"), "is not a parameter", None,
        ),
        (
            {"pools": {"chat": {**CHAT, "gateway": {"knobs": {"queue": {"length": -1}}}}}},
            ("pools", "chat", "gateway", "knobs", "queue", "length"), "-1 is out of bounds", "write at least 0",
        ),
        (
            {"pools": {"chat": {**CHAT, "engine": {"kind": "library", "model": "Llama-9", "gpu": "H100"}}}},
            ("pools", "chat", "engine", "model"), "Llama-9 is not in the library", None,
        ),
        (
            {"pools": {"chat": {**CHAT, "life": {"load": {"kind": "lognormal", "median": "9s", "p90": "5s"}}}}},
            ("pools", "chat", "life", "load", "p90"), "is below the median", "write a longer time",
        ),
        (
            {"pools": {"chat": CHAT, "spot": {**CHAT, "behind": "caht"}}},
            ("pools", "spot", "behind"), "'caht' is no pool with a gateway", "name one",
        ),
        (
            {"pools": {"chat": {**CHAT, "gateway": {"knobs": {"downgrade": [{"pool": "tiny"}]}}}}},
            ("pools", "chat", "gateway", "knobs", "downgrade", 0, "pool"),
            "'tiny' is no other pool to downgrade to", "name one",
        ),
        (
            {"pools": {"chat": CHAT}, "disturbances": [{"kind": "hang", "at": "1m", "pool": "chta"}]},
            ("disturbances", 0, "pool"), "there is no pool 'chta'", "write one of chat",
        ),
        (
            {"pools": {"chat": CHAT}, "prometheus": {"interval": "5s", "jitter": "6s"}},
            ("prometheus", "jitter"), "is as long as the interval", "write a shorter time",
        ),
    ],
)  # fmt: skip
def test_a_fleet_that_cannot_be(fleet: dict[str, Any], path: tuple[str, ...], mistake: str, mend: str | None) -> None:
    with pytest.raises(BadParts) as caught:
        build(FleetSpec, fleet)
    (problem,) = caught.value.problems
    assert problem[:1] == (path,)
    assert problem[1].startswith(mistake)
    assert mend is None or problem[2] == mend
