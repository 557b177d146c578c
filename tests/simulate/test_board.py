"""A mean must not leave out what never came, a table must fit, and the best must be the best."""

import io
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from controller.simulate.board import Board, board
from controller.simulate.crew import Results
from controller.simulate.lines import simulation_json
from controller.simulate.live import LiveView, offset, told
from controller.simulate.load import Study, open_study
from controller.simulate.report import render
from controller.simulate.run import Change, Frame, Run, Series
from controller.simulate.score import InEvent, Score, Share
from controller.simulate.spread import Spread
from controller.simulate.table import best, reasons, show, starved
from tests.support.scenarios import written

NAN = math.nan


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return open_study(written(tmp_path_factory.mktemp("scenario")))


def run(
    contender: str, seed: int, good: int, hours: float, *, recovered: float | None = 60.0,
    missed: Mapping[str, int] | None = None, fairness: Mapping[str, float] | None = None, degraded: int = 0,
    tenants: Mapping[str, int] | None = None,
) -> Run:  # fmt: skip
    lost = {"late": 100 - good - degraded} if missed is None else missed
    share = Share(100, good, degraded, 1, lost)
    score = Score(
        270.0, share, {"": share}, {"rush": InEvent(share, {"": share}, recovered)}, hours, 1, 5, 2,
        {"replicas": 3.0}, fairness or {}, 0.25, 120, 5000,
        {name: Share(10, kept, 0, 0, {"late": 10 - kept}) for name, kept in (tenants or {}).items()},
    )  # fmt: skip
    series = Series(
        (2.0,) * 6, (1.0, 1.0, 0.5, NAN, 1.0, 1.0), (0.0,) * 6, (0.5, 0.4, 9.0, NAN, 0.5, 0.4),
        {"chat": ((1767571200.0, 1, 1), (1767571300.0, 2, 1))},
    )  # fmt: skip
    changes = (Change(1767571395.0, "chat/replicas", 1.0, 2.0, "capacity asked 2 (<b>demand</b>)"),)
    return Run(contender, seed, score, series, changes if contender == "governor" else (), 1)


@pytest.fixture
def results() -> Results:
    return Results(
        ("governor", "none", "static", "hpa", "oracle"), (1, 2),
        {
            "governor": (run("governor", 1, 90, 2.0), run("governor", 2, 94, 2.2)),
            "none": (run("none", 1, 40, 1.0, recovered=None), run("none", 2, 45, 1.0)),
            "static": (run("static", 1, 91, 1.8), None),
            "hpa": (run("hpa", 1, 92, 2.5, missed={"rejected": 5, "late": 3}), run("hpa", 2, 88, 2.6)),
            "oracle": (run("oracle", 1, 95, 1.0), run("oracle", 2, 95, 1.1)),
        },
    )  # fmt: skip


def cell(made: Board, contender: str, key: str) -> Spread | None:
    place = next(i for i, measure in enumerate(made.measures) if measure.key == key)
    return next(row for row in made.rows if row.contender == contender).cells[place]


def printed(study: Study, results: Results, width: int = 130, *, terminal: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False, markup=False)
    show(console, study.scenario, board(study.scenario, results), results)
    return out.getvalue()


def test_mean_and_spread() -> None:
    assert Spread.of([1.0, 3.0]) == Spread(2.0, math.sqrt(2), 1.0, 3.0, 2)
    assert Spread.of([2.0, None, NAN]) == Spread(2.0, 0.0, 2.0, 2.0, 1)
    assert Spread.of([None, NAN]) is None


def test_what_never_came_with_one_seed_is_not_left_out_of_the_mean(study: Study, results: Results) -> None:
    spread = cell(board(study.scenario, results), "none", "recovered.rush")
    assert spread is not None
    assert spread.mean == math.inf
    line = next(line for line in printed(study, results).splitlines() if line.startswith("recovered from rush"))
    assert "never" in line


def test_a_search_that_found_nothing_with_a_seed_says_so(study: Study, results: Results) -> None:
    assert "none attains as much with 1 of 2 seeds" in printed(study, results)


def test_requests_without_an_end_are_not_told_as_those_of_one_run(study: Study, results: Results) -> None:
    text = " ".join(printed(study, results).split())
    assert "In all runs together 9 requests had no end yet when the clock stopped, and are not counted." in text


def test_the_bound_is_per_seed_and_of_equal_attainment(study: Study, results: Results) -> None:
    made = board(study.scenario, results)
    assert made.oracle == Spread.of([2.0, 2.0])
    assert "Governor used 2.00 times the GPU-hours of the oracle" in printed(study, results)


def test_the_oracle_does_not_compete_and_what_is_alike_has_no_best(study: Study, results: Results) -> None:
    made = board(study.scenario, results)
    places = {measure.key: i for i, measure in enumerate(made.measures)}
    assert best(made, places["attained"]) == {0}  # 92 % on average against 95 % of the oracle
    assert best(made, places["gpu_hours"]) == {1}
    assert best(made, places["bad_minutes"]) == set()


def test_columns_are_only_there_where_they_say_something(study: Study, results: Results) -> None:
    keys = {measure.key for measure in board(study.scenario, results).measures}
    assert not {"degraded", "fairness", "attained."} & keys
    assert {"hit_rate", "in.rush", "recovered.rush", "travel.replicas"} <= keys
    some = Results(
        ("governor",), (1,), {"governor": (run("governor", 1, 80, 2.0, degraded=10, fairness={"a": 0.4, "b": 1.0}),)}
    )
    more = board(study.scenario, some)
    assert {"degraded", "fairness"} <= {measure.key for measure in more.measures}
    assert starved(some) == ["with Governor, tenant a got 40.00 % of its max-min share while it had to wait"]


def test_reasons_are_shares_of_all_that_was_offered(results: Results) -> None:
    assert reasons(results, "hpa") == "late 7.50 %, rejected 2.50 %"


@pytest.mark.parametrize("width", range(40, 140, 3))
def test_no_width_cuts_a_number_off(study: Study, results: Results, width: int) -> None:
    for terminal in (False, True):
        text = " ".join(printed(study, results, width, terminal=terminal).split())
        assert "92.00 % ± 2.83" in text
        assert "none attains as much with 1 of 2 seeds" in text
        assert "…" not in text


def test_what_a_person_wrote_cannot_write_html(study: Study, results: Results, tmp_path: Path) -> None:
    page = render(study, board(study.scenario, results), results)
    assert "<b>demand</b>" not in page
    assert "&lt;b&gt;demand" in page
    assert "none attains as much" in page
    assert 'd="MnanL' not in page


def frame(seed: int, at: float, *changes: Change) -> Frame:
    return Frame("governor", seed, at, 360.0, {"chat": (3, 1, 2)}, 1234, 0.9, None, changes)


def test_in_a_pipe_only_the_first_seed_is_told_so_that_lines_are_one_story(study: Study) -> None:
    out = io.StringIO()
    change = Change(study.scenario.start + 195, "chat/replicas", 1.0, 2.0, "because")
    with LiveView(Console(file=out, width=80), study.scenario) as view:
        view.done(0, 4)
        view.frame(frame(1, 10, change))
        view.frame(frame(2, 10, change))
        view.frame(frame(1, 20))
    assert out.getvalue() == "03:15 chat/replicas 1 → 2: because\n"
    assert told(change, study.scenario.start) == out.getvalue().strip()


def test_on_a_terminal_the_next_seed_is_shown_when_the_first_is_over(study: Study) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system=None)
    with LiveView(console, study.scenario) as view:
        for seed, at in ((1, 130.0), (2, 120.0), (1, 360.0), (2, 150.0)):
            view.frame(frame(seed, at))
        view.done(1, 4)
    text = out.getvalue()
    assert "02:10 of 06:00, seed 1" in text
    assert "02:00 of 06:00, seed 2" not in text
    assert "02:30 of 06:00, seed 2" in text
    assert "●○○  1 ready, 2 on the way, 3 wanted" in text
    assert "1,234 wait; attained so far 90 %" in text
    assert "1 of 4" in text


def test_times_since_the_start() -> None:
    assert [offset(seconds) for seconds in (0, 61, 3661)] == ["00:00", "01:01", "1:01:01"]


def of_tenants(*kept: Mapping[str, int]) -> Results:
    """The same tenants with the controller and without one; of ten requests each so many were good, by seed."""
    mine = tuple(run("governor", seed, 90, 2.0, tenants=one) for seed, one in enumerate(kept, 1))
    none = tuple(run("none", seed, 50, 1.0, tenants=dict.fromkeys(one, 5)) for seed, one in enumerate(kept, 1))
    return Results(("governor", "none"), tuple(range(1, len(kept) + 1)), {"governor": mine, "none": none})


def test_nobody_can_tell_from_a_scoreboard_whether_a_tenant_got_what_it_was_promised(study: Study) -> None:
    results = of_tenants({"acme": 10, "": 8, "flood": 2}, {"acme": 10, "": 8, "flood": 4})
    lines = printed(study, results).splitlines()
    first = lines.index("attained by tenant")

    assert [line.split() for line in lines[first + 1 : first + 5]] == [
        ["Governor", "no", "controller"],
        ["flood", "30.00", "%", "±", "14.14", "50.00", "%", "±", "0.00"],
        ["(none)", "80.00", "%", "±", "0.00", "50.00", "%", "±", "0.00"],
        ["acme", "100", "%", "±", "0.00", "50.00", "%", "±", "0.00"],
    ]
    found = simulation_json(study, board(study.scenario, results), results)["contenders"]["governor"]
    assert found["tenants"]["flood"] == {
        "unit": "ratio", "mean": pytest.approx(0.3), "deviation": pytest.approx(0.1414, abs=1e-4), "low": 0.2,
        "high": 0.4, "count": 2,
    }  # fmt: skip
    assert found["runs"][1]["tenants"]["flood"] == {
        "offered": 10, "good": 4, "degraded": 0, "open": 0, "attainment": 0.4, "missed": {"late": 6},
    }  # fmt: skip
    page = render(study, board(study.scenario, results), results)
    assert "<h3>Attained by tenant</h3>" in page
    assert '<tr><td>flood</td><td class="n">30.00 % ± 14.14</td><td class="n best">' in page


def test_a_scenario_without_tenants_has_no_table_of_them(study: Study, results: Results) -> None:
    assert "by tenant" not in printed(study, results)
    assert "by tenant" not in render(study, board(study.scenario, results), results)
    assert simulation_json(study, board(study.scenario, results), results)["contenders"]["governor"]["tenants"] == {}


def test_a_thousand_tenants_do_not_fill_the_screen(study: Study) -> None:
    results = of_tenants({f"t{number:03}": number % 10 for number in range(1000)})
    lines = printed(study, results).splitlines()
    first = lines.index("attained by tenant: the 12 of 1,000 that attained least with Governor")

    assert [line.split()[0] for line in lines[first + 2 : first + 14]] == [
        f"t{number:03}" for number in range(0, 120, 10)
    ]
    assert lines[first + 14] == ""
    assert "Attained by tenant: the 30 of 1,000 that" in render(study, board(study.scenario, results), results)
    narrow = " ".join(printed(study, results, 10, terminal=True).split())
    assert "Governor: t000 0 %, t010 0 %, t020 0 %" in narrow, "where no table fits each contender is a sentence"
