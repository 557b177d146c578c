"""Disasters of moving replicas in and out of real routers: what traffic does, what is left when something breaks."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from actuators.endpoints import InFile, Inline
from actuators.router import Router, RouterConfig, RouterPool
from actuators.router.workers import Garbled, address, workers
from controller.config import ConfigError, load
from controller.core.model import Applied, Drift, Lever, Outcome, Target
from controller.core.params import SecretRef
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.openai_upstream import upstreams
from tests.support.relay import Relay, relay
from tests.support.routers import ADMIN, SHIPPED, RealRouter, called, place, router, shared
from tests.support.waiting import until

NOW = 1_704_067_800.0
MAKES = ["sglang", "vllm"]
BINDING = Binding((), scopes=(("chat", Lever.BREAKER),))


@pytest.fixture(params=MAKES)
def real(request: pytest.FixtureRequest) -> Iterator[RealRouter]:
    """In front of three engines, all of them in."""
    one = shared(request.param)
    one.reset()
    yield one
    one.reset()


@pytest.fixture(scope="module")
def second() -> Iterator[RealRouter]:
    """A second sglang-router in front of the same engines."""
    first = shared("sglang")
    with router("sglang", first.folder, first.engines, first.engines) as one:
        yield one


@pytest.fixture
def pair(second: RealRouter) -> Iterator[tuple[RealRouter, RealRouter]]:
    both = shared("sglang"), second
    for one in both:
        one.reset()
    yield both
    both[0].reset()


@pytest.fixture
def wire(real: RealRouter) -> Iterator[Relay]:
    with relay(int(real.url.rpartition(":")[2])) as one:
        one.counts = (b"POST /workers", b"DELETE /workers", b"POST /add_worker", b"POST /remove_worker")
        yield one


def hands(real: RealRouter, *urls: str, pool: dict[str, Any] | None = None, **more: Any) -> Router:
    chat = RouterPool(urls or (real.url,), **(pool or {}))
    return Router(RouterConfig(real.make, {"chat": chat}, **{"timeout": 3.0} | more), BINDING)  # type: ignore[arg-type]


def targets(real: RealRouter) -> list[Target]:
    return [Target("chat", Lever.BREAKER, called(engine)) for engine in real.engines]


def done(one: Router, *decisions: Any) -> None:
    applied = one.apply(decisions, NOW)
    assert {a.outcome for a in applied} == {Outcome.DONE}, applied


def values(one: Router, real: RealRouter, now: float = NOW) -> list[float | None]:
    return [state.accepted for state in one.read(targets(real), now).values()]


# --- traffic follows -----------------------------------------------------------------------------------------------


def test_traffic_leaves_who_is_out_and_comes_back_to_who_is_in(real: RealRouter) -> None:
    one, (a, b, c) = hands(real), targets(real)
    done(one, decide(a, 1, 0))
    assert values(one, real) == [0, 1, 1]
    assert real.traffic(200) == {1: 100, 2: 100}
    done(one, decide(a, 0, 1), decide(b, 1, 0))
    assert real.traffic(200) == {0: 100, 2: 100}
    done(one, decide(b, 0, 1))
    assert set(real.traffic(30)) == {0, 1, 2}
    assert values(one, real) == [1, 1, 1]
    assert one.read([c], NOW)[c].foreign_writer == ""


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_in_flight_dies_when_its_replica_is_taken_out(real: RealRouter, stream: bool) -> None:
    one, first = hands(real), targets(real)[0]
    for engine in real.engines:
        engine.gate.clear()
    with ThreadPoolExecutor(12) as pool:
        asked = real.begin(12, pool, stream=stream)
        until(lambda: [engine.inflight for engine in real.engines] == [4, 4, 4])
        done(one, decide(first, 1, 0))
        assert real.engines[0].inflight == 4
        for engine in real.engines:
            engine.gate.set()
        answers = [future.result() for future in asked]
    assert {status for status, _ in answers} == {200}
    assert all(("[DONE]" in text) == stream for _, text in answers)
    assert 0 not in real.traffic(20)


def test_no_request_is_lost_while_replicas_come_and_go(real: RealRouter) -> None:
    one, (a, b, _) = hands(real), targets(real)
    lost = 0
    for _ in range(5):
        for out in (a, b):
            done(one, decide(out, 1, 0))
            lost += real.traffic(10)[-1]
            done(one, decide(out, 0, 1))
            lost += real.traffic(10)[-1]
    assert lost == 0


# --- who is never taken out, and how one comes back ----------------------------------------------------------------


def test_the_last_worker_is_never_taken_out(real: RealRouter) -> None:
    one, all_of_them = hands(real), targets(real)
    applied = one.apply([decide(target, 1, 0) for target in all_of_them], NOW)
    assert {a.outcome for a in applied} == {Outcome.FAILED}
    assert "no healthy worker would be left" in applied[0].detail
    assert values(one, real) == [1, 1, 1]
    done(one, decide(all_of_them[0], 1, 0), decide(all_of_them[1], 1, 0))
    (applied_last,) = one.apply([decide(all_of_them[2], 1, 0)], NOW)
    assert applied_last.outcome is Outcome.FAILED
    assert real.traffic(10) == {2: 10}


def test_a_worker_that_does_not_answer_is_not_let_in_and_holds_nothing_up_for_long(real: RealRouter) -> None:
    one, first = hands(real, timeout=1.0), targets(real)[0]
    done(one, decide(first, 1, 0))
    real.engines[0].health = 503
    try:
        (applied,) = one.apply([decide(first, 0, 1)], NOW)
        assert applied.outcome in (Outcome.FAILED, Outcome.UNKNOWN), applied
        assert values(one, real) == [0, 1, 1]
        until(lambda: one.verify([decide(first, 0, 1)], NOW)[0].outcome is Outcome.FAILED, 10.0)
        assert values(one, real) == [0, 1, 1]
    finally:
        real.engines[0].health = 200
    until(lambda: one.apply([decide(first, 0, 1)], NOW)[0].outcome is Outcome.DONE, 10.0)
    assert 0 in real.traffic(10)


def test_one_that_comes_and_goes_at_once_is_where_it_was_told_to_be(real: RealRouter) -> None:
    """Queued commands of sglang-router overtake each other: a second POST and then a DELETE left the worker in."""
    one, first = hands(real), targets(real)[0]
    for _ in range(10):
        done(one, decide(first, 1, 0))
        done(one, decide(first, 0, 1))
        done(one, decide(first, 0, 1))
    done(one, decide(first, 1, 0))
    assert real.members() == {called(engine) for engine in real.engines[1:]}


def test_what_sglang_knows_of_a_worker_is_there_again_when_it_comes_back() -> None:
    real = shared("sglang")
    real.reset()
    one, first = hands(real), targets(real)[0]
    real.put(real.engines[0], inside=False)
    real.put(real.engines[0], inside=True, priority=70, cost=2.5)
    done(one, decide(first, 1, 0))
    done(one, decide(first, 0, 1))
    row = real.rows()[called(real.engines[0])]
    assert (row["priority"], row["cost"]) == (70, 2.5)
    real.put(real.engines[0], inside=False)
    real.reset()


def test_a_worker_comes_back_as_the_kind_that_it_was_with_its_bootstrap_port(tmp_path: Path) -> None:
    with upstreams(3) as engines:
        real = RealRouter("sglang", tmp_path, engines, engines)
        flags = [f"--prefill {place(engine)} {port}" for engine, port in zip(engines[:2], (8998, 8999), strict=True)]
        real.more = ["--pd-disaggregation", *" ".join(flags).split(), "--decode", place(engines[2])]
        try:
            real.start()
            one, (prefill, other, decode) = hands(real), targets(real)
            done(one, decide(prefill, 1, 0))
            done(one, decide(prefill, 0, 1))
            row = real.rows()[prefill.member]
            assert (row["worker_type"], row["bootstrap_port"]) == ("prefill", 8998)
            (applied,) = one.apply([decide(decode, 1, 0)], NOW)  # the only one that answers
            assert (applied.outcome, "no healthy worker" in applied.detail) == (Outcome.FAILED, True)
            done(one, decide(other, 1, 0))
        finally:
            real.stop()


def test_a_worker_that_wants_a_key_gets_it_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_KEY", "of-the-worker")
    real = shared("sglang")
    real.reset()
    one, (a, b, c) = hands(real, worker_key=SecretRef(env="WORKER_KEY")), targets(real)
    done(one, decide(a, 1, 0))
    done(one, decide(a, 0, 1))
    done(one, decide(b, 1, 0), decide(c, 1, 0))
    assert real.traffic(3) == {0: 3}
    assert real.engines[0].asked_with == "Bearer of-the-worker"
    real.put(real.engines[0], inside=False)
    real.reset()


# --- names ---------------------------------------------------------------------------------------------------------


def test_replicas_are_found_by_the_names_of_the_metrics(real: RealRouter, tmp_path: Path) -> None:
    pods = {f"pod-{n}": called(engine) for n, engine in enumerate(real.engines)}
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump(pods))
    for origin in (Inline("inline", pods), InFile("file", str(file))):
        one, pod = hands(real, pool={"endpoints": origin}), Target("chat", Lever.BREAKER, "pod-1")
        done(one, decide(pod, 1, 0))
        assert called(real.engines[1]) not in real.members()
        done(one, decide(pod, 0, 1))
    assert values(hands(real), real) == [1, 1, 1]


def test_a_name_without_an_address_is_said_and_stops_nobody_else(real: RealRouter) -> None:
    one, first, pod = hands(real), targets(real)[0], Target("chat", Lever.BREAKER, "pod-1")
    states = one.read([first, pod], NOW)
    assert states[first].accepted == 1.0
    assert "pools.chat.endpoints" in states[pod].error
    told = {a.target: a.outcome for a in one.apply([decide(pod, 1, 0), decide(first, 1, 0)], NOW)}
    assert told == {pod: Outcome.REFUSED, first: Outcome.DONE}


def test_a_replica_that_the_router_has_by_another_name_does_not_get_two_shares(real: RealRouter) -> None:
    by_name = {"pod-0": f"localhost:{real.engines[0].port}"}
    one, pod = hands(real, pool={"endpoints": Inline("inline", by_name)}), Target("chat", Lever.BREAKER, "pod-0")
    assert one.read([pod], NOW)[pod].accepted == 0.0
    (applied,) = one.apply([decide(pod, 0, 1)], NOW)
    assert (applied.outcome, "by another name" in applied.detail) == (Outcome.REFUSED, True)
    assert len(real.members()) == 3


# --- the matrix ----------------------------------------------------------------------------------------------------

Trouble = Callable[[Relay], object]
GARBAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
REFUSES = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
# What happens, what is said of the write, and who is in then: old or new.
MATRIX: dict[str, tuple[Trouble, Outcome, str, str]] = {
    "down": (lambda w: setattr(w, "to", 9), Outcome.FAILED, "old", "nothing was sent"),
    "slow": (lambda w: setattr(w, "mute", True), Outcome.FAILED, "old", "no answer within 0.5 s"),
    "garbage answer": (lambda w: setattr(w, "says", GARBAGE), Outcome.FAILED, "old", "is `make` right?"),
    "wrong credentials": (lambda w: setattr(w, "says", REFUSES), Outcome.REFUSED, "old", "api_key"),
    "Governor killed before the write": (
        lambda w: w.lose.append(b"GET /workers"), Outcome.FAILED, "old", "nothing was sent",
    ),
    "Governor killed between write and acknowledgement": (
        lambda w: w.lose.extend([b"DELETE /workers", b"POST /remove_worker"]), Outcome.UNKNOWN, "new", "broke before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trouble", MATRIX)
def test_whatever_breaks_is_told_apart_and_a_new_governor_finds_the_truth(
    real: RealRouter, wire: Relay, trouble: str
) -> None:
    breaks, outcome, stands, words = MATRIX[trouble]
    port, first = wire.to, targets(real)[0]
    one = hands(real, f"http://127.0.0.1:{wire.port}", timeout=0.5)
    one.read([first], NOW)
    breaks(wire)
    decision = decide(first, 1, 0)
    (applied,) = one.apply([decision], NOW)
    assert (applied.outcome, words in applied.detail) == (outcome, True), applied
    if trouble not in ("Governor killed before the write", "Governor killed between write and acknowledgement"):
        assert one.read([first], NOW)[first].accepted is None
        assert one.verify([decision], NOW)[0].outcome is Outcome.UNKNOWN
    wire.to, wire.mute, wire.says, wire.lose = port, False, b"", []
    until(lambda: (called(real.engines[0]) in real.members()) == (stands == "old"))  # a router removes in its own time
    heir, commands = hands(real, f"http://127.0.0.1:{wire.port}"), wire.counted
    (verified,) = heir.verify([decision], NOW)
    assert verified.outcome is (Outcome.DONE if stands == "new" else Outcome.FAILED)
    assert wire.counted == commands
    assert heir.read([first], NOW)[first].accepted == (1.0 if stands == "old" else 0.0)
    done(heir, decision)
    assert called(real.engines[0]) not in real.members()


def test_a_router_that_hangs_is_a_failure_in_time(real: RealRouter) -> None:
    one, first = hands(real, timeout=0.3), targets(real)[0]
    with real.frozen():
        (applied,) = one.apply([decide(first, 1, 0)], NOW)
    assert (applied.outcome, "no answer within 0.3 s" in applied.detail) == (Outcome.FAILED, True)
    assert called(real.engines[0]) in real.members()


def test_a_foreign_writer_is_yielded_to(real: RealRouter) -> None:
    one, (a, b, _) = hands(real), targets(real)
    assert values(one, real) == [1, 1, 1]
    done(one, decide(a, 1, 0))
    real.put(real.engines[1], inside=False)  # somebody mends the machine
    states = one.read([a, b], NOW + 15)
    assert (states[a].accepted, states[a].foreign_writer) == (0.0, "")
    assert (states[b].accepted, states[b].drift) == (0.0, Drift.FOREIGN)
    assert states[b].foreign_writer


def test_a_restart_that_forgot_is_told_from_somebody_elses_hand(real: RealRouter) -> None:
    """Else a sick replica would be back in rotation for a quarter of an hour after each restart of its router."""
    pool = {"metrics": (real.metrics,)} if real.make == "vllm" else {}
    one, first = hands(real, pool=pool), targets(real)[0]
    assert values(one, real) == [1, 1, 1]
    done(one, decide(first, 1, 0))
    real.traffic(4)
    assert one.read([first], NOW + 5)[first].accepted == 0.0
    real.restart()
    state = one.read([first], NOW + 15)[first]
    assert (state.accepted, state.foreign_writer, state.drift) == (1.0, "", Drift.RESTARTED)
    done(one, decide(first, 1, 0))
    real.traffic(4)
    assert one.read([first], NOW + 80)[first].accepted == 0.0
    real.put(real.engines[0], inside=True)
    state = one.read([first], NOW + 95)[first]
    assert (state.accepted, state.drift) == (1.0, Drift.FOREIGN)


def test_what_a_governor_before_us_took_out_is_seen_as_out_and_is_let_back(real: RealRouter) -> None:
    first = targets(real)[0]
    done(hands(real), decide(first, 1, 0))
    heir = hands(real)
    state = heir.read([first], NOW)[first]
    assert (state.accepted, state.foreign_writer) == (0.0, "")
    done(heir, decide(first, 0, 1))
    assert 0 in real.traffic(10)


# --- several routers, one pool -------------------------------------------------------------------------------------


def test_half_of_the_routers_is_no_success_and_is_mended(real: RealRouter, wire: Relay) -> None:
    twin = f"http://127.0.0.1:{wire.port}"
    one, first = hands(real, real.url, twin), targets(real)[0]
    assert values(one, real) == [1, 1, 1]
    port, wire.to = wire.to, 9
    (applied,) = one.apply([decide(first, 1, 0)], NOW)
    assert applied.outcome is Outcome.UNKNOWN, applied
    assert f"only {real.url} took it" in applied.detail
    assert f"{twin}: nothing was sent" in applied.detail
    (verified,) = one.verify([decide(first, 1, 0)], NOW)
    assert (verified.outcome, twin in verified.detail) == (Outcome.FAILED, True)
    state = one.read([first], NOW)[first]
    assert (state.accepted, twin in state.error) == (0.0, True)
    real.put(real.engines[0], inside=True)
    wire.to = port  # both lead to one router: it is as the one that was away left it
    assert one.read([first], NOW)[first].accepted == 1.0
    done(one, decide(first, 1, 0))


def test_a_second_router_that_is_another_is_told_too(pair: tuple[RealRouter, RealRouter]) -> None:
    real, other = pair
    first = targets(real)[0]
    one = hands(real, real.url, other.url)
    done(one, decide(first, 1, 0))
    assert called(real.engines[0]) not in real.members() | other.members()
    other.put(real.engines[0], inside=True)  # half by somebody else's hand
    state = one.read([first], NOW + 5)[first]
    assert (state.accepted, state.drift) == (1.0, Drift.FOREIGN)
    other.put(real.engines[0], inside=False)
    assert one.read([first], NOW + 20)[first].accepted == 0.0
    other.restart()
    state = one.read([first], NOW + 2000)[first]
    assert (state.accepted, state.drift) == (1.0, Drift.RESTARTED)
    done(one, decide(first, 1, 0))
    assert called(real.engines[0]) not in real.members() | other.members()


def test_a_router_that_was_cut_off_has_an_older_value_of_ours_and_no_foreign_one(
    pair: tuple[RealRouter, RealRouter],
) -> None:
    real, other = pair
    with relay(int(other.url.rpartition(":")[2])) as wire:
        first, port = targets(real)[0], wire.to
        one = hands(real, real.url, f"http://127.0.0.1:{wire.port}")
        assert values(one, real) == [1, 1, 1]
        wire.to = 9
        decision = decide(first, 1, 0)
        assert one.apply([decision], NOW)[0].outcome is Outcome.UNKNOWN
        assert one.verify([decision], NOW + 15)[0].outcome is Outcome.FAILED
        assert one.read([first], NOW + 15)[first].accepted == 0.0
        wire.to = port
        state = one.read([first], NOW + 30)[first]
        assert (state.accepted, state.foreign_writer, state.drift) == (1.0, "", Drift.STALE)
        done(one, decision)
        assert called(real.engines[0]) not in other.members()


# --- keys ----------------------------------------------------------------------------------------------------------


def test_a_control_plane_with_a_key_takes_only_the_key_of_an_admin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTER_KEY", ADMIN)
    monkeypatch.setenv("WRONG_KEY", "wrong")
    with upstreams(2) as engines:
        real = RealRouter("sglang", tmp_path, engines, engines)
        real.keyed = True
        try:
            real.start()
            first = targets(real)[0]
            done(hands(real, api_key=SecretRef(env="ROUTER_KEY")), decide(first, 1, 0))
            told: list[tuple[Applied, str]] = []
            for key in (None, SecretRef(env="WRONG_KEY"), SecretRef(env="NO_SUCH_KEY")):
                one = hands(real, api_key=key)
                (applied,) = one.apply([decide(first, 0, 1)], NOW)
                told.append((applied, one.read([first], NOW)[first].error))
            assert [a.outcome for a, _ in told] == [Outcome.REFUSED, Outcome.REFUSED, Outcome.FAILED]
            assert all("api_key" in a.detail and "api_key" in error for a, error in told[:2])
            assert "NO_SUCH_KEY" in told[2][1]
            assert ADMIN not in str(told)
            assert real.members() == {called(engines[1])}
        finally:
            real.stop()


# --- the doctor, the config, the example ---------------------------------------------------------------------------


def said(one: Router) -> str:
    return "\n".join(f"{f.level}: {f.subject}: {f.text}" for f in one.diagnose(NOW))


def test_the_doctor_finds_what_will_hurt_and_writes_nothing(real: RealRouter, wire: Relay) -> None:
    url = f"http://127.0.0.1:{wire.port}"
    pods = Inline("inline", {"pod-0": called(real.engines[0])})
    words = said(hands(real, url, "http://127.0.0.1:9", pool={"endpoints": pods}))
    assert "error: chat: http://127.0.0.1:9: cannot connect" in words
    assert all(place(engine) in words for engine in real.engines[1:])
    assert place(real.engines[0]) not in words
    assert "info: router: whoever reaches these routers" in words
    assert ("pools.chat.metrics" in words) == (real.make == "vllm")
    for engine in real.engines[:2]:
        real.put(engine, inside=False)
    assert "has 1 worker(s)" in said(hands(real, url))
    assert wire.counted == 0


def test_ranks_of_one_replica_are_seen_and_left_alone() -> None:
    rows = [{"url": f"http://10.0.0.1:8000@{n}", "is_healthy": True} for n in (0, 1)]
    found = workers({"workers": rows}, "here")
    assert {at: one.whole for at, one in found.items()} == {"10.0.0.1:8000": False}
    with pytest.raises(Garbled):
        workers({"urls": []}, "here")


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://A.example:8000", "a.example:8000"), ("https://a.example", "a.example:443"),
        ("10.0.0.1:8000", "10.0.0.1:8000"), ("grpc://[fd00::1]:9", "[fd00::1]:9"), ("nonsense", "nonsense:80"),
        ("http://x:y", ""),
    ],
)  # fmt: skip
def test_workers_are_told_apart_by_where_they_listen(url: str, where: str) -> None:
    assert address(url) == where


@pytest.mark.parametrize(
    ("pool", "config", "message"),
    [
        ({"routers": ()}, {}, "routers: is empty"),
        ({"routers": ("router:30000",)}, {}, "routers.0: .* does not begin with http:// or https://"),
        ({"routers": ("http://me:secret@router:30000",)}, {}, "credentials in the URL"),
        ({"routers": ("http://r:1", "http://r:1")}, {}, "names one twice"),
        ({"metrics": ("http://r:2", "http://r:3")}, {}, "has not as many"),
        ({"metrics": ("http://r:2",)}, {}, "means nothing for sglang"),
        ({}, {"make": "vllm", "api_key": SecretRef(env="X")}, "asks for no key"),
        ({}, {"make": "vllm", "worker_key": SecretRef(env="X")}, "worker_key"),
    ],
)
def test_an_unusable_config_is_refused_before_it_matters(
    pool: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RouterConfig(
            **{"make": "sglang", "pools": {"chat": RouterPool(**{"routers": ("http://r:1",)} | pool)}} | config
        )


def test_the_example_is_a_config_that_is_accepted() -> None:
    loaded = load(SHIPPED / "governor.yaml")
    assert loaded.pools["chat"].levers[Lever.BREAKER].quantum == 1


@pytest.mark.parametrize(
    ("written", "instead", "mend"),
    [
        ("quantum: 1 ", "quantum: 0.05 ", "write quantum: 1"),
        ("fail_static: true", "fail_static: false", "stay as it is when every Governor is dead"),
    ],
)
def test_what_a_router_cannot_keep_is_refused_by_check(tmp_path: Path, written: str, instead: str, mend: str) -> None:
    file = tmp_path / "governor.yaml"
    text = (SHIPPED / "governor.yaml").read_text().replace("breaker:\n", "breaker:\n        mode: auto\n")
    file.write_text(text)
    load(file)
    file.write_text(text.replace(written, instead))
    with pytest.raises(ConfigError, match=mend):
        load(file)
