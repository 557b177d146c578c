"""Disasters of moving the busy thresholds of real Dynamo frontends: what is refused, and what is left when something
breaks."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.dynamo import Dynamo, DynamoConfig, DynamoPool
from actuators.dynamo.formula import Card, requests, threshold
from controller.config import ConfigError, load
from controller.core.model import Decision, Drift, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.rest import NO_LIMIT
from tests.support.decisions import decide
from tests.support.dynamo import BLOCKS, PROMPT, SHIPPED, Cell, Front, shared, together
from tests.support.relay import Relay, relay
from tests.support.waiting import until

pytestmark = pytest.mark.heavy
NOW = 1_704_067_800.0
A, B = (Target(pool, Lever.ADMISSION, "concurrency") for pool in "ab")
LONGEST = Target("a", Lever.ADMISSION, "longest_prompt")
FLAG = 3.5 * 2 / BLOCKS  # of the frontend that the tests share: four requests in flight


@pytest.fixture
def cell() -> Cell:
    return shared()[0]


@pytest.fixture
def front() -> Iterator[Front]:
    """With four requests in flight per replica for each model."""
    one = shared()[1]
    for model in "abc":
        one.set(model, FLAG)
    yield one
    one.quiet()


@pytest.fixture
def wire(front: Front) -> Iterator[Relay]:
    with relay(front.port) as one:
        one.counts = (b"POST /busy_threshold",)
        yield one


def hands(*urls: str, pool: dict[str, Any] | None = None, binding: tuple[Target, ...] = (A, B), **more: Any) -> Dynamo:
    pools = {name: DynamoPool(name, **({"tokens_per_request": float(PROMPT)} | (pool or {}))) for name in "ab"}
    return Dynamo(DynamoConfig(urls, pools, **more), Binding(binding))


def done(one: Dynamo, *decisions: Decision, now: float = NOW) -> None:
    applied = one.apply(decisions, now)
    assert {a.outcome for a in applied} == {Outcome.DONE}, applied


# --- traffic follows -----------------------------------------------------------------------------------------------


def test_as_many_are_in_flight_as_were_decided_and_the_others_are_told_to_come_later(front: Front) -> None:
    one = hands(front.url)
    for limit in (3.0, 6.0):
        done(one, decide(A, one.read([A], NOW)[A].accepted, limit))
        front.quiet()
        assert together([front], "a", 10) == {200: limit, 529: 10 - limit}


def test_what_is_in_flight_outlives_a_lower_limit(front: Front) -> None:
    one = hands(front.url)
    done(one, decide(A, 4, 8))
    front.quiet()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(front.one, "a", number, 60) for number in range(6)]
        until(lambda: "dynamo_request_plane_inflight_requests 6\n" in front.ask("GET", "/metrics").text)
        done(one, decide(A, 8, 1))
        until(lambda: front.one("a", 50, answer=1) == 529)
        assert {one.result() for one in asked} == {200}


def test_a_limit_of_one_model_leaves_the_others_alone(front: Front) -> None:
    done(hands(front.url), decide(A, 4, 1))
    front.quiet()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(front.one, "a", 1, 60)
        until(lambda: "dynamo_request_plane_inflight_requests 1\n" in front.ask("GET", "/metrics").text)
        until(lambda: front.one("a", 2, answer=1) == 529)
        assert front.one("b", 3, answer=1) == 200
        assert busy.result() == 200


def test_two_frontends_share_the_limit_because_each_counts_its_own_requests_alone(cell: Cell, front: Front) -> None:
    other = cell.frontend().start(*"abc")
    try:
        one = hands(front.url, other.url)
        done(one, decide(A, None, 6))
        assert front.threshold("a") == other.threshold("a") == pytest.approx(2.5 * 2 / BLOCKS)
        front.quiet()
        assert together([front, other], "a", 12) == {200: 6, 529: 6}
        # Half by somebody else's hand, and half by a restart.
        assert one.read([A], NOW)[A].accepted == 6.0
        other.set("a", 0.5)
        state = one.read([A], NOW + 5)[A]
        assert (state.accepted, state.drift) == (40.0 + 1.0, Drift.FOREIGN)
        done(one, decide(A, state.accepted, 6), now=NOW + 1000)
        other.restart(*"abc")
        state = one.read([A], NOW + 2000)[A]
        assert (state.accepted, state.drift, state.foreign_writer) == (NO_LIMIT, Drift.RESTARTED, "")
        done(one, decide(A, NO_LIMIT, 6), now=NOW + 2000)
        assert one.read([A], NOW + 2015)[A].accepted == 6.0
    finally:
        other.stop()


def test_prompts_that_wait_can_be_counted_in_place_of_requests_in_flight(front: Front) -> None:
    one = hands(front.url, pool={"by": "prefill_tokens"})
    front.set("a", 1.0)
    name = "active_prefill_tokens_threshold"
    done(one, decide(A, None, 2))
    assert front.threshold("a", name) == 1.5 * PROMPT
    assert one.read([A], NOW)[A].accepted == 2.0
    done(one, decide(A, 2, NO_LIMIT))
    assert one.read([A], NOW)[A].accepted == NO_LIMIT
    assert hands(front.url, pool={"by": "prefill_tokens"}).read([A], NOW)[A].accepted == NO_LIMIT
    assert front.one("a", 1, answer=1) == 200


def test_no_limit_is_the_whole_cache_and_is_read_as_none(front: Front) -> None:
    one = hands(front.url)
    done(one, decide(A, 4, NO_LIMIT))
    assert front.threshold("a") == 1.0
    assert hands(front.url).read([A], NOW)[A].accepted == NO_LIMIT
    done(one, decide(A, NO_LIMIT, 64))  # more than the cache can hold
    assert front.threshold("a") == 1.0
    assert one.read([A], NOW)[A].accepted == 64.0


@given(st.floats(1.0, 10_000.0), st.floats(1.0, 4096.0), st.floats(100.0, 1e6), st.integers(1, 8), st.integers(1, 2000))
def test_a_limit_is_read_back_as_it_was_written(tokens: float, block: float, blocks: float, k: int, n: int) -> None:
    card = Card(blocks, block)
    for pool in (DynamoPool("m", tokens), DynamoPool("m", tokens, by="prefill_tokens")):
        found = threshold(pool, card, k, float(n))
        assert found >= 0.0
        assert requests(pool, card, k, found, float(n)) == n
        if pool.by == "decode_blocks":
            assert found <= 1.0
        elif n >= k:
            assert requests(pool, card, k, found, None) == pytest.approx(n, abs=1 + k / tokens)


# --- the matrix ----------------------------------------------------------------------------------------------------

Trouble = Callable[[Relay], object]
GARBAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
REFUSES = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
FULL = b"HTTP/1.1 529 Overloaded\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
# What happens, what is said of the write, and what stands then: old or new.
MATRIX: dict[str, tuple[Trouble, Outcome, str, str]] = {
    "down": (lambda w: setattr(w, "to", 9), Outcome.FAILED, "old", "nothing was sent"),
    "slow": (lambda w: setattr(w, "mute", True), Outcome.FAILED, "old", "no answer within 0.5 s"),
    "garbage answer": (lambda w: setattr(w, "says", GARBAGE), Outcome.FAILED, "old", "not answered as Dynamo does"),
    "wrong credentials": (lambda w: setattr(w, "says", REFUSES), Outcome.REFUSED, "old", "api_key"),
    "overloaded": (lambda w: setattr(w, "says", FULL), Outcome.FAILED, "old", "HTTP 529"),
    "Governor killed before the write": (
        lambda w: w.lose.append(b"GET /busy_threshold"), Outcome.FAILED, "old", "nothing was sent",
    ),
    "Governor killed between write and acknowledgement": (
        lambda w: w.lose.append(b"POST /busy_threshold"), Outcome.UNKNOWN, "new", "broke before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trouble", MATRIX)
def test_whatever_breaks_is_told_apart_and_a_new_governor_finds_the_truth(
    front: Front, wire: Relay, trouble: str
) -> None:
    breaks, outcome, stands, words = MATRIX[trouble]
    port, url = wire.to, f"http://127.0.0.1:{wire.port}"
    one = hands(url, timeout=0.5)
    one.read([A], NOW)
    breaks(wire)
    decision = decide(A, 4, 7)
    (applied,) = one.apply([decision], NOW)
    assert (applied.outcome, words in applied.detail) == (outcome, True), applied
    if not trouble.startswith("Governor killed"):
        assert one.read([A], NOW)[A].accepted is None
        assert one.verify([decision], NOW)[0].outcome is Outcome.UNKNOWN
    wire.to, wire.mute, wire.says, wire.lose = port, False, b"", []
    value = 4.0 if stands == "old" else 7.0
    assert front.threshold("a") == pytest.approx((value - 0.5) * 2 / BLOCKS)
    heir, commands = hands(url), wire.counted
    (verified,) = heir.verify([decision], NOW)
    assert verified.outcome is (Outcome.DONE if stands == "new" else Outcome.FAILED)
    assert wire.counted == commands
    assert heir.read([A], NOW)[A].accepted == value
    done(heir, decide(A, value, 7))
    assert front.threshold("a") == pytest.approx(6.5 * 2 / BLOCKS)


def test_a_frontend_that_hangs_is_a_failure_in_time(front: Front) -> None:
    one = hands(front.url, timeout=0.3)
    with front.frozen():
        (applied,) = one.apply([decide(A, 4, 7)], NOW)
    assert (applied.outcome, "no answer within 0.3 s" in applied.detail) == (Outcome.FAILED, True)
    assert front.threshold("a") == pytest.approx(FLAG)


def test_half_of_the_frontends_is_no_success_and_is_mended(front: Front, wire: Relay) -> None:
    twin, port = f"http://127.0.0.1:{wire.port}", wire.to
    one = hands(front.url, twin)
    assert one.read([A], NOW)[A].accepted == 8.0  # four at each
    wire.to = 9
    decision = decide(A, 8, 2)
    (applied,) = one.apply([decision], NOW)
    assert applied.outcome is Outcome.UNKNOWN
    assert f"only {front.url} took it" in applied.detail
    assert f"{twin}: nothing was sent" in applied.detail
    (verified,) = one.verify([decision], NOW)
    assert (verified.outcome, twin in verified.detail) == (Outcome.FAILED, True)
    state = one.read([A], NOW)[A]
    assert (state.accepted, twin in state.error) == (2.0, True)
    wire.to = port
    done(one, decision)


def test_a_model_that_nobody_serves_is_refused_and_stops_no_other(front: Front) -> None:
    nobody = Target("nobody", Lever.ADMISSION, "concurrency")
    config = DynamoConfig(
        (front.url,), {"a": DynamoPool("a", 128.0), "nobody": DynamoPool("nobody", 128.0, by="prefill_tokens")}
    )
    one = Dynamo(config, Binding((A, nobody)))
    states = one.read([A, nobody], NOW)
    assert states[A].accepted == 4.0
    assert "knows no model nobody" in states[nobody].error
    told = {a.target: (a.outcome, a.detail) for a in one.apply([decide(nobody, 5, 4), decide(A, 4, 5)], NOW)}
    assert told[A][0] is Outcome.DONE
    assert told[nobody][0] is Outcome.REFUSED
    assert "404 Model 'nobody' not found" in told[nobody][1]


def test_an_admin_api_that_is_off_is_told_apart_with_its_mend(cell: Cell) -> None:
    closed = cell.frontend(DYN_DISABLE_FRONTEND_ADMIN_API="true").start(*"abc")
    try:
        one = hands(closed.url)
        assert "DYN_DISABLE_FRONTEND_ADMIN_API" in one.read([A], NOW)[A].error
        (applied,) = one.apply([decide(A, 4, 5)], NOW)
        assert (applied.outcome, "DYN_DISABLE_FRONTEND_ADMIN_API" in applied.detail) == (Outcome.REFUSED, True)
        assert "error: dynamo: " in said(one)
    finally:
        closed.stop()


def test_a_limit_that_could_be_removed_by_nobody_and_is_gone_is_a_restart(front: Front, wire: Relay) -> None:
    """A model whose last worker goes is forgotten with its threshold; the frontend is the same process."""
    one = hands(f"http://127.0.0.1:{wire.port}")
    done(one, decide(A, 4, 5))
    body = (
        b'{"thresholds":[{"model":"a","active_decode_blocks_threshold":null,"active_prefill_tokens_threshold":null}]}'
    )
    wire.says = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    # The same answer stands for the metrics page, where it tells nothing.
    state = one.read([A], NOW + 5)[A]
    assert (state.accepted, state.drift, state.foreign_writer) == (NO_LIMIT, Drift.RESTARTED, "")


def test_a_limit_of_prompt_lengths_is_refused_and_not_forgotten(front: Front) -> None:
    one = hands(front.url, binding=(LONGEST,))
    (applied,) = one.apply([decide(LONGEST, 1e6, 4000)], NOW)
    assert applied.outcome is Outcome.REFUSED
    assert "setpoints: [concurrency]" in one.read([LONGEST], NOW)[LONGEST].error


# --- the doctor, the config, the example ---------------------------------------------------------------------------


def said(one: Dynamo) -> str:
    return "\n".join(f"{f.level}: {f.subject}: {f.text}" for f in one.diagnose(NOW))


def test_the_doctor_finds_what_will_hurt_and_writes_nothing(front: Front, wire: Relay) -> None:
    front.one("a", 1, answer=1)
    url = f"http://127.0.0.1:{wire.port}"
    words = said(hands(url))
    assert "does not count" not in words
    assert "info: dynamo: whoever reaches these frontends" in words
    config = DynamoConfig((url, "http://127.0.0.1:9"), {"a": DynamoPool("nobody", 9.0), "b": DynamoPool("b", 1e6)})
    words = said(Dynamo(config, Binding((A, B, Target("x", Lever.ADMISSION, "concurrency")))))
    for part in (
        "error: dynamo: http://127.0.0.1:9: cannot connect", "error: a: ", "knows no model nobody",
        "error: b: one request of 1e+06 tokens fills a worker", "error: x: pools.x: is missing",
    ):  # fmt: skip
        assert part in words
    assert wire.counted == 0


def test_a_router_that_counts_no_blocks_lets_more_in_than_was_decided_and_is_found(cell: Cell) -> None:
    """In every router mode but kv only what the workers publish now and then counts."""
    other = cell.frontend("--router-mode", "least-loaded").start(*"abc")
    try:
        one = hands(other.url)
        done(one, decide(A, None, 1))
        assert together([other], "a", 4)[200] > 1
        assert "start it with --router-mode kv" in said(one)
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"frontends": ()}, "frontends: is empty"),
        ({"frontends": ("frontend:8000",)}, "does not begin with http:// or https://"),
        ({"frontends": ("http://f:1", "http://f:1/")}, "names one twice"),
        ({"pools": {"a": DynamoPool("m", 1.0), "b": DynamoPool("m", 1.0)}}, "two have one model"),
    ],
)
def test_an_unusable_config_is_refused_before_it_matters(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DynamoConfig(**{"frontends": ("http://f:1",), "pools": {"a": DynamoPool("a", 1.0)}} | config)


def test_the_example_is_a_config_that_is_accepted() -> None:
    assert load(SHIPPED / "governor.yaml").pools["chat"].levers[Lever.ADMISSION].setpoints == ("concurrency",)


def test_a_limit_that_would_stay_when_every_governor_is_dead_must_be_meant(tmp_path: Path) -> None:
    file = tmp_path / "governor.yaml"
    text = (SHIPPED / "governor.yaml").read_text().replace("admission:\n", "admission:\n        mode: auto\n")
    file.write_text(text)
    load(file)
    file.write_text(text.replace("fail_static: true", "fail_static: false"))
    with pytest.raises(ConfigError, match="stay as it is when every Governor is dead"):
        load(file)
