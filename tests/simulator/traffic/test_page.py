"""docs/traffic.md: its tables are the dataclasses, and its examples build."""

import dataclasses
import re
from typing import get_args

import pytest
import yaml

from benchmarks.traffic import PAGE, render
from controller.config.plugins import build as read_settings
from controller.core.params import param
from simulator.traffic.build import build
from simulator.traffic.files import within
from simulator.traffic.spec import Mooncake, Stream
from tests.support.streams import SHARED, shared


@dataclasses.dataclass(frozen=True)
class Section:
    traffic: tuple[Stream, ...] = param("streams")


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_a_table_that_says_what_the_code_no_longer_does() -> None:
    """Mend: `python -m benchmarks.traffic`."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_every_kind_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for one in get_args(Stream):
        assert f"### `kind: {one.__dataclass_fields__['kind'].default}`" in text
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_that_is_refused(example: str) -> None:
    streams = read_settings(Section, {"traffic": yaml.safe_load(example)}).traffic
    for stream in streams:
        if isinstance(stream, Mooncake):
            shared(stream.file)
    placed = [within(stream, str(SHARED)) for stream in streams]
    done = list(build(placed, seed=1, start=0.0, duration=900.0))
    assert len(done) > 1000
    assert {job.stream for job in done} <= {stream.name for stream in streams}
