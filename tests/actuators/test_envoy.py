"""A real Envoy steered over gRPC: its traffic does what was decided, and what nobody should be told never is."""

import http.client
import math
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.core.model import Lever, Outcome, Target
from tests.support.decisions import decide
from tests.support.envoy import TARGETS, envoy, until
from tests.support.envoy_stand import (
    ACME,
    AWAY,
    BETA,
    BREAKERS,
    EVEN,
    GATE,
    KEY,
    NAMES,
    NO_LIMIT,
    WEIGHTS,
    Stand,
    in_flight,
    neutral,
    shares,
    steered,
    text_of,
)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with steered(tmp_path_factory.mktemp("envoy")) as made:
        yield made


@pytest.fixture
def stand(edge: Stand) -> Iterator[Stand]:
    with neutral(edge):
        yield edge


# --- traffic follows -------------------------------------------------------------------------------------------------


def test_an_envoy_without_governor_serves_all_replicas_alike(stand: Stand) -> None:
    stand.actuator.close()
    stand.cable.cut()
    stand.running.stop()
    stand.running.start()
    assert shares(stand.running.traffic(300)) == pytest.approx(EVEN, abs=0.01)


def test_weights_and_breakers_share_the_traffic_to_a_point(stand: Stand) -> None:
    """A slow one that is weighted down as well is held back once: the least counts, not the product."""
    stand.done((WEIGHTS["r1"], 0.5), (BREAKERS["r1"], 0.25), (WEIGHTS["r3"], 0.75))
    assert shares(stand.running.traffic(5000)) == pytest.approx({"r1": 0.125, "r2": 0.5, "r3": 0.375}, abs=0.01)


def test_a_breaker_ends_no_request_that_is_in_flight(stand: Stand) -> None:
    stand.behind.hold()
    threads, ends = in_flight(stand.running, 9)
    until(lambda: stand.behind.in_flight == 9, "all are at their replicas")
    stand.done((BREAKERS["r1"], 0.0), (WEIGHTS["r2"], 0.1))
    found = stand.running.traffic(110)
    assert found["r1"] == 0
    assert found["r3"] == pytest.approx(100, abs=2)
    stand.behind.let_go()
    for thread in threads:
        thread.join(10)
    assert ends == [200] * 9


def test_a_share_of_those_that_consent_goes_to_the_smaller_model(stand: Stand) -> None:
    stand.done((AWAY, 0.3))
    away = stand.running.traffic(5000, x_consent="downgrade")["s1"]
    assert away == pytest.approx(1500, abs=3 * math.sqrt(5000 * 0.3 * 0.7))
    assert stand.running.traffic(300)["s1"] == 0


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.5, 1.0])
def test_a_split_is_never_all_zero(stand: Stand, share: float) -> None:
    """Then Envoy answers no request at all."""
    stand.done((AWAY, 0.5))
    stand.done((AWAY, share))
    found = stand.running.traffic(300, x_consent="downgrade")
    assert found.total() == sum(found[name] for name in (*NAMES, "s1"))
    assert found["s1"] / 300 == pytest.approx(share, abs=0.1)


def test_a_gate_refuses_what_is_beyond_it_and_lets_the_rest_finish(stand: Stand) -> None:
    stand.behind.hold()
    stand.done((GATE, 2.0))  # of three replicas
    threads, ends = in_flight(stand.running, 20)
    until(lambda: len(ends) == 14, "all but six are refused at once")
    link = http.client.HTTPConnection("127.0.0.1", stand.running.front, timeout=5)
    link.request("GET", "/")
    answer = link.getresponse()
    link.close()
    assert (answer.status, answer.getheader("x-envoy-overloaded")) == (503, "true")
    stand.behind.let_go()
    for thread in threads:
        thread.join(10)
    assert Counter(ends) == {200: 6, 503: 14}


def test_a_gate_narrows_with_the_replicas_that_are_in_rotation(stand: Stand) -> None:
    stand.done((GATE, 4.0))
    assert stand.running.runtime(KEY) == "12"
    stand.done((BREAKERS["r3"], 0.0))
    until(lambda: stand.running.runtime(KEY) == "8", "the gate follows")


def test_a_tenant_gets_its_bucket_and_others_are_left_alone(stand: Stand) -> None:
    stand.done((ACME, 500.0))  # five requests of 100 tokens a second
    began = time.monotonic()
    found = stand.running.traffic(100, at_once=1, x_tenant="acme")
    most = 5 + 5 * (time.monotonic() - began)
    assert 5 <= 100 - found["429"] <= most + 1
    assert stand.running.traffic(100, at_once=1, x_tenant="beta")["429"] == 0
    assert stand.running.traffic(100)["429"] == 0


def test_an_edit_of_one_bucket_gives_others_one_fill_interval_at_most(stand: Stand) -> None:
    """Envoy fills every bucket anew when one of them is edited."""
    stand.done((ACME, 300.0), (BETA, 100.0))  # of beta's, one request a second
    stand.running.traffic(20, at_once=1, x_tenant="beta")
    began = time.monotonic()
    for number in range(5):
        stand.done((ACME, 310.0 + number))
        got = 20 - stand.running.traffic(20, at_once=1, x_tenant="beta")["429"]
        assert got <= 1 + math.ceil(time.monotonic() - began)


def test_renewing_a_cap_at_every_tick_fills_no_bucket(stand: Stand) -> None:
    """Else a tenant would get a bucket for nothing with each of them."""
    stand.done((ACME, 100.0), lasting=30.0)
    stand.running.traffic(20, at_once=1, x_tenant="acme")
    began, got = time.monotonic(), 0
    for number in range(20):
        stand.done((ACME, 100.0), lasting=30.0 + number)
        got += 5 - stand.running.traffic(5, at_once=1, x_tenant="acme")["429"]
    assert got <= math.ceil(time.monotonic() - began)


def test_a_cap_of_nothing_leaves_next_to_nothing(stand: Stand) -> None:
    stand.done((ACME, 0.0))
    assert stand.running.traffic(50, at_once=1, x_tenant="acme")["429"] >= 49


def test_tokens_are_counted_where_a_header_tells_them(stand: Stand) -> None:
    stand.governor(tokens_header="x-tokens")
    stand.connected()
    stand.done((ACME, 1000.0))
    found = stand.running.traffic(10, at_once=1, x_tenant="acme", x_tokens="300")
    assert 3 <= 10 - found["429"] <= 4


def test_envoy_itself_takes_out_a_replica_that_answers_with_errors(stand: Stand) -> None:
    """Within five requests, long before anybody's metrics tell; the breaker of Governor is for what is slow."""
    stand.done((WEIGHTS["r2"], 0.9))
    stand.running.get("/runtime_modify?outlier_detection.base_ejection_time_ms=1000", "POST")
    stand.behind.broken.add("r1")
    try:
        found = stand.running.traffic(300, at_once=1)
        after = stand.running.traffic(300, at_once=1)
    finally:
        stand.behind.broken.clear()
    assert 5 <= found["500"] <= 20
    assert after["500"] == 0, "nor do some of its requests go to the plain cluster, which does not know that it is ill"
    until(lambda: stand.running.traffic(3)["r1"] > 0, "it is let in again")


def with_shedding(body: dict[str, Any]) -> None:
    """The parts of shed.yaml at their places."""
    parts = yaml.safe_load((TARGETS / "shed.yaml").read_text())
    body["layered_runtime"]["layers"].insert(-1, parts["layer"])
    manager = body["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"].insert(0, parts["filter"])
    manager["route_config"]["virtual_hosts"][0]["routes"].insert(0, parts["route"])


def test_a_share_of_a_tenants_requests_is_refused_where_a_cap_is_kept_by_that(stand: Stand, tmp_path: Path) -> None:
    governor = stand.governor(caps="shed")
    stand.running.stop()  # else this one, which knows no such layer, would have to say yes as well
    wish = decide(ACME, NO_LIMIT, 700.0)._replace(evidence={"demand": 1000.0}, until=1.5)
    blind = decide(BETA, NO_LIMIT, 700.0)
    text = text_of(stand.behind, stand.cable, "edge-3", with_shedding)
    with envoy(tmp_path, text, 3) as running:
        until(lambda: not governor.read([ACME], stand.now)[ACME].error, "it is connected")
        applied = {one.target: one for one in governor.apply([wish, blind], 0.0)}
        assert (applied[ACME].outcome, applied[BETA].outcome) == (Outcome.DONE, Outcome.REFUSED)
        assert "demand" in applied[BETA].detail
        assert governor.read([ACME], stand.now)[ACME].accepted == 700.0
        refused = running.traffic(1000, at_once=1, x_tenant="acme")["429"]
        assert refused == pytest.approx(300, abs=3 * math.sqrt(1000 * 0.3 * 0.7))
        assert running.traffic(100, at_once=1, x_tenant="beta")["429"] == 0
        stand.actuator.close()
        until(lambda: running.runtime("governor.shed.chat.acme") == "", "it expires", 3)
        assert running.traffic(100, at_once=1, x_tenant="acme")["429"] == 0


# --- what is never told ----------------------------------------------------------------------------------------------


def test_the_last_replica_is_never_taken_out_and_the_rest_of_the_batch_goes_on(stand: Stand) -> None:
    stand.done((BREAKERS["r1"], 0.0), (BREAKERS["r2"], 0.0))
    applied = stand.send((BREAKERS["r3"], 0.0), (AWAY, 0.1))
    assert applied[BREAKERS["r3"]].outcome is Outcome.REFUSED
    assert "no replica of chat" in applied[BREAKERS["r3"]].detail
    assert applied[AWAY].outcome is Outcome.DONE
    assert stand.running.traffic(30) == {"r3": 30}


def test_a_replica_without_an_address_is_an_error_of_its_own_alone(stand: Stand) -> None:
    stranger = Target("chat", Lever.WEIGHT, "r9")
    applied = stand.send((stranger, 0.5), (WEIGHTS["r1"], 0.5))
    assert (applied[stranger].outcome, applied[WEIGHTS["r1"]].outcome) == (Outcome.FAILED, Outcome.DONE)
    state = stand.actuator.read([stranger, WEIGHTS["r1"]], 0.5)
    assert "no address of r9" in state[stranger].error
    assert state[WEIGHTS["r1"]].accepted == 0.5
