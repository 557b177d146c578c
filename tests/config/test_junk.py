"""A config comes from a person in a hurry; whatever it holds, the answer is a sentence and not a traceback."""

import re
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import ConfigError, loads

EXAMPLES = sorted(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[2] / "examples").glob("*.yaml"))
JUNK = [
    "",
    "null",
    "[]",
    "{}",
    "-1",
    "1e9",
    ".nan",
    "true",
    "''",
    "[1]",
    "{a: b}",
    "*x",
    "!!set {}",
    "%",
    "\t",
    "2026-01-01",
]


@given(
    st.sampled_from([text for text in EXAMPLES if "pools:" in text]),
    st.lists(st.tuples(st.integers(min_value=0, max_value=10_000), st.sampled_from(JUNK)), min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=300)
def test_junk_anywhere_in_a_config_is_refused_or_taken_but_never_a_crash(
    text: str, hits: list[tuple[int, str]]
) -> None:
    for position, junk in hits:
        values = list(re.finditer(r"(?<=: )[^,\n{}\[\]#]+", text))
        found = values[position % len(values)]
        text = text[: found.start()] + junk + text[found.end() :]
    with suppress(ConfigError):
        loads(text)
