"""The page of the control bench says what was measured, also where that is bad news, and nothing else."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.control import page, plots
from benchmarks.control.cases import BOUNDED, FULL, Case, cases, chosen, tiny
from benchmarks.control.criteria import verdicts
from benchmarks.control.grounds import GROUNDS, NOBODY
from benchmarks.control.measures import dominating, equals
from benchmarks.control.planner import Result
from benchmarks.control.task import Counted, Outcome
from tests.support.outcomes import counted, outcome, within

SEEDS = (1, 2, 3, 4, 5)


def made(name: str, runs: Mapping[str, Sequence[Outcome | None]], **more: object) -> Result:
    (case,) = chosen([name])
    settings = {"tuned": {"hpa": 20.0}, "subsets": {}, "more": {}, "cpu": 12.0, **more}
    return Result(case, SEEDS, {who: tuple(some) for who, some in runs.items()}, **settings)  # type: ignore[arg-type]


def same(one: Outcome) -> list[Outcome]:
    """Five seeds that differ by a hair in what they cost."""
    return [replace(one, gpu_hours=one.gpu_hours * (1 + 0.001 * seed)) for seed in SEEDS]


def diurnal(governor: Outcome, hpa: Outcome, oracle: Outcome | None = None) -> Result:
    none = outcome(0.5, hours=5.0)
    found: dict[str, Sequence[Outcome | None]] = {"governor": same(governor), "none": same(none), "hpa": same(hpa)}
    found["oracle"] = [oracle] * 5
    return made("diurnal", found)


def told(results: Sequence[Result], part: str) -> tuple[str, bool | None]:
    """(what was measured, whether it is met) of the criterion that has these words."""
    (one,) = [one for one in verdicts({r.case.name: r for r in results}) if part in one.asked]
    return one.measured, one.met


def test_a_saving_counts_at_equal_attainment_alone() -> None:
    saved = "diurnal: at least 5 % fewer"
    cheap, dear = outcome(0.99, hours=9.0), outcome(0.99, hours=10.0)
    assert told([diurnal(cheap, dear)], saved) == ("10.0 % (10.0 to 10.0) fewer than hpa", True)
    assert told([diurnal(dear, cheap)], saved)[1] is False
    assert told([diurnal(outcome(0.99, hours=9.8), dear)], saved)[1] is False
    measured, met = told([diurnal(cheap, outcome(0.95, hours=1.0))], saved)
    assert met is True
    assert "no peer attains as much; the nearest is hpa, 4.00 points below" in measured
    assert told([], saved) == ("was not run", None)


def test_a_saving_that_chance_explains_is_none() -> None:
    cheap = [outcome(0.99, hours=hours) for hours in (5.0, 14.0, 6.0, 13.0, 7.0)]
    result = made("diurnal", {"governor": cheap, "hpa": [outcome(0.99, hours=10.0)] * 5})
    assert told([result], "diurnal: at least 5 % fewer")[1] is False


@pytest.mark.parametrize(
    ("peer", "better"),
    [
        (outcome(0.995, 0.985, 9.0), True),
        (outcome(0.99, 0.985, 9.0), True),
        (outcome(0.995, 0.97, 9.0), False),  # of the critical ones alone
        (outcome(0.995, 0.985, 11.0), False),
        (outcome(0.99, 0.98, 9.0), False),  # no higher
    ],
)
def test_a_peer_that_is_better_in_everything_is_named(peer: Outcome, better: bool) -> None:
    result = made("step", {"governor": same(outcome(0.99, 0.98, 10.0)), "hpa": same(peer)})
    assert (dominating(result) == ["hpa"]) is better
    measured, met = told([result], "elsewhere no peer")
    assert met is not better
    assert ("Step: hpa" in measured) is better


def test_equal_is_equal_in_both() -> None:
    governor = same(outcome(0.99, 0.98))
    assert equals(made("step", {"governor": governor, "hpa": same(outcome(0.989, 0.98))})) == ["hpa"]
    assert equals(made("step", {"governor": governor, "hpa": same(outcome(0.98, 0.99))})) == []
    assert equals(made("step", {"governor": governor, "hpa": same(outcome(0.99, 0.96))})) == []


def test_the_bounds_and_the_flash_are_held_to_their_numbers() -> None:
    result = diurnal(outcome(0.996, hours=10.9), outcome(0.99), outcome(0.996, hours=10.0))
    assert told([result], "diurnal: critical at least 99.5%") == ("99.57%", True)
    assert told([result], "diurnal: at most 1.1 times")[1] is True
    dear = diurnal(outcome(0.99, hours=11.5), outcome(0.99), outcome(0.996, hours=10.0))
    assert told([dear], "diurnal: critical at least 99.5%")[1] is False
    assert told([dear], "diurnal: at most 1.1 times")[1] is False
    flash = outcome(0.97, events={"flash": within(0.9, shed=60)}, floor=0.05)
    result = made("flash-3", {"governor": same(flash), "static": same(outcome(hours=13.0)), "hpa": same(flash)})
    assert told([result], "flash-3: critical inside the event")[1] is True
    assert told([result], "flash-3: shed inside") == ("6.0% against 5.0%", True)
    assert told([result], "flash-3: at most 0.8 times")[1] is True
    worse = made("flash-3", {"governor": same(replace(flash, floor=0.04)), "hpa": same(flash)})
    assert told([worse], "flash-3: shed inside")[1] is False


def test_an_error_of_the_model_is_charged_where_it_costs_most() -> None:
    def case(name: str, critical: float, everything: float) -> Result:
        return made(name, {"governor": same(outcome(critical, everything))})

    base = case("diurnal-model-1", 0.99, 0.98)
    fine = [base, case("diurnal-model-0.7", 0.985, 0.975), case("diurnal-model-1.4", 0.99, 0.99)]
    measured, met = told(fine, "diurnal: step times of 0.7 to 1.4")
    assert met is True
    assert measured.endswith("\u00d70.7")
    assert told([base, case("diurnal-model-0.7", 0.99, 0.95)], "diurnal: step times")[1] is False
    assert told([base], "flash-3: step times") == ("was not run", None)


def flood(victims: int, flooder: Counted, least: float) -> list[Result]:
    def one(good: int) -> Outcome:
        there = {name: counted(good) for name in ("acme", "birch", "cedar")}
        return outcome(tenants_in={"flood": {**there, "flooder": flooder}}, fairness={"acme": least},
                       tenants={**there, "flooder": flooder})  # fmt: skip

    calm = made("flood-calm", {"governor": [one(1000)] * 5})
    return [made("flood", {"governor": [one(victims)] * 5}), calm]


def test_victims_pay_for_the_flooder_or_the_flooder_is_starved() -> None:
    served = Counted(9000, 700, 0, 0, {"rejected": 8300})
    assert told(flood(995, served, 0.95), "victims lose")[1] is True
    assert told(flood(980, served, 0.95), "victims lose") == ("2.00 points (acme)", False)
    assert told(flood(995, served, 0.95), "keeps its guarantee")[1] is True  # 700 x 8,500 tokens in ten minutes
    assert told(flood(995, Counted(9000, 100, 0, 0, {"rejected": 8900}), 0.95), "keeps its guarantee")[1] is False
    assert told(flood(995, served, 0.95), "every backlogged tenant")[1] is True
    assert told(flood(995, served, 0.8), "every backlogged tenant")[1] is False
    starved = told(flood(995, Counted(9000, 0, 0, 0, {"rejected": 9000}), 0.95), "every backlogged tenant")
    assert starved == ("least 0.95 (acme); starved: flooder", False)


def test_a_slow_replica_that_stays_in_rotation_or_out_of_it_is_told() -> None:
    def failing(*breaks: tuple[float, str, float, float]) -> Result:
        return made("failing-8", {"governor": [outcome(breaks=breaks)] * 5})

    asked = "failing-8: the slow replica"
    assert told([failing((1250.0, "a", 1.0, 0.0), (1600.0, "a", 0.25, 1.0))], asked)[1] is True
    assert told([failing((1280.0, "a", 1.0, 0.0), (1600.0, "a", 0.25, 1.0))], asked)[1] is False
    assert told([failing((1250.0, "a", 1.0, 0.0), (1700.0, "a", 0.25, 1.0))], asked)[1] is False
    assert told([failing((1250.0, "a", 1.0, 0.0))], asked)[1] is False
    assert told([failing()], asked) == ("it was not taken out in 5 of 5 runs", False)
    for breaks, fine in (
        ([(487.0, "a", 1.0, 0.0)], True),
        ([(489.0, "a", 1.0, 0.0)], False),
        ([(300.0, "b", 1.0, 0.0), (487.0, "a", 1.0, 0.0)], False),
        ([], False),
    ):
        direct = made("failing-direct", {"governor": [outcome(breaks=tuple(breaks))] * 5})
        assert told([direct], "failing-direct")[1] is fine
    assert told([], "failing-direct") == ("was not run", None)
    eight = {"chat": ((0.0, 8, 8),)}
    one = [(800.0, "a", 1.0, 0.0)]
    for breaks, fine in ((one, True), ([*one, (800.0, "b", 1.0, 0.05)], False)):
        result = made("half-slow", {"governor": [outcome(breaks=tuple(breaks), replicas=eight)] * 5})
        assert told([result], "half the fleet slow")[1] is fine
    more = {"chat": ((0.0, 8, 8), (700.0, 10, 10))}
    result = made("half-slow", {"governor": [outcome(breaks=tuple(breaks), replicas=more)] * 5})
    assert told([result], "half the fleet slow")[1] is True


def test_replicas_that_fall_while_nothing_is_seen_are_told() -> None:
    def blind(*orders: tuple[float, str]) -> tuple[str, bool | None]:
        rows = ((0.0, 9, 9), (740.0, 8, 8))
        relaxed = tuple((at, lever, 9.0, 8.0) for at, lever in orders)
        return told(
            [made("blind", {"governor": [outcome(relaxed=relaxed, replicas={"chat": rows})] * 5})], "metrics outage"
        )

    drained = "; 5 replicas left on an order from before"
    assert blind((690.0, "replicas"), (1040.0, "admission"), (1300.0, "replicas")) == (
        "0 orders in 5 runs" + drained,
        True,
    )
    assert blind((735.0, "replicas")) == ("5 orders in 5 runs (replicas)" + drained, False)
    assert blind((1070.0, "admission")) == ("5 orders in 5 runs (admission)" + drained, False)
    assert blind((1200.0, "replicas"))[1] is False


def test_a_long_cold_start_is_told_beside_what_arithmetic_leaves() -> None:
    def flash(cold: int, critical: float, floor: float) -> Result:
        some = [outcome(events={"flash": within(critical)}, floor=floor)] * 5
        return made(f"flash-3-cold-{cold}", {"governor": some})

    late = told([flash(60, 0.97, 0.01), flash(420, 0.82, 0.2)], "cold start of 420 s")
    assert late == ("15.00 points; what must be shed whatever is done rises from 1.0% to 20.0%", False)
    assert told([flash(60, 0.97, 0.01), flash(420, 0.95, 0.02)], "cold start of 420 s")[1] is True
    assert told([flash(60, 0.97, 0.01)], "cold start of 420 s") == ("was not run", None)


def test_a_lever_that_does_harm_is_told() -> None:
    def scored(inside: float) -> list[Outcome]:
        return [outcome(inside, events={"flash": within(inside)})] * 5

    def levers(both: float) -> Result:
        subsets = {("replicas",): scored(0.8), ("weight",): scored(0.7), ("replicas", "weight"): scored(both)}
        some = {"governor": scored(both), "none": scored(0.5)}
        return made("levers", some, subsets={name: tuple(one) for name, one in subsets.items()})

    assert told([levers(0.81)], "adding a lever")[1] is True
    measured, met = told([levers(0.79)], "adding a lever")
    assert met is False
    assert measured == "at most 1.00 points, weight to replicas"
    assert told([levers(0.81)], "every set of levers")[1] is True
    assert told([levers(0.4)], "every set of levers") == ("no better with replicas, weight", False)


def test_one_unlucky_step_of_many_is_judged_by_more_seeds_and_both_numbers_are_told() -> None:
    def scored(inside: float, seeds: int) -> tuple[Outcome, ...]:
        return (outcome(inside, events={"flash": within(inside)}),) * seeds

    def levers(again: float) -> Result:
        both = ("replicas", "weight")
        sets = {("replicas",): scored(0.8, 5), ("weight",): scored(0.7, 5), both: scored(0.792, 5)}
        more = {("replicas",): scored(0.8, 15), both: scored(again, 15)}
        return made("levers", {"governor": scored(0.792, 5), "none": scored(0.5, 5)}, subsets=sets, more=more)

    harmless, met = told([levers(0.8)], "adding a lever")
    assert met is True
    assert harmless == "at most 0.21 points, weight to replicas (over 20 seeds; 0.86 points over the first 5)"
    measured, met = told([levers(0.791)], "adding a lever")
    assert met is False
    assert measured.startswith("at most 0.88 points, weight to replicas (")


# --- the text --------------------------------------------------------------------------------------------------------


def bench(*results: Result, seeds: int = 5) -> page.Bench:
    return page.Bench(results, [(tiny(), "it is too small")], seeds, len(cases()), 3)


def test_the_page_is_made_of_the_results_and_says_what_is_missing() -> None:
    result = diurnal(outcome(0.99, hours=9.0), outcome(0.99, hours=10.0), None)
    text = page.text(bench(result), {"diurnal": "benchmarks/diurnal"})
    assert "| **Governor** | 99.00 | 99.00 | 9.03 |" in text
    assert re.search(r"\| hpa \| 99\.00 \| 99\.00 \| 10\.03 \| \*\*-1\.00 ± 0\.00\*\* \|", text)
    assert "| oracle | none attains as much |" in text
    assert "* Tiny flash: it is too small" in text
    assert "This page is of a part of the bench" in text
    assert "(benchmarks/diurnal-time.svg)" in text
    assert "| 1 | diurnal: at least 5 % fewer GPU-hours than the best peer of equal attainment | 10.0 %" in text
    assert "emulated" in text
    other = page.text(bench(diurnal(outcome(0.9, hours=19.0), outcome(0.99, hours=10.0), None)))
    assert "| **Governor** | 90.00 | 90.00 | 19.06 |" in other
    assert "**not met**" in other


def test_bad_news_without_a_reason_or_a_reason_for_what_is_met() -> None:
    def crowd(name: str, hours: float) -> Result:
        there = {name: within(0.9)}
        governor, hpa = outcome(0.99, 0.98, hours, events=there), outcome(0.995, 0.985, 9.0, events=there)
        return made(name, {"governor": same(governor), "hpa": same(hpa)})

    text = page.text(bench(crowd("step", 10.0), crowd("ramp", 10.0)))
    assert f"* **Step.** {GROUNDS['elsewhere:step']}\n" in text
    assert f"* **Ramp.** {NOBODY}\n" in text
    assert GROUNDS["static:flash-3"] not in text
    assert "### Why" not in page.text(bench(crowd("step", 8.0)))


def test_a_reason_for_a_scenario_that_is_no_more_is_never_said() -> None:
    names = {case.name for case in cases()}
    for ground in GROUNDS:
        kind, _, case = ground.partition(":")
        assert case in names | {""}, ground
        assert kind in {"saving", "attained", "elsewhere", "static", "oracle", "shed", "cold", "victims", "adding"}


def test_victims_vanish_in_the_sum_of_whoever_floods() -> None:
    def one(victims: int) -> Outcome:
        there = {name: counted(victims) for name in ("acme", "birch", "cedar")}
        flooder = Counted(9000, 8000, 0, 0, {"rejected": 1000})
        return outcome(events={"flood": within(0.9)}, tenants_in={"flood": {**there, "flooder": flooder}})

    runs: dict[str, Sequence[Outcome | None]] = {
        "governor": same(one(990)),
        "hpa": [one(600), one(660), None, None, None],
    }
    text = page.text(bench(made("flood", runs)))
    names = list(made("flood", runs).case.tenants)
    cells = {"governor": ["99.00"] * 4, "hpa": ["63.00"] * 4}
    for some in cells.values():
        some[names.index("flooder")] = "88.89"
    assert f"| contender | {' | '.join(names)} |" in text
    assert f"| Governor | {' | '.join(cells['governor'])} |" in text
    assert f"| hpa | {' | '.join(cells['hpa'])} |" in text  # of the seeds with which it attained as much


def test_a_table_whose_rows_have_another_number_of_cells_is_no_table() -> None:
    result = diurnal(outcome(0.99, hours=9.0), outcome(0.99, hours=10.0), None)
    flash = made("flash-3", {"governor": same(outcome(events={"flash": within(0.9)}, floor=0.1)),
                             "hpa": same(outcome(events={"flash": within(0.9)}))})  # fmt: skip
    varied = made("diurnal-cold-60", {"governor": same(outcome(0.98))})
    text = page.text(bench(result, flash, varied))
    assert "Diurnal, cold start 60 s | 98.00" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_a_whole_bench_is_not_called_a_part() -> None:
    every = [Result(case, SEEDS, {"governor": (outcome(events={}),) * 5}, {}, {}, {}, 1.0) for case in cases()]
    assert not page.Bench(every, [], 5, len(cases()), 3).partial
    assert page.Bench(every[1:], [], 5, len(cases()), 3).partial
    assert page.Bench(every, [], 4, len(cases()), 3).partial


def test_plots_are_drawings_that_stand_by_themselves(tmp_path: Path) -> None:
    result = diurnal(outcome(0.99, hours=9.0), outcome(0.99, hours=10.0), outcome(0.99, hours=8.0))
    for drawn in (plots.timeline(result, "hpa"), plots.scatter(result)):
        assert drawn.startswith("<svg ")
        assert "nan" not in drawn
        assert "Governor" in drawn
        assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")


def test_a_case_that_is_bounded_has_no_search() -> None:
    scopes: dict[str, list[Case]] = {}
    for case in cases():
        scopes.setdefault(case.scope, []).append(case)
    assert {case.name for case in scopes[FULL]} >= {"diurnal", "servegen", "azure", "flash-1.9", "flash-3"}
    assert len(scopes[BOUNDED]) > 10
