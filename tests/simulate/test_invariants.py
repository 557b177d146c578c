"""What must hold whatever befalls the fleet: each request has one verdict, each GPU-second one payer."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.simulate.jobs import NONE, Task, do
from controller.simulate.load import open_study
from controller.simulate.verdicts import judge
from simulator.scenario import Scenario
from tests.support.scenarios import SMALL, changed, written

BAD_DAY = [
    {"kind": "crash", "pool": "chat", "at": "90s"},
    {"kind": "straggler", "pool": "chat", "at": "2m", "duration": "30s", "factor": 4},
    {"kind": "reclaim", "pool": "chat", "at": "3m", "notice": "10s"},
    {"kind": "hang", "pool": "chat", "at": "4m", "duration": "20s"},
    {"kind": "metrics_outage", "at": "2m", "duration": "40s"},
]
KNOBS: Mapping[str, Any] = {
    "concurrency": {"per_slot": 1.0}, "queue": {"length": 20, "wait": "5s"}, "retries": {"attempts": 1},
}  # fmt: skip


def stormy(folder: Path, **stream: Any) -> Path:
    web = {**SMALL["traffic"]["chat"][0], "classes": [{"name": "chat", "patience": "4s", "patience_cv": 0.5}], **stream}
    data = changed(SMALL, "traffic", {"chat": [web]})
    data = changed(data, "fleet.disturbances", BAD_DAY)
    data = changed(data, "fleet.pools.chat.gateway", {"knobs": KNOBS})
    return written(folder, changed(changed(data, "against.static", False), "against.oracle", False))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(1, 1000), stop=st.floats(1.0, 360.0), attempts=st.integers(1, 4), impatient=st.booleans(),
)  # fmt: skip
def test_every_request_has_one_verdict_at_any_moment(
    tmp_path: Path, seed: int, stop: float, attempts: int, impatient: bool
) -> None:
    """Crashes, refusals, patience and retries; the clock stops anywhere."""
    retry = {"attempts": attempts, "backoff": "1s", "impatient": impatient}
    scenario = open_study(stormy(tmp_path, retry=retry)).scenario
    assert isinstance(scenario, Scenario)
    world = scenario.world(seed)
    now = scenario.start + stop
    world.advance(now)
    verdicts = judge(world.jobs(), scenario.promises, now)
    firsts = {
        (int(origin), float(arrived))
        for origin, arrived, attempt in zip(
            *(world.jobs().column(name) for name in ("origin", "arrived", "attempt")), strict=True
        )
        if attempt == 0
    }
    assert len(firsts) == len({origin for origin, _ in firsts})
    assert sorted(verdicts.arrived.tolist()) == sorted(arrived for _, arrived in firsts)
    assert set(np.unique(verdicts.result)) <= {0, 1, 2, 3}
    assert ((verdicts.why >= 0) == (verdicts.result == 2)).all()
    assert (verdicts.ttft[verdicts.served] >= 0).all()
    assert (verdicts.cached <= verdicts.prompt).all()


def test_a_later_look_changes_no_verdict_that_was_final(tmp_path: Path) -> None:
    scenario = open_study(stormy(tmp_path)).scenario
    early, late = scenario.world(3), scenario.world(3)
    early.advance(scenario.start + 200)
    late.advance(scenario.start + 360)
    before = judge(early.jobs(), scenario.promises, scenario.start + 200)
    after = judge(late.jobs(), scenario.promises, scenario.start + 360)
    count = len(before.arrived)
    assert after.arrived[:count].tolist() == before.arrived.tolist()
    settled = before.result != 3
    assert (after.result[:count][settled] == before.result[settled]).all()


@pytest.mark.parametrize("contender", ["governor", "hpa"])
def test_a_bad_day_is_run_to_its_end_by_whoever_drives(tmp_path: Path, contender: str) -> None:
    run = do(open_study(stormy(tmp_path)), Task(contender, 1))
    assert run is not None
    assert 0 < (run.score.all.attainment or 0) < 1
    assert all(1 <= change.after <= 8 for change in run.changes)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """A live view, and the judgements behind it, are no part of the world."""
    study = open_study(stormy(tmp_path))
    quiet, looked = study.scenario.world(5), study.scenario.world(5)
    for second in range(0, 361, 7):
        looked.advance(study.scenario.start + second)
        judge(looked.jobs(), study.scenario.promises, study.scenario.start + second)
        looked.replicas(), looked.waiting()
    for world in (quiet, looked):
        world.advance(study.scenario.start + 360)
    first, second_ = (judge(w.jobs(), study.scenario.promises, study.scenario.start + 360) for w in (quiet, looked))
    assert first.result.tolist() == second_.result.tolist()
    assert first.ttft.tobytes() == second_.ttft.tobytes()


def test_what_is_told_of_requests_is_up_to_date(tmp_path: Path) -> None:
    """Engines are brought to the present when something concerns them. All that a verdict rests on concerns them: else
    an answer that has come would be judged as one that has not."""
    scenario = open_study(stormy(tmp_path)).scenario
    assert isinstance(scenario, Scenario)
    world = scenario.world(5)

    def told() -> list[bytes]:
        jobs = world.jobs()
        return [jobs.column(name).tobytes() for name in ("origin", "first_token", "ended", "tpot", "ending")]

    for second in range(0, 361, 3):
        world.advance(scenario.start + second)
        before = told()
        for server in list(world.fleet.cluster.pools["chat"].servers.values()):
            world.fleet.refresh(server)
        assert told() == before


def test_what_is_paid_is_the_integral_of_what_is_drawn(tmp_path: Path) -> None:
    study = open_study(stormy(tmp_path))
    run = do(study, Task(NONE, 2))
    assert run is not None
    scenario = study.scenario
    begin, end = scenario.start + scenario.warm_up, scenario.start + scenario.duration - scenario.cool_down
    rows = [*run.series.replicas["chat"], (end, 0, 0)]
    drawn = sum(
        paid * max(0.0, min(until, end) - max(since, begin)) for (since, paid, _), (until, *_) in pairwise(rows)
    )
    assert run.score.gpu_hours * 3600 == pytest.approx(2 * drawn)
