"""The emulated KPA panics, holds and lets go as Knative's does."""

import pytest

from benchmarks.peers.kpa import Kpa
from controller.core.why import Why
from tests.support.peer_views import LIMITS, asked, view

CONFIG = Kpa.Config(target=10.0)  # 7 per replica


def steps(law: Kpa, rows: list[tuple[float, int, float]], state: Kpa.State) -> tuple[list[float], Kpa.State]:
    """`rows` are (seconds, replicas, requests in flight in all)."""
    values = []
    for at, replicas, load in rows:
        proposal, state = asked(law, view(at, replicas, [(load / replicas, 0.0)] * replicas), state)
        values.append(proposal.value)
    return values, state


def test_it_starts_in_a_panic_so_that_lost_history_shrinks_nothing() -> None:
    law = Kpa(CONFIG)
    values, _ = steps(law, [(at, 6, 7.0) for at in (0.0, 15.0, 30.0, 45.0, 60.0)], law.initial())
    assert values == [6] * 5
    values, _ = steps(law, [(at, 6, 7.0) for at in (0.0, 30.0, 60.0, 75.0)], law.initial())
    assert values[-1] == 3  # the panic is over: one is wanted, but at most half of those that serve go at once


def test_one_replica_starts_calm() -> None:
    law = Kpa(CONFIG)
    values, state = steps(law, [(0.0, 1, 3.0)], law.initial())
    assert values == [1]
    assert state.panicking is None


def test_the_stable_value_is_the_mean_of_a_minute() -> None:
    law, calm = Kpa(CONFIG), Kpa.State(begun=True)
    values, _ = steps(law, [(0.0, 4, 28.0), (15.0, 4, 28.0), (30.0, 4, 42.0)], calm)
    # Means 28, 28 and 32.67 over 7 each: 4, 4 and 5. The newest alone asks for 6 of 4, which is no panic.
    assert values == [4, 4, 5]


def test_twice_what_serves_is_a_panic_in_which_nothing_shrinks_until_a_minute_after_it() -> None:
    law, calm = Kpa(CONFIG), Kpa.State(begun=True)
    values, state = steps(law, [(0.0, 2, 10.0), (15.0, 2, 28.0)], calm)
    assert values == [2, 4]  # the newest: ceil(28 / 7) = 4 over 2 that serve
    assert state.panicking == 15.0
    rows = [(30.0, 4, 7.0), (60.0, 4, 7.0), (75.0, 4, 7.0), (90.0, 4, 7.0)]
    values, state = steps(law, rows, state)
    assert values == [4, 4, 4, 2]
    assert state.panicking is None


def test_the_window_holds_what_was_seen_and_an_empty_one_decides_nothing() -> None:
    law = Kpa(CONFIG)
    _, state = steps(law, [(0.0, 4, 28.0)], Kpa.State(begun=True))
    proposal, state = asked(law, view(30.0, 4, [None] * 4), state)
    assert proposal.value == 4  # from the sample of 0 s
    proposal, state = asked(law, view(75.0, 4, [None] * 4), state)
    assert (proposal.value, proposal.why) == (4, Why.MISSING)


def test_scaling_down_waits_for_the_delay() -> None:
    law = Kpa(Kpa.Config(target=10.0, stable=6.0, down_delay=60.0))
    rows = [(0.0, 4, 28.0), (15.0, 4, 14.0), (45.0, 4, 14.0), (60.0, 4, 14.0)]
    values, _ = steps(law, rows, Kpa.State(begun=True))
    assert values == [4, 4, 4, 2]


def test_rates_and_bounds_hold() -> None:
    law = Kpa(Kpa.Config(target=10.0, up_rate=1.5))
    values, _ = steps(law, [(0.0, 4, 700.0)], Kpa.State(begun=True))
    assert values == [6]  # ceil(1.5 x 4)
    free = Kpa(CONFIG)
    values, _ = steps(free, [(0.0, 4, 7000.0)], Kpa.State(begun=True))
    assert values == [LIMITS.max]


def test_what_waits_at_the_gateway_is_in_flight() -> None:
    law = Kpa(CONFIG)
    proposal, _ = asked(law, view(0.0, 4, [(5.0, 0.0)] * 4, gateway=15.0), Kpa.State(begun=True))
    assert proposal.value == 5  # ceil(35 / 7)


def test_a_panic_window_longer_than_the_stable_one_is_refused() -> None:
    with pytest.raises(ValueError, match="panic: is longer"):
        Kpa(Kpa.Config(target=1.0, panic=90.0))
