"""A restart of the whole, as assembly wires it: config, ledger and actuators of one life after the other."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.config import GovernorConfig, loads
from controller.core.model import Lever, Outcome, Target
from controller.run.assembly import AssemblyError, RunMode, assemble
from controller.run.ends import Watched
from controller.run.loop import ControlLoop
from controller.run.sameplace import same_place
from tests.support.nothing import Nothing
from tests.support.spy_file import SpyFile

START = 1_767_225_600.0
CHAT = Target("chat", Lever.REPLICAS)
CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {folder}/ledger}}
pools:
  chat:
    engine: {engine}
    selector: {{model_name: chat}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      replicas:
        mode: {mode}
        min: 1
        max: 9
        policy: {{kind: capacity}}
        pin: {{value: {pin}, until: 2099-01-01T00:00:00Z, reason: a test wants it so}}
        actuator: {{kind: "tests.support.spy_file:SpyFile", path: {folder}/{file}, initial: 2, timeout: {timeout}s}}
"""


@pytest.fixture(autouse=True)
def spy() -> Iterator[None]:
    yield
    SpyFile.calls.clear()
    SpyFile.dies = False


def config(
    folder: Path, pin: int = 4, mode: str = "auto", engine: str = "vllm", file: str = "values.json", timeout: int = 10
) -> GovernorConfig:
    text = CONFIG.format(folder=folder, pin=pin, mode=mode, engine=engine, file=file, timeout=timeout)
    return loads(text, "governor.yaml")


def life(made: GovernorConfig, mode: RunMode = RunMode.LIVE, previous: ControlLoop | None = None) -> ControlLoop:
    return assemble(made, mode=mode, source=Nothing(), previous=previous)


def killed_after_its_write(folder: Path) -> None:
    SpyFile.dies = True
    first = life(config(folder))
    assert first.tick(START).applied[0].outcome is Outcome.UNKNOWN
    first.close()
    SpyFile.dies = False
    SpyFile.calls.clear()


def test_a_restart_writes_again_before_it_has_asked(tmp_path: Path) -> None:
    killed_after_its_write(tmp_path)
    second = life(config(tmp_path))
    assert set(second.hands.unverified) == {CHAT}
    result = second.tick(START + 15)
    second.close()

    assert SpyFile.calls == ["verify", "read"]
    assert result.snapshot.targets[CHAT].last_outcome is Outcome.DONE
    assert json.loads((tmp_path / "values.json").read_text()) == {"chat/replicas": 4}


def test_a_write_that_never_landed_is_never_repeated(tmp_path: Path) -> None:
    killed_after_its_write(tmp_path)
    (tmp_path / "values.json").unlink()
    second = life(config(tmp_path))
    second.tick(START + 15)
    second.close()

    assert SpyFile.calls == ["verify", "read", "apply"]


def test_a_dry_run_verifies_what_a_live_process_left_open(tmp_path: Path) -> None:
    killed_after_its_write(tmp_path)
    rehearsed = life(config(tmp_path), RunMode.DRY_RUN)
    assert not rehearsed.hands.unverified
    rehearsed.close()


def next_life(how: str, first: ControlLoop, made: GovernorConfig, mode: RunMode = RunMode.LIVE) -> ControlLoop:
    if how == "restart":
        first.close()
        return life(made, mode)
    second = life(made, mode, previous=first)
    first.close()
    return second


@pytest.mark.parametrize("timeout", [10, 20])
@pytest.mark.parametrize("how", ["restart", "reload"])
def test_a_target_that_cannot_tell_falls_back_to_its_initial_value(tmp_path: Path, how: str, timeout: int) -> None:
    """The file is gone with its volume, 8 replicas run, the config says that all began with 2."""
    first = life(config(tmp_path, pin=8))
    first.tick(START)
    (tmp_path / "values.json").unlink()
    second = next_life(how, first, config(tmp_path, pin=8, mode="protect", timeout=timeout))
    result = second.tick(START + 15)
    second.close()

    assert result.plan.decisions[0].current == 8.0
    assert not result.plan.decisions[0].send


@pytest.mark.parametrize("how", ["restart", "reload"])
def test_what_was_sent_to_one_place_is_believed_of_another_and_never_sent_there(tmp_path: Path, how: str) -> None:
    first = life(config(tmp_path, pin=8))
    first.tick(START)
    second = next_life(how, first, config(tmp_path, pin=8, file="elsewhere.json"))
    result = second.tick(START + 15)
    second.close()

    assert result.plan.decisions[0].current == 2.0
    assert json.loads((tmp_path / "elsewhere.json").read_text()) == {"chat/replicas": 8}


@pytest.mark.parametrize("how", ["restart", "reload"])
def test_a_dry_run_forgets_at_each_reload_where_a_live_process_left_a_target(tmp_path: Path, how: str) -> None:
    first = life(config(tmp_path, pin=8))
    first.tick(START)
    first.close()
    (tmp_path / "values.json").unlink()
    dry = life(config(tmp_path, pin=8), RunMode.DRY_RUN)
    dry.tick(START + 15)
    second = next_life(how, dry, config(tmp_path, pin=9), RunMode.DRY_RUN)
    result = second.tick(START + 30)
    second.close()
    assert result.plan.decisions[0].current == 8.0


ASKED = {"kind": "webhook", "url": "http://a", "timeout": "5s"}

SHARED = {
    "kind": "litellm", "redis": {"url": "redis://a"}, "pools": {"chat": {"model": "m"}, "code": {"model": "o"}},
}  # fmt: skip
MODEL = ("redis.url", "pools.model")


def spelled(at_lever: object, shared: object = None) -> dict[str, object]:
    levers = {"replicas": {"actuator": at_lever}} if at_lever else {"replicas": {}}
    return {"actuators": {"edge": shared} if shared else {}, "pools": {"chat": {"levers": levers}}}


@pytest.mark.parametrize(
    ("before", "after", "place", "same"),
    [
        (spelled(ASKED), spelled(ASKED), None, True),
        (spelled(ASKED), spelled({**ASKED, "url": "http://b"}), ("url",), False),
        (spelled(ASKED), spelled({**ASKED, "url": "http://b"}), None, False),
        (spelled(ASKED), spelled({**ASKED, "timeout": "9s"}), ("url",), True),
        (spelled(ASKED), spelled({**ASKED, "timeout": "9s"}), None, False),
        (spelled(ASKED), spelled({**ASKED, "kind": "other"}), (), False),
        (spelled(ASKED), spelled({**ASKED, "new_in_this_version": 1}), None, True),
        (spelled(ASKED), spelled("edge", ASKED), None, True),
        (spelled("edge", ASKED), spelled("edge", {**ASKED, "url": "http://b"}), ("url",), False),
        (spelled(ASKED), spelled(None), ("url",), False),
        (spelled(None), spelled(None), None, True),
        (spelled(ASKED), {}, None, False),
        (spelled(SHARED), spelled({**SHARED, "pools": {"chat": {"model": "m", "tenants": ["a"]}}}), MODEL, True),
        (spelled(SHARED), spelled({**SHARED, "pools": {"chat": {"model": "n"}, "code": {"model": "o"}}}), MODEL, False),
        (spelled(SHARED), spelled({**SHARED, "redis": {"url": "redis://a", "timeout": "9s"}}), MODEL, True),
        (spelled(SHARED), spelled({**SHARED, "redis": {"url": "redis://b"}}), MODEL, False),
        (spelled(SHARED), spelled({"kind": "litellm", "pools": SHARED["pools"]}), MODEL, True),
    ],
)  # fmt: skip
def test_another_place_is_taken_for_the_same_one_or_a_new_time_out_for_a_move(
    before: dict[str, object], after: dict[str, object], place: tuple[str, ...] | None, same: bool
) -> None:
    assert same_place("chat", Lever.REPLICAS, before, after, place) is same
    assert same_place("chat", Lever.REPLICAS, after, before, place) is same


def test_a_reload_locks_itself_out_of_its_own_ledger(tmp_path: Path) -> None:
    first = life(config(tmp_path))
    second = life(config(tmp_path, engine="sglang"), previous=first)
    first.close()
    second.tick(START)
    second.close()


def test_a_reload_of_a_dry_run_leaves_open_what_the_new_loop_reads_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def close(self: SpyFile) -> None:
        closed.append(self)

    monkeypatch.setattr(SpyFile, "close", close)
    first = life(config(tmp_path), RunMode.DRY_RUN)
    second = life(config(tmp_path, pin=5), RunMode.DRY_RUN, first)
    first.close()
    assert not closed, "every target would be unreadable until the next restart"
    second.close()
    assert len(closed) == 1


class Refusing(SpyFile):
    """One that cannot be built today."""

    def __init__(self, *_: object) -> None:
        raise ValueError("not today")


def test_a_config_that_is_refused_changes_nothing_of_what_the_loop_in_force_takes_for_rest(tmp_path: Path) -> None:
    head = f"""
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {tmp_path}/ledger}}
pools:
  chat:
    engine: vllm
    labels: {{tenant: user}}
    tenants: {{acme: {{}}}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:"""

    def levers(most: int, actuator: str) -> str:
        hand = f"{{kind: '{actuator}', path: {tmp_path}/values.json, initial: 2}}"
        capacity = f"{{min: 1, max: 2, policy: {{kind: capacity}}, actuator: {hand}}}"
        return f"{head} {{replicas: {capacity}, tenant_cap: {{policy: {{kind: pid}}, max: {most}}}}}"

    first = assemble(loads(levers(10000, "file")), mode=RunMode.DRY_RUN)
    eyes = first.parts.source
    assert isinstance(eyes, Watched)
    before = dict(eyes.rest)
    with pytest.raises(AssemblyError, match="not today"):
        assemble(loads(levers(5000, f"{__name__}:Refusing")), mode=RunMode.DRY_RUN, previous=first)
    assert eyes.rest == before
    first.close()
