"""The PID on raw p99 is the textbook's, neither better nor worse."""

import pytest

from benchmarks.peers.pid_p99 import PidP99
from controller.core.ports import Limits
from controller.core.reading import Reading, State, ok
from controller.core.why import Why
from tests.support.peer_views import asked, view

CONFIG = PidP99.Config(gain=1.0, integral_time=100.0, share=1.0)  # the promise is 2 s


def test_error_and_its_integral_in_seconds_are_replicas() -> None:
    law = PidP99(CONFIG)
    proposal, state = asked(law, view(0.0, 4, p99=ok(4.0)), law.initial())
    assert proposal.value == 6  # 4 + 2
    proposal, state = asked(law, view(30.0, 6, p99=ok(4.0)), state)
    assert state.integral == pytest.approx(60.0)
    assert proposal.value == 7  # 4 + 2 + 0.6 = 6.6
    proposal, state = asked(law, view(60.0, 7, p99=ok(0.5)), state)
    assert proposal.value == 3  # 4 - 1.5 + 0.15 = 2.65


def test_the_derivative_counts_where_it_is_asked_for() -> None:
    law = PidP99(PidP99.Config(gain=1.0, integral_time=1e9, derivative_time=30.0, share=1.0))
    _, state = asked(law, view(0.0, 4, p99=ok(2.0)), law.initial())
    proposal, _ = asked(law, view(15.0, 4, p99=ok(3.0)), state)
    assert proposal.value == 7  # 4 + 1 + 30 x 1 / 15


def test_the_integral_stands_still_beyond_a_bound() -> None:
    law, limits = PidP99(CONFIG), Limits(2, 5)
    state = law.initial()
    for at in range(0, 3600, 15):
        proposal, state = asked(law, view(float(at), 5 if at else 4, p99=ok(9.0), limits=limits), state)
        assert proposal.value == 5
    assert state.integral == 0.0
    proposal, _ = asked(law, view(3600.0, 5, p99=ok(1.0), limits=limits), state)
    assert proposal.value == 3  # 4 - 1 - 0.15, and not after an hour of unwinding


def test_it_holds_half_the_promise_where_nothing_else_is_said() -> None:
    law = PidP99(PidP99.Config(gain=1.0))
    assert asked(law, view(0.0, 4, p99=ok(3.0)), law.initial())[0].value == 6
    told = PidP99(PidP99.Config(gain=1.0, target=2.5))
    assert asked(told, view(0.0, 4, p99=ok(3.5)), told.initial())[0].value == 5


@pytest.mark.parametrize("kind", [State.NO_TRAFFIC, State.MISSING, State.CENSORED])
def test_what_would_be_nan_changes_nothing(kind: State) -> None:
    law = PidP99(CONFIG)
    proposal, state = asked(law, view(0.0, 4, p99=Reading(kind)), law.initial())
    assert (proposal.value, proposal.why) == (4, Why.MISSING)
    assert state == law.initial()


def test_beyond_the_last_bucket_it_reads_the_last_edge() -> None:
    law = PidP99(CONFIG)
    proposal, _ = asked(law, view(0.0, 4, p99=Reading(State.SATURATED_TOP, lo=10.0)), law.initial())
    assert proposal.value == 12
