"""The HTML report: what it must show, and what would make it lie or fail to open."""

import math
import re
from array import array
from html.parser import HTMLParser
from pathlib import Path

import pytest

from controller.core.model import Plan, Step, TargetState
from controller.core.reading import Reading, State
from controller.core.why import Why
from controller.rehearse.report import Origin, render, write_report
from controller.rehearse.summary import summarise
from controller.rehearse.svg import COLUMNS, Axis, Box, Scale, band, fit, line, spans, steps
from controller.rehearse.trace import Trace
from tests.support.build import REPLICAS, START, TTFT, day, decision, readings, snapshot

ORIGIN = Origin("Rehearsal", {"config": "governor.yaml", "recording": "<script>alert(1)</script>"})
BOX = Box(0, 0, 100, 100)


class Links(HTMLParser):
    """Everything by which a page could reach for something outside itself."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action") and not (value or "").startswith("#"):
                self.outside.append(f"{tag} {name}={value}")


def made_up(pools: int = 1, ticks: int = 240) -> Trace:
    trace = Trace.begin(15.0, {f"pool-{p:02d}": [TTFT] for p in range(pools)}, {})
    for seen, plan in day(pools, ticks):
        trace.append(seen, plan)
    trace.finish()
    return trace


def html(trace: Trace) -> str:
    return render(trace, summarise(trace), ORIGIN)


def test_the_report_reaches_for_nothing_outside_itself() -> None:
    text = html(made_up(2))
    links = Links()
    links.feed(text)
    assert links.outside == []
    assert "link" not in links.tags
    assert not re.search(r"url\(|@import", text)


def test_the_report_says_that_the_past_does_not_answer_back() -> None:
    assert "The past does not answer back" in html(made_up())


def test_names_from_outside_cannot_inject_markup() -> None:
    assert "<script>alert(1)" not in html(made_up())
    assert "&lt;script&gt;alert(1)" in html(made_up())


def test_decisions_stand_on_the_time_axis_with_their_reason() -> None:
    text = html(made_up())
    assert text.count('class="mark up"') > 2
    assert re.search(r"capacity asked \d+ \(the load offered now needs it: demand", text)
    assert "the configured maximum held it at 8" in text


def test_every_bad_state_of_the_data_is_marked_on_its_plot() -> None:
    text = html(made_up())
    assert "<title>no data</title>" in text
    assert "<title>above the top bucket</title>" in text


def test_signals_that_were_not_recorded_are_named_rather_than_drawn_empty() -> None:
    trace = Trace.begin(15.0, {"llama": [TTFT]}, {})
    for i in range(4):
        at = START + 15 * i
        trace.append(snapshot(i, at, {"llama": readings(offered_rate=1.0)}), Plan(at))
    trace.finish()
    assert "Not in this recording: finished_rate, queue_depth" in html(trace)


def test_a_day_of_twenty_pools_stays_below_five_megabytes(tmp_path: Path) -> None:
    trace = made_up(20, 5760)
    assert write_report(tmp_path / "build" / "report.html", trace, summarise(trace), ORIGIN) < 5_000_000


def test_a_recording_without_a_single_tick_still_gives_a_page() -> None:
    trace = Trace.begin(15.0, {"llama": [TTFT]}, {})
    trace.finish()
    assert "no data" in html(trace)


@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_a_very_short_recording_draws_finite_numbers_only(ticks: int) -> None:
    trace = Trace.begin(15.0, {"llama": [TTFT]}, {})
    for i in range(ticks):
        at = START + 15 * i
        one = decision(1, 2, Why.DEMAND, Step("capacity", 1, 2, Why.DEMAND))
        seen = readings(Reading(State.CENSORED, lo=3.0), queue_depth=1.0)
        trace.append(snapshot(i, at, {"llama": seen}, {REPLICAS: TargetState(1.0)}), Plan(at, (one,)))
    trace.finish()
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', html(trace))


def test_thinning_keeps_the_one_spike_of_a_long_day() -> None:
    values = array("d", [1.0] * 20_000)
    values[12_345] = 9.0
    axis = Axis(range(20_000), hole=5)
    drawn = line(axis, values, Scale(0, 10), BOX)
    assert " 10.0" in drawn
    assert len(drawn) < COLUMNS * 2 * 14
    assert "V10.0" in steps(axis, values, Scale(0, 10), BOX)


def test_unknown_values_leave_a_gap_in_the_line() -> None:
    drawn = line(Axis([0.0, 1, 2, 3], hole=5), array("d", [1, math.nan, 1, 1]), Scale(0, 2), BOX)
    assert drawn.count("M") == 2


def test_a_hole_in_the_recording_is_not_bridged() -> None:
    assert line(Axis([0.0, 1, 90, 91], hole=2.5), array("d", [1, 1, 1, 1]), Scale(0, 2), BOX).count("M") == 2


def test_a_lower_bound_alone_reaches_to_the_top_of_the_plot() -> None:
    drawn = band(Axis([0.0, 1], hole=5), [(5.0, math.inf), (5.0, math.inf)], Scale(0, 10), BOX)
    assert drawn == "M0.0 0.0L100.0 0.0L100.0 50.0L0.0 50.0Z"


def test_one_bad_tick_in_a_thinned_column_is_still_marked() -> None:
    classes = bytearray(10_000)
    classes[5_000] = 8
    assert [kind for kind, _, _ in spans(Axis(range(10_000), hole=5), classes, BOX)] == [8]


def test_values_that_dwarf_the_target_do_not_flatten_it() -> None:
    scale = fit([0.1, 300.0], [2.0])
    assert scale.log
    assert BOX.bottom - scale.y(2.0, BOX) > 20
