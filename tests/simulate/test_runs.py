"""The same seed gives the same result, on any number of cores; and what is simulated is the loop itself."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.core.errors import InputError
from controller.core.model import Lever, Plan, Target
from controller.simulate import jobs
from controller.simulate.board import board
from controller.simulate.crew import Progress, Results, run_all
from controller.simulate.jobs import GOVERNOR, NONE, ORACLE, STATIC, Task, contenders, do
from controller.simulate.lines import simulation_json
from controller.simulate.load import Study, open_study
from controller.simulate.run import Cancelled, Frame, Run, Watch, drive
from controller.simulate.search import Mark
from simulator.scenario import Scenario
from tests.support.scenarios import SMALL, changed, written


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return open_study(written(tmp_path_factory.mktemp("scenario")))


@pytest.fixture(scope="module")
def results(study: Study) -> Results:
    return run_all(study, [1, 2], cores=1)


def text(study: Study, results: Results) -> str:
    return json.dumps(simulation_json(study, board(study.scenario, results), results), allow_nan=False)


def only(results: Results, contender: str, seed: int = 1) -> Run:
    return next(run for run in results.of(contender) if run.seed == seed)


def test_one_core_and_several_give_the_same_bytes(study: Study, results: Results) -> None:
    """Workers are processes of their own, each with another hash seed."""
    assert text(study, run_all(study, [1, 2], cores=3)) == text(study, results)


def test_two_seeds_differ(results: Results) -> None:
    assert only(results, GOVERNOR, 1).score != only(results, GOVERNOR, 2).score


def test_every_contender_ran_with_every_seed(study: Study, results: Results) -> None:
    assert results.contenders == contenders(study) == (GOVERNOR, NONE, STATIC, "hpa", ORACLE)
    assert all([run is not None and run.seed for run in runs] == [1, 2] for runs in results.runs.values())


def test_the_rush_drowns_a_fleet_without_a_controller_and_governor_meets_it(results: Results) -> None:
    alone, governed = only(results, NONE).score, only(results, GOVERNOR).score
    assert alone.all.attainment is not None
    assert governed.all.attainment is not None
    assert alone.all.attainment < 0.6
    assert governed.all.attainment > alone.all.attainment + 0.1
    lasted, drowned = governed.events["rush"].recovered, alone.events["rush"].recovered
    assert lasted is not None
    assert drowned is None or drowned > lasted
    assert alone.all.offered == governed.all.offered  # the same crowd
    assert governed.travel["replicas"] > 0 == alone.reversals


def test_static_and_oracle_attain_as_much_as_governor_for_less_than_any_dearer_one(results: Results) -> None:
    for seed in (1, 2):
        wanted = only(results, GOVERNOR, seed).score
        for name in (STATIC, ORACLE):
            found = only(results, name, seed).score
            assert (found.all.attainment or 0) >= (wanted.all.attainment or 0)
            assert found.all.good >= wanted.all.good - max(0, wanted.all.open - found.all.open)
        assert only(results, ORACLE, seed).score.gpu_hours < wanted.gpu_hours
        assert only(results, ORACLE, seed).score.gpu_hours <= only(results, STATIC, seed).score.gpu_hours


@pytest.mark.parametrize("search", [STATIC, ORACLE])
def test_giving_up_early_on_what_cannot_attain_as_much_changes_no_result(
    study: Study, easy: Study, results: Results, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def patience(at: float) -> bool:
        asked.append(at)
        return False

    cases = [(study, Task(search, 1, Mark.of(only(results, GOVERNOR).score.all))), (easy, Task(search, 1, Mark(0, 0)))]
    sparing = [do(*case) for case in cases]
    monkeypatch.setattr(jobs, "hopeless", lambda *_: patience)
    patient = [do(*case) for case in cases]
    assert asked
    assert None not in sparing
    assert patient == sparing


@pytest.fixture
def easy(tmp_path: Path) -> Study:
    """One request every ten seconds, each done long before the next tick; nobody misses any."""
    rows = [f"2024-01-01 00:00:{second:02}.0000000,1000,101" for second in range(0, 60, 10)]
    (tmp_path / "few.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]), encoding="ascii")
    data = {**SMALL, "duration": "1m", "warm_up": "0s", "cool_down": "0s", "events": []}
    data = changed(data, "traffic", {"chat": [{"kind": "azure", "name": "few", "file": "few.csv"}]})
    data = changed(data, "promises", {"default": {"ttft": "300ms", "tpot": "100ms"}})
    return open_study(written(tmp_path, data))


def test_a_fleet_is_not_given_up_for_requests_whose_end_the_clock_has_passed(easy: Study) -> None:
    """Promises shorter than a tick: who judges ahead of the world finds late what is done."""
    runs = run_all(easy, [1], cores=1)
    assert {name: [run.score.all.attainment for run in runs.of(name)] for name in runs.contenders} == {
        name: [1.0] for name in contenders(easy)
    }


def test_a_frame_tells_what_has_come_by_then(easy: Study) -> None:
    frames: list[Frame] = []
    do(easy, Task(GOVERNOR, 1), Watch(frames.append, lambda: True))
    assert [frame.attained for frame in frames] == [None, 1.0, 1.0, 1.0, 1.0]


def test_one_replica_fewer_than_the_cheapest_static_fleet_attains_less(study: Study, results: Results) -> None:
    best, wanted = only(results, STATIC), only(results, GOVERNOR).score.all.attainment or 0.0
    count = int(best.settings["replicas of chat"])
    if count > 1:
        fewer = replace(study, scenario=study.scenario.with_replicas({"chat": count - 1}))  # type: ignore[attr-defined]
        run = do(fewer, Task(NONE, 1))
        assert run is not None
        assert (run.score.all.attainment or 0.0) < wanted


def test_gpu_hours_are_those_of_the_scored_part_with_starting_and_draining(results: Results) -> None:
    assert only(results, NONE).score.gpu_hours == pytest.approx(2 * 270 / 3600)  # 2 GPUs for 4.5 minutes


def test_every_change_has_its_reason(results: Results) -> None:
    run = only(results, GOVERNOR)
    assert run.changes
    assert run.changed == len(run.changes)
    assert all(change.why for change in run.changes)
    assert run.changes[0].before == 1.0


def test_series_have_one_value_a_minute(results: Results) -> None:
    series = only(results, NONE).series
    assert len(series.offered) == len(series.attainment) == len(series.ttft) == 6
    assert sum(series.offered) * 60 == pytest.approx(sum(round(x * 60) for x in series.offered))
    assert all(math.isnan(x) or 0 <= x <= 1 for x in series.attainment)


def test_a_scenario_without_peers_and_searches_runs_governor_alone(tmp_path: Path) -> None:
    against = {"none": False, "static": False, "oracle": False}
    study = open_study(written(tmp_path, changed(SMALL, "against", against)))
    results = run_all(study, [1], cores=1)
    assert results.contenders == (GOVERNOR,)
    assert board(study.scenario, results).oracle is None


def test_frames_tell_of_the_controllers_runs_and_every_change(study: Study) -> None:
    frames: list[Frame] = []
    counts: list[tuple[int, int]] = []
    done = run_all(
        study, [1], cores=2,
        progress=Progress(frames.append, lambda count, of: counts.append((count, of)), frames=True),
    )  # fmt: skip
    assert {frame.contender for frame in frames} == {GOVERNOR}
    told = [change for frame in frames for change in frame.changes]
    assert told == list(only(done, GOVERNOR).changes)
    assert counts[0] == (0, 5)
    assert counts[-1] == (5, 5)


def test_a_run_that_is_told_to_stop_stops(study: Study) -> None:
    looks: list[Frame] = []
    asked = iter([False, False, True])
    with pytest.raises(Cancelled):
        do(study, Task(NONE, 1), Watch(looks.append, lambda: True, lambda: next(asked)))
    assert [frame.at for frame in looks] == [0.0, 15.0]


def test_a_selector_that_matches_nothing_is_said_and_not_scored(tmp_path: Path) -> None:
    blind = changed(SMALL, "governor.pools.chat.selector", {"model_name": "chatt"})
    study = open_study(written(tmp_path, blind))
    with pytest.raises(InputError, match=r'10 ticks; its selector \{model_name="chatt"\} or its'):
        run_all(study, [1], cores=1)
    with pytest.raises(InputError, match="pool chat: not one replica was seen"):
        run_all(study, [1], cores=2)


class Late:
    """A pilot that raises the fleet at one tick."""

    def __init__(self, world: Any) -> None:
        self.world, self.closed = world, False

    def tick(self, at: float) -> Plan:
        self.world.advance(at)
        return Plan(at)

    def close(self) -> None:
        self.closed = True


def test_the_pilot_is_closed_also_when_a_run_breaks_off(study: Study) -> None:
    world = study.scenario.world(1)
    pilot = Late(world)
    with pytest.raises(Cancelled):
        drive(study.scenario, world, pilot, contender="x", seed=1, interval=15.0, watch=Watch(stop=lambda: True))
    assert pilot.closed


def test_two_pools_are_priced_and_steered_each_by_itself(tmp_path: Path) -> None:
    stream, pool = SMALL["traffic"]["chat"][0], SMALL["fleet"]["pools"]["chat"]
    governed = SMALL["governor"]["pools"]["chat"]
    two = changed(SMALL, "traffic", {"chat": [stream], "code": [{**stream, "name": "api", "shapes": []}]})
    two = changed(two, "fleet.pools", {"chat": pool, "code": {**pool, "gpus": 1, "replicas": 2}})
    code = {**governed, "selector": {"model_name": "code"}, "workload": {"namespace": "default", "name": "code"}}
    two = changed(two, "governor.pools", {"chat": governed, "code": {**code, "gpus_per_replica": 1}})
    study = open_study(written(tmp_path, changed(two, "against.peers", {})))
    results = run_all(study, [1], cores=1)
    assert only(results, NONE).score.gpu_hours == pytest.approx((2 + 2) * 270 / 3600)
    moved = {change.target for change in only(results, GOVERNOR).changes}
    assert str(Target("chat", Lever.REPLICAS)) in moved
    static = only(results, STATIC).settings
    assert set(static) == {"replicas of chat", "replicas of code"}
    assert static["replicas of chat"] >= static["replicas of code"]


def test_nothing_has_arrived_before_the_clock_starts(study: Study) -> None:
    scenario = study.scenario
    assert isinstance(scenario, Scenario)
    assert len(scenario.world(1).jobs().column("origin")) == 0


def test_answers_of_a_smaller_model_are_a_column_of_their_own(tmp_path: Path) -> None:
    pool = SMALL["fleet"]["pools"]["chat"]
    down = {"pool": "small", "share": 0.5, "tenants": ["*"], "classes": ["*"]}
    pools = {"chat": {**pool, "gateway": {"knobs": {"downgrade": [down]}}}, "small": pool}
    data = changed(changed(SMALL, "fleet.pools", pools), "against", {"static": False, "oracle": False})
    study = open_study(written(tmp_path, data))
    results = run_all(study, [1], cores=1)
    share = only(results, NONE).score.all
    assert share.degraded_share == pytest.approx(0.5, abs=0.1)
    assert share.good + share.degraded + sum(share.missed.values()) == share.offered
    keys = {measure.key for measure in board(study.scenario, results).measures}
    assert "degraded" in keys
