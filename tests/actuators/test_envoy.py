"""A real Envoy steered over gRPC: its traffic does what was decided, and no disaster leaves it worse than neutral."""

import http.client
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from actuators.endpoints import InFile, Inline
from actuators.envoy import Envoy, EnvoyConfig, EnvoyPool, Grpc
from controller.core.model import Applied, Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.envoy import (
    TARGETS,
    EnvoyProcess,
    Replicas,
    Wire,
    bootstrap,
    envoy,
    free_port,
    replicas,
    until,
    wire,
)  # fmt: skip

NAMES = ("r1", "r2", "r3")
WEIGHTS = {name: Target("chat", Lever.WEIGHT, name) for name in NAMES}
BREAKERS = {name: Target("chat", Lever.BREAKER, name) for name in NAMES}
GATE = Target("chat", Lever.ADMISSION, "concurrency")
AWAY = Target("chat", Lever.DOWNGRADE, "small")
ACME, BETA = (Target("chat", Lever.TENANT_CAP, tenant) for tenant in ("acme", "beta"))
ALL = [*WEIGHTS.values(), *BREAKERS.values(), GATE, AWAY, ACME, BETA]
BINDING = Binding((GATE, AWAY, ACME, BETA), scopes=(("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))
KEY = "circuit_breakers.chat-steered.default.max_requests"
NO_LIMIT = 1e12
EVEN = {"r1": 1 / 3, "r2": 1 / 3, "r3": 1 / 3}


@dataclass
class Stand:
    """Replicas, a wire, and an Envoy at the other end of it; `actuator` is the Governor of the moment."""

    behind: Replicas
    running: EnvoyProcess
    cable: Wire
    port: int
    config: EnvoyConfig
    actuator: Envoy
    now: float = 0.0
    _ticks: Iterator[int] = field(default_factory=lambda: count(1))

    def governor(self, **changed: Any) -> Envoy:
        """Another Governor in the place of the one before."""
        self.actuator.close()
        self.actuator = Envoy(replace(self.config, **changed), BINDING)
        self.now = next(self._ticks)
        self.actuator.read(ALL, self.now)
        return self.actuator

    def connected(self) -> Envoy:
        """The Governor, once Envoy has what it tells; two ticks have gone by then."""
        self.reconnected()
        self.now = next(self._ticks)
        self.actuator.read(ALL, self.now)
        until(lambda: not any(s.error for s in self.actuator.read(ALL, self.now).values()), "Envoy took all of it")
        return self.actuator

    def reconnected(self, targets: Sequence[Target] = ALL) -> None:
        """Envoy has found the new Governor; no tick goes by."""
        until(lambda: not any(s.error for s in self.actuator.read(targets, self.now).values()), "Envoy is connected")

    def send(self, *wishes: tuple[Target, float], lasting: float | None = None) -> dict[Target, Applied]:
        """Values from neutral, `lasting` seconds where they expire."""
        made = [lasts(decide(target, None, value), lasting) for target, value in wishes]
        return {one.target: one for one in self.actuator.apply(made, 0.0)}

    def done(self, *wishes: tuple[Target, float], lasting: float | None = None) -> None:
        applied = self.send(*wishes, lasting=lasting)
        assert {one.outcome for one in applied.values()} == {Outcome.DONE}, applied


def lasts(decision: Decision, seconds: float | None) -> Decision:
    return decision._replace(until=seconds)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with ExitStack() as stack:
        behind = stack.enter_context(replicas(*NAMES, "s1"))
        port = free_port()
        cable = stack.enter_context(wire(port))
        config = configured(port, behind)
        actuator = Envoy(config, BINDING)
        actuator.read(ALL, 0.0)
        running = stack.enter_context(envoy(tmp_path_factory.mktemp("envoy"), text_of(behind, cable)))
        stand = Stand(behind, running, cable, port, config, actuator)
        yield stand
        stand.actuator.close()


@pytest.fixture
def stand(edge: Stand) -> Iterator[Stand]:
    """Neutral, with a Governor that has told so; and after a test the wire is whole again and Envoy runs."""
    edge.governor()
    edge.connected()
    yield edge
    edge.cable.deaf = False
    edge.cable.mend()
    edge.behind.let_go()
    if edge.running.process is None:
        edge.governor()  # first, for an Envoy that finds none waits for it
        edge.running.start()


def configured(port: int, behind: Replicas, **more: Any) -> EnvoyConfig:
    chat = EnvoyPool(
        "chat", eds="chat-steered", fallback="chat-plain", tokens_per_request=100.0,
        endpoints=Inline("inline", {name: behind.addresses[name] for name in NAMES}),
    )  # fmt: skip
    pools = {"chat": chat, "small": EnvoyPool("small")}
    return EnvoyConfig(pools, Grpc("grpc", f"127.0.0.1:{port}"), timeout=1.0, arrival=0.0, **more)


def text_of(
    behind: Replicas, cable: Wire, node: str = "edge-1", change: Callable[[dict[str, Any]], None] | None = None
) -> Callable[[int, int], str]:
    def text(front: int, admin: int) -> str:
        there = behind.ports
        ports = {8001: there["r1"], 8002: there["r2"], 8003: there["r3"], 8009: there["s1"]}
        ports |= {10000: front, 9901: admin, 18000: cable.port}
        made = bootstrap("bootstrap.yaml", ports, node=node, change=change)
        slow, fast = '"base_interval": "0.2s", "max_interval": "2s"', '"base_interval": "0.02s", "max_interval": "0.1s"'
        assert slow in made
        return made.replace(slow, fast)  # every test has a Governor of its own

    return text


def shares(found: Counter[str]) -> dict[str, float]:
    return {name: number / found.total() for name, number in found.items()}


def in_flight(running: EnvoyProcess, number: int) -> tuple[list[threading.Thread], list[int]]:
    """Requests that wait at their replicas, and the statuses that they end with."""
    ends: list[int] = []

    def one() -> None:
        link = http.client.HTTPConnection("127.0.0.1", running.front, timeout=20)
        link.request("GET", "/hold")
        ends.append(link.getresponse().status)
        link.close()

    threads = [threading.Thread(target=one, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, ends


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


# --- the failure matrix ----------------------------------------------------------------------------------------------


def down(stand: Stand) -> None:
    stand.running.stop()
    until(lambda: any("no Envoy" in one.text for one in stand.actuator.diagnose(0.0)), "it is gone")


def silent(stand: Stand) -> None:
    stand.cable.deaf = True


def restarted(stand: Stand) -> None:
    stand.running.stop()
    stand.running.start()
    stand.connected()


def nothing(stand: Stand) -> None:
    """A quiet day."""


MATRIX = [
    pytest.param(nothing, Outcome.DONE, 0.5, id="it answers: done"),
    pytest.param(down, Outcome.FAILED, 1.0, id="it is down: failed, and not told when it is back"),
    pytest.param(silent, Outcome.UNKNOWN, 0.5, id="it took it and its answer was lost: unknown, done when verified"),
    pytest.param(restarted, Outcome.DONE, 0.5, id="it restarted and forgot: told again"),
]


@pytest.mark.parametrize(("trouble", "outcome", "after"), MATRIX)
def test_failure_matrix(stand: Stand, trouble: Callable[[Stand], None], outcome: Outcome, after: float) -> None:
    stand.done((AWAY, 0.2))
    trouble(stand)
    (applied,) = stand.send((WEIGHTS["r1"], 0.5)).values()
    assert applied.outcome is outcome, applied
    stand.cable.deaf = False
    if outcome is Outcome.UNKNOWN:
        stand.cable.cut()  # what was lost does not come again on the same stream
        stand.cable.mend()
    if stand.running.process is None:
        stand.running.start()
    stand.connected()
    states = stand.actuator.read([WEIGHTS["r1"], AWAY], 0.5)
    assert (states[WEIGHTS["r1"]].accepted, states[AWAY].accepted) == (after, 0.2)
    assert not any(state.foreign_writer for state in states.values())
    (verified,) = stand.actuator.verify([decide(WEIGHTS["r1"], 1.0, 0.5)], 0.5)
    assert verified.outcome is (Outcome.DONE if after == 0.5 else Outcome.FAILED)
    found = shares(stand.running.traffic(500))
    assert found["r1"] == pytest.approx(after / (2 + after), abs=0.01)


def test_what_envoy_refuses_is_refused_with_its_words_and_taken_back(stand: Stand) -> None:
    """One bad address makes Envoy refuse all endpoints of the cluster; what the other kinds carry is done."""
    bad = replace(stand.config.pools["chat"], endpoints=Inline("inline", {"r1": "[fe80::1%no]:1", "r2": "127.0.0.1:9"}))
    stand.governor(pools={**stand.config.pools, "chat": bad})
    stand.reconnected([WEIGHTS["r2"], AWAY])
    stand.actuator.read(ALL, 0.5)
    until(lambda: any("refused" in one.text for one in stand.actuator.diagnose(0.0)), "Envoy refuses the endpoints")
    applied = stand.send((WEIGHTS["r2"], 0.5), (AWAY, 0.25))
    assert applied[WEIGHTS["r2"]].outcome is Outcome.REFUSED
    assert "edge-1" in applied[WEIGHTS["r2"]].detail
    assert applied[AWAY].outcome is Outcome.DONE
    assert shares(stand.running.traffic(300)) == pytest.approx(EVEN, abs=0.01)  # as before


def test_a_refusal_that_comes_late_is_one_all_the_same(stand: Stand, tmp_path: Path) -> None:
    """Else the target would be asked after for ever."""
    origin = tmp_path / "replicas.yaml"
    here = {name: stand.behind.addresses[name] for name in NAMES}
    origin.write_text(json.dumps(here))
    chat = replace(stand.config.pools["chat"], endpoints=InFile("file", str(origin)))
    stand.governor(pools={**stand.config.pools, "chat": chat}, refresh=0.05)
    stand.connected()
    stand.cable.deaf = True
    origin.write_text(json.dumps({**here, "r3": "[fe80::1%no]:1"}))
    until(lambda: bool(stand.actuator.read([WEIGHTS["r1"]], stand.now)[WEIGHTS["r1"]].error), "replicas are told anew")
    wish = decide(WEIGHTS["r1"], 1.0, 0.5)
    assert stand.actuator.apply([wish], 0.0)[0].outcome is Outcome.UNKNOWN
    assert stand.actuator.verify([wish], 0.0)[0].outcome is Outcome.UNKNOWN
    stand.cable.deaf = False
    stand.cable.cut()
    stand.cable.mend()
    until(lambda: stand.actuator.verify([wish], 0.0)[0].outcome is Outcome.REFUSED, "Envoy has said no")
    origin.write_text(json.dumps(here))
    until(lambda: not stand.actuator.read([WEIGHTS["r1"]], stand.now)[WEIGHTS["r1"]].error, "it is well again")
    assert shares(stand.running.traffic(300)) == pytest.approx(EVEN, abs=0.01), "the value was taken back"


def test_a_governor_that_died_between_write_and_answer_leaves_no_riddle(stand: Stand) -> None:
    stand.cable.deaf = True
    wish = decide(BREAKERS["r1"], 1.0, 0.0)
    (applied,) = stand.actuator.apply([wish], 0.0)
    assert applied.outcome is Outcome.UNKNOWN
    stand.cable.deaf = False
    second = stand.governor()
    stand.reconnected()
    (told,) = second.verify([wish], 0.0)
    assert told.outcome is Outcome.UNKNOWN
    stand.connected()
    (told,) = second.verify([wish], 1.0)
    assert told.outcome is Outcome.DONE
    assert stand.running.traffic(60)["r1"] == 0


def test_a_new_governor_changes_nothing_before_it_has_decided_once(stand: Stand) -> None:
    """Its first tick is blind, and what the one before told may be all that protects a replica."""
    stand.done((BREAKERS["r1"], 0.0), (AWAY, 0.5))
    second = stand.governor()
    stand.reconnected()
    first = second.read(ALL, stand.now)
    assert first[BREAKERS["r1"]].assumed, "so that the ledger's value counts"
    assert stand.running.traffic(60)["r1"] == 0
    stand.done((BREAKERS["r1"], 0.25))
    assert stand.running.traffic(90)["r1"] == pytest.approx(10, abs=2)
    assert stand.running.traffic(90, x_consent="downgrade")["s1"] > 20
    stand.connected()  # a whole tick, in which nobody asked for the split again
    assert stand.running.traffic(90, x_consent="downgrade")["s1"] == 0


def test_a_value_on_an_admin_page_is_a_foreign_one_and_is_told_of(stand: Stand) -> None:
    governor = stand.governor(admin=(stand.running.url,))
    stand.connected()
    stand.done((GATE, 5.0))
    assert governor.read([GATE], 0.5)[GATE].accepted == 5.0
    try:
        stand.running.get(f"/runtime_modify?{KEY}=6", "POST")
        state = governor.read([GATE], 0.5)[GATE]
        assert state.accepted == 2.0  # six of three replicas
        assert "admin page" in state.foreign_writer
        assert any("hides what Governor says" in one.text for one in governor.diagnose(0.5))
        stand.done((BREAKERS["r3"], 0.0))
        assert governor.read([GATE], 0.5)[GATE].accepted == 2.0, "six of two now, but nobody has touched it"
    finally:
        stand.running.get(f"/runtime_modify?{KEY}=", "POST")


def test_what_governor_itself_told_hides_nothing_of_it(stand: Stand) -> None:
    """The layer of the splits is above that of the gates."""
    governor = stand.governor(admin=(stand.running.url,))
    stand.connected()
    stand.done((AWAY, 0.5), (GATE, 5.0))
    assert not [one.text for one in governor.diagnose(0.0) if "hides" in one.text]


def test_weights_hold_for_the_least_loaded_and_not_at_random_which_the_doctor_tells(
    stand: Stand, tmp_path: Path
) -> None:
    stand.running.stop()
    for number, (policy, share) in enumerate({"LEAST_REQUEST": 0.2, "RANDOM": 1 / 3}.items()):

        def change(body: dict[str, Any], policy: str = policy) -> None:
            clusters = {one["name"]: one for one in body["static_resources"]["clusters"]}
            clusters["chat-steered"]["lb_policy"] = policy

        text = text_of(stand.behind, stand.cable, f"edge-{policy}", change)
        with envoy(tmp_path, text, number) as running:
            governor = stand.governor(admin=(running.url,))
            stand.connected()
            stand.done((WEIGHTS["r1"], 0.5))
            found = running.traffic(5000)["r1"] / 5000
            assert found == pytest.approx(share, abs=3 * math.sqrt(share * (1 - share) / 5000))
            told = [one for one in governor.diagnose(0.0) if "looks at no weights" in one.text]
            assert len(told) == (policy == "RANDOM")


def with_faults(body: dict[str, Any]) -> None:
    """What a stranger's bootstrap may have: another hand on the weights, a shared stream, a layer that is not there."""
    kind = "envoy.load_balancing_policies.client_side_weighted_round_robin"
    url = "type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3"
    policy = {"name": kind, "typed_config": {"@type": f"{url}.ClientSideWeightedRoundRobin"}}
    clusters = {one["name"]: one for one in body["static_resources"]["clusters"]}
    clusters["chat-steered"]["load_balancing_policy"] = {"policies": [{"typed_extension_config": policy}]}
    layers = body["layered_runtime"]["layers"]
    layers.remove(next(one for one in layers if one["name"] == "governor-downgrade"))


def test_the_doctor_finds_what_is_wrong_on_envoys_side(stand: Stand, tmp_path: Path) -> None:
    stand.running.stop()
    text = text_of(stand.behind, stand.cable, "edge-4", with_faults)
    with envoy(tmp_path, text, 4) as running:
        governor = stand.governor(admin=(running.url,))
        stand.reconnected([GATE, ACME, WEIGHTS["r1"]])
        running.get(f"/runtime_modify?{KEY}=6", "POST")
        found = [f"{one.level}: {one.subject}: {one.text}" for one in governor.diagnose(0.0)]
    assert any("edge-4: does not ask for governor-downgrade" in one for one in found), found
    assert any("error: chat-steered: its policy client_side" in one for one in found), found
    assert any("hides what Governor says" in one for one in found), found
    assert len(found) == 3, found


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_an_admin_page_that_is_none_stops_nothing_and_is_told_of(stand: Stand, path: str) -> None:
    """Something else answers there, with nonsense."""
    governor = stand.governor(admin=(f"http://{stand.behind.addresses['r1']}{path}", "http://127.0.0.1:1"))
    stand.connected()
    stand.done((GATE, 5.0))
    assert governor.read([GATE], 0.5)[GATE].accepted == 5.0
    assert sum("admin page cannot be read" in one.text for one in governor.diagnose(0.5)) == 2


def test_the_first_read_waits_for_envoys_that_look_for_a_new_governor(stand: Stand) -> None:
    """So that a restart costs no tick, and the doctor does not miss Envoys that are there."""
    governor = stand.governor(arrival=10.0)
    assert not any(state.error for state in governor.read(ALL, stand.now).values())


def test_a_dry_run_and_the_doctor_tell_envoy_nothing(stand: Stand) -> None:
    """They told it the list of replicas at full share, and so moved traffic that they were only to look at."""
    stand.actuator.close()
    stand.running.stop()
    stand.running.start()
    stand.actuator = Envoy(replace(stand.config, arrival=10.0), replace(BINDING, dry=True))
    for now in (1.0, 2.0):
        states = stand.actuator.read(ALL, now)
        assert not any(state.error for state in states.values()), states
        assert all(state.assumed for state in states.values())
    assert not any(one.level == "error" for one in stand.actuator.diagnose(3.0))
    told = [line for line in stand.running.get("/stats?filter=update_success").splitlines() if "chat-steered" in line]
    assert all(line.endswith(": 0") for line in told), told
    assert stand.running.runtime(KEY) in ("", None)


def test_every_envoy_must_take_a_value_and_each_gets_its_part_of_a_gate(stand: Stand, tmp_path: Path) -> None:
    with wire(stand.port) as cable, envoy(tmp_path, text_of(stand.behind, cable, "edge-2"), 2) as second:
        until(lambda: shares(second.traffic(3)) == EVEN, "the second one serves")
        stand.done((GATE, 4.0), (WEIGHTS["r1"], 0.5))
        until(lambda: (stand.running.runtime(KEY), second.runtime(KEY)) == ("6", "6"), "each has its half")
        assert second.traffic(50)["r1"] == 10
        cable.deaf = True
        applied = stand.send((WEIGHTS["r1"], 0.25))
        assert applied[WEIGHTS["r1"]].outcome is Outcome.UNKNOWN
        assert "1 of 2" in applied[WEIGHTS["r1"]].detail


# --- when every Governor is dead -------------------------------------------------------------------------------------


def test_when_every_governor_dies_in_mid_flash_all_is_neutral_again_in_time(stand: Stand) -> None:
    """Envoy lets go by itself, of every kind of value, and goes on serving."""
    stand.done((BREAKERS["r1"], 0.0), (AWAY, 1.0), (GATE, 2.0), (ACME, 100.0), lasting=1.5)
    began = time.monotonic()
    stand.actuator.close()
    assert stand.running.traffic(30)["r1"] == 0
    assert stand.running.traffic(30, x_consent="downgrade") == {"s1": 30}
    until(lambda: stand.running.runtime(KEY) == "", "the gate expires")
    until(lambda: stand.running.traffic(3)["r1"] == 1, "the breaker expires")
    assert 1.0 < time.monotonic() - began < 2.5
    assert stand.running.traffic(300, x_consent="downgrade")["s1"] == 0
    assert stand.running.traffic(100, at_once=1, x_tenant="acme")["429"] == 0
    assert shares(stand.running.traffic(300)) == pytest.approx(EVEN, abs=0.01)
    assert stand.running.process is not None
    assert stand.running.process.poll() is None


def test_replicas_that_come_after_the_last_governor_died_never_serve(stand: Stand) -> None:
    """All weights are neutral, so no value expires; the list of replicas that Governor told must, all the same."""
    chat = replace(
        stand.config.pools["chat"],
        endpoints=Inline("inline", {name: stand.behind.addresses[name] for name in ("r1", "r2")}),
    )
    stand.governor(pools={**stand.config.pools, "chat": chat}, lease=1.5)
    stand.reconnected([WEIGHTS["r1"]])
    stand.actuator.read([WEIGHTS["r1"]], stand.now + 1)  # another tick: what the one before told is replaced
    until(lambda: stand.running.traffic(30)["r3"] == 0, "Envoy has the list")
    alive = time.monotonic() + 3  # two leases: a living Governor renews it
    while time.monotonic() < alive:
        assert stand.running.traffic(10)["r3"] == 0
        threading.Event().wait(0.05)
    stand.actuator.close()
    until(lambda: stand.running.traffic(3)["r3"] == 1, "the fallback serves", 3)
    assert shares(stand.running.traffic(300)) == pytest.approx(EVEN, abs=0.01)


def test_what_is_renewed_does_not_expire_and_what_is_not_is_dropped_by_a_living_governor_too(stand: Stand) -> None:
    for _ in range(4):
        stand.done((BREAKERS["r1"], 0.0), lasting=0.6)
        stand.done((WEIGHTS["r2"], 0.5), lasting=5.0)
        assert stand.running.traffic(30)["r1"] == 0
        threading.Event().wait(0.3)
    until(lambda: stand.running.traffic(50)["r1"] == 20, "the breaker expires, the weight of another does not")
    assert stand.actuator.read([BREAKERS["r1"]], 0.5)[BREAKERS["r1"]].accepted == 1.0
