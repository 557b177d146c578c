"""The twin as an actuator: it takes what Kubernetes and a gateway would take, and tells no more than they could."""

import pytest

from controller.core.model import Lever, Outcome, Pending, Phase, Target
from controller.core.rest import NO_LIMIT
from routing.knobs import Concurrency, Downgrade, Knobs, Queue, Retries
from simulator.cluster.disturbances import Crash
from simulator.job import Ending
from simulator.spec import EngineLimits, GatewaySpec
from simulator.truth import ENDINGS
from simulator.twin import Twin
from tests.support.twins import CHAT, LIFE, START, ask, fleet, pool, traffic, twin


def test_what_is_on_its_way_is_told_by_phase_and_without_a_promise() -> None:
    one = twin(fleet(pool(1)))
    assert one.apply([ask(CHAT, 1.0, 4.0)], START)[0].outcome is Outcome.DONE
    seen = {}
    for at in (1, 15, 25, 45, 55):
        one.advance(START + at)
        state = one.read([CHAT], one.now)[CHAT]
        assert state.accepted == 4.0
        seen[at] = (state.ready, state.pending)
    assert seen == {
        1: (1.0, (Pending(3, Phase.PENDING, START),)),
        15: (1.0, (Pending(3, Phase.PULLING, START),)),
        25: (1.0, (Pending(3, Phase.LOADING, START),)),
        45: (1.0, (Pending(3, Phase.LOADING, START),)),
        55: (4.0, ()),
    }
    state = one.read([CHAT], one.now)[CHAT]
    assert (state.last_outcome, state.last_change) == (Outcome.DONE, START)


def test_a_replica_that_crashed_is_pending_since_it_stopped_serving() -> None:
    one = twin(fleet(pool(2), disturbances=(Crash(at=70.5, pool="chat"),)))
    one.advance(START + 80.0)
    state = one.read([CHAT], one.now)[CHAT]
    assert (state.ready, state.pending) == (1.0, (Pending(1, Phase.LOADING, START + 70.0),))


def test_the_last_one_in_is_the_first_one_out_and_it_finishes_its_requests() -> None:
    one = twin(fleet(pool(2)), traffic(30.0, 120.0, output=200.0))
    one.advance(START + 50.0)
    one.apply([ask(CHAT, 2.0, 3.0)], one.now)
    one.advance(START + 102.0)
    one.apply([ask(CHAT, 3.0, 2.0)], one.now)
    one.advance(START + 300.0)
    assert [server.number for server in one.fleet.cluster.pools["chat"].servers.values()] == [0, 1]
    assert set(one.truth.jobs.column("ending").tolist()) == {ENDINGS.index(Ending.FINISHED)}
    assert 0.0 < one.truth.replica_seconds("chat", START, one.now).draining < LIFE.drain_timeout


def test_a_drain_that_takes_too_long_loses_what_is_left() -> None:
    short = LIFE.__class__(drain_timeout=1.0)
    one = twin(fleet(pool(2, life=short)), traffic(30.0, 100.0, output=500.0))
    one.advance(START + 50.0)
    one.apply([ask(CHAT, 2.0, 1.0)], one.now)
    one.advance(START + 51.0)
    assert len(one.fleet.cluster.pools["chat"].servers) == 1
    one.advance(START + 400.0)
    lost = (one.truth.jobs.column("ending") == ENDINGS.index(Ending.FAILED)).sum()
    assert lost > 3


@pytest.mark.parametrize(
    ("current", "final", "outcome", "detail"),
    [
        (2.0, 2.0, Outcome.DONE, "has 2 already"),
        (1.0, 3.0, Outcome.FAILED, "has 2, the decision was made on 1"),
        (2.0, 2.5, Outcome.REFUSED, "2.5 is no number of replicas"),
        (2.0, -1.0, Outcome.REFUSED, "-1 is no number of replicas"),
    ],
)
def test_a_write_that_cannot_be_changes_nothing(current: float, final: float, outcome: Outcome, detail: str) -> None:
    one = twin()
    applied = one.apply([ask(CHAT, current, final)], START)[0]
    assert (applied.outcome, applied.detail) == (outcome, detail)
    assert one.read([CHAT], START)[CHAT].accepted == 2.0
    assert one.truth.moves == []


def test_a_target_that_is_not_there_is_an_error_and_does_not_hide_the_others() -> None:
    one = twin()
    lost = Target("chta", Lever.REPLICAS)
    states = one.read([lost, CHAT], START)
    assert states[lost].error == "chta/replicas: the twin has no such pool"
    assert states[CHAT].accepted == 2.0
    assert one.apply([ask(lost, None, 3.0)], START)[0].outcome is Outcome.REFUSED


def test_verify_tells_whether_the_value_stands() -> None:
    one = twin()
    one.apply([ask(CHAT, 2.0, 3.0)], START)
    outcomes = [one.verify([ask(CHAT, 2.0, value)], START)[0].outcome for value in (3.0, 4.0)]
    assert outcomes == [Outcome.DONE, Outcome.FAILED]


def test_a_fleet_scaled_to_zero_serves_nothing_and_comes_back() -> None:
    knobs = Knobs(queue=Queue(hold=True, wait=200.0))
    one = twin(fleet(pool(1, gateway=GatewaySpec(knobs=knobs))), traffic(5.0, 200.0))
    one.apply([ask(CHAT, 1.0, 0.0)], START)
    one.advance(START + 60.0)
    assert len(one.truth.jobs) == 0
    one.apply([ask(CHAT, 0.0, 1.0)], one.now)
    one.advance(START + 300.0)
    assert one.inflight == 0
    assert set(one.truth.jobs.column("ending").tolist()) == {ENDINGS.index(Ending.FINISHED)}


# --- set-points of the gateway ---------------------------------------------------------------------------------------


def share(one: Twin, replica: str, begin: float) -> float:
    """Share of the jobs that arrived since `begin` that a replica had."""
    jobs = one.truth.jobs
    new = jobs.column("arrived") >= START + begin
    return float((jobs.column("replica")[new] == jobs.replicas.number(replica)).mean())


@pytest.mark.parametrize("lever", [Lever.WEIGHT, Lever.BREAKER])
def test_a_factor_of_a_replica_takes_traffic_away_from_it_and_gives_it_back(lever: Lever) -> None:
    one = twin(fleet(pool(2, gateway=GatewaySpec(strategy="random"))), traffic(40.0, 300.0))
    target = Target("chat", lever, "chat-v1-0")
    assert one.read([target], START)[target].accepted == 1.0
    one.apply([ask(target, 1.0, 0.0)], START)
    one.advance(START + 100.0)
    assert share(one, "chat-v1-0", 0.0) == 0.0
    one.apply([ask(target, 0.0, 1.0)], one.now)
    one.advance(START + 320.0)
    assert share(one, "chat-v1-0", 100.0) == pytest.approx(0.5, abs=0.05)


def test_of_weight_and_breaker_the_lower_counts() -> None:
    one = twin()
    targets = [Target("chat", lever, "chat-v1-0") for lever in (Lever.WEIGHT, Lever.BREAKER)]
    one.apply([ask(targets[0], 1.0, 0.5), ask(targets[1], 1.0, 0.05)], START)
    assert one.fleet.fronts["chat"].knobs.weights == {"chat-v1-0": 0.05}
    one.apply([ask(targets[1], 0.05, 1.0)], START)
    assert one.fleet.fronts["chat"].knobs.weights == {"chat-v1-0": 0.5}


def test_a_tenant_cap_holds_its_tenant_and_nobody_else() -> None:
    one = twin(jobs=traffic(30.0, 300.0))
    target = Target("chat", Lever.TENANT_CAP, "a")
    assert one.read([target], START)[target].accepted == NO_LIMIT
    one.apply([ask(target, NO_LIMIT, 200.0)], START)
    one.advance(START + 400.0)
    jobs = one.truth.jobs
    refused = jobs.column("ending") == ENDINGS.index(Ending.REJECTED)
    tenants = jobs.column("tenant")
    assert refused[tenants == jobs.tenants.number("a")].mean() > 0.7
    assert not refused[tenants != jobs.tenants.number("a")].any()


def test_downgrade_moves_a_share_to_the_smaller_pool_where_there_is_one() -> None:
    knobs = Knobs(downgrade=(Downgrade("small", tenants=frozenset("*"), classes=frozenset({"batch"})),))
    spec = fleet(pool(2, gateway=GatewaySpec(knobs=knobs)), pools={"small": pool(1)})
    one = twin(spec, traffic(20.0, 200.0))
    target = Target("chat", Lever.DOWNGRADE)
    assert one.read([target], START)[target].accepted == 0.0
    one.apply([ask(target, 0.0, 0.5)], START)
    one.advance(START + 300.0)
    jobs = one.truth.jobs
    degraded, batch = jobs.column("degraded") == 1, jobs.column("klass") == jobs.classes.number("batch")
    assert degraded[batch].mean() == pytest.approx(0.5, abs=0.05)
    assert not degraded[~batch].any()
    assert set(jobs.column("ending").tolist()) == {ENDINGS.index(Ending.FINISHED)}
    assert one.truth.offered == {"chat": len(jobs)}
    nowhere = twin()
    assert "no pool to downgrade to" in nowhere.read([target], START)[target].error


def test_a_set_point_that_nobody_renews_is_dropped_by_the_gateway_itself() -> None:
    """Every Governor killed in mid-flash: the shed must not outlive them."""
    one = twin(jobs=traffic(30.0, 300.0))
    target = Target("chat", Lever.TENANT_CAP, "a")
    one.apply([ask(target, NO_LIMIT, 200.0)._replace(until=START + 60.0)], START)
    one.advance(START + 50.0)
    one.apply([ask(target, 200.0, 200.0)._replace(until=START + 120.0)], one.now)  # renewed
    one.advance(START + 119.0)
    assert one.read([target], one.now)[target].accepted == 200.0
    one.advance(START + 121.0)
    assert one.read([target], one.now)[target].accepted == NO_LIMIT
    assert [(move.at - START, move.after) for move in one.truth.moves] == [(0.0, 200.0), (120.0, NO_LIMIT)]


def test_a_knob_that_cannot_be_is_refused_and_changes_nothing() -> None:
    one = twin()
    target = Target("chat", Lever.WEIGHT, "chat-v1-0")
    applied = one.apply([ask(target, 1.0, -1.0)], START)[0]
    assert applied.outcome is Outcome.REFUSED
    assert one.read([target], START)[target].accepted == 1.0


def test_a_standing_cap_keeps_the_engines_queues_empty() -> None:
    limits = EngineLimits(max_num_seqs=8, kv_tokens=100_000)
    gate = Knobs(concurrency=Concurrency(per_slot=1.0), queue=Queue(wait=5.0), retries=Retries())
    one = twin(fleet(pool(1, limits=limits, gateway=GatewaySpec(knobs=gate))), traffic(60.0, 60.0))
    one.advance(START + 30.0)
    (server,) = one.fleet.cluster.pools["chat"].servers.values()
    assert server.engine is not None
    assert (server.engine.running, server.engine.waiting) == (8, 0)
    assert one.fleet.fronts["chat"].gateway.queued > 10


def test_pools_behind_one_gateway_share_its_traffic() -> None:
    one = twin(fleet(pool(1), pools={"spot": pool(1, behind="chat", model_name="chat")}), traffic(20.0, 100.0))
    one.advance(START + 150.0)
    jobs = one.truth.jobs
    assert share(one, "chat-v1-0", 0.0) == pytest.approx(0.5, abs=0.1)
    assert share(one, "spot-v1-0", 0.0) == pytest.approx(0.5, abs=0.1)
    assert jobs.pools.words == ["chat"]


def test_prefill_and_decode_pools_hand_prompts_over() -> None:
    front = GatewaySpec(strategy="prefill-decode", parameters={"decode_prefills": False})
    spec = fleet(
        pool(1, role="prefill", model_name="m", gateway=front),
        pools={"decode": pool(2, role="decode", behind="chat", model_name="m")},
    )
    one = twin(spec, traffic(20.0, 100.0))
    one.advance(START + 200.0)
    jobs = one.truth.jobs
    assert one.inflight == 0
    assert set(jobs.column("ending").tolist()) == {ENDINGS.index(Ending.FINISHED)}
    pools = one.fleet.cluster.pools
    (first,) = pools["chat"].servers.values()
    assert first.engine is not None
    assert first.engine.counts.generation_tokens == len(jobs)  # one token each, the rest elsewhere
    made = sum(s.engine.counts.generation_tokens for s in pools["decode"].servers.values() if s.engine is not None)
    assert made >= int(jobs.column("output").sum()) - len(jobs)


def test_engines_tell_a_strategy_that_asks_what_their_caches_hold() -> None:
    one = twin(fleet(pool(2, gateway=GatewaySpec(strategy="kv-events"))))
    one.advance(START + 60.0)
    told = dict(one.fleet.fronts["chat"].gateway.strategy.counters.extra)
    assert told["blocks_stored"] > 0
    deaf = twin(fleet(pool(2)))
    assert all(s.engine is not None and s.engine.listener is None for s in deaf.fleet.cluster.pools["chat"].ready())


def test_jobs_for_a_pool_without_a_gateway_are_refused() -> None:
    spec = fleet(pool(1), pools={"spot": pool(1, behind="chat")})
    with pytest.raises(ValueError, match="jobs come to spot, where no gateway is; those are chat"):
        Twin(spec, {"spot": traffic(1.0, 10.0)}, seed=1, start=START)
