"""Disasters of being the agent that a real HAProxy asks."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from actuators.haproxy import HAProxy, HAProxyConfig, HAProxyPool, agent
from controller.config import load
from controller.core.model import Drift, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.haproxy import SHIPPED, Proxy, haproxy
from tests.support.ports import free_port
from tests.support.waiting import until

NOW = 1_704_067_800.0
R1, R2 = (Target("chat", Lever.WEIGHT, f"r{n}") for n in (1, 2))
B1, B2, B3 = (Target("chat", Lever.BREAKER, f"r{n}") for n in (1, 2, 3))
GATE = Target("chat", Lever.ADMISSION, "concurrency")
BINDING = Binding((GATE,), scopes=(("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))


@dataclass
class Asking:
    """An HAProxy that asks at a port, and the config of a Governor that answers there."""

    proxy: Proxy
    port: int

    def hands(self, **more: Any) -> HAProxy:
        values: dict[str, Any] = {
            "pools": {"chat": HAProxyPool("chat")}, "socket": str(self.proxy.read_socket), "mode": "agent",
            "listen": f"127.0.0.1:{self.port}", "timeout": 1.0,
        }  # fmt: skip
        return HAProxy(HAProxyConfig(**values | more), BINDING)

    @contextmanager
    def governor(self, **more: Any) -> Iterator[HAProxy]:
        one = self.hands(**more)
        try:
            yield one
        finally:
            one.close()

    def shares(self) -> list[float]:
        return [self.proxy.share(f"chat/r{n}") for n in (1, 2, 3)]


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    port = free_port()
    with haproxy(tmp_path, "agent.cfg", GOVERNOR_AGENT_PORT=str(port), GOVERNOR_AGENT_INTER="20ms") as proxy:
        yield Asking(proxy, port)


def test_traffic_follows_what_was_fetched(asking: Asking) -> None:
    with asking.governor() as one:
        applied = one.apply([decide(R1, 1, 0.5), decide(B2, 1, 0), decide(GATE, 1e12, 7)], NOW)
        assert {a.outcome for a in applied} == {Outcome.DONE}, applied
        assert asking.shares() == [0.5, 0.0, 1.0]
        assert [asking.proxy.limit(f"chat/r{n}") for n in (1, 3)] == [7, 7]
        seen = asking.proxy.traffic(300)
        assert abs(seen["R1"] / 300 - 1 / 3) < 0.01
        assert seen["R2"] == 0
        states = one.read([R1, B1, R2, B2, GATE], NOW)
        assert [states[t].accepted for t in (R1, B1, R2, B2, GATE)] == [0.5, 1, 1, 0, 7]
        one.apply([decide(B1, 1, 0.25), decide(B2, 0, 1)], NOW)
        one.apply([decide(B1, 0.25, 1)], NOW)
        assert asking.shares() == [0.5, 1.0, 1.0]
        assert one.apply([decide(GATE, 7, 1e12)], NOW)[0].outcome is Outcome.DONE
        assert asking.proxy.limit("chat/r1") == 0


def test_when_every_governor_is_dead_haproxy_keeps_what_it_was_told_last(asking: Asking) -> None:
    """Measured, and why this mode claims no expiry."""
    with asking.governor() as one:
        one.apply([decide(R1, 1, 0.2), decide(B2, 1, 0)], NOW)
    before = asking.proxy.cli("show stat")[0]
    until(lambda: asking.proxy.cli("show stat")[0] != before)
    assert asking.shares() == [0.2, 0.0, 1.0]
    assert not any(one.expiry for one in HAProxy.describe(asking.hands()._config).values())  # noqa: SLF001


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b"\xff\xff\n", b"120", None])
def test_what_an_agent_says_that_is_no_answer_is_passed_over(asking: Asking, answer: bytes | None) -> None:
    """Also measured: silence, closed connections and nonsense leave the last word in force, and never mend it."""
    with asking.governor() as one:
        one.apply([decide(R1, 1, 0.2), decide(B2, 1, 0)], NOW)
    calls = []
    with socket.create_server(("127.0.0.1", asking.port)) as mad:
        mad.settimeout(5)
        for _ in range(6):
            call, _ = mad.accept()
            calls.append(call)
            if answer is not None:
                call.sendall(answer)
                call.close()
        assert asking.shares() == [0.2, 0.0, 1.0]
    for call in calls:
        call.close()


def test_a_new_governor_is_silent_until_it_has_decided(asking: Asking) -> None:
    with asking.governor() as one:
        one.apply([decide(R1, 1, 0.2), decide(B2, 1, 0)], NOW)
    with asking.governor() as heir:
        states = heir.read([R1, B1, R2, B2], NOW)
        assert [states[t].accepted for t in (R1, B1)] == [0.2, 1.0]
        heir.apply([decide(B1, 1, 0.1)], NOW)
        heir.apply([decide(B1, 0.1, 1)], NOW)
        assert asking.shares() == [0.2, 0.0, 1.0], "the weight of its predecessor was lost with its own breaker"


def test_an_haproxy_that_restarts_is_told_again(asking: Asking) -> None:
    with asking.governor() as one:
        one.read([R1], NOW)
        one.apply([decide(R1, 1, 0.2)], NOW)
        asking.proxy.restart()
        until(lambda: asking.shares()[0] == 0.2)
        state = one.read([R1], NOW + 15)[R1]
        assert (state.accepted, state.drift, state.foreign_writer) == (0.2, None, "")


def test_one_that_restarts_and_does_not_ask_is_told_from_a_foreign_writer(asking: Asking) -> None:
    one = asking.hands()
    one.read([R1], NOW)
    one.apply([decide(R1, 1, 0.2)], NOW)
    one.close()  # the port is shut, as by a firewall
    asking.proxy.restart()
    state = asking_again(one, NOW + 15)
    assert (state.accepted, state.drift) == (1.0, Drift.RESTARTED)
    one.close()


def asking_again(one: HAProxy, now: float) -> Any:
    return one.read([R1], now)[R1]


def test_several_haproxies_are_told_by_one_governor(asking: Asking, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    second = {"GOVERNOR_AGENT_PORT": str(asking.port), "GOVERNOR_AGENT_INTER": "20ms"}
    with asking.governor() as one, haproxy(folder, "agent.cfg", **second) as other:
        one.apply([decide(R1, 1, 0.4)], NOW)
        until(lambda: other.share("chat/r1") == 0.4)


def test_what_nobody_fetched_is_taken_back_and_may_be_retried(asking: Asking) -> None:
    """Else a value that was reported as not applied would come into force an hour later."""
    port = free_port()
    with asking.governor(listen=f"127.0.0.1:{port}", timeout=0.2) as one:  # HAProxy asks elsewhere
        (applied,) = one.apply([decide(R1, 1, 0.2)], NOW)
        assert (applied.outcome, "did not ask for chat/r1" in applied.detail) == (Outcome.FAILED, True)
        assert one.read([R1], NOW)[R1].accepted == 1.0
    assert asking.shares() == [1.0, 1.0, 1.0]


def test_what_was_taken_back_is_not_fetched_an_hour_later(asking: Asking) -> None:
    with asking.governor(timeout=0.2) as one:
        assert one.apply([decide(R1, 1, 0.2)], NOW)[0].outcome is Outcome.DONE
        asking.proxy.cli("disable agent chat/r1")
        assert one.apply([decide(R1, 0.2, 0.6)], NOW)[0].outcome is Outcome.FAILED
        asking.proxy.cli("set server chat/r1 weight 90", "enable agent chat/r1")
        until(lambda: asking.shares()[0] != 0.9)
        assert asking.shares()[0] == 0.2


def test_a_port_that_is_taken_is_said(asking: Asking) -> None:
    with asking.governor() as one, asking.governor() as second:
        one.read([R1], NOW)
        assert "cannot listen" in second.read([R1], NOW)[R1].error
        assert second.apply([decide(R1, 1, 0.2)], NOW)[0].outcome is Outcome.FAILED


def test_a_stranger_at_the_port_hurts_nobody(asking: Asking) -> None:
    with asking.governor() as one:
        one.read([R1], NOW)
        for words in (b"", b"chat/r9\n", b"\xff" * 5000, b"x" * 400 + b"\n"):
            with socket.create_connection(("127.0.0.1", asking.port), 2.0) as wire:
                wire.sendall(words)
        assert one.apply([decide(R1, 1, 0.2)], NOW)[0].outcome is Outcome.DONE


def test_an_haproxy_that_is_down_is_a_failure_and_told_at_reading(asking: Asking) -> None:
    with asking.governor(timeout=0.3) as one:
        one.read([R1], NOW)
        asking.proxy.stop()
        assert one.apply([decide(R1, 1, 0.2)], NOW)[0].outcome is Outcome.FAILED
        assert one.read([R1], NOW)[R1].error
        asking.proxy.start()
        assert one.apply([decide(R1, 1, 0.2)], NOW)[0].outcome is Outcome.DONE


def test_half_of_the_servers_that_ask_is_no_success(asking: Asking) -> None:
    """A limit is told to each server of a pool: one that does not ask leaves it half in force."""
    with asking.governor(timeout=0.3) as one:
        one.read([GATE], NOW)
        asking.proxy.cli("disable agent chat/r2")
        # A question that was on its way may still be answered by the first.
        _, applied = (one.apply([decide(GATE, 1e12, limit)], NOW)[0] for limit in (4, 5))
        assert (applied.outcome, "did not ask for chat/r2 within" in applied.detail) == (Outcome.UNKNOWN, True)
        asking.proxy.cli("enable agent chat/r2")
        until(lambda: one.verify([decide(GATE, 1e12, 5)], NOW)[0].outcome is Outcome.DONE)


def test_one_of_many_that_is_not_there_stops_no_other(asking: Asking) -> None:
    stranger = Target("chat", Lever.WEIGHT, "r9")
    with asking.governor() as one:
        told = {a.target: a.outcome for a in one.apply([decide(stranger, 1, 0.5), decide(R1, 1, 0.2)], NOW)}
    assert told[R1] is Outcome.DONE
    assert told[stranger] in (Outcome.REFUSED, Outcome.FAILED)
    assert asking.shares() == [0.2, 1.0, 1.0]


def test_a_question_that_drips_is_over_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out counts from byte to byte: one now and then would keep a thread for as long as it likes."""
    monkeypatch.setattr(agent, "_TIME", 0.2)
    port = free_port()
    server = agent.AgentServer(("127.0.0.1", port), agent.Answers())
    begun, pause = time.monotonic(), threading.Event()
    with socket.create_connection(("127.0.0.1", port), 2.0) as wire, suppress(OSError):
        while time.monotonic() - begun < 4.0:
            pause.wait(0.05)
            wire.sendall(b"x")
    server.close()
    assert time.monotonic() - begun < 2.0


class Ready(agent.Answers):
    """Has an answer for everybody."""

    def give(self, server: str) -> str:
        return "ready\n"


def ask(port: int) -> bytes:
    """The answer, b"" where there is none."""
    with socket.create_connection(("127.0.0.1", port), 2.0) as wire, suppress(OSError):
        wire.sendall(b"chat/r1\n")
        return wire.recv(100)
    return b""


def test_strangers_do_not_get_more_threads_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_MOST", 2)
    port = free_port()
    server = agent.AgentServer(("127.0.0.1", port), Ready())
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 2.0))
        assert ask(port) == b""
    until(lambda: ask(port) == b"ready\n")  # they are gone
    server.close()


def test_names_that_strangers_ask_for_are_not_kept() -> None:
    answers = agent.Answers()
    assert answers.give("nobody") == ""
    assert not answers._given  # noqa: SLF001 - what would grow without end


def test_the_last_server_is_not_taken_out(asking: Asking) -> None:
    with asking.governor() as one:
        applied = one.apply([decide(B1, 1, 0), decide(B2, 1, 0), decide(B3, 1, 0)], NOW)
        assert {a.outcome for a in applied} == {Outcome.FAILED}
        assert asking.shares() == [1.0, 1.0, 1.0]


def test_caps_and_shares_are_none_of_an_agent() -> None:
    config = HAProxyConfig(
        {"chat": HAProxyPool("chat")}, "/run/haproxy/read.sock", mode="agent", listen="127.0.0.1:9777"
    )
    assert set(HAProxy.describe(config)) == {Lever.WEIGHT, Lever.BREAKER, Lever.ADMISSION}


def test_the_shipped_configurations_of_both_sides_fit_each_other(asking: Asking) -> None:
    plugin = load(SHIPPED / "governor-agent.yaml").actuator("chat", Lever.WEIGHT)
    assert plugin is not None
    here = {"socket": str(asking.proxy.read_socket), "listen": f"127.0.0.1:{asking.port}"}
    replica = Target("chat", Lever.WEIGHT, asking.proxy.engines["R1"])
    one = HAProxy(replace(plugin.settings, **here), BINDING)
    assert one.apply([decide(replica, 1, 0.5)], NOW)[0].outcome is Outcome.DONE
    assert asking.shares()[0] == 0.5
    assert {f.level for f in one.diagnose(NOW)} <= {"info"}
    one.close()
