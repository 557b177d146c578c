"""The control bench: it runs, it goes on where it was, it tunes by one rule, and its page says what was measured."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.control import contenders, crew, planner, run, task, tune
from benchmarks.control.__main__ import main
from benchmarks.control.cache import Cache
from benchmarks.control.cases import OWN, Case, cases, placed, tiny
from benchmarks.control.crew import run_all
from benchmarks.control.floor import least
from benchmarks.control.planner import Program, state
from benchmarks.control.plant import CHAT
from benchmarks.control.stats import mean, paired
from benchmarks.control.task import Outcome, Task, document, key, mark
from controller.simulate.load import Origin
from controller.simulate.search import Mark
from simulator.foresight import Need
from tests.support.outcomes import outcome
from tests.support.repository import ROOT
from tests.support.waiting import until

PROGRAM = Program(seeds=(1, 2), training=(101, 102), wanted=("none", "hpa", "oracle"))
GRID = (5.0, 10.0, 15.0, 20.0, 25.0)


# --- the whole -------------------------------------------------------------------------------------------------------


def test_the_short_form_runs_and_a_second_one_has_nothing_left_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--short", "--cores", "1", "--cache", str(tmp_path / "cache"), "--page", str(tmp_path / "page.md")]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert shown.err == ""  # a bar is for a terminal
    for name in ("Governor", "no controller", "hpa", "cheapest static", "oracle"):
        assert re.search(rf"^  {name}", shown.out, re.MULTILINE), name
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "### Tiny flash" in page
    assert "This page is of a part of the bench" in page
    assert str(tmp_path) not in page
    monkeypatch.setattr(run, "opened", None)  # whoever runs anything now fails
    assert main(words) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page


def test_an_interrupted_bench_ends_at_once_and_keeps_what_it_has(tmp_path: Path) -> None:
    program = replace(PROGRAM, wanted=("none",))

    def told(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(crew.Interrupted):
        run_all([replace(tiny(), scope=OWN)], program, Cache(tmp_path), cores=1, told=told)
    assert signal.getsignal(signal.SIGINT) is usual
    assert 1 <= len(list(tmp_path.glob("tiny/*.json"))) < 4


def test_a_case_that_breaks_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case, one: Task, *_: object) -> Outcome:
        if case.name == "step":
            raise ZeroDivisionError("by chance")
        return outcome()

    monkeypatch.setattr(crew, "do", broken)
    both = [replace(case, scope=OWN) for case in cases() if case.name in ("step", "ramp")]
    found, said = run_all(both, replace(PROGRAM, wanted=("none",)), Cache(tmp_path), cores=1)
    assert len(found["ramp"]) == 4
    assert list(said) == ["step"]
    assert "ZeroDivisionError: by chance" in said["step"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nonsense"], "there is no case 'nonsense'"),
        (["--against", "tiny"], "there is no contender 'tiny'"),
        (["--seeds", "101"], "write 1 to 100"),
        (["--seeds", "0"], "--seeds: is 0; write 1 to 100"),
        (["--against", ""], "--against: names nobody; write some of none, hpa"),
        (["--against", ","], "--against: names nobody"),
        (["--only", ""], "--only: names no case; write names that --list tells"),
        (["--cores", "0"], "write 1 or more"),
        (["--speed"], "unrecognized arguments"),
    ],
)
def test_a_wrong_argument_is_told_before_hours_are_spent(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--page", "{here}"], "--page {here}: is a folder; name a file in it"),
        (["--page", "{here}/file/page.md"], "--page {here}/file/page.md: cannot be written: File exists; name a"),
        (["--page", "{here}/page"], "--page {here}/page: its plots go into a folder of that name; name a file such as"),
        (["--page", "{here}/file.md"], "--page {here}/file.md: its plots go into {here}/file: is not a folder; name a"),
        (["--cache", "{here}/file"], "--cache {here}/file: is not a folder; name a folder that you may write to"),
        (
            ["--cache", "/proc/cache"],
            "--cache /proc/cache: cannot be written: No such file or directory; name a folder",
        ),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "opened", None)  # whoever runs anything now fails
    (tmp_path / "file").write_text("")
    own = [] if words[0] == "--cache" else ["--cache", str(tmp_path / "cache")]
    with pytest.raises(SystemExit) as left:
        main(["--short", "--cores", "1", *own, *(word.format(here=tmp_path) for word in words)])
    assert left.value.code == 2
    assert said.format(here=tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize("everybody", [False, True])
def test_who_ends_a_bench_by_sigterm_gets_a_traceback_of_its_workers(tmp_path: Path, everybody: bool) -> None:
    """A shell's `kill` tells one process, `timeout` and a service manager all of them."""
    words = ["--short", "--cores", "2", "--cache", str(tmp_path / "cache"), "--page", str(tmp_path / "page.md")]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.control", *words], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as bench:  # fmt: skip
        until(lambda: any((tmp_path / "cache").glob("tiny/*.json")), 60.0)
        (os.killpg if everybody else os.kill)(bench.pid, signal.SIGTERM)
        _, err = bench.communicate(timeout=60)
    assert (bench.returncode, err) == (143, "interrupted; what was finished is kept\n")


@pytest.mark.parametrize("case", [tiny(), *cases()], ids=lambda case: case.name)
def test_a_case_that_cannot_be_loaded_ends_the_bench_an_hour_later(case: Case) -> None:
    if case.absent:
        pytest.skip(case.absent)
    for contender in ("governor", "none"):
        text = json.dumps(placed(document(case, Task(case.name, contender, 1))))
        study = Origin(text, case.name, ".").load()
        assert list(study.scenario.warnings()) == []
        assert not case.floor or case.floor in {event.name for event in study.scenario.events}


def test_every_peer_is_one_that_a_case_can_run() -> None:
    for peer in contenders.peers():
        assert len(peer.grid) >= 5, peer.name
        one = Task("tiny", peer.name, 1, peer.grid[0])
        study = Origin(json.dumps(document(tiny(), one)), "tiny", ".").load()
        assert list(study.peers) == [peer.name]


def test_who_is_told_of_its_engine_is_told_of_the_one_it_has() -> None:
    (day,) = (case for case in cases() if case.name == "servegen")
    assert contenders.governed(day)["pools"][CHAT]["max_num_seqs"] == 16
    assert contenders.peer("wva").settings(0.5, day)["max_seqs"] == 16
    assert contenders.peer("wva").settings(0.5, tiny())["max_seqs"] == 32


def test_governor_has_one_config_and_only_names_and_promises_differ() -> None:
    theirs = ("selector", "objectives", "workload", "gpus_per_replica", "cold_start", "profile", "tenants", "classes",
              "max_num_seqs")  # fmt: skip
    bodies, levers = set(), dict[str, set[str]]()
    for case in cases():
        for pool in contenders.governed(case)["pools"].values():
            gateway = {name: one for name, one in pool["gateway"].items() if name != "selector"}
            own = {name: one for name, one in pool.items() if name not in (*theirs, "levers", "gateway")}
            bodies.add(json.dumps({**own, "gateway": gateway}, sort_keys=True))
            for name, lever in pool["levers"].items():
                told = {key: one for key, one in lever.items() if key != "receivers"}
                levers.setdefault(name, set()).add(json.dumps(told, sort_keys=True))
    assert len(bodies) == 1
    assert set(levers) == set(contenders.levers())
    assert {name: len(some) for name, some in levers.items()} == dict.fromkeys(levers, 1)


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_what_was_kept_is_what_was_found_and_a_damaged_file_is_run_again(tmp_path: Path) -> None:
    cache, one = Cache(tmp_path), outcome(0.9, hours=3.0, breaks=((1.0, "chat-1", 1.0, 0.0),), fairness={"acme": 0.5})
    assert cache.get("tiny", "abc") == (False, None)
    cache.put("tiny", "abc", one)
    assert cache.get("tiny", "abc") == (True, one)
    cache.put("tiny", "none", None)
    assert cache.get("tiny", "none") == (True, None)
    (path,) = tmp_path.glob("tiny/abc.json")
    path.write_text(path.read_text(encoding="utf-8")[:50], encoding="utf-8")
    assert cache.get("tiny", "abc") == (False, None)


def test_to_run_anew_takes_nothing_of_a_folder_but_its_results(tmp_path: Path) -> None:
    """`--cache ~ --fresh` removed the home folder."""
    cache, task = Cache(tmp_path), Task("tiny", "none", 1)
    for case in ("tiny", "step"):
        cache.put(case, key(tiny(), task), outcome())
    mine = [tmp_path / "thesis.md", tmp_path / "tiny" / "notes.json"]
    for path in mine:
        path.write_text("{}", encoding="utf-8")

    cache.forget("tiny")
    cache.forget("ramp")

    assert cache.get("tiny", key(tiny(), task)) == (False, None)
    assert cache.get("step", key(tiny(), task)) == (True, outcome())
    assert all(path.exists() for path in mine)


def test_a_result_of_another_run_is_not_taken_for_this_one() -> None:
    case, one = tiny(), Task("tiny", "hpa", 1, 10.0)
    longer = replace(case, scenario={**case.scenario, "duration": "12m"})
    others = [
        key(case, replace(one, seed=2)), key(case, replace(one, value=12.0)), key(longer, one),
        key(case, replace(one, contender="keda")), key(case, Task("tiny", "governor", 1)),
        key(case, Task("tiny", "oracle", 1, mark=Mark(3, 0))), key(case, Task("tiny", "oracle", 1, mark=Mark(4, 0))),
        key(case, Task("tiny", "oracle", 1, mark=Mark(4, 0, Mark(1, 0)))),
    ]  # fmt: skip
    assert len({key(case, one), *others}) == len(others) + 1
    assert key(case, one) == key(tiny(), Task("tiny", "hpa", 1, 10.0))


def test_a_change_of_governor_does_not_throw_away_what_is_known_of_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    case = tiny()
    own, peer, bound = Task("tiny", "governor", 1), Task("tiny", "hpa", 1, 10.0), Task("tiny", "static", 1)
    before = [key(case, one) for one in (own, peer, bound)]
    usual = task.version
    monkeypatch.setattr(task, "version", lambda rooms: "other" if "policies" in rooms else usual(rooms))
    after = [key(case, one) for one in (own, peer, bound)]
    assert before[0] != after[0]
    assert before[1:] == after[1:]
    monkeypatch.setattr(task, "version", lambda rooms: "other")
    assert not set(before) & {key(case, one) for one in (own, peer, bound)}


# --- the tuning rule -------------------------------------------------------------------------------------------------


class Fake:
    """A peer that attains less and costs less the higher its value, on every seed alike but for a hair."""

    def __init__(self, governor: Outcome, attained: Callable[[float], float]) -> None:
        self.governor, self.attained = governor, attained
        self.asked: list[tuple[float, int]] = []

    def chosen(self, seeds: tuple[int, ...] = (101, 102)) -> float | None:
        tried: dict[tuple[float, int], Outcome] = {}
        for _ in range(20):
            todo, value = tune.wanted(GRID, seeds, dict.fromkeys(seeds, self.governor), tried)
            if not todo:
                return value
            self.asked += todo
            tried.update({(value, seed): outcome(self.attained(value), hours=100 / value) for value, seed in todo})
        raise AssertionError("never done")


@pytest.mark.parametrize(("enough", "chosen"), [(16.0, 15.0), (18.0, 17.3), (4.0, 5.0), (99.0, 25.0)])
def test_of_the_values_that_attain_as_much_the_cheapest_is_taken(enough: float, chosen: float) -> None:
    """Also between two of the grid: a coarse grid would make a peer dearer than it is."""
    fake = Fake(outcome(0.98), lambda value: 0.985 if value <= enough else 0.98 - value / 1000)
    assert fake.chosen() == chosen
    assert len(fake.asked) == len(set(fake.asked))
    assert sum(seed == 102 for _, seed in fake.asked) == tune.FINALISTS


def test_where_none_attains_as_much_the_one_that_comes_nearest_is_taken() -> None:
    assert Fake(outcome(1.0), lambda value: 0.99 - abs(value - 10.0) / 100).chosen() == 10.0


def test_a_peer_that_saves_by_letting_the_critical_ones_wait_is_not_equal() -> None:
    mine = tune.pooled(0.0, [outcome(0.98, 0.95)])
    careless = tune.pooled(1.0, [outcome(0.90, 0.99, hours=1.0)])
    careful = tune.pooled(2.0, [outcome(0.98, 0.95, hours=9.0)])
    assert tune.gap(careless, mine) == pytest.approx(0.08)
    assert tune.ranked([careless, careful], mine)[0] is careful


def test_nothing_is_tuned_before_governor_has_set_the_mark() -> None:
    assert tune.wanted(GRID, (101,), {}, {}) == ([], None)


# --- what runs when --------------------------------------------------------------------------------------------------


def answer(one: Task) -> Outcome:
    hours = 9.0 if one.value is None else 200 / one.value
    return outcome(1.0 if one.value is None or one.value <= 15 else 0.9, hours=hours)


def test_every_task_is_run_once_and_training_seeds_are_never_scored() -> None:
    case, found = tiny(), dict[Task, Outcome | None]()
    for _ in range(20):
        now = state(case, PROGRAM, found, lambda _: GRID)
        assert not set(now.next) & set(found)
        assert len(set(now.next)) == len(now.next)
        if not now.next:
            break
        found.update({one: answer(one) for one in now.next})
    assert state(case, PROGRAM, found, lambda _: GRID).tuned == {"hpa": 15.0}
    done = planner.result(case, PROGRAM, found, lambda _: GRID)
    assert set(done.runs) == {"governor", "none", "hpa", "oracle"}
    assert all(len(some) == 2 for some in done.runs.values())
    searches = [one for one in found if one.contender == "oracle"]
    assert {one.seed for one in searches} == {1, 2}
    assert all(one.mark == mark(answer(Task("tiny", "governor", 1))) for one in searches)


def test_a_case_of_governor_alone_trains_nobody() -> None:
    case = replace(tiny(), scope=OWN)
    assert {(one.contender, one.seed) for one in state(case, PROGRAM, {}).next} == {
        ("governor", 1), ("governor", 2), ("none", 1), ("none", 2),
    }  # fmt: skip


def test_sets_of_levers_are_runs_of_their_own() -> None:
    program = replace(PROGRAM, subsets={"tiny": (("replicas",),)})
    asked = [one for one in state(tiny(), program, {}).next if one.levers]
    assert [(one.seed, one.levers) for one in asked] == [(1, ("replicas",)), (2, ("replicas",))]
    assert list(contenders.governed(tiny(), only=("replicas",))["pools"]["chat"]["levers"]) == ["replicas"]


def test_sets_between_which_a_step_looks_too_dear_are_run_on_more_seeds() -> None:
    sets = (("replicas",), ("weight",), ("replicas", "weight"))
    program = replace(PROGRAM, subsets={"tiny": sets}, more=(3, 4))
    kept = {("replicas",): 0.8, ("weight",): 0.6, ("replicas", "weight"): 0.79}

    def answers(tasks: Iterable[Task]) -> dict[Task, Outcome | None]:
        return {one: outcome(kept.get(one.levers or (), 0.9), events={}) for one in tasks}

    found = answers(one for one in state(tiny(), program, {}).next if one.levers)
    last = next(iter(found))
    early = {one: some for one, some in found.items() if one != last}
    assert [one for one in state(tiny(), program, early).next if one.levers] == [last]
    asked = [one for one in state(tiny(), program, found).next if one.levers]
    assert [(one.seed, one.levers) for one in asked] == [
        (3, ("replicas",)), (4, ("replicas",)), (3, ("replicas", "weight")), (4, ("replicas", "weight")),
    ]  # fmt: skip
    found |= answers(asked)
    assert not [one for one in state(tiny(), program, found).next if one.levers]


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_an_interval_is_students_t_on_the_differences() -> None:
    found = paired([2.0, 4.0, 6.0, None], [1.0, 2.0, 3.0, 1.0])
    assert found is not None
    assert (found.value, found.count) == (2.0, 3)
    assert found.half == pytest.approx(4.303 / 3**0.5)  # the standard deviation is 1
    assert not found.certain
    assert (same := mean([2.0, 2.0])) is not None
    assert same.certain
    assert mean([]) is None


def test_the_floor_is_what_is_beyond_the_ready_replicas_until_others_can_serve() -> None:
    need = Need(5.0, (4.0,) * 12 + (8.0,) * 24 + (4.0,) * 12, 60.0)
    # 60 s on, for 60 s: 12 cells of 8 where 5 are ready; the event has 24 cells of 8.
    assert least(need, 60.0, 180.0, 5, 60.0) == pytest.approx(12 * 3 / (24 * 8))
    assert least(need, 60.0, 180.0, 8, 60.0) == 0.0
    assert least(need, 60.0, 180.0, 5, 600.0) == pytest.approx(24 * 3 / (24 * 8))
