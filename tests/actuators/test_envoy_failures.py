"""A real Envoy steered over gRPC: whatever breaks has its documented outcome, and leaves it no worse than neutral."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actuators.endpoints import InFile, Inline
from actuators.envoy import Envoy
from controller.core.model import Outcome
from tests.support.decisions import decide
from tests.support.envoy import envoy, until, wire
from tests.support.envoy_stand import (
    ACME,
    ALL,
    AWAY,
    BINDING,
    BREAKERS,
    EVEN,
    GATE,
    KEY,
    NAMES,
    WEIGHTS,
    Stand,
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
