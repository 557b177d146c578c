"""Pins that are set while the loop runs: a typing mistake in a file at 3 a.m. must neither end the loop nor let go of
what somebody holds by hand."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.config import GovernorConfig, loads
from controller.core.model import Lever, Pin, Target
from controller.core.why import Why
from controller.run import pins
from controller.run.assembly import RunMode, assemble
from controller.run.ledger import read_ledger
from controller.run.loop import ControlLoop, TickResult
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
    engine: vllm
    selector: {{model_name: chat}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      replicas:
        mode: {mode}
        min: 1
        max: 9
        policy: {{kind: capacity}}
        {pin}
        actuator: {{kind: "tests.support.spy_file:SpyFile", path: {folder}/values.json, initial: 2}}
"""
IN_CONFIG = "pin: {value: 3, until: 2099-01-01T00:00:00Z, reason: from the config}"


@pytest.fixture(autouse=True)
def _spy() -> Iterator[None]:
    yield
    SpyFile.calls.clear()


def config(folder: Path, mode: str = "auto", pin: str = "") -> GovernorConfig:
    return loads(CONFIG.format(folder=folder, mode=mode, pin=pin), "governor.yaml")


def life(made: GovernorConfig, mode: RunMode = RunMode.LIVE, previous: ControlLoop | None = None) -> ControlLoop:
    return assemble(made, mode=mode, source=Nothing(), previous=previous)


def set_pin(folder: Path, value: float, until: float = START + 3600, target: Target = CHAT) -> Path:
    path = pins.file_of(folder / "ledger")
    with pins.edit(path) as entries:
        entries[target] = pins.Entry(Pin(value, until, "launch"), START)
    return path


def final(result: TickResult) -> tuple[float | None, Why]:
    (decision,) = result.plan.decisions
    return decision.final, decision.why


def test_a_pin_holds_from_the_next_tick_on_and_ends_by_itself(tmp_path: Path) -> None:
    loop = life(config(tmp_path))
    before = final(loop.tick(START))
    set_pin(tmp_path, 7, START + 40)
    held = [loop.tick(START + 15), loop.tick(START + 30)]
    after = loop.tick(START + 45)
    loop.close()

    assert before[1] is not Why.PIN
    assert final(held[0]) == (7, Why.PIN)
    assert [r.snapshot.targets[CHAT].pin for r in held] == [Pin(7.0, START + 40, "launch")] * 2
    assert after.snapshot.targets[CHAT].pin is None
    assert final(after)[1] is not Why.PIN
    assert json.loads((tmp_path / "values.json").read_text())["chat/replicas"] == 7


def test_a_pin_survives_a_restart_and_is_in_the_ledger(tmp_path: Path) -> None:
    set_pin(tmp_path, 7)
    first = life(config(tmp_path))
    first.tick(START)
    first.close()
    second = life(config(tmp_path))
    again = second.tick(START + 15)
    second.close()

    assert final(again) == (7, Why.PIN)
    recorded = list(read_ledger(tmp_path / "ledger"))
    assert [r.snapshot.targets[CHAT].pin for r in recorded] == [Pin(7.0, START + 3600, "launch")] * 2


BROKEN = [
    b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"version": 1}', b'{"version": 2, "pins": {}}', b"{" * 100_000,
    b'{"version": 1, "pins": {"chat/replicas": {"value": NaN, "until": "2099-01-01T00:00:00+00:00", "reason": "x"}}}',
    b'{"version": 1, "pins": {"chat/replicas": {"value": true, "until": "2099-01-01T00:00:00+00:00", "reason": "x"}}}',
    b'{"version": 1, "pins": {"chat/replicas": {"value": 5, "until": "tomorrow", "reason": "x", "since": "then"}}}',
    b'{"version": 1, "pins": {"chat/replicas": {"value": 5, "until": "2099-01-01T00:00:00", "reason": "x"}}}',
    (b'{"version": 1, "pins": {"chat/replicas": {"value": 5, "until": "9999-12-31T23:59:59-23:59", "reason": "x",'
     b' "since": "2026-01-01T00:00:00+00:00"}}}'),
    (b'{"version": 1, "pins": {"chat/replicas": {"value": 1' + b"0" * 400 + b', "until": "2099-01-01T00:00:00Z",'
     b' "reason": "x", "since": "2026-01-01T00:00:00Z"}}}'),
    b'{"version": 1, "pins": {"chat": {}}}', b'{"version": 1, "pins": {"chat/dial": {}}}', b" " * (2 << 20),
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_stops_nothing_keeps_the_last_good_pins_and_is_told(tmp_path: Path, content: bytes) -> None:
    path = set_pin(tmp_path, 7)
    loop = life(config(tmp_path))
    good = loop.tick(START)
    path.write_bytes(content)
    broken = [loop.tick(START + 15), loop.tick(START + 30)]
    set_pin_anew = path.with_suffix(".new")
    set_pin_anew.write_text('{"version": 1, "pins": {}}')
    os.replace(set_pin_anew, path)
    mended = loop.tick(START + 45)
    loop.close()

    assert good.pin_problems == ()
    for result in broken:
        assert final(result) == (7, Why.PIN)
        (problem,) = result.pin_problems
        assert problem.startswith(str(path))
        assert "the last pins that could be read stay in force" in problem
    assert mended.pin_problems == ()
    assert mended.snapshot.targets[CHAT].pin is None


def test_a_file_that_was_broken_from_the_start_pins_nothing_and_is_told(tmp_path: Path) -> None:
    path = pins.file_of(tmp_path / "ledger")
    path.parent.mkdir()
    path.write_text("not json")
    loop = life(config(tmp_path))
    result = loop.tick(START)
    loop.close()

    assert result.snapshot.targets[CHAT].pin is None
    assert "is no file of pins (no JSON: Expecting value, line 1)" in result.pin_problems[0]
    with pytest.raises(pins.PinError, match="mend it, or move it away"), pins.edit(path):
        pytest.fail("a broken file must not be overwritten")
    assert path.read_text() == "not json"


def _file(**changes: object) -> bytes:
    entry = {"value": 5, "until": "2099-01-01T00:00:00Z", "reason": "x", "since": "2026-01-01T00:00:00Z", **changes}
    return json.dumps({"version": 1, "pins": {"chat/replicas": entry}}).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "no JSON: Expecting property name enclosed in double quotes, line 1"),
        (b"\xff\xfe", "no UTF-8 text"),
        (b"[]", "no mapping"),
        (b"{}", "'version' is missing"),
        (b'{"version": 1, "pins": []}', "pins: no mapping"),
        (b'{"version": 1, "pins": {"chat/dial": {}}}', "'chat/dial' is no target"),
        (b'{"version": 1, "pins": {"chat/replicas": {"value": 5}}}', "chat/replicas: 'reason' is missing"),
        (b'{"version": 1, "pins": {"chat/replicas": 5}}', "chat/replicas: no mapping"),
        (_file(value="5"), "chat/replicas: the value '5' is not a number"),
        (_file(until=5), "chat/replicas: 5 is no moment"),
        (_file(until="then"), "chat/replicas: 'then' is no moment"),
        (_file(until="9999-12-31T23:59:59-23:59"), "chat/replicas: 9999-12-31T23:59:59-23:59 is beyond the calendar"),
    ],
)
def test_a_file_that_somebody_edited_is_told_in_the_words_of_python(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "pins.json"
    path.write_bytes(content)
    with pytest.raises(pins.PinError) as caught:
        pins.read(path)
    assert str(caught.value) == f"{path}: is no file of pins ({said}); mend it, or move it away and pin anew"


@pytest.mark.parametrize("content", [b"{", None])
def test_a_file_that_broke_while_nobody_looked_lets_go_of_what_a_person_held(
    tmp_path: Path, content: bytes | None
) -> None:
    """A disk was full, and Governor was restarted for it. That the file is gone is a word, and pins nothing."""
    path = set_pin(tmp_path, 7)
    first = life(config(tmp_path))
    first.tick(START)
    first.close()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    second = life(config(tmp_path))
    again = second.tick(START + 15)
    set_pin_anew = path.with_suffix(".new")
    set_pin_anew.write_text('{"version": 1, "pins": {}}')
    os.replace(set_pin_anew, path)
    mended = second.tick(START + 30)
    second.close()

    assert (again.snapshot.targets[CHAT].pin == Pin(7.0, START + 3600, "launch")) == (content is not None)
    assert bool(again.pin_problems) == (content is not None)
    assert mended.snapshot.targets[CHAT].pin is None


def test_a_reload_while_the_file_is_broken_loses_no_pin(tmp_path: Path) -> None:
    path = set_pin(tmp_path, 7)
    first = life(config(tmp_path))
    first.tick(START)
    path.write_text("{")
    second = life(config(tmp_path, mode="protect"), previous=first)
    result = second.tick(START + 15)
    first.close()
    second.close()

    assert final(result) == (7, Why.PIN)
    assert result.pin_problems


def test_the_pin_of_the_command_wins_over_that_of_the_config_while_it_lasts(tmp_path: Path) -> None:
    loop = life(config(tmp_path, pin=IN_CONFIG))
    fixed = final(loop.tick(START))
    set_pin(tmp_path, 7, START + 20)
    ours, later = final(loop.tick(START + 15)), final(loop.tick(START + 30))
    loop.close()

    assert (fixed, ours, later) == ((3, Why.PIN), (7, Why.PIN), (3, Why.PIN))


def test_a_pin_of_nothing_is_told_and_harms_nothing(tmp_path: Path) -> None:
    set_pin(tmp_path, 1, target=Target("caht", Lever.REPLICAS))
    loop = life(config(tmp_path))
    result = loop.tick(START)
    loop.close()

    assert result.pin_problems == ("caht/replicas: is pinned, and there is no such target",)


def test_a_pin_beyond_the_bounds_is_bounded(tmp_path: Path) -> None:
    """The bounds may have changed since it was set."""
    set_pin(tmp_path, 40)
    loop = life(config(tmp_path))
    result = loop.tick(START)
    loop.close()

    assert final(result) == (9, Why.MAX_BOUND)


@pytest.mark.parametrize(("mode", "sent"), [("auto", True), ("protect", True), ("observe", False), ("off", False)])
def test_the_mode_says_whether_a_pin_is_sent(tmp_path: Path, mode: str, sent: bool) -> None:
    set_pin(tmp_path, 7)
    loop = life(config(tmp_path, mode=mode))
    result = loop.tick(START)
    loop.close()

    assert bool(result.applied) == sent
    assert final(result)[0] == (2 if mode == "off" else 7)


def test_protect_lets_no_pin_lower_capacity(tmp_path: Path) -> None:
    set_pin(tmp_path, 1)
    loop = life(config(tmp_path, mode="protect"))
    result = loop.tick(START)
    loop.close()

    assert final(result)[0] == 2
    assert not result.applied


def test_a_dry_run_decides_by_the_same_pins_and_writes_nothing(tmp_path: Path) -> None:
    set_pin(tmp_path, 7)
    loop = life(config(tmp_path), RunMode.DRY_RUN)
    result = loop.tick(START)
    loop.close()

    assert final(result) == (7, Why.PIN)
    assert "apply" not in SpyFile.calls


def test_a_rehearsal_does_not_look_at_the_pins_of_this_machine(tmp_path: Path) -> None:
    """Its times are other times, and the same recording must come to the same everywhere."""
    set_pin(tmp_path, 7)
    loop = assemble(config(tmp_path, pin=IN_CONFIG), mode=RunMode.REPLAY, source=Nothing())
    loop.tick(START)
    assert loop.hands.pins == {CHAT: Pin(3.0, loop.hands.pins[CHAT].until, "from the config")}
    loop.close()


def test_a_file_that_was_not_touched_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = set_pin(tmp_path, 7)
    known = pins.Pins({}, path)
    assert known.at(START)[CHAT].value == 7
    monkeypatch.setattr(pins, "read", lambda _path: pytest.fail("read again"))
    assert known.at(START + 15)[CHAT].value == 7
