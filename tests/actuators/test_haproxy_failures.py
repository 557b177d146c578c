"""A real HAProxy: values end in time, and whatever breaks or restarts is told apart and hurts nobody."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actuators.haproxy import HAProxyPool
from controller.core.model import Drift, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.full_disk import full_disk
from tests.support.haproxy import Proxy, Wire, haproxy, playing
from tests.support.haproxy_hands import (
    ACME,
    B1,
    B2,
    BINDING,
    GATE,
    MORE,
    NO_LIMIT,
    NOW,
    R1,
    R2,
    R3,
    SMALL,
    done,
    hands,
    outcomes,
    said,
    tapped,
    untouched,
)
from tests.support.ports import free_port
from tests.support.slow_engine import Client, slow_engine
from tests.support.waiting import until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with haproxy(tmp_path_factory.mktemp("haproxy"), more=MORE) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Proxy) -> Proxy:
    return untouched(running)


@pytest.fixture
def tap(proxy: Proxy) -> Iterator[Wire]:
    with tapped(proxy) as one:
        yield one


# --- expiry --------------------------------------------------------------------------------------------------------


def test_every_value_ends_in_time_when_every_governor_is_dead(proxy: Proxy) -> None:
    one, ends = hands(proxy, expires=True), time.time() + 2
    values = [(R1, 1, 0.5), (B1, 1, 0.05), (B2, 1, 0), (GATE, NO_LIMIT, 9), (ACME, NO_LIMIT, 0), (SMALL, 0, 1)]
    lasting = decide(R1, 1, 0.5)
    done(one, lasting, *(decide(*value)._replace(until=ends) for value in values[1:]), now=time.time())
    one.close()
    assert (proxy.share("chat/r1"), proxy.share("chat/r2"), proxy.limit("chat/r3")) == (0.05, 0.0, 9)
    assert proxy.traffic(5, x_tenant="acme") == {"429": 5}
    assert proxy.traffic(5, x_consents_to_downgrade="yes") == {"SMALL": 5}
    until(lambda: proxy.share("chat/r2") == 1.0 and proxy.limit("chat/r3") == 0, 10)
    assert time.time() >= ends
    assert proxy.share("chat/r1") == 0.5, "the weight was to last"
    until(lambda: time.time() > ends + 1)
    assert proxy.traffic(5, x_tenant="acme")["429"] == 0
    assert proxy.traffic(5, x_consents_to_downgrade="yes")["SMALL"] == 0
    states = hands(proxy, expires=True).read([t for t, _, _ in values], time.time())
    assert [states[t].accepted for t, _, _ in values] == [0.5, 1, 1, NO_LIMIT, NO_LIMIT, 0]


def test_what_ended_in_time_is_no_foreign_write(proxy: Proxy) -> None:
    one, now = hands(proxy, expires=True), time.time()
    done(
        one, decide(B1, 1, 0.05)._replace(until=now + 0.5), decide(ACME, NO_LIMIT, 9)._replace(until=now + 0.5), now=now
    )
    until(lambda: proxy.share("chat/r1") == 1.0)
    states = one.read([B1, ACME], now + 2)
    assert {t: (s.accepted, s.foreign_writer, s.drift) for t, s in states.items()} == {
        B1: (1.0, "", None), ACME: (NO_LIMIT, "", None),
    }  # fmt: skip


def test_what_ends_in_time_ends_nobodys_maintenance(proxy: Proxy) -> None:
    one, now = hands(proxy, expires=True), time.time()
    done(one, decide(B1, 1, 0.25)._replace(until=now + 1), decide(B2, 1, 0)._replace(until=now + 1), now=now)
    proxy.cli("set server chat/r1 state maint")
    until(lambda: proxy.share("chat/r2") == 1.0 and "chat/breaker/r1" not in proxy.entries(), 10)
    assert proxy.share("chat/r1") == 0.0


def test_a_renewed_value_lasts(proxy: Proxy) -> None:
    one, now = hands(proxy, expires=True), time.time()
    done(one, decide(B1, 1, 0.05)._replace(until=now + 1), now=now)
    done(one, decide(B1, 0.05, 0.05)._replace(until=now + 900), now=now)
    assert proxy.entries()["chat/breaker/r1@until"] == f"{-(-now // 1) + 900:.0f}"
    done(one, decide(B1, 0.05, 1), now=now)
    assert "chat/breaker/r1@until" not in proxy.entries()


def test_without_the_watchdog_nothing_is_latched_that_was_to_end(tmp_path: Path) -> None:
    """A claim of expiry that nobody keeps would leave replicas out for ever."""
    nothing = tmp_path / "nothing.lua"
    nothing.write_text("-- forgot to copy it\n")
    with haproxy(tmp_path, GOVERNOR_LUA=str(nothing)) as proxy:
        one = hands(proxy, expires=True)
        (applied,) = one.apply([decide(B1, 1, 0)._replace(until=NOW + 60)], NOW)
        assert (applied.outcome, "expiry.lua does not run" in applied.detail) == (Outcome.REFUSED, True)
        assert proxy.share("chat/r1") == 1.0
        assert "error: expires is true and expiry.lua is not loaded" in said(one)
        done(one, decide(B1, 1, 1)._replace(until=NOW + 60), decide(SMALL, 0, 0.5)._replace(until=NOW + 60))


def test_regions_get_the_shares_that_their_zones_are_given(tmp_path: Path) -> None:
    """The example of regions, whose members are zones and no replicas."""
    places = {name: f"127.0.0.1:{free_port()}" for name in ("EU", "US")}
    pools = {"chat": HAProxyPool("chat", servers={"eu-west": "eu", "us-east": "us"})}
    with haproxy(tmp_path, "../regions/haproxy.cfg", playing(places), **places) as proxy:
        one = hands(proxy, Binding((), scopes=(("chat", Lever.WEIGHT),)), pools=pools)
        assert proxy.traffic(40) == {"EU": 20, "US": 20}
        done(one, decide(Target("chat", Lever.WEIGHT, "us-east"), 1, 0.25))
        assert proxy.traffic(400)["US"] == pytest.approx(80, abs=2)  # the wheel is met somewhere in a turn


# --- the matrix ----------------------------------------------------------------------------------------------------

Trouble = Callable[[Proxy, Wire], object]
# What happens, what is said of the write, and what HAProxy then stands at: old or new.
MATRIX: dict[str, tuple[Trouble, Outcome, str, str]] = {
    "down": (lambda p, w: w.next.append("refuse"), Outcome.FAILED, "old", "HAProxy's socket"),
    "slow": (lambda p, w: w.next.append("hang"), Outcome.FAILED, "old", "no answer within 0.3 s"),
    "garbage answer": (lambda p, w: w.next.append("garbage"), Outcome.FAILED, "old", "no HAProxy"),
    "wrong credentials": (lambda p, w: w.next.append("user"), Outcome.REFUSED, "old", "Permission denied"),
    "Governor killed before the write": (
        lambda p, w: w.next.append(("stop", "set server")), Outcome.UNKNOWN, "old", "the connection ended",
    ),
    "Governor killed between write and acknowledgement": (
        lambda p, w: w.next.append(("lose", "set server")), Outcome.UNKNOWN, "new", "the connection ended",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trouble", MATRIX)
def test_whatever_breaks_is_told_apart_and_a_new_governor_finds_the_truth(
    proxy: Proxy, tap: Wire, trouble: str
) -> None:
    breaks, outcome, stands, words = MATRIX[trouble]
    one = hands(proxy, socket=str(tap.path), timeout=0.3)
    one.read([R1], NOW)
    breaks(proxy, tap)
    decision = decide(R1, 1, 0.5)
    (applied,) = one.apply([decision], NOW)
    assert (applied.outcome, words in applied.detail) == (outcome, True), applied
    share = 1.0 if stands == "old" else 0.5
    until(lambda: proxy.share("chat/r1") == share)  # a write whose answer was lost may still be on its way in
    heir = hands(proxy, socket=str(tap.path))
    writes = tap.writes
    (verified,) = heir.verify([decision], NOW)
    assert verified.outcome is (Outcome.DONE if stands == "new" else Outcome.FAILED)
    assert tap.writes == writes
    assert heir.read([R1], NOW)[R1].accepted == share
    done(heir, decide(R1, share, 0.5))
    assert proxy.share("chat/r1") == 0.5


def test_nobody_at_the_socket_is_a_failure_and_told_at_reading(proxy: Proxy) -> None:
    one = hands(proxy, socket=str(proxy.folder / "nowhere.sock"))
    (applied,) = one.apply([decide(R1, 1, 0.5)], NOW)
    assert (applied.outcome, "No such file" in applied.detail) == (Outcome.FAILED, True)
    assert "No such file" in one.read([R1], NOW)[R1].error


def test_an_haproxy_that_stands_still_applies_nothing_when_it_wakes(proxy: Proxy) -> None:
    """The kernel takes the connection and our first words, and hands them over a minute later."""
    one = hands(proxy, timeout=0.3)
    one.read([R1], NOW)
    proxy.freeze(frozen=True)
    (applied,) = one.apply([decide(R1, 1, 0.5)], NOW)
    assert (applied.outcome, "no answer within 0.3 s" in applied.detail) == (Outcome.FAILED, True)
    assert "no answer" in one.read([R1], NOW)[R1].error
    assert one.verify([decide(R1, 1, 0.5)], NOW)[0].outcome is Outcome.UNKNOWN
    proxy.freeze(frozen=False)
    assert (proxy.share("chat/r1"), proxy.entries()) == (1.0, {})
    done(one, decide(R1, 1, 0.5))


def test_half_of_a_batch_is_told_half_by_half(proxy: Proxy, tap: Wire) -> None:
    one = hands(proxy, socket=str(tap.path))
    tap.next.append(("lose", "set server chat/r2"))
    decisions = [decide(R1, 1, 0.5), decide(R2, 1, 0.5), decide(R3, 1, 0.5)]
    got = outcomes(one.apply(decisions, NOW))
    assert [got[t] for t in (R1, R2, R3)] == [Outcome.UNKNOWN] * 3
    assert [outcomes(one.verify(decisions, NOW))[t] for t in (R1, R2, R3)] == [
        Outcome.DONE, Outcome.DONE, Outcome.FAILED,
    ]  # fmt: skip


def test_a_foreign_writer_is_yielded_to_and_not_fought(proxy: Proxy) -> None:
    one = hands(proxy)
    one.read([R1, B1], NOW)
    done(one, decide(R1, 1, 0.8))
    proxy.cli("set server chat/r1 state maint")  # somebody mends the machine
    states = one.read([R1, B1], NOW + 15)
    assert (states[R1].accepted, states[R1].drift) == (0.0, Drift.FOREIGN)
    assert states[B1].accepted == 1.0
    (applied,) = one.apply([decide(R1, 0.8, 0.9)], NOW + 15)  # decided before it was seen
    assert proxy.share("chat/r1") == 0.0
    assert (applied.outcome, "was changed" in applied.detail) == (Outcome.FAILED, True)


def test_maintenance_is_ended_by_whoever_began_it_however_long_it_takes(proxy: Proxy) -> None:
    one = hands(proxy)
    one.read([R1, B1], NOW)
    done(one, decide(R1, 1, 0.8))
    proxy.cli("set server chat/r1 state maint")
    one.read([R1, B1], NOW + 15)
    states = one.read([R1, B1, R2], NOW + 9000)
    assert [states[t].foreign_writer for t in (R1, B1, R2)] == ["maintenance in HAProxy"] * 2 + [""]
    applied = one.apply([decide(R1, 0, 1), decide(R2, 1, 0.5)], NOW + 9000)
    assert outcomes(applied) == {R1: Outcome.REFUSED, R2: Outcome.DONE}
    assert proxy.share("chat/r1") == 0.0
    proxy.cli("set server chat/r1 state ready")
    assert one.read([R1], NOW + 9015)[R1].accepted == 0.8


def test_a_breaker_that_moves_does_not_take_a_foreign_weight_back(proxy: Proxy) -> None:
    one = hands(proxy)
    done(one, decide(R1, 1, 0.8))
    proxy.cli("set server chat/r1 weight 40")
    assert one.read([R1], NOW)[R1].accepted == 0.4
    done(one, decide(B1, 1, 0.25))
    done(one, decide(B1, 0.25, 1))
    assert proxy.share("chat/r1") == 0.4


# --- restarts ------------------------------------------------------------------------------------------------------


def test_a_restart_that_forgot_is_told_from_somebody_elses_hand(tmp_path: Path) -> None:
    with haproxy(tmp_path) as proxy:
        one = hands(proxy)
        one.read([R1, ACME], NOW)
        done(one, decide(R1, 1, 0.5), decide(ACME, NO_LIMIT, 20))
        proxy.restart()
        states = one.read([R1, ACME], NOW + 15)
        assert {t: (s.accepted, s.foreign_writer, s.drift) for t, s in states.items()} == {
            R1: (1.0, "", Drift.RESTARTED), ACME: (NO_LIMIT, "", Drift.RESTARTED),
        }  # fmt: skip
        done(one, decide(R1, 1, 0.5), decide(ACME, NO_LIMIT, 20))


def test_what_is_kept_in_files_outlives_a_restart(tmp_path: Path) -> None:
    with haproxy(tmp_path) as proxy:
        files: dict[str, Any] = {"map_file": str(proxy.map), "state_file": str(proxy.state)}
        one = hands(proxy, **files)
        done(one, decide(R1, 1, 0.5), decide(B2, 1, 0), decide(ACME, NO_LIMIT, 20))
        proxy.restart()
        states = one.read([R1, B2, ACME], NOW + 15)
        assert {t: (s.accepted, s.drift) for t, s in states.items()} == {
            R1: (0.5, None), B2: (0.0, None), ACME: (20.0, None),
        }  # fmt: skip
        old = proxy.map.read_text()
        done(one, decide(ACME, 20, 40))
        proxy.map.write_text(old)  # of a backup
        proxy.restart()
        state = one.read([ACME], NOW + 30)[ACME]
        assert (state.accepted, state.drift, state.foreign_writer) == (20.0, Drift.STALE, "")


def test_a_reload_keeps_what_is_in_flight_and_what_was_set_and_when_it_ends(tmp_path: Path) -> None:
    with slow_engine() as engine, haproxy(tmp_path, R1=engine.place) as proxy:
        one = hands(proxy, expires=True, map_file=str(proxy.map), state_file=str(proxy.state))
        done(one, decide(R2, 1, 0), decide(R3, 1, 0))
        client = Client(proxy.port)
        until(lambda: engine.got == 1)
        now = time.time()
        done(one, decide(R2, 0, 0.5), decide(B1, 1, 0)._replace(until=now + 3), now=now)
        proxy.reload()
        states = one.read([R2, B1], now)
        assert {t: (s.accepted, s.drift) for t, s in states.items()} == {R2: (0.5, None), B1: (0.0, None)}
        engine.let_go()
        assert client.whole()
        until(lambda: proxy.share("chat/r1") == 1.0, 10)
        assert time.time() >= now + 3


@pytest.mark.parametrize("which", ["map_file", "state_file"])
def test_a_full_disk_keeps_nothing_from_taking_effect_and_is_said(proxy: Proxy, tmp_path: Path, which: str) -> None:
    kept = tmp_path / "kept"
    kept.write_text("old")
    one = hands(proxy, BINDING, **{which: str(kept)})
    with full_disk():
        (applied,) = one.apply([decide(R1, 1, 0.5)], NOW)
    assert (applied.outcome, "lost when HAProxy restarts" in applied.detail) == (Outcome.DONE, True)
    assert proxy.share("chat/r1") == 0.5
    assert kept.read_text() == "old"
    done(one, decide(R1, 0.5, 0.6))
    assert "chat" in kept.read_text()
