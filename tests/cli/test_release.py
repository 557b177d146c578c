"""`governor release`, `undo` and `doctor --live`: the fleet must be somebody's again when Governor is taken away."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.cli.app import app
from controller.config import GovernorConfig, load
from controller.core.model import Lever, Target
from controller.core.observation import Observation, PoolFacts, ReplicaFacts
from controller.run import handback, originals, pins
from controller.run.assembly import RunMode, assemble
from controller.run.ledger import read_ledger
from controller.run.loop import ControlLoop
from controller.run.replay import replay
from tests.support.cli import governor
from tests.support.endpoint import Endpoint, endpoint

CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {folder}/ledger}}
actuators: {{edge: {{kind: webhook, url: "{url}/set", read_url: "{url}/get", honours_expiry: true, timeout: 2s}}}}
pools:
  chat:
    engine: vllm
    labels: {{tenant: user}}
    tenants: {{acme: {{}}, beta: {{}}}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      replicas: {{mode: auto, min: 1, max: 9, policy: {{kind: capacity}}, actuator: edge}}
      tenant_cap: {{mode: auto, max: 10000, policy: {{kind: pid}}, actuator: edge}}
"""
REPLICAS, ACME, BETA = (
    Target("chat", Lever.REPLICAS), Target("chat", Lever.TENANT_CAP, "acme"), Target("chat", Lever.TENANT_CAP, "beta"),
)  # fmt: skip


def key(target: Target) -> tuple[str, str, str]:
    return target.pool, target.lever.value, target.member


@pytest.fixture
def end() -> Iterator[Endpoint]:
    with endpoint() as end:
        end.values = {key(REPLICAS): 4, key(ACME): 10000, key(BETA): 8000}
        yield end


@pytest.fixture
def config(end: Endpoint, tmp_path: Path) -> Path:
    path = tmp_path / "governor.yaml"
    path.write_text(CONFIG.format(folder=tmp_path, url=end.url))
    return path


def run(config: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--config", str(config)])


def governed(config: Path, **pinned: float) -> None:
    """A life of Governor in which these targets are moved, by pins, since nothing else is seen."""
    names = {"replicas": REPLICAS, "acme": ACME, "beta": BETA}
    for name, value in pinned.items():
        done = run(config, "pin", str(names[name]), f"{value:g}", "--for", "1h", "--reason", "test")
        assert done.exit_code == 0, done.exception
    loop = assemble(load(config), mode=RunMode.LIVE)
    loop.tick(time.time())
    loop.close()
    with pins.edit(pins.file_of(config.parent / "ledger")) as entries:
        entries.clear()


def test_what_was_found_comes_back_and_not_what_governor_thought_was_normal(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7, acme=500, beta=900)
    governed(config, beta=700)
    assert end.values == {key(REPLICAS): 7, key(ACME): 500, key(BETA): 700}

    done = run(config, "release", "--restore")
    assert done.exit_code == 0, done.output
    assert end.values == {key(REPLICAS): 4, key(ACME): 10000, key(BETA): 8000}
    assert "nothing to put back" in run(config, "release", "--restore").stdout


def test_without_restore_caps_rest_and_capacity_stays(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7, acme=500)
    assert run(config, "release").exit_code == 0
    assert end.values == {key(REPLICAS): 7, key(ACME): 10000, key(BETA): 10000}


def test_one_target_alone_can_be_put_back(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7, acme=500)
    assert run(config, "release", "--restore", "chat/tenant_cap").exit_code == 0
    assert end.values[key(REPLICAS)] == 7
    assert end.values[key(ACME)] == 10000
    wrong = run(config, "release", "--restore", "chat/weight")
    assert "chat/weight: nothing of that name can be put back; there are chat/replicas" in str(wrong.exception)


def test_originals_survive_the_crash_right_after_the_first_write(end: Endpoint, config: Path) -> None:
    end.script.append(("POST", "lost"))
    governed(config, replicas=7)
    assert originals.read(originals.file_of(config.parent / "ledger"))[REPLICAS].value == 4


def test_a_running_governor_is_not_fought(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7)
    loop = assemble(load(config), mode=RunMode.LIVE)
    try:
        refused = governor("release", "--restore", "--config", config)
        assert refused.returncode == 2
        assert "stop it" in refused.stderr
        assert end.values[key(REPLICAS)] == 7
    finally:
        loop.close()


def test_what_cannot_be_reached_is_said_and_kept_for_another_try(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7, acme=500)
    end.script += [("GET", 500)] * 4
    failed = run(config, "release", "--restore", "--wait", "1ms")
    assert failed.exit_code == 1
    assert set(originals.read(originals.file_of(config.parent / "ledger"))) == {REPLICAS, ACME}
    assert run(config, "release", "--restore").exit_code == 0


class Sees:
    """A source to which these replicas are there."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def observe(self, at: float, deadline: float) -> Observation:
        return Observation(at, None, {"chat": PoolFacts(replicas={name: ReplicaFacts() for name in self.names})})

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("seen", "gone"), [(("a",), True), (("a", "b"), False), ((), False)])
def test_pods_that_are_gone_do_not_make_every_release_fail(
    end: Endpoint, config: Path, monkeypatch: pytest.MonkeyPatch, seen: tuple[str, ...], gone: bool
) -> None:
    """Their breakers can never be put back. One that the metrics still show has to be."""
    config.write_text(config.read_text() + "      breaker: {mode: auto, policy: {kind: breaker}, actuator: edge}\n")
    config.write_text(config.read_text().replace("timeout: 2s", "timeout: 2s, quantum: 0.01"))
    a, b = (Target("chat", Lever.BREAKER, name) for name in ("a", "b"))
    end.values[key(a)] = 0.25  # and of b it knows nothing
    file = originals.file_of(config.parent / "ledger")
    file.parent.mkdir()
    originals.write(file, {t: originals.Original(1.0, 1_767_225_600.0) for t in (a, b)})

    def live(made: GovernorConfig, mode: RunMode) -> ControlLoop:
        return assemble(made, mode=mode, source=Sees(*seen))

    monkeypatch.setattr(handback, "assemble", live)
    done = run(config, "release", "--restore", "--wait", "1ms")
    assert end.values[key(a)] == 1.0
    assert done.exit_code == (0 if gone else 1), done.output
    assert set(originals.read(file)) == (set() if gone else {b})


def test_a_damaged_file_of_originals_is_not_overwritten_with_governors_own_values(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7)
    file = originals.file_of(config.parent / "ledger")
    file.write_text("{")
    governed(config, replicas=8)
    assert file.read_text() == "{"
    assert "no file of originals" in str(run(config, "release", "--restore").exception)


def test_what_one_address_held_is_put_back_into_another(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7, acme=500)
    first = config.read_text()
    with endpoint() as other:
        other.values = {key(REPLICAS): 2, key(ACME): 300, key(BETA): 8000}
        config.write_text(first.replace(end.url, other.url))
        moved = run(config, "release", "--restore", "chat/replicas")

        assert moved.exit_code == 1
        assert moved.stdout == ""
        assert moved.stderr == (
            f"governor: chat/replicas stays as it is: 4 was found at url {end.url}/set, and values go to url "
            f"{other.url}/set now; put it back by hand, or with the old url in the config\n"
        )
        assert (other.posts, other.values[key(REPLICAS)]) == ([], 2)
    config.write_text(first.replace("timeout: 2s", "timeout: 3s"))
    assert run(config, "release", "--restore").exit_code == 0, "a new time-out is no move"
    assert end.values == {key(REPLICAS): 4, key(ACME): 10000, key(BETA): 8000}


def test_of_two_targets_the_one_that_moved_keeps_the_other_from_being_put_back(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7, acme=500)
    own = f'{{kind: webhook, url: "{end.url}/elsewhere", read_url: "{end.url}/get"}}'
    config.write_text(config.read_text().replace("capacity}, actuator: edge", f"capacity}}, actuator: {own}"))
    done = run(config, "release", "--restore")

    assert done.exit_code == 1
    assert "chat/replicas stays as it is: 4 was found at url" in done.stderr
    assert "chat/tenant_cap/acme at 10,000: done" in done.stdout
    assert end.values == {key(REPLICAS): 7, key(ACME): 10000, key(BETA): 8000}
    assert set(originals.read(originals.file_of(config.parent / "ledger"))) == {REPLICAS}


def test_originals_of_an_older_version_name_no_place_and_are_put_back_as_ever(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7)
    file = originals.file_of(config.parent / "ledger")
    file.write_text('{"version": 1, "originals": {"chat/replicas": {"value": 4.0, "at": 1767225600.0}}}')
    governed(config, acme=500)
    config.write_text(config.read_text().replace("/set", "/put"))

    assert run(config, "release", "--restore", "chat/replicas").exit_code == 0
    assert end.values[key(REPLICAS)] == 4
    assert json.loads(file.read_text())["originals"]["chat/tenant_cap/acme"]["place"] == {
        "kind": "webhook", "url": f"{end.url}/set",
    }  # fmt: skip


def test_originals_without_a_place_that_could_be_one_are_a_damaged_file(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7)
    file = originals.file_of(config.parent / "ledger")
    file.write_text('{"version": 1, "originals": {"chat/replicas": {"value": 4.0, "at": 1.0, "place": "there"}}}')
    assert "chat/replicas was found at no place" in str(run(config, "release", "--restore").exception)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-4"])
def test_an_original_that_can_be_none_is_put_back_or_ends_in_a_traceback(
    end: Endpoint, config: Path, value: str
) -> None:  # fmt: skip
    governed(config, replicas=7)
    file = originals.file_of(config.parent / "ledger")
    file.write_text(f'{{"version": 1, "originals": {{"chat/replicas": {{"value": {value}, "at": 1}}}}}}')
    done = governor("release", "--restore", "--config", config)
    assert (done.returncode, "chat/replicas was never" in done.stderr) == (2, True), done.stderr
    assert end.values[key(REPLICAS)] == 7


def test_undo_takes_back_the_last_minutes_and_no_more(end: Endpoint, config: Path) -> None:
    governed(config, replicas=6, acme=500)
    shown = run(config, "undo", "--last", "10m", "--show")
    assert "chat/replicas 6 → 4" in shown.stdout
    assert end.values[key(REPLICAS)] == 6
    assert run(config, "undo", "--last", "10m", "chat/replicas").exit_code == 0
    assert end.values == {key(REPLICAS): 4, key(ACME): 500, key(BETA): 8000}
    assert "nothing was changed" in run(config, "undo", "--last", "1ms").stdout


def test_undo_beside_a_running_governor_pins_instead_of_being_decided_away(end: Endpoint, config: Path) -> None:

    governed(config, replicas=6)
    loop = assemble(load(config), mode=RunMode.LIVE)
    try:
        done = governor("undo", "--last", "10m", "--for", "5m", "--config", config)
        assert done.returncode == 0, done.stderr
        loop.tick(time.time() + 1)
    finally:
        loop.close()
    assert end.values[key(REPLICAS)] == 4
    entry = pins.read(pins.file_of(config.parent / "ledger"))[REPLICAS]
    assert entry.pin.reason == "undo of the last 10m"


def test_undo_leaves_the_pin_of_a_person_and_says_so(end: Endpoint, config: Path) -> None:
    """It was the later word; an undo of everything in a hurry must not sweep it away unseen."""
    file = pins.file_of(config.parent / "ledger")
    governed(config, replicas=6, acme=500)
    assert run(config, "pin", str(ACME), "700", "--for", "1h", "--reason", "their launch").exit_code == 0
    loop = assemble(load(config), mode=RunMode.LIVE)
    try:
        for again in ("10m", "11m"):  # an undo takes the place of an undo
            done = governor("undo", "--last", again, "--config", config)
            assert done.returncode == 0
            assert "chat/tenant_cap/acme stays pinned at 700" in done.stderr
            assert "their launch" in done.stderr
        assert governor("undo", "--last", "10m", str(ACME), "--config", config).returncode == 1
    finally:
        loop.close()
    found = pins.read(file)
    assert (found[ACME].pin.value, found[REPLICAS].pin.value) == (700, 4)
    assert found[REPLICAS].pin.reason == "undo of the last 11m"


def test_what_a_person_put_back_is_in_the_ledger_and_no_divergence(end: Endpoint, config: Path) -> None:
    governed(config, replicas=7)
    run(config, "release", "--restore")
    folder = config.parent / "ledger"
    last = list(read_ledger(folder))[-1]
    assert last.mode == "by_hand"
    assert [(d.target, d.current, d.final) for d in last.plan.decisions] == [(REPLICAS, 7, 4)]
    assert replay(folder, load(config)).reproduced


def test_doctor_asks_the_targets_and_writes_nothing(end: Endpoint, config: Path) -> None:
    end.values[key(ACME)] = float("nan")
    said = run(config, "doctor", "--live", "--json")
    findings = json.loads(said.stdout)["findings"]
    assert [(f["level"], f["subject"]) for f in findings if f["subject"].startswith("chat/")] == [("error", str(ACME))]
    assert end.posts == []
    assert not (config.parent / "ledger").exists()


def test_levers_whose_members_nobody_knows_yet_are_not_denied(config: Path) -> None:
    """ "no lever but replicas" of a config that has a weight and a breaker."""
    text = config.read_text(encoding="utf-8")
    cap = text[text.index("      tenant_cap:") :]
    breaker = "      breaker: {mode: auto, policy: {kind: breaker}, actuator: edge}\n"
    text = text.replace("timeout: 2s", "timeout: 2s, quantum: 0.05").replace(cap, breaker)
    config.write_text(text.replace("    tenants: {acme: {}, beta: {}}\n", ""), encoding="utf-8")

    assert "no write of Governor to chat/breaker is recorded" in run(config, "release").stdout
