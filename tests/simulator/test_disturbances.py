"""What befalls a real fleet befalls the twin, and shows without a controller."""

import numpy as np
import pytest

from controller.config.errors import BadParts
from controller.config.plugins import build
from routing.knobs import Knobs, Retries
from simulator.cluster.disturbances import (
    Crash,
    Errors,
    Hang,
    PullFailure,
    Quota,
    Reclaim,
    Rollout,
    SlowNetwork,
    StartFailure,
    Straggler,
    Victims,
)
from simulator.cluster.life import Stage
from simulator.job import Ending
from simulator.spec import EngineLimits, FleetSpec, GatewaySpec, LifeSpec
from simulator.truth import ENDINGS
from simulator.twin import Twin
from tests.support.twins import CHAT, START, ask, fleet, pool, traffic, twin


def of(one: Twin, ending: Ending) -> int:
    return int((one.truth.jobs.column("ending") == ENDINGS.index(ending)).sum())


def mean(one: Twin, column: str, begin: float, end: float) -> float:
    """Over the jobs that arrived between two times."""
    arrived = one.truth.jobs.column("arrived") - START
    return float(np.nanmean(one.truth.jobs.column(column)[(arrived >= begin) & (arrived < end)]))


def stages(one: Twin) -> list[Stage]:
    return [server.life.stage for server in one.fleet.cluster.pools["chat"].servers.values()]


@pytest.mark.parametrize(
    ("victims", "serving", "places"),
    [
        (Victims(at=0.0, pool="chat"), 3, [0]),
        (Victims(at=0.0, pool="chat", replica=2), 3, [2]),
        (Victims(at=0.0, pool="chat", replica=3), 3, []),
        (Victims(at=0.0, pool="chat", share=0.5), 4, [0, 1]),
        (Victims(at=0.0, pool="chat", share=0.3), 4, [0, 1]),
        (Victims(at=0.0, pool="chat", share=0.3), 10, [0, 1, 2]),
        (Victims(at=0.0, pool="chat", share=1.0), 0, []),
    ],
)
def test_victims_are_counted_among_those_that_serve(victims: Victims, serving: int, places: list[int]) -> None:
    assert list(victims.places(serving)) == places


def test_a_crash_loses_what_the_replica_had_and_a_retry_saves_what_had_no_token_yet() -> None:
    crash = (Hang(at=96.0, pool="chat", duration=60.0), Crash(at=100.0, pool="chat"))
    turn = "round-robin"  # which does not see that one hangs
    alone = twin(fleet(pool(2, gateway=GatewaySpec(strategy=turn)), disturbances=crash))
    alone.advance(START + 400.0)
    lost = of(alone, Ending.FAILED)
    assert 20 <= lost <= 60
    whys = alone.truth.jobs.whys.words
    assert "the replica failed" in whys
    again = Knobs(retries=Retries(attempts=1, spare=100.0))
    saved = twin(fleet(pool(2, gateway=GatewaySpec(strategy=turn, knobs=again)), disturbances=crash))
    saved.advance(START + 400.0)
    assert 0 < of(saved, Ending.FAILED) < lost / 3


def test_a_straggler_is_slow_while_it_lasts_and_no_longer() -> None:
    one = twin(fleet(pool(1), disturbances=(Straggler(at=100.0, pool="chat", duration=60.0, factor=3.0),)))
    one.advance(START + 400.0)
    before, during, after = mean(one, "tpot", 20, 95), mean(one, "tpot", 105, 150), mean(one, "tpot", 200, 290)
    assert 2.8 < during / before < 5.0  # and the batch is larger
    assert after == pytest.approx(before, rel=0.05)


def test_a_slow_machine_stays_slow_when_its_process_starts_anew() -> None:
    befalls = (Straggler(at=50.0, pool="chat", factor=3.0), Crash(at=60.0, pool="chat"))
    one = twin(fleet(pool(1, life=LifeSpec(pull=0.0, load=5.0, warm=5.0)), disturbances=befalls))
    one.advance(START + 400.0)
    assert mean(one, "tpot", 150, 290) > 2.5 * mean(one, "tpot", 0, 45)


def test_a_replica_that_answers_errors_at_once_draws_all_that_is_new() -> None:
    errors = (Errors(at=100.0, pool="chat", duration=60.0),)
    one = twin(fleet(pool(2, gateway=GatewaySpec(strategy="least-loaded")), disturbances=errors))
    one.advance(START + 400.0)
    jobs = one.truth.jobs
    arrived = jobs.column("arrived") - START
    lost = jobs.column("ending") == ENDINGS.index(Ending.FAILED)
    during = (arrived >= 100) & (arrived < 160)
    assert lost[during].mean() > 0.75  # it is always the one with less to do
    assert not lost[~during].any()
    assert "the replica answered HTTP 500" in jobs.whys.words
    again = Knobs(retries=Retries(attempts=1, spare=1000.0))
    saved = twin(fleet(pool(2, gateway=GatewaySpec(strategy="round-robin", knobs=again)), disturbances=errors))
    saved.advance(START + 400.0)
    assert of(saved, Ending.FAILED) < lost.sum() / 2


def test_a_hang_holds_everything_that_the_replica_has_until_it_ends() -> None:
    one = twin(fleet(pool(1), disturbances=(Hang(at=100.0, pool="chat", duration=30.0),)))
    one.advance(START + 129.0)
    ended = one.truth.jobs.column("ended") - START
    assert ended.max() <= 100.0
    one.advance(START + 400.0)
    assert one.inflight == 0
    assert of(one, Ending.FINISHED) == len(one.truth.jobs)
    assert mean(one, "ttft", 100, 130) > 10.0


def test_a_reclaimed_node_is_drained_and_replaced() -> None:
    one = twin(fleet(pool(2), disturbances=(Reclaim(at=100.0, pool="chat", notice=30.0),)))
    one.advance(START + 101.0)
    assert (
        sorted(stages(one)) == [Stage.DRAINING, Stage.PROVISIONING, Stage.READY] or stages(one).count(Stage.READY) == 1
    )
    one.advance(START + 400.0)
    assert stages(one) == [Stage.READY, Stage.READY]
    assert of(one, Ending.FINISHED) == len(one.truth.jobs)
    names = [server.name for server in one.fleet.cluster.pools["chat"].servers.values()]
    assert names == ["chat-v1-1", "chat-v1-2"]


def test_a_notice_that_is_too_short_loses_the_rest() -> None:
    one = twin(
        fleet(pool(2), disturbances=(Reclaim(at=100.0, pool="chat", notice=0.2),)), traffic(20.0, 200.0, output=200.0)
    )
    one.advance(START + 400.0)
    assert of(one, Ending.FAILED) > 5


def test_a_rollout_keeps_the_service_up_and_ends_with_the_new_version() -> None:
    one = twin(fleet(pool(3), disturbances=(Rollout(at=50.0, pool="chat", version="v2", factor=2.0),)))
    serving = []
    for at in range(1, 400):
        one.advance(START + at)
        serving.append(stages(one).count(Stage.READY))
    assert min(serving) == 3
    assert {server.version for server in one.fleet.cluster.pools["chat"].servers.values()} == {"v2"}
    assert of(one, Ending.FINISHED) == len(one.truth.jobs)
    assert mean(one, "tpot", 250, 290) == pytest.approx(2 * mean(one, "tpot", 0, 50), rel=0.15)


def test_a_slow_network_shows_in_the_time_to_the_first_token() -> None:
    one = twin(fleet(disturbances=(SlowNetwork(at=100.0, duration=50.0, delay=0.5, jitter=0.2),)))
    one.advance(START + 400.0)
    calm = mean(one, "ttft", 0, 100)
    assert mean(one, "ttft", 100, 150) == pytest.approx(calm + 0.6, abs=0.05)
    assert mean(one, "ttft", 150, 290) == pytest.approx(calm, rel=0.2)


def test_no_replica_is_made_beyond_a_quota_and_all_come_when_it_is_lifted() -> None:
    one = twin(fleet(pool(2), disturbances=(Quota(at=10.0, pool="chat", limit=3, duration=200.0),)))
    one.advance(START + 20.0)
    one.apply([ask(CHAT, 2.0, 6.0)], one.now)
    one.advance(START + 200.0)
    assert sorted(stages(one)) == [Stage.READY] * 3 + [Stage.REQUESTED] * 3
    assert one.truth.replica_seconds("chat", START, START + 200.0).queued == pytest.approx(3 * 180.0)
    one.advance(START + 262.0)
    assert stages(one) == [Stage.READY] * 6


def test_pools_share_the_gpus_in_the_order_in_which_they_ask() -> None:
    spec = FleetSpec(pools={"big": pool(1, gpus=4), "small": pool(1, gpus=1)}, gpus=8)
    one = Twin(spec, {"big": traffic(1.0, 10.0)}, seed=1, start=START)
    targets = {name: CHAT.__class__(name, CHAT.lever) for name in spec.pools}
    one.apply([ask(targets["small"], 1.0, 3.0)], one.now)
    one.apply([ask(targets["big"], 1.0, 2.0)], one.now)
    one.advance(START + 100.0)
    ready = {name: len(found.ready()) for name, found in one.fleet.cluster.pools.items()}
    assert ready == {"big": 1, "small": 3}  # 4 + 3 of 8 GPUs; another big one does not fit
    one.apply([ask(targets["small"], 3.0, 0.0)], one.now)
    one.advance(START + 400.0)
    assert len(one.fleet.cluster.pools["big"].ready()) == 2


def test_an_image_that_cannot_be_pulled_delays_the_new_and_leaves_the_old() -> None:
    one = twin(fleet(pool(2), disturbances=(PullFailure(at=0.0, pool="chat", duration=100.0),)))
    one.apply([ask(CHAT, 2.0, 3.0)], one.now)
    one.advance(START + 100.0)
    assert sorted(stages(one)) == [Stage.PULLING, Stage.READY, Stage.READY]
    one.advance(START + 300.0)
    assert stages(one) == [Stage.READY] * 3


def test_a_version_that_cannot_start_loops_and_what_serves_goes_on() -> None:
    befalls = (StartFailure(at=0.0, pool="chat", duration=200.0), Rollout(at=10.0, pool="chat", version="v2"))
    one = twin(fleet(pool(2), disturbances=befalls))
    serving = []
    for at in range(1, 200):
        one.advance(START + at)
        serving.append(stages(one).count(Stage.READY))
    assert set(serving) == {2}
    (new,) = (server for server in one.fleet.cluster.pools["chat"].servers.values() if server.version == "v2")
    assert new.life.restarts >= 3
    assert new.life.reason == "Error"
    one.advance(START + 600.0)
    assert {server.version for server in one.fleet.cluster.pools["chat"].servers.values()} == {"v2"}
    assert of(one, Ending.FINISHED) == len(one.truth.jobs)


def test_prompts_that_do_not_fit_the_memory_together_kill_the_process() -> None:
    limits = EngineLimits(max_num_seqs=32, kv_tokens=200_000, max_batched_tokens=2048, memory_tokens=3500)
    one = twin(fleet(pool(2, limits=limits)), traffic(20.0, 200.0, prompt=700.0))
    one.advance(START + 400.0)
    assert of(one, Ending.FAILED) > 0
    crashed = [server for server in one.fleet.cluster.pools["chat"].servers.values() if server.life.restarts]
    assert crashed
    assert {server.life.reason for server in crashed} == {"Error"}
    spared = twin(fleet(pool(2, limits=EngineLimits(max_batched_tokens=2048))), traffic(20.0, 200.0, prompt=700.0))
    spared.advance(START + 400.0)
    assert of(spared, Ending.FAILED) == 0


def test_a_disturbance_of_a_pool_that_is_not_there_is_refused_with_the_mend() -> None:
    with pytest.raises(ValueError, match=r"disturbances\.0\.pool: there is no pool 'chta'; write one of chat"):
        fleet(disturbances=(Crash(at=1.0, pool="chta"),))


def test_a_wrong_scenario_is_told_with_path_and_mend() -> None:
    written = {
        "pools": {"chat": {"replicas": 2, "life": {"load": "45"}, "engine": {"kind": "library", "model": "Llama-9"}}},
        "disturbances": [{"kind": "crsh", "at": "5m", "pool": "chat"}],
    }
    with pytest.raises(BadParts) as caught:
        build(FleetSpec, written)
    told = {path: (mistake, mend) for path, mistake, mend in caught.value.problems}
    assert told["pools", "chat", "life", "load"] == ("'45' has no unit", "write 45s if seconds are meant")
    assert told["disturbances", 0, "kind"] == ("'crsh' is not a choice", "did you mean crash?")
