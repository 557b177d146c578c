"""A real Envoy steered by files: what is safe to latch, and what even a file can let go of."""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from actuators.endpoints import Inline
from actuators.envoy import Envoy, EnvoyConfig, EnvoyPool, Files
from controller.core.model import Applied, Drift, Lever, Outcome, Target
from controller.core.ports import ActuatorError, Binding
from tests.support.decisions import decide
from tests.support.envoy import EnvoyProcess, Replicas, bootstrap, envoy, neutral_files, replicas, until

NAMES = ("r1", "r2", "r3")
WEIGHTS = {name: Target("chat", Lever.WEIGHT, name) for name in NAMES}
BREAKERS = {name: Target("chat", Lever.BREAKER, name) for name in NAMES}
AWAY = Target("chat", Lever.DOWNGRADE, "small")
ACME = Target("chat", Lever.TENANT_CAP, "acme")
BINDING = Binding((AWAY, ACME), scopes=(("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))
FILE = "endpoints-chat-steered.json"


@dataclass
class Stand:
    behind: Replicas
    running: EnvoyProcess
    folder: Path
    config: EnvoyConfig
    actuator: Envoy

    def governor(self, **changed: object) -> Envoy:
        """Another Governor in the place of the one before."""
        self.actuator.close()
        self.actuator = Envoy(replace(self.config, **changed), BINDING)  # type: ignore[arg-type]
        self.actuator.read([AWAY], 0.0)
        return self.actuator

    def send(self, *wishes: tuple[Target, float], lasting: float | None = None) -> dict[Target, Applied]:
        made = [decide(target, None, value)._replace(until=lasting) for target, value in wishes]
        return {one.target: one for one in self.actuator.apply(made, 0.0)}

    def done(self, *wishes: tuple[Target, float], lasting: float | None = None) -> None:
        applied = self.send(*wishes, lasting=lasting)
        assert {one.outcome for one in applied.values()} == {Outcome.DONE}, applied


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with ExitStack() as stack:
        behind = stack.enter_context(replicas(*NAMES, "s1"))
        folder = neutral_files(tmp_path)
        there = behind.ports
        ports = {8001: there["r1"], 8002: there["r2"], 8003: there["r3"], 8009: there["s1"]}
        running = stack.enter_context(
            envoy(
                tmp_path,
                lambda front, admin: bootstrap(
                    "bootstrap-files.yaml", {10000: front, 9901: admin, **ports}, folder=folder
                ),
            )
        )
        chat = EnvoyPool(
            "chat", eds="chat-steered", fallback="chat-plain", tokens_per_request=100.0,
            endpoints=Inline("inline", {name: behind.addresses[name] for name in NAMES}),
        )  # fmt: skip
        pools = {"chat": chat, "small": EnvoyPool("small")}
        config = EnvoyConfig(pools, Files("files", str(folder)), (running.url,), timeout=1.0)
        stand = Stand(behind, running, folder, config, Envoy(config, BINDING))
        stand.actuator.read([AWAY], 0.0)
        yield stand
        stand.actuator.close()


def shares(found: Counter[str]) -> dict[str, float]:
    return {name: number / found.total() for name, number in found.items()}


def test_all_kinds_of_values_arrive(stand: Stand) -> None:
    stand.done((WEIGHTS["r1"], 0.5), (BREAKERS["r2"], 0.0), (AWAY, 1.0), (ACME, 100.0))
    assert shares(stand.running.traffic(300)) == pytest.approx({"r1": 1 / 3, "r3": 2 / 3}, abs=0.01)
    assert stand.running.traffic(50, x_consent="downgrade") == {"s1": 50}
    assert stand.running.traffic(50, at_once=1, x_tenant="acme")["429"] >= 48


def test_weights_and_breakers_expire_by_themselves(stand: Stand) -> None:
    """Endpoints have a time of their own, unlike every other kind of resource in a file."""
    stand.done((BREAKERS["r1"], 0.0), lasting=1.0)
    stand.actuator.close()
    assert stand.running.traffic(30)["r1"] == 0
    until(lambda: stand.running.traffic(3)["r1"] == 1, "the breaker expires", 3)
    assert shares(stand.running.traffic(300)) == pytest.approx(dict.fromkeys(NAMES, 1 / 3), abs=0.01)


def test_a_new_governor_goes_on_with_what_the_files_say(stand: Stand) -> None:
    stand.done((WEIGHTS["r1"], 0.5), (BREAKERS["r1"], 0.25), (AWAY, 0.3), (ACME, 70.0))
    before = {path.name: path.read_bytes() for path in stand.folder.iterdir()}
    second = stand.governor()
    states = second.read([WEIGHTS["r1"], BREAKERS["r1"], WEIGHTS["r2"], AWAY, ACME], 0.0)
    assert [state.accepted for state in states.values()] == [0.5, 0.25, 1.0, 0.3, 70.0]
    assert {path.name: path.read_bytes() for path in stand.folder.iterdir()} == before, "reading writes nothing"


def test_a_restart_of_envoy_forgets_nothing(stand: Stand) -> None:
    stand.done((BREAKERS["r1"], 0.0))
    stand.running.stop()
    stand.running.start()
    assert stand.running.traffic(30)["r1"] == 0
    assert stand.actuator.read([BREAKERS["r1"]], 1.0)[BREAKERS["r1"]].drift is None


def by_hand(stand: Stand, weight: int) -> None:
    path = stand.folder / FILE
    document = json.loads(path.read_text())
    document["resources"][0]["endpoints"][0]["lb_endpoints"][0]["load_balancing_weight"] = weight
    path.with_suffix(".tmp").write_text(json.dumps(document))
    path.with_suffix(".tmp").rename(path)


def test_what_a_person_edits_is_yielded_to_and_kept_when_another_value_moves(stand: Stand) -> None:
    stand.done((WEIGHTS["r1"], 0.5))
    stand.actuator.read(list(WEIGHTS.values()), 1.0)
    by_hand(stand, 20)
    state = stand.actuator.read(list(WEIGHTS.values()), 2.0)[WEIGHTS["r1"]]
    assert (state.accepted, state.drift) == (0.2, Drift.FOREIGN)
    assert str(stand.folder) in state.foreign_writer
    stand.done((WEIGHTS["r2"], 0.8))
    assert shares(stand.running.traffic(200)) == pytest.approx({"r1": 0.1, "r2": 0.4, "r3": 0.5}, abs=0.01)


def test_an_edit_since_the_decision_is_not_written_over(stand: Stand) -> None:
    stand.done((WEIGHTS["r1"], 0.5))
    by_hand(stand, 20)
    (applied,) = stand.actuator.apply([decide(WEIGHTS["r1"], 0.5, 0.7)], 1.0)
    assert applied.outcome is Outcome.FAILED
    assert "changed to 0.2" in applied.detail


def test_a_disk_that_takes_nothing_leaves_envoy_as_it_is(stand: Stand) -> None:
    stand.done((WEIGHTS["r1"], 0.5))
    path = stand.folder / FILE
    path.unlink()
    path.mkdir()
    (applied,) = stand.send((WEIGHTS["r1"], 0.25)).values()
    assert applied.outcome is Outcome.FAILED
    assert shares(stand.running.traffic(250)) == pytest.approx({"r1": 0.2, "r2": 0.4, "r3": 0.4}, abs=0.01)
    path.rmdir()
    stand.done((WEIGHTS["r1"], 0.25))
    assert shares(stand.running.traffic(450)) == pytest.approx({"r1": 1 / 9, "r2": 4 / 9, "r3": 4 / 9}, abs=0.01)


def test_a_spoiled_file_is_said_and_not_replaced(stand: Stand) -> None:
    stand.done((WEIGHTS["r1"], 0.5))
    (stand.folder / FILE).write_text("{]")
    assert "remove it" in stand.actuator.read([WEIGHTS["r1"]], 1.0)[WEIGHTS["r1"]].error
    (applied,) = stand.send((WEIGHTS["r1"], 0.25)).values()
    assert applied.outcome is Outcome.FAILED
    assert (stand.folder / FILE).read_text() == "{]"


def test_what_envoy_refuses_is_refused_and_put_back(stand: Stand) -> None:
    stand.done((WEIGHTS["r1"], 0.5))
    here = {**stand.behind.addresses, "r2": "[fe80::1%no]:1"}
    del here["s1"]
    bad = replace(stand.config.pools["chat"], endpoints=Inline("inline", here))
    stand.governor(pools={**stand.config.pools, "chat": bad})
    told = stand.send((WEIGHTS["r1"], 0.25), (AWAY, 0.3))
    applied = told[WEIGHTS["r1"]]
    assert (applied.outcome, told[AWAY].outcome) == (Outcome.REFUSED, Outcome.DONE)
    assert "its log says why" in applied.detail
    assert any("refused updates" in one.text for one in stand.actuator.diagnose(1.0))
    assert shares(stand.running.traffic(250)) == pytest.approx({"r1": 0.2, "r2": 0.4, "r3": 0.4}, abs=0.01)


def test_an_envoy_that_is_down_takes_it_when_it_is_back(stand: Stand) -> None:
    stand.running.stop()
    (applied,) = stand.send((BREAKERS["r1"], 0.0)).values()
    assert applied.outcome is Outcome.UNKNOWN
    stand.running.start()
    (verified,) = stand.actuator.verify([decide(BREAKERS["r1"], 1.0, 0.0)], 1.0)
    assert verified.outcome is Outcome.DONE
    assert stand.running.traffic(30)["r1"] == 0


@contextmanager
def admin_page(body: bytes | None) -> Iterator[str]:
    """A page that is none: it answers everything with this body, or with None never."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        calls: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    call, _ = server.accept()
                    calls.append(call)
                    if body is not None:
                        call.recv(1 << 16)
                        call.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                        call.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for call in calls:
                call.close()


@pytest.mark.parametrize("body", [None, b"<html>Please log in</html>"], ids=["slow", "garbage"])
def test_an_admin_page_that_does_not_tell_leaves_it_unknown_and_the_next_governor_finds_the_truth(
    stand: Stand, body: bytes | None
) -> None:
    with admin_page(body) as url:
        stand.governor(admin=(url,), timeout=0.3)
        begun = time.monotonic()
        applied = stand.send((BREAKERS["r1"], 0.0), (AWAY, 0.3))
        assert {one.outcome for one in applied.values()} == {Outcome.UNKNOWN}
        assert time.monotonic() - begun < 3.0
    heir = stand.governor()  # the one before was killed before it knew
    verified = heir.verify([decide(BREAKERS["r1"], 1.0, 0.0), decide(AWAY, 0.0, 0.3)], 1.0)
    assert {one.outcome for one in verified} == {Outcome.DONE}
    assert heir.read([AWAY], 1.0)[AWAY].foreign_writer == ""
    assert stand.running.traffic(30)["r1"] == 0


def test_the_second_of_two_files_that_fails_leaves_the_first_done(stand: Stand) -> None:
    """Each file is whole or not at all, and each is answered for by itself."""
    stand.done((WEIGHTS["r1"], 0.5), (AWAY, 0.1))
    (path,) = stand.folder.glob("runtime-*downgrade*.json")
    kept = path.read_bytes()
    path.unlink()
    path.mkdir()
    applied = stand.send((WEIGHTS["r1"], 0.25), (AWAY, 0.3))
    assert (applied[WEIGHTS["r1"]].outcome, applied[AWAY].outcome) == (Outcome.DONE, Outcome.FAILED)
    assert shares(stand.running.traffic(450)) == pytest.approx({"r1": 1 / 9, "r2": 4 / 9, "r3": 4 / 9}, abs=0.01)
    path.rmdir()
    path.write_bytes(kept)
    stand.done((AWAY, 0.3))
    assert stand.actuator.read([AWAY], 1.0)[AWAY].accepted == 0.3


def test_a_folder_that_is_not_there_is_said() -> None:
    pools = {"chat": EnvoyPool("chat")}
    actuator = Envoy(
        EnvoyConfig({**pools, "small": EnvoyPool("small")}, Files("files", "/no/such/folder")), Binding((AWAY,))
    )
    with pytest.raises(ActuatorError, match="no folder"):
        actuator.read([AWAY], 0.0)
    actuator.close()
