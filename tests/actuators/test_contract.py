"""What the loop relies on, whatever the control surface: one suite over every actuator, each over its real target."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import is_dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from controller.core.model import Drift, Lever, Outcome, Target
from controller.core.ports import Capability
from tests.actuators.rigs import NOW, Rig, rigs
from tests.support.decisions import decide

RIGS = rigs()
LATER = NOW + 15


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        made = RIGS[request.param](tmp_path, stack)
        yield made
        made.actuator.close()


def cannot(rig: Rig, what: str) -> bool:
    """Whether this cannot happen to the target; then its rig says why."""
    if getattr(rig, what) is not None:
        return False
    assert (rig.cannot or {}).get(what), f"the rig does not say why it has no {what!r}"
    return True


def ours() -> dict[str, type]:
    points = [p for p in entry_points(group="governor.actuators") if p.value.startswith("actuators.")]
    return {point.name: point.load() for point in points}


def test_every_built_in_actuator_is_in_this_suite() -> None:
    assert set(ours()) == {name.partition("-")[0] for name in RIGS}


@pytest.mark.parametrize("kind", ours())
def test_the_place_that_it_names_is_one_of_settings_that_there_are(kind: str) -> None:
    """A name that is none would say of every address that it is the same."""
    for name in getattr(ours()[kind], "place", ()):
        config: Any = ours()[kind].Config  # type: ignore[attr-defined]
        for part in name.split("."):
            hint = get_type_hints(config)[part]
            config = next((one for one in (hint, *get_args(hint)) if is_dataclass(one)), None)


@pytest.mark.parametrize("kind", ours())
def test_it_says_what_it_can_do_without_a_config_or_a_connection(kind: str) -> None:
    found = ours()[kind]
    assert is_dataclass(found.Config)  # type: ignore[attr-defined]
    can = found.describe()  # type: ignore[attr-defined]
    assert can
    for lever, one in can.items():
        assert isinstance(lever, Lever)
        assert isinstance(one, Capability)
        assert one.unit
        assert one.note
        assert one.quantum > 0
        assert one.settle >= 0
        assert one.low < one.high


def test_it_reads_what_is_there(rig: Rig) -> None:
    states = rig.actuator.read(list(rig.start), NOW)
    assert {target: state.accepted for target, state in states.items()} == rig.start
    assert not any(state.error or state.foreign_writer for state in states.values())


def test_it_reads_only_what_it_is_asked(rig: Rig) -> None:
    second = rig.targets[1]
    assert set(rig.actuator.read([second], NOW)) == {second}


def test_a_batch_arrives_and_is_read_back(rig: Rig) -> None:
    a, b, c = rig.targets
    decisions = [
        decide(a, rig.start[a], rig.up),
        decide(b, rig.start[b], rig.down),
        decide(c, rig.start[c], rig.start[c]),
    ]
    outcomes = {one.target: one.outcome for one in rig.actuator.apply(decisions, NOW)}
    assert outcomes == dict.fromkeys(rig.start, Outcome.DONE)
    wanted = {a: rig.up, b: rig.down, c: rig.start[c]}
    assert rig.values() == wanted
    states = rig.actuator.read(list(rig.start), LATER)
    assert {target: state.accepted for target, state in states.items()} == wanted
    assert (states[a].last_change, states[a].last_outcome) == (NOW, Outcome.DONE)


def test_applying_twice_is_applying_once(rig: Rig) -> None:
    a = rig.targets[0]
    for _ in range(2):
        (applied,) = rig.actuator.apply([decide(a, rig.start[a], rig.up)], NOW)
        assert applied.outcome is Outcome.DONE
    assert rig.values()[a] == rig.up


@pytest.mark.parametrize("bad", ["stranger", "none", "nan", "inf", "negative", "fraction", "dry", "twice"])
def test_one_impossible_decision_stops_its_batch_before_the_first_write(rig: Rig, bad: str) -> None:
    a, b, c = rig.targets
    at, now = rig.start[b], rig.start[a]
    decision = {
        "stranger": decide(Target("stranger", a.lever, a.member), at, rig.down),
        "none": decide(b, at, None),
        "nan": decide(b, at, float("nan")),
        "inf": decide(b, at, float("inf")),
        "negative": decide(b, at, -1),
        "fraction": decide(b, at, rig.down + rig.can.quantum / 2),
        "dry": decide(b, at, rig.down, send=False),
        "twice": decide(a, now, rig.other),
    }[bad]
    outcomes = rig.actuator.apply([decide(a, now, rig.up), decision, decide(c, rig.start[c], rig.start[c])], NOW)
    assert len(outcomes) == 3
    assert Outcome.REFUSED in {one.outcome for one in outcomes}
    assert {one.outcome for one in outcomes} <= {Outcome.REFUSED, Outcome.FAILED}
    assert rig.values() == rig.start
    assert rig.touched() == 0


def test_an_empty_batch_is_nothing(rig: Rig) -> None:
    assert list(rig.actuator.apply([], NOW)) == []
    assert list(rig.actuator.verify([], NOW)) == []
    assert rig.touched() == 0


def test_a_failed_write_changes_nothing_and_says_why(rig: Rig) -> None:
    if cannot(rig, "fail"):
        return
    a = rig.targets[0]
    rig.fail()  # type: ignore[misc]
    (applied,) = rig.actuator.apply([decide(a, rig.start[a], rig.up)], NOW)
    assert (applied.outcome, bool(applied.detail)) == (Outcome.FAILED, True)
    assert rig.values()[a] == rig.start[a]
    state = rig.actuator.read([a], LATER)[a]
    assert (state.accepted, state.last_change, state.foreign_writer) == (rig.start[a], None, "")


def test_a_refused_write_is_told_from_a_failed_one(rig: Rig) -> None:
    if cannot(rig, "refuse"):
        return
    a = rig.targets[0]
    rig.refuse()  # type: ignore[misc]
    (applied,) = rig.actuator.apply([decide(a, rig.start[a], rig.up)], NOW)
    assert applied.outcome is Outcome.REFUSED
    assert rig.values()[a] == rig.start[a]


def test_a_lost_answer_is_unknown_and_verify_finds_the_truth_without_writing(rig: Rig) -> None:
    if cannot(rig, "lose"):
        return
    a = rig.targets[0]
    rig.actuator.read([a], NOW)
    rig.lose()  # type: ignore[misc]
    decision = decide(a, rig.start[a], rig.up)
    (applied,) = rig.actuator.apply([decision], NOW)
    assert applied.outcome is Outcome.UNKNOWN
    written = rig.touched()
    assert rig.actuator.read([a], LATER)[a].foreign_writer == ""
    for _ in range(2):
        (verified,) = rig.actuator.verify([decision], LATER)
        assert verified.outcome is rig.lost
    assert rig.touched() == written
    assert rig.values()[a] == (rig.up if rig.lost is Outcome.DONE else rig.start[a])


def test_verify_of_what_did_not_happen_says_failed(rig: Rig) -> None:
    a = rig.targets[0]
    rig.actuator.read([a], NOW)
    (verified,) = rig.actuator.verify([decide(a, rig.start[a], rig.up)], NOW)
    assert verified.outcome is Outcome.FAILED
    assert rig.touched() == 0


def test_a_foreign_write_is_seen_once_and_forgotten_in_time(rig: Rig) -> None:
    if cannot(rig, "edit"):
        return
    a = rig.targets[0]
    rig.actuator.read([a], NOW)
    rig.edit(rig.other)  # type: ignore[misc]
    seen = rig.actuator.read([a], LATER)[a]
    assert (seen.accepted, seen.drift) == (rig.other, Drift.FOREIGN)
    assert seen.foreign_writer
    assert rig.actuator.read([a], NOW + 16 + 900)[a].foreign_writer == ""


def test_our_next_write_after_yielding_is_ours_again(rig: Rig) -> None:
    if cannot(rig, "edit"):
        return
    a = rig.targets[0]
    rig.actuator.read([a], NOW)
    rig.edit(rig.other)  # type: ignore[misc]
    rig.actuator.read([a], LATER)
    rig.actuator.apply([decide(a, rig.other, rig.up)], NOW + 1000)
    state = rig.actuator.read([a], NOW + 1015)[a]
    assert (state.accepted, state.foreign_writer, state.drift) == (rig.up, "", None)


def test_a_target_that_began_anew_is_no_foreign_writer(rig: Rig) -> None:
    """Else Governor would stand aside for a quarter of an hour after each restart of a gateway."""
    if rig.forget is None:
        assert rig.can.persistent, "what forgets must be made to forget here"
        return
    a = rig.targets[0]
    rig.actuator.read([a], NOW)
    (applied,) = rig.actuator.apply([decide(a, rig.start[a], rig.up)], NOW)
    assert applied.outcome is Outcome.DONE
    rig.forget()
    state = rig.actuator.read([a], LATER)[a]
    assert state.foreign_writer == ""
    if state.accepted != rig.up:  # else it was put back, which is as good
        assert (state.accepted, state.drift) == (rig.start[a], Drift.RESTARTED)
        (applied,) = rig.actuator.apply([decide(a, rig.start[a], rig.up)], LATER)
        assert applied.outcome is Outcome.DONE
    assert rig.values()[a] == rig.up


def test_decreases_come_before_increases(rig: Rig) -> None:
    if rig.can.atomic:
        return  # one write for all
    a, b, _ = rig.targets
    outcomes = rig.actuator.apply([decide(a, rig.start[a], rig.up), decide(b, rig.start[b], rig.down)], NOW)
    assert [one.target for one in outcomes] == [b, a]
