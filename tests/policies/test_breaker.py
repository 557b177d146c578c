"""Breakers: out on evidence, back on evidence, and never the fleet."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.group import most_out
from controller.core.model import Ask, Lever
from controller.core.ports import Balance, Brief
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.breaker import Breaker
from policies.wayback import Phase, spread
from tests.support.rotation import Rotation, Seen, named

SLOW = Seen(slow=4.0)
FAILS = Seen(errors=0.5)
QUIET = Seen(traffic=False)


def rotation(count: int = 4, *, step: float = 15.0, **more: object) -> Rotation:
    config = {name: more.pop(name) for name in list(more) if name in Breaker.Config.__dataclass_fields__}
    law = Breaker(Breaker.Config(**config))  # type: ignore[arg-type]
    return Rotation(law, Lever.BREAKER, named(count), step=step, **more)  # type: ignore[arg-type]


# --- out -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize(("step", "limit"), [(15.0, 30.0), (5.0, 15.0), (1.0, 6.0)])
def test_a_replica_that_is_slow_but_alive_is_taken_out(count: int, step: float, limit: float) -> None:
    """A GPU that throttles answers every health check, and a tenth of all requests waits for it."""
    fleet = rotation(count, step=step)
    fleet.run(60.0)

    assert fleet.until("r1", 0.0, limit + step, r1=Seen(slow=3.0)) <= limit
    assert fleet.last["r1"].why is Why.SLOW_REPLICA
    assert fleet.out() == ["r1"]


def test_a_hot_prefix_does_not_make_its_home_slow() -> None:
    """Whoever has four times the batch takes longer for a step. It is not to blame, and nobody else has its cache."""
    fleet = rotation()
    fleet.run(600.0, r0=Seen(batch=80.0))

    assert fleet.out() == []


def test_a_slow_replica_that_gets_less_work_is_no_less_slow() -> None:
    """A load-aware router gives a straggler fewer requests, so that its steps look nearly as short as the others'."""
    fleet = rotation()
    fleet.run(60.0, Seen(batch=60.0))

    fleet.until("r3", 0.0, 45.0, Seen(batch=60.0), r3=Seen(slow=3.0, batch=15.0))


def test_one_slow_interval_takes_nobody_out() -> None:
    fleet = rotation()
    for _ in range(20):
        fleet.tick(r0=SLOW)
        fleet.tick()
        fleet.tick()

    assert fleet.out() == []


def test_a_prompt_that_blocks_an_engine_for_a_second_takes_nobody_out() -> None:
    """Scraped every second, one prompt of 30,000 tokens is two intervals at ten times the step time. Few tokens
    wait for it."""
    fleet = rotation(step=1.0)
    for _ in range(20):
        fleet.tick(r0=Seen(slow=10.0))
        fleet.tick(r0=Seen(slow=10.0))
        fleet.run(5.0)

    assert fleet.out() == []


def test_the_same_sample_is_judged_once() -> None:
    """Ticks of a second on scrapes of fifteen would else make one slow interval into fifteen."""
    fleet = rotation(step=15.0)
    fleet.run(60.0)
    fleet.tick(r1=SLOW)
    before = fleet.state.replicas["r1"].slow
    fleet.now -= 15.0
    for _ in range(10):
        fleet.now -= 15.0 - 1e-9
        fleet.tick(r1=SLOW)

    assert before == 1
    assert fleet.factors["r1"] == 1.0


def test_errors_beyond_the_limit_take_out_at_once() -> None:
    """A replica that fails fast looks idle and draws the traffic of the whole fleet."""
    fleet = rotation(8)
    fleet.run(60.0)
    fleet.tick(r2=FAILS)

    assert fleet.out() == ["r2"]
    assert fleet.last["r2"].why is Why.FAILING_REPLICA


@pytest.mark.parametrize("seen", [Seen(errors=0.5, ended=19.0), Seen(errors=0.19, ended=100.0)])
def test_few_requests_or_few_errors_are_no_verdict(seen: Seen) -> None:
    fleet = rotation()
    fleet.run(300.0, r1=seen)

    assert fleet.out() == []


def test_errors_that_all_replicas_have_are_not_one_replica_s() -> None:
    """A bad request is bad everywhere: five times the others' share is asked for."""
    fleet = rotation()
    fleet.run(300.0, Seen(errors=0.15), r1=Seen(errors=0.3))

    assert fleet.out() == []


def test_a_replica_that_refuses_what_its_queue_cannot_hold_is_not_failing() -> None:
    """The home of a hot prefix answers 503, as an error does. Without it the next one would drown."""
    fleet = rotation()
    fleet.run(300.0, r1=Seen(errors=0.4, batch=100.0, waiting=60.0))

    assert fleet.out() == []


def test_errors_and_slowness_are_enough_at_half_of_each() -> None:
    """Neither alone is beyond its limit."""
    both, only = rotation(), rotation()
    both.tick()
    both.tick(r0=Seen(slow=1.5, errors=0.12))
    only.run(300.0, r0=Seen(slow=1.5), r1=Seen(errors=0.12))

    assert both.out() == ["r0"]
    assert only.out() == []


def test_what_is_stuck_or_faulty_is_out_at_once() -> None:
    fleet = rotation(10)
    fleet.tick()
    fleet.tick(r0=Seen(stuck=True), r1=Seen(xid=1.0))

    assert fleet.out() == ["r0", "r1"]
    assert (fleet.last["r0"].why, fleet.last["r1"].why) == (Why.STUCK_REPLICA, Why.FAULTY_REPLICA)


def test_a_long_prompt_alone_in_an_engine_is_not_stuck() -> None:
    """Scraped every second, four scrapes without a token are a prompt of 60,000 tokens."""
    fleet = rotation(step=1.0)
    fleet.run(60.0)
    fleet.run(10.0, r0=Seen(stuck=True, traffic=False))
    fleet.run(60.0)
    assert fleet.out() == []

    assert fleet.until("r0", 0.0, 20.0, r0=Seen(stuck=True, traffic=False)) <= 13.0


def test_late_first_tokens_alone_are_those_of_long_prompts() -> None:
    """The mean time to the first token is mostly that of the longest prompts; with heavy tails it is three times the
    peers' on a healthy replica now and then."""
    fleet = rotation()
    fleet.run(300.0, r0=Seen(ttft=0.9))

    assert fleet.out() == []


def test_late_first_tokens_count_beside_slow_steps_unless_they_are_soon_enough() -> None:
    late = Seen(slow=2.2, ttft=2.0)
    promise = (Objective("ttft", Signal.TTFT, 5.0, 0.99, 60.0),)
    fleet, patient = rotation(), rotation(objectives=promise)
    fleet.run(60.0)
    fleet.until("r0", 0.0, 45.0, r0=late)
    patient.run(300.0, r0=late)

    assert patient.out() == []


def test_without_a_model_only_like_batches_are_compared() -> None:
    fleet = rotation(modelled=False)
    fleet.run(300.0, r0=Seen(slow=1.0, batch=200.0))
    assert fleet.out() == []

    fleet.until("r1", 0.0, 45.0, r1=SLOW)


def test_with_two_replicas_the_model_must_agree() -> None:
    """Of two that differ nobody could say which is slow: the quick one may be quick for its short prompts."""
    fleet = rotation(2)
    fleet.run(300.0, r0=Seen(slow=0.8), r1=Seen(slow=0.3))

    assert fleet.out() == []


# --- never the fleet -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 8, 20])
def test_half_the_fleet_slow_at_once_is_no_reason_to_halve_it(count: int) -> None:
    """Breakers that eject one by one under overload take a fleet down."""
    fleet = rotation(count)
    half = dict.fromkeys(named(count)[: count // 2], SLOW)
    worst = 0
    for _ in range(40):
        fleet.tick(**half)
        worst = max(worst, len(fleet.out()))

    assert worst <= most_out(count, 0.2)
    assert fleet.last["r0"].why is Why.FLEET_SLOW


def test_a_fleet_that_is_slow_as_a_whole_under_load_loses_nobody() -> None:
    overloaded = Brief(Balance(8.0, 4.0), 4.0)
    fleet = rotation(brief=overloaded)
    fleet.run(300.0, Seen(slow=2.0), r0=Seen(slow=9.0), r1=Seen(slow=2.0, errors=0.5))
    assert fleet.out() == []

    fleet.brief = Brief(Balance(2.0, 4.0), 0.0)
    fleet.until("r0", 0.0, 45.0, Seen(), r0=SLOW)


def test_while_there_are_too_few_two_slow_intervals_are_no_reason_to_have_one_less() -> None:
    """In a flash all batches are full of long prompts, and one of eight is twice as slow as its peers by chance."""
    fleet = rotation(8, brief=Brief(Balance(9.0, 8.0), 1.5))
    for _ in range(20):
        fleet.tick(r3=Seen(slow=2.7))
        fleet.tick(r3=Seen(slow=2.7))
        fleet.tick()
    assert fleet.out() == []

    assert fleet.until("r3", 0.0, 60.0, r3=SLOW) <= 60.0  # a real one still goes within a minute


def test_overload_does_not_keep_a_stuck_replica() -> None:
    """What moves nothing carries nothing."""
    fleet = rotation(brief=Brief(Balance(8.0, 4.0), 4.0))
    fleet.tick(Seen(slow=2.0), r0=Seen(stuck=True))

    assert fleet.out() == ["r0"]


def test_the_only_replica_stays_whatever_it_does() -> None:
    fleet = rotation(1)
    fleet.run(300.0, Seen(slow=9.0, errors=1.0, stuck=True))

    assert fleet.factors["r0"] == 1.0


def test_the_last_one_left_comes_back_when_the_others_vanish() -> None:
    """A scale-down to one must not leave a pool whose only replica is out."""
    fleet = rotation(2)
    fleet.until("r1", 0.0, 60.0, r1=SLOW)
    fleet.names = ["r1"]
    fleet.tick(SLOW)

    assert fleet.factors["r1"] == 1.0


def test_a_replica_that_vanishes_is_forgotten() -> None:
    fleet = rotation()
    fleet.until("r1", 0.0, 60.0, r1=SLOW)
    fleet.names.remove("r1")
    fleet.tick()

    assert "r1" not in fleet.state.replicas


seen = st.builds(
    Seen,
    slow=st.sampled_from([0.5, 1.0, 1.5, 3.0, 10.0]),
    batch=st.sampled_from([1.0, 20.0, 100.0]),
    ended=st.sampled_from([0.0, 5.0, 100.0]),
    errors=st.sampled_from([0.0, 0.0, 0.1, 1.0]),
    ttft=st.sampled_from([0.1, 5.0]),
    stuck=st.booleans(),
    restarts=st.sampled_from([0.0, 0.0, 1.0]),
    up=st.sampled_from([True, True, True, False]),
    traffic=st.sampled_from([True, True, True, False]),
)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 12),
    ticks=st.lists(st.lists(seen, min_size=12, max_size=12), min_size=1, max_size=25),
    step=st.sampled_from([1.0, 15.0]),
    obeys=st.booleans(),
    leaving=st.integers(0, 11),
    left=st.sampled_from([0.0, 3.0]),
)
def test_whatever_is_read_some_serve_and_no_more_than_the_cap_are_out(
    count: int, ticks: list[list[Seen]], step: float, obeys: bool, leaving: int, left: float
) -> None:
    """Invariant 8: never all zero."""
    fleet = rotation(count, step=step, obeys=obeys, brief=Brief(Balance(2.0, 4.0), left))
    for number, row in enumerate(ticks):
        if number == len(ticks) // 2 and leaving:
            fleet.names = fleet.names[min(leaving, count - 1) :]
        proposals = fleet.tick(None, **dict(zip(named(count), row, strict=False)))
        values = [proposal.value for proposal in proposals.values()]
        assert set(values) <= {0.0, 0.05, 0.25, 1.0}
        assert max(values) == 1.0
        if obeys:
            assert sum(value < 0.25 for value in values) <= most_out(len(fleet.names), 0.2)
        assert decode(Breaker.State, json.loads(json.dumps(encode(fleet.state)))) == fleet.state


# --- and back --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1.0, 5.0, 15.0])
@pytest.mark.parametrize("ill", [60.0, 300.0, 1800.0])
def test_a_slow_replica_is_back_within_two_minutes_however_long_it_was_slow(step: float, ill: float) -> None:
    """Time out that doubles without end keeps a replica away for minutes after its GPU has cooled."""
    fleet = rotation(step=step)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.run(ill, r0=SLOW)

    assert fleet.until("r0", 1.0, 120.0) <= 120.0
    assert fleet.last["r0"].why is Why.WELL_AGAIN


def test_it_comes_back_by_a_probe_and_a_ramp_each_on_evidence_of_its_own() -> None:
    fleet = rotation(step=5.0)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    steps = [0.0]
    while steps[-1] != 1.0:
        fleet.tick(r0=QUIET if fleet.factors["r0"] == 0.0 else Seen(batch=1.0, ended=1.0))
        if fleet.factors["r0"] != steps[-1]:
            steps.append(fleet.factors["r0"])

    assert steps == [0.0, 0.05, 0.25, 1.0]


def test_where_a_target_knows_in_and_out_alone_a_probe_is_in_and_the_ill_one_goes_out_again() -> None:
    fleet = rotation(step=5.0, quantum=1.0)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.until("r0", 1.0, 60.0, r0=QUIET)
    assert fleet.state.replicas["r0"].phase.value == "probe"
    fleet.until("r0", 0.0, 30.0, r0=SLOW)
    fleet.until("r0", 1.0, 60.0, r0=QUIET)
    fleet.run(60.0)

    assert fleet.factors["r0"] == 1.0
    assert fleet.state.replicas["r0"].phase is Phase.CLOSED


@pytest.mark.parametrize("quantum", [0.01, 0.05, 0.1, 0.5, 1.0])
def test_whatever_steps_a_target_has_who_is_well_comes_back_whole(quantum: float) -> None:
    fleet = rotation(step=5.0, quantum=quantum)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.until("r0", 1.0, 180.0)
    fleet.run(60.0)

    assert fleet.state.replicas["r0"].phase is Phase.CLOSED


@pytest.mark.parametrize("step", [1.0, 15.0])
def test_where_a_probe_is_a_full_share_a_straggler_does_not_serve_half_of_the_time(step: float) -> None:
    """Tried every fifteen seconds it was in for seven of them, and the target was written 240 times an hour."""
    fleet = rotation(8, step=step, quantum=1.0)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    served = changes = 0.0
    for _ in range(int(3600 / step)):
        before = fleet.factors["r0"]
        fleet.tick(r0=SLOW)
        served += step * fleet.factors["r0"]
        changes += fleet.factors["r0"] != before

    assert served < 0.1 * 3600
    assert changes < 60
    fleet.until("r0", 1.0, 330.0)


def test_one_that_is_out_and_cannot_be_read_at_the_start_is_tried_before_it_is_back() -> None:
    """It was taken for healthy until it could be read, and then for well again."""
    fleet = rotation(step=5.0)
    fleet.factors["r0"], fleet.unread = 0.0, frozenset({"r0"})
    fleet.run(60.0, r0=QUIET)
    fleet.unread = frozenset()

    fleet.tick(r0=QUIET)
    assert fleet.factors["r0"] == 0.0
    fleet.until("r0", 0.05, 30.0, r0=QUIET)


def test_a_probe_that_is_slow_sends_it_back_for_longer() -> None:
    fleet = rotation(step=1.0, open_max_slow=300.0)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    spans = []
    for _ in range(4):
        spans.append(fleet.until("r0", 0.05, 400.0, r0=QUIET))
        fleet.until("r0", 0.0, 60.0, r0=Seen(slow=3.0, batch=1.0))

    assert spans == sorted(spans)
    assert spans[3] > 4 * spans[0]


def test_one_error_of_a_probe_is_chance_and_two_are_not() -> None:
    one, two = rotation(step=5.0), rotation(step=5.0)
    for fleet in (one, two):
        fleet.tick()
        fleet.tick(r0=FAILS)
        fleet.until("r0", 0.05, 60.0, r0=QUIET)
    one.tick(r0=Seen(batch=1.0, ended=1.0, errors=1.0))
    two.tick(r0=Seen(batch=1.0, ended=2.0, errors=1.0))

    assert one.factors["r0"] > 0
    assert two.factors["r0"] == 0.0


def test_missing_data_neither_takes_out_nor_lets_back() -> None:
    """The scrape of a slow replica times out first."""
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.run(900.0, r0=Seen(up=False), r1=Seen(up=False))

    assert fleet.out() == ["r0"]
    assert fleet.last["r0"].ask is Ask.AT_MOST
    assert fleet.last["r1"].ask is Ask.AT_MOST


def test_a_probe_without_data_waits() -> None:
    fleet = rotation(step=5.0)
    fleet.until("r0", 0.05, 120.0, r0=SLOW)
    fleet.run(600.0, r0=Seen(up=False))

    assert fleet.factors["r0"] == 0.05


def test_a_probe_that_gets_no_request_is_given_more_but_not_all() -> None:
    """At night one request in twenty of one replica in twenty is none."""
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.run(900.0, r0=QUIET)

    assert fleet.factors["r0"] == 0.25


def test_a_phase_begins_when_the_target_has_its_value() -> None:
    """A write that fails, or a guard that holds, must not look like a probe that nobody used."""
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.obeys = False
    fleet.run(900.0, r0=QUIET)

    assert fleet.state.replicas["r0"].phase is Phase.PROBE
    fleet.obeys = True
    fleet.run(45.0, r0=QUIET)
    assert fleet.factors["r0"] == 0.05


def test_a_stuck_replica_stays_out_while_it_is_stuck() -> None:
    fleet = rotation()
    fleet.tick()
    fleet.run(900.0, r0=Seen(stuck=True))
    assert fleet.out() == ["r0"]

    fleet.until("r0", 1.0, 120.0)


def test_a_restart_is_followed_by_probation() -> None:
    """A process that was killed for its memory is empty, cold, and about to meet the same prompt."""
    fleet = rotation()
    fleet.run(60.0)
    fleet.tick(r0=Seen(restarts=1.0))

    assert fleet.factors["r0"] == 0.05
    assert fleet.last["r0"].why is Why.RESTARTED
    fleet.until("r0", 1.0, 60.0, r0=Seen(restarts=1.0))
    fleet.run(120.0, r0=Seen(restarts=1.0))
    assert fleet.factors["r0"] == 1.0


def test_relapses_are_forgotten_after_a_quiet_time() -> None:
    fleet = rotation()
    for _ in range(3):
        fleet.until("r0", 0.0, 60.0, r0=SLOW)
        fleet.until("r0", 1.0, 120.0)
    assert fleet.state.replicas["r0"].relapses == 3

    fleet.run(630.0)
    assert fleet.state.replicas["r0"].relapses == 0


def test_what_was_out_before_this_process_remembers_is_let_back() -> None:
    """A new leader finds a replica at zero and no memory of why."""
    fleet = rotation(factors={"r0": 0.0})
    fleet.tick(r0=QUIET)
    assert fleet.factors["r0"] == 0.0

    fleet.until("r0", 1.0, 120.0)


def test_replicas_that_went_out_together_do_not_come_back_together() -> None:
    moments = {spread(f"r{number}", 1) for number in range(100)}

    assert len(moments) == 100
    assert min(moments) < 0.1
    assert max(moments) > 0.9


@pytest.mark.parametrize("name", ["open_max", "open_max_slow"])
def test_a_longest_time_that_is_shorter_than_the_first_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: is shorter than open_time"):
        Breaker(Breaker.Config(open_time=60.0, **{name: 30.0}))  # type: ignore[arg-type]


def test_who_failed_comes_back_whole_also_in_a_quiet_night() -> None:
    """With two requests in each window it stayed at a quarter for good, and the next failing one was left in."""
    fleet = rotation(step=15.0)
    fleet.until("r0", 0.0, 120.0, r0=FAILS)
    rare = Seen(errors=0.0, ended=2.0, batch=10.0)
    fleet.until("r0", 0.25, 600.0, r0=rare)
    fleet.until("r0", 1.0, 420.0, r0=rare)
    assert fleet.factors["r0"] == 1.0


# --- who fails and who is slow ---------------------------------------------------------------------------------------


def test_a_slow_replica_that_is_out_does_not_keep_a_failing_one_in() -> None:
    """One of nine may be out. The slow one was, and the one that answered errors at once looked idle to the router: a
    tenth of all requests of a flash went to it, and failed."""
    fleet = rotation(9)
    fleet.run(60.0)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.tick(r0=SLOW, r1=Seen(errors=1.0))

    assert fleet.out() == ["r1"]
    assert fleet.last["r0"].why is Why.EJECTION_CAP
    fleet.run(60.0, r0=SLOW, r1=Seen(errors=1.0))
    assert fleet.factors["r0"] == 1.0  # and it stays while the other is out
    fleet.run(300.0, r0=SLOW)
    assert "r1" not in fleet.out()


def test_two_that_fail_at_once_are_the_fleet_s_also_when_a_third_is_slow() -> None:
    fleet = rotation(9)
    fleet.run(60.0)
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    for _ in range(8):
        fleet.tick(r0=SLOW, r1=Seen(errors=1.0), r2=Seen(errors=1.0))
        assert fleet.factors["r1"] == fleet.factors["r2"] == 1.0


def test_an_overload_does_not_keep_a_replica_that_answers_nothing_but_errors() -> None:
    """A queue hid it for minutes, and all that waited was drained into it."""
    fleet = rotation(9, brief=Brief(Balance(20.0, 9.0), 11.0))
    fleet.run(60.0, Seen(slow=2.0))
    fleet.tick(Seen(slow=2.0), r1=Seen(slow=2.0, errors=1.0))

    assert fleet.out() == ["r1"]


def test_a_queue_at_the_gateway_is_an_overload_as_one_inside_is() -> None:
    """With a gate nobody waits inside; there the slow one went out in the middle of a flash and came back empty, and
    all that waited was sent to it."""
    fleet = rotation(9, brief=Brief(Balance(20.0, 9.0), 11.0), queued=90.0)
    fleet.run(180.0, r0=SLOW)
    assert fleet.out() == []

    fleet.queued = 0.0
    fleet.until("r0", 0.0, 90.0, r0=SLOW)


def test_who_is_out_is_told_with_the_time_at_which_it_is_tried() -> None:
    fleet = rotation()
    fleet.run(60.0)
    fleet.until("r1", 0.0, 60.0, r1=SLOW)

    assert 8.0 <= fleet.last["r1"].evidence["tried_at"] - fleet.now <= 10.0
    assert "tried_at" not in fleet.last["r0"].evidence
