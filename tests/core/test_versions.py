"""Versions: a canary is not taken for the whole pool, and what was known of the old version stays known."""

from dataclasses import replace

import pytest

from controller.core import estimate, versions
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import Lever, PoolReadings, Scope, Snapshot, Target, TargetState, Tick
from controller.core.ports import Estimate
from controller.core.reading import Reading, State, ok
from controller.core.relief import Known
from controller.core.rules import LeverRules, PoolRules
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import Profile, Shape, step_time
from controller.run import codec
from controller.run.apart import learn as learn_all

PROFILE = Profile(a=0.01, b=0.0, c=0.0003, d=0.0, e=0.0, max_num_seqs=64)
SPEC = EstimatorSpec("llm", (Objective("itl", Signal.ITL, 0.05, 0.95, 60.0),), PROFILE)
NOW, EVERY = 1_000_000.0, 15.0


def fleet(named: bool = True, /, batch: float = 20.0, waiting: float = 0.0, **slow: float) -> PoolReadings:
    """A pool with one replica for each of `slow`, whose name begins with what it runs: `v2_0=2.0` is twice as slow."""
    itl = {name: factor * (0.01 + 0.0003 * batch) for name, factor in slow.items()}
    tokens = {name: batch / one for name, one in itl.items()}
    rate = sum(tokens.values()) / 100
    mean = sum(tokens[name] * one for name, one in itl.items()) / sum(tokens.values())
    return PoolReadings(
        signals={
            Signal.OFFERED_RATE: ok(rate), Signal.FINISHED_RATE: ok(rate), Signal.QUEUE_DEPTH: ok(waiting),
            Signal.PROMPT_TOKEN_RATE: ok(rate * 200), Signal.GENERATION_TOKEN_RATE: ok(rate * 100),
            Signal.RUNNING: ok(batch * len(slow)), Signal.KV_USAGE: ok(batch / 640), Signal.QUEUE_DELAY: ok(0.0),
        },
        latencies={Signal.ITL: {"mean": ok(mean)}},
        replicas={
            name: Scope(
                {
                    Signal.QUEUE_DEPTH: ok(0.0), Signal.RUNNING: ok(batch), Signal.KV_USAGE: ok(batch / 640),
                    Signal.GENERATION_TOKEN_RATE: ok(tokens[name]), Signal.STUCK: ok(0.0),
                },
                {Signal.ITL: {"mean": ok(itl[name], count=tokens[name] * EVERY, age=0.0, window=EVERY)}},
            )
            for name in sorted(slow)
        },
        versions={name: name.partition("_")[0] for name in sorted(slow)} if named else {},
    )  # fmt: skip


class Learner:
    """Tick by tick."""

    def __init__(self) -> None:
        self.state, self.at = EstimatorState(), NOW
        self.made = Estimate()

    def run(self, pool: PoolReadings, seconds: float, out: tuple[str, ...] = ()) -> Estimate:
        for _ in range(round(seconds / EVERY)):
            self.at += EVERY
            self.made, self.state = estimate.update(SPEC, pool, None, self.at, self.state, out)
        return self.made


OLD = dict.fromkeys(("v1_0", "v1_1", "v1_2"), 1.0)


def test_what_was_learned_of_the_old_version_is_not_overwritten_by_a_canary() -> None:
    """A rollback found the pool with the canary's step time, and the fleet was twice what it had to be for minutes."""
    blind, aware = Learner(), Learner()
    for learner, named in ((blind, False), (aware, True)):
        learner.run(fleet(named, **OLD), 600.0)
        learner.run(fleet(named, **OLD, v2_3=1.8), 900.0)  # from twice on it would be left out as a straggler
    kappa = {version: one.kappa for version, one in aware.state.versions.items()}

    assert kappa == {"v1": pytest.approx(1.0, abs=0.01), "v2": pytest.approx(1.8, abs=0.05)}
    assert aware.made.kappa == pytest.approx(1.0, abs=0.01)
    assert blind.made.kappa > 1.1


def test_capacity_is_that_of_all_versions_by_their_replicas() -> None:
    one = Learner()
    alone = one.run(fleet(**OLD), 600.0).unit_rate
    mixed = one.run(fleet(**OLD, v2_3=1.8), 600.0)
    assert alone is not None
    assert sorted(mixed.versions) == ["v1", "v2"]
    assert mixed.unit_rate == pytest.approx((3 * mixed.versions["v1"] + mixed.versions["v2"]) / 4)
    assert mixed.versions["v1"] == pytest.approx(alone, rel=0.01)
    assert mixed.versions["v2"] < 0.7 * alone
    more = one.run(fleet(v1_0=1.0, v2_1=1.8, v2_2=1.8, v2_3=1.8), EVERY)
    assert more.unit_rate == pytest.approx((more.versions["v1"] + 3 * more.versions["v2"]) / 4)
    assert one.state.version == "v2"
    assert one.run(fleet(**OLD), EVERY).unit_rate == pytest.approx(alone, rel=0.01)  # rolled back


def test_what_is_out_of_rotation_carries_nothing_and_does_not_count() -> None:
    """A bad canary that a breaker holds out made every other replica look weaker, and replicas were added for it."""
    one = Learner()
    alone = one.run(fleet(**OLD), 600.0).unit_rate
    held = one.run(fleet(**OLD, v2_3=3.0), 600.0, ("v2_3",))
    assert held.unit_rate == pytest.approx(alone, rel=0.01)


def test_nobody_is_asked_for_on_account_of_a_canary_that_was_watched_for_a_minute() -> None:
    one = Learner()
    alone = one.run(fleet(**OLD), 600.0).unit_rate
    assert alone is not None
    early = one.run(fleet(**OLD, v2_3=3.0), 60.0).unit_rate
    assert early == pytest.approx(alone, rel=0.01)
    late = one.run(fleet(**OLD, v2_3=3.0), 240.0).unit_rate
    assert late is not None
    assert late < 0.9 * alone


def test_a_new_version_begins_with_the_values_of_the_old_one_and_with_little_confidence() -> None:
    one = Learner()
    one.run(fleet(**dict.fromkeys(OLD, 1.5)), 600.0)
    one.run(fleet(v2_0=1.5), EVERY)
    assert one.state.version == "v2"
    assert one.state.replica.kappa == pytest.approx(1.5, abs=0.02)
    assert one.state.replica.samples == 0
    one.run(fleet(v2_0=1.0), 45.0)
    quick = one.state.replica.kappa
    slow = Learner()
    slow.run(fleet(v1_0=1.5), 600.0)
    slow.run(fleet(v1_0=1.0), 60.0)
    assert quick < 1.2 < slow.state.replica.kappa
    assert one.made.unproven
    assert not slow.made.unproven


def test_while_one_version_runs_all_is_as_without_the_label() -> None:
    blind, aware = Learner(), Learner()
    for learner, named in ((blind, False), (aware, True)):
        learner.run(fleet(named, batch=10.0, **OLD), 300.0)
        learner.run(fleet(named, batch=20.0, waiting=40.0, **dict.fromkeys(OLD, 1.3)), 300.0)
    assert aware.made == blind.made
    assert aware.state._replace(version="", versions={}) == blind.state


def test_what_was_learned_before_the_label_was_written_is_of_what_most_run() -> None:
    one = Learner()
    one.run(fleet(False, **dict.fromkeys(OLD, 1.5)), 600.0)
    one.run(fleet(**dict.fromkeys(OLD, 1.5), v2_3=1.5), EVERY)
    assert {version: known.kappa for version, known in one.state.versions.items()} == {
        "v1": pytest.approx(1.5, abs=0.02), "v2": pytest.approx(1.5, abs=0.02),
    }  # fmt: skip
    assert one.state.versions["v1"].samples > 30 > one.state.versions["v2"].samples


def test_an_outage_of_the_metrics_forgets_no_version() -> None:
    one = Learner()
    one.run(fleet(**OLD, v2_3=1.8), 600.0)
    before = one.state.versions
    one.run(PoolReadings(), 300.0)
    assert one.state.versions == before
    assert one.state.version == "v1"


def test_a_canary_that_comes_back_after_an_hour_was_not_watched_for_an_hour() -> None:
    one = Learner()
    one.run(fleet(**OLD, v2_3=1.8), 60.0)
    one.run(fleet(**OLD), 3600.0)
    one.run(fleet(**OLD, v2_3=1.8), 30.0)
    assert one.state.versions["v2"].trained <= 60.0


def test_a_hundred_rollouts_do_not_fill_the_ledger() -> None:
    one = Learner()
    for number in range(100):
        one.run(fleet(**{f"v{number}_0": 1.0, f"v{number}_1": 1.0}), EVERY)
    assert sorted(one.state.versions) == ["v96", "v97", "v98", "v99"]


def test_the_memory_of_versions_round_trips_through_the_ledger() -> None:
    one = Learner()
    one.run(fleet(**OLD, v2_3=1.8), 300.0)
    assert codec.decode(EstimatorState, codec.encode(one.state)) == one.state
    pool = fleet(**OLD, v2_3=1.8)
    assert codec.decode(PoolReadings, codec.encode(pool)) == pool
    assert "versions" not in codec.encode(fleet(False, **OLD))


def test_who_waits_at_the_gateway_waits_for_all_versions_alike() -> None:
    """With all of them counted for the one canary it would be full at any batch."""
    pool = fleet(**OLD, v2_3=1.0, waiting=8.0)
    mine = versions.part(pool, ("v2_3",))
    assert mine.get(Signal.QUEUE_DEPTH).value == pytest.approx(2.0)
    assert mine.get(Signal.RUNNING).value == 20.0
    assert mine.latency(Signal.ITL, "mean").value == pytest.approx(step_time(PROFILE, Shape(1.0, 1.0), 20.0))


def test_a_replica_that_is_not_read_is_no_version() -> None:
    gone = Scope({Signal.QUEUE_DEPTH: Reading(State.STALE)})
    pool = fleet(**OLD, v2_3=1.0)
    pool = replace(pool, replicas={**pool.replicas, "v2_3": gone})
    assert versions.serving(pool) == {"v1": ("v1_0", "v1_1", "v1_2")}
    assert versions.serving(pool, ("v1_0",)) == {"v1": ("v1_1", "v1_2")}


@pytest.mark.parametrize(("factor", "lower"), [(0.0, False), (0.05, False), (1.0, True)])
def test_the_loop_tells_the_estimator_who_is_held_out(factor: float, lower: bool) -> None:
    known: dict[str, EstimatorState] = {}
    pool = fleet(**OLD, v2_3=1.9)
    target = Target("llm", Lever.BREAKER, "v2_3")
    made = Estimate()
    for number in range(40):
        at = NOW + EVERY * number
        snapshot = Snapshot(Tick(number, at, EVERY), {"llm": pool}, {target: TargetState(factor)})
        found, known, _ = learn_all({"llm": SPEC}, snapshot, known)
        made = found["llm"]
    assert ((made.unit_rate or 0.0) < 0.95 * made.versions["v1"]) is lower


def room(there: Estimate) -> float:
    lever = LeverRules(Lever.DOWNGRADE, "downgrade", "", members=("small",))
    sender = PoolRules("llm", (), (lever,), ())
    known = Known(Snapshot(Tick(1, NOW, EVERY)), {"small": there})
    found, _ = known.receivers(sender, Estimate(unit_rate=10.0))
    return found["small"]


def test_a_pool_that_has_just_got_a_new_version_receives_no_more_than_that_has_shown() -> None:
    """The old version could hold four times as many; the new one got all of it in its first minute and fell over."""
    one = Learner()
    one.run(fleet(batch=60.0, **OLD), 600.0)
    idle = one.run(fleet(batch=2.0, **OLD), 60.0)
    fresh = one.run(fleet(batch=2.0, v2_0=1.0, v2_1=1.0, v2_2=1.0), 300.0)
    assert fresh.unit_rate is not None
    assert not idle.unproven
    assert room(idle) > 2.0
    shown = 3 * fresh.evidence["proven_rate"] / fresh.unit_rate
    assert 0.5 < room(fresh) < shown < 1.5
    assert room(one.run(fleet(batch=60.0, v2_0=1.0, v2_1=1.0, v2_2=1.0), 300.0)) >= 0.0
    assert room(one.run(fleet(batch=2.0, v2_0=1.0, v2_1=1.0, v2_2=1.0), 60.0)) > 2.0
