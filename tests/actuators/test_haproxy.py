"""Disasters of moving a real HAProxy by its socket: what traffic does, and what is left when something breaks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actuators.haproxy import HAProxy, HAProxyConfig, HAProxyPool
from controller.config import load
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.haproxy import SHIPPED, Proxy, Wire, haproxy
from tests.support.haproxy_hands import (
    ACME,
    B1,
    B2,
    B3,
    BINDING,
    GATE,
    MORE,
    NO_LIMIT,
    NOW,
    OTHER,
    POOL,
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


# --- traffic follows -----------------------------------------------------------------------------------------------


def test_traffic_follows_the_weights_within_a_point(proxy: Proxy) -> None:
    done(hands(proxy), decide(R1, 1, 1), decide(R2, 1, 0.5), decide(R3, 1, 0.25))
    seen = proxy.traffic(1400)
    for engine, share in (("R1", 4 / 7), ("R2", 2 / 7), ("R3", 1 / 7)):
        assert abs(seen[engine] / 1400 - share) < 0.01, seen


def test_weight_and_breaker_meet_at_the_lesser_and_never_at_the_product(proxy: Proxy) -> None:
    one = hands(proxy)
    done(one, decide(R1, 1, 0.5), decide(B1, 1, 0.25))
    assert proxy.share("chat/r1") == 0.25
    states = one.read([R1, B1, B2], NOW)
    assert [states[t].accepted for t in (R1, B1, B2)] == [0.5, 0.25, 1.0]
    done(one, decide(B1, 0.25, 1))
    assert proxy.share("chat/r1") == 0.5
    assert {t: s.accepted for t, s in hands(proxy).read([R1, B1], NOW).items()} == {R1: 0.5, B1: 1.0}


def test_a_breaker_takes_a_replica_out_and_lets_a_probe_through(proxy: Proxy) -> None:
    one = hands(proxy)
    done(one, decide(B1, 1, 0))
    assert proxy.traffic(100)["R1"] == 0
    done(one, decide(B1, 0, 0.05))
    assert 0 < proxy.traffic(410)["R1"] <= 15


def test_downgraded_requests_are_the_share_of_those_that_consent(proxy: Proxy) -> None:
    done(hands(proxy), decide(SMALL, 0, 0.3))
    count, share = 5000, 0.3
    seen = proxy.traffic(count, x_consents_to_downgrade="yes")["SMALL"]
    assert abs(seen - count * share) < 3 * (count * share * (1 - share)) ** 0.5
    assert proxy.traffic(200)["SMALL"] == 0


def test_a_tenant_gets_its_cap_and_others_all_and_a_raised_cap_helps_at_once(proxy: Proxy) -> None:
    one = hands(proxy)
    done(one, decide(ACME, NO_LIMIT, 20))
    first = proxy.traffic(60, x_tenant="acme")
    assert 20 <= 60 - first["429"] <= 22  # the window may turn meanwhile
    assert proxy.traffic(60, x_tenant="other")["429"] == 0
    assert proxy.traffic(60)["429"] == 0
    done(one, decide(ACME, 20, 40))
    assert 18 <= 60 - proxy.traffic(60, x_tenant="acme")["429"] <= 22, "those that were refused were counted too"
    done(one, decide(ACME, 40, 0))
    assert proxy.traffic(10, x_tenant="acme")["429"] == 10


def test_a_cap_is_told_in_tokens_and_counted_in_requests(proxy: Proxy) -> None:
    pools = {"chat": replace(POOL, tokens_per_request=700.0)}
    one = hands(proxy, pools=pools)
    done(one, decide(ACME, NO_LIMIT, 1000))
    assert proxy.entries()["chat/tenant_cap/acme"] == "14"  # 1,000 tokens/s · 10 s / 700 tokens, never rounded up
    assert one.read([ACME], NOW)[ACME].accepted == 1000
    assert hands(proxy, pools=pools).read([ACME], NOW)[ACME].accepted == 980
    done(one, decide(ACME, 1000, 5))
    assert proxy.entries()["chat/tenant_cap/acme"] == "1", "a small cap became a ban"


# --- nothing in flight dies ----------------------------------------------------------------------------------------


def test_what_is_in_flight_outlives_a_weight_a_drain_and_a_limit(tmp_path: Path) -> None:
    with slow_engine() as engine, haproxy(tmp_path, R1=engine.place) as proxy:
        one = hands(proxy)
        done(one, decide(B2, 1, 0), decide(B3, 1, 0))
        clients = [Client(proxy.port) for _ in range(3)]
        until(lambda: engine.got == 3)
        done(one, decide(R1, 1, 0.1), decide(GATE, NO_LIMIT, 3))
        waits = Client(proxy.port)
        done(one, decide(B2, 0, 1), decide(B1, 1, 0))
        assert proxy.traffic(20) == {"R2": 20}
        until(lambda: b"R2" in waits.text, 2.0)  # it waited for r1, and is not left to wait for it
        engine.let_go()
        assert all(client.whole() for client in clients)


def test_a_limit_makes_the_next_request_wait_and_not_fail(tmp_path: Path) -> None:
    with slow_engine() as engine, haproxy(tmp_path, R1=engine.place) as proxy:
        one = hands(proxy)
        done(one, decide(B2, 1, 0), decide(B3, 1, 0), decide(GATE, NO_LIMIT, 1))
        first = Client(proxy.port)
        until(lambda: engine.got == 1)
        second = Client(proxy.port)
        until(lambda: "chat,BACKEND,1," in proxy.cli("show stat")[0])
        assert engine.got == 1
        engine.let_go()
        assert first.whole()
        assert second.whole()
        assert one.read([GATE], NOW)[GATE].accepted == 1


# --- what a batch is -----------------------------------------------------------------------------------------------


def test_caps_and_shares_of_a_batch_come_together_or_not_at_all(proxy: Proxy, tap: Wire) -> None:
    one = hands(proxy, socket=str(tap.path))
    decisions = [decide(ACME, NO_LIMIT, 20), decide(OTHER, NO_LIMIT, 30), decide(SMALL, 0, 0.5)]
    for words in ("prepare map", "add map"):
        tap.next.append(("stop", words))
        assert set(outcomes(one.apply(decisions, NOW)).values()) == {Outcome.FAILED}
        assert proxy.entries() == {}
    tap.next.append(("stop", "commit map"))
    assert set(outcomes(one.apply(decisions, NOW)).values()) == {Outcome.UNKNOWN}
    assert set(outcomes(one.verify(decisions, NOW)).values()) == {Outcome.FAILED}
    assert proxy.entries() == {}
    done(one, *decisions)
    assert one.read([ACME, OTHER, SMALL], NOW)[OTHER].accepted == 30


def test_a_map_that_somebody_replaced_meanwhile_is_not_replaced_by_an_older_one(proxy: Proxy, tap: Wire) -> None:
    def meddle() -> None:
        version = proxy.cli(f"prepare map {proxy.map}")[0].rpartition(" ")[2]
        proxy.cli(f"add map @{version} {proxy.map} chat/tenant_cap/acme 5", f"commit map @{version} {proxy.map}")

    one = hands(proxy, socket=str(tap.path))
    tap.meddle = meddle
    tap.next.append(("meddle", "commit map"))
    applied = one.apply([decide(ACME, NO_LIMIT, 20), decide(R1, 1, 0.5)], NOW)
    assert set(outcomes(applied).values()) == {Outcome.FAILED}
    assert (proxy.entries(), proxy.share("chat/r1")) == ({"chat/tenant_cap/acme": "5"}, 1.0)
    assert one.read([ACME], NOW)[ACME].accepted == 5


def test_entries_of_others_in_the_map_stay(proxy: Proxy) -> None:
    proxy.cli(*(f"add map {proxy.map} key-{n} {n}" for n in range(800)))  # more than one command can carry
    done(hands(proxy), decide(ACME, NO_LIMIT, 20))
    entries = proxy.entries()
    assert (entries["key-799"], entries["chat/tenant_cap/acme"], len(entries)) == ("799", "20", 802)


def test_a_command_that_fails_neither_stops_nor_undoes_the_others(proxy: Proxy) -> None:
    fixed = Target("fixed", Lever.WEIGHT, "f1")
    one = hands(
        proxy,
        Binding((), scopes=(("chat", Lever.WEIGHT), ("fixed", Lever.WEIGHT))),
        pools={"chat": POOL, "fixed": HAProxyPool("fixed")},
    )
    nobody = Target("chat", Lever.WEIGHT, "r9")
    applied = one.apply([decide(R1, 1, 0.5), decide(fixed, 1, 0.5), decide(nobody, 1, 0.5), decide(R3, 1, 0.4)], NOW)
    assert outcomes(applied) == {
        R1: Outcome.DONE, fixed: Outcome.REFUSED, nobody: Outcome.REFUSED, R3: Outcome.DONE,
    }  # fmt: skip
    said = {a.target: a.detail for a in applied}
    assert "static LB algorithm" in said[fixed]
    assert "has no server for r9" in said[nobody]
    assert one.read([fixed], NOW)[fixed].accepted == 1.0


def test_the_last_server_is_not_taken_out(proxy: Proxy) -> None:
    one = hands(proxy)
    batch = [decide(B1, 1, 0), decide(B2, 1, 0), decide(B3, 1, 0), decide(SMALL, 0, 0.5)]
    got = outcomes(one.apply(batch, NOW))
    assert [got[t] for t in (B1, B2, B3, SMALL)] == [Outcome.FAILED] * 3 + [Outcome.DONE]
    done(one, decide(B1, 1, 0), decide(B2, 1, 0))
    assert outcomes(one.apply([decide(B3, 1, 0)], NOW)) == {B3: Outcome.FAILED}, "it may go when another one is back"
    assert proxy.traffic(20) == {"R3": 20}


def test_a_swap_has_no_moment_without_a_server(proxy: Proxy, tap: Wire) -> None:
    one = hands(proxy, socket=str(tap.path))
    done(one, decide(B1, 1, 0), decide(B2, 1, 0))
    tap.said.clear()
    done(one, decide(B3, 1, 0), decide(B1, 0, 1))
    sent = [line for line in tap.said if line.startswith("set server")]
    assert sent == ["set server chat/r1 state ready", "set server chat/r3 state drain"]


def test_a_tenant_who_is_called_like_the_end_of_anothers_cap_is_told_so(proxy: Proxy) -> None:
    acme, odd = (Target("chat", Lever.TENANT_CAP, name) for name in ("acme", "acme@until"))
    states = hands(proxy, Binding((acme, odd))).read([acme, odd], NOW)
    assert ("call it differently" in states[odd].error, states[acme].error) == (True, "")


def test_a_tenant_whose_name_would_end_the_key_is_refused(proxy: Proxy) -> None:
    evil = Target("chat", Lever.TENANT_CAP, "acme 5\nchat/downgrade/small 100")
    one = hands(proxy, Binding((evil,)))
    assert outcomes(one.apply([decide(evil, NO_LIMIT, 20)], NOW)) == {evil: Outcome.REFUSED}
    assert "cannot be a key" in one.read([evil], NOW)[evil].error
    assert proxy.entries() == {}


def test_replicas_are_found_by_address_and_by_mapping(proxy: Proxy) -> None:
    place, pod = Target("chat", Lever.WEIGHT, proxy.engines["R1"]), Target("chat", Lever.WEIGHT, "pod-7")
    pools = {"chat": HAProxyPool("chat", by="address", servers={"pod-7": "r2"})}
    done(hands(proxy, pools=pools), decide(place, 1, 0.5), decide(pod, 1, 0.4))
    assert (proxy.share("chat/r1"), proxy.share("chat/r2")) == (0.5, 0.4)


def test_released_to_what_it_was_nothing_is_left(proxy: Proxy) -> None:
    one = hands(proxy)
    targets = [GATE, ACME, SMALL, R1]
    before = {target: state.accepted for target, state in one.read(targets, NOW).items()}
    done(one, decide(GATE, NO_LIMIT, 4), decide(ACME, NO_LIMIT, 20), decide(SMALL, 0, 0.5), decide(R1, 1, 0.5))
    done(one, decide(GATE, 4, NO_LIMIT), decide(ACME, 20, NO_LIMIT), decide(SMALL, 0.5, 0), decide(R1, 0.5, 1))
    assert {target: state.accepted for target, state in one.read(targets, NOW).items()} == before
    assert set(proxy.entries()) == {"chat/weight/r1", "governor@generation"}
    assert proxy.limit("chat/r1") == 0
    done(one, decide(GATE, NO_LIMIT, 5e9))
    assert one.read([GATE], NOW)[GATE].accepted == 5e9, "more than HAProxy can count is no limit"


def test_a_limit_of_prompt_lengths_is_refused_and_not_forgotten(proxy: Proxy) -> None:
    longest = Target("chat", Lever.ADMISSION, "longest_prompt")
    one = hands(proxy, Binding((longest,)))
    assert outcomes(one.apply([decide(longest, 1e6, 4000)], NOW)) == {longest: Outcome.REFUSED}
    assert "setpoints: [concurrency]" in one.read([longest], NOW)[longest].error


# --- what is shipped -----------------------------------------------------------------------------------------------


def test_the_shipped_configurations_of_both_sides_fit_each_other(proxy: Proxy) -> None:
    plugin = load(SHIPPED / "governor.yaml").actuator("chat", Lever.WEIGHT)
    assert plugin is not None
    here = {"socket": str(proxy.socket), "map": str(proxy.map), "map_file": "", "state_file": ""}
    first = Target("chat", Lever.WEIGHT, "llama-0")
    one = HAProxy(replace(plugin.settings, **here), BINDING)
    done(one, decide(first, 1, 0.5), decide(ACME, NO_LIMIT, 700))
    assert (proxy.share("chat/r1"), proxy.entries()["chat/tenant_cap/acme"]) == (0.5, "10")
    assert {f.level for f in one.diagnose(NOW)} == {"info"}


# --- the doctor ----------------------------------------------------------------------------------------------------


def test_the_doctor_finds_what_will_hurt_and_writes_nothing(proxy: Proxy, tap: Wire) -> None:
    pools = {name: HAProxyPool(name) for name in ("chat", "fixed", "asking", "blind", "nowhere")}
    pools["chat"] = HAProxyPool("chat", servers={"pod-1": "r7"})
    binding = Binding((), scopes=tuple((name, Lever.WEIGHT) for name in (*pools, "stranger")))
    words = said(hands(proxy, binding, pools=pools, socket=str(tap.path)))
    for part in (
        "error: `balance static-rr` of backend fixed", "error: server asking/q1 has an agent-check",
        "warning: server asking/q1 has weight 10", "error: server blind/b1 has weight 0",
        "error: `balance first` of backend blind", "error: HAProxy has no backend nowhere",
        "error: pools.stranger is missing", "error: pools.chat.servers.pod-1: backend chat has no server r7",
        "info: without map_file and state_file",
    ):  # fmt: skip
        assert part in words
    assert tap.writes == 0
    tap.next.append("user")
    assert "error: the socket has level user" in said(hands(proxy, socket=str(tap.path)))
    tap.next.append("refuse")
    assert "see that HAProxy runs" in said(hands(proxy, socket=str(tap.path)))


def test_an_agent_check_would_undo_the_socket_so_both_are_refused(proxy: Proxy) -> None:
    asking = Target("asking", Lever.WEIGHT, "q1")
    one = hands(proxy, Binding((), scopes=(("asking", Lever.WEIGHT),)), pools={"asking": HAProxyPool("asking")})
    (applied,) = one.apply([decide(asking, 1, 0.5)], NOW)
    assert (applied.outcome, "agent-check" in applied.detail) == (Outcome.REFUSED, True)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"socket": "10.0.0.7:9999"}, "asks for no password"),
        ({"socket": "admin.sock"}, "is no host:port"),
        ({"map": ""}, "map: is missing"),
        ({"mode": "agent"}, "listen: is missing"),
        ({"mode": "agent", "listen": "9777"}, "is no host:port"),
        ({"map_file": "governor.map"}, "map_file: is relative"),
        ({"expires": True, "state_file": "/s"}, "not know until when"),
        ({"pools": {"a": HAProxyPool("chat"), "b": HAProxyPool("chat")}}, "two share a backend"),
    ],
)
def test_an_unusable_config_is_refused_before_it_matters(config: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"pools": {"chat": POOL}, "socket": "/run/h.sock", "map": "/etc/h.map"} | config
    with pytest.raises(ValueError, match=message):
        HAProxyConfig(**values)


def test_a_socket_on_loopback_serves_as_well(tmp_path: Path) -> None:
    port = free_port()
    with haproxy(tmp_path, more=f"global\n  stats socket 127.0.0.1:{port} level admin\n") as proxy:
        done(hands(proxy, socket=f"127.0.0.1:{port}"), decide(R1, 1, 0.5))
        assert proxy.share("chat/r1") == 0.5
