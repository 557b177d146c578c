"""A page that is cut off, wrapped in HTML or spelt by another library must be read right or refused with its line."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from controller.core.errors import InputError
from sources.exposition import ExpositionError, parse
from sources.frames import labels
from tests.support.dumps import needs_dumps, page, pages, text

PAGE = '# TYPE a_total counter\na_total{x="1"} 3\nb 0.5\n'


@needs_dumps
@pytest.mark.parametrize("name", [*pages("*.prom"), *pages("*.prom.gz"), *pages("contracts/*.prom")])
def test_every_real_page_is_read_as_the_reference_parser_reads_it(name: str) -> None:
    """But for names: prometheus_client adds `_total` to counters that have none on the wire, as Triton's."""
    families = text_string_to_metric_families(text(name))
    theirs = sorted(
        (s.name.removesuffix("_total"), labels(s.labels.items()), str(float(s.value)))
        for family in families
        for s in family.samples
    )
    ours = sorted((s.name.removesuffix("_total"), s.labels, str(s.value)) for s in page(name).samples)
    assert ours == theirs


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("<html><body>502 Bad Gateway</body></html>", "line 1: this is markup or JSON, not metrics"),
        ('{"error": "not found"}', "line 1: this is markup or JSON, not metrics"),
        ("", "there is no metric in this text"),
        ("# only a comment\n", "there is no metric in this text"),
        ('a 1\nb{x="1" 2\nc 3\n', "line 2: not a sample: 'b{x=\"1\" 2'"),
        ("a 1\nb one\n", "line 2: 'one' is not a number: 'b one'"),
        ("a 1\n\nb{x=1} 2\n", "line 3: labels cannot be read: 'b{x=1} 2'"),
        ('a{x="1"y="2"} 2\n', "line 1: labels cannot be read"),
        ("hello world this is not metrics\n", "line 1: not a sample"),
    ],
)
def test_garbage_is_refused_with_its_line(broken: str, message: str) -> None:
    with pytest.raises(ExpositionError, match="^" + message.replace("{", r"\{").replace("}", r"\}")):
        parse(broken)
    assert issubclass(ExpositionError, InputError)


@pytest.mark.parametrize("cut", range(len(PAGE) - 6, len(PAGE) - 1))
def test_a_page_that_is_cut_off_in_its_last_line_is_read_up_to_there(cut: int) -> None:
    assert parse(PAGE[:cut]).samples[0].name == "a_total"


def test_what_openmetrics_adds_is_understood() -> None:
    scrape = parse(
        "# TYPE req counter\n# UNIT req requests\n"
        'req_total{path="/v1"} 4 1700000000.5 # {trace_id="a} b"} 0.1 1700000000\n'
        'req_created 1.7e9\nx +Inf\ny NaN\nz{a="1",} 2\n# EOF\n'
    )
    values = {sample.name: sample.value for sample in scrape.samples}
    assert values["req_total"] == 4
    assert math.isinf(values["x"])
    assert math.isnan(values["y"])
    assert scrape.samples[-1].labels == (("a", "1"),)
    assert {"req", "req_total"} <= scrape.names, "declared without _total, exposed with it"


@given(st.dictionaries(st.sampled_from("abc"), st.text(max_size=8), max_size=3), st.floats(allow_nan=False))
def test_any_label_value_comes_back_as_it_was(pairs: dict[str, str], value: float) -> None:
    escaped = (v.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for v in pairs.values())
    line = "m{" + ",".join(f'{k}="{v}"' for k, v in zip(pairs, escaped, strict=True)) + f"}} {value!r}\n"
    (sample,) = parse(line).samples
    assert sample.labels == labels(pairs.items())
    assert sample.value == value


@given(st.text(alphabet='ab{}",= \\\n#1.\t', max_size=200))
def test_no_text_whatever_breaks_the_reader(noise: str) -> None:
    try:
        scrape = parse(noise)
    except ExpositionError:
        return
    assert scrape.samples or scrape.types


@pytest.mark.parametrize("piece", ['{a="', "{", '\\"', 'a="b",', " ", '"', "} 1 # {"])
def test_a_hostile_line_is_refused_at_once(piece: str) -> None:
    """A pattern that tries every way to match would not come back from this within the life of the universe."""
    with pytest.raises(ExpositionError):
        parse("a" + piece * 20_000 + "\nb 1\n")
