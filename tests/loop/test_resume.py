"""A new process takes over what its predecessor knew, and asks what became of its last write."""

from dataclasses import replace
from pathlib import Path

from controller.core.model import Lever, Target
from controller.run.ledger import FileLedger, ledger_files
from controller.run.loop import ControlLoop
from controller.run.resume import resume
from tests.support.closed_loop import build, drive
from tests.support.plant import Plant

REPLICAS = Target("llm", Lever.REPLICAS)


def book(path: Path) -> FileLedger:
    return FileLedger(path, max_size=1 << 22, rotate_size=1 << 20)


def first_life(path: Path, seconds: float = 1200.0) -> tuple[Plant, ControlLoop]:
    """A loop that learned something and was killed."""
    plant = Plant(lambda t: 20.0 if t < 300 else 50.0, replicas=1, cold_start=60.0)
    loop = build(plant, ledger=book(path))
    drive(loop, plant, seconds)
    loop.close()
    return plant, loop


def second_life(plant: Plant, path: Path, mode: str = "simulate") -> ControlLoop:
    loop = build(plant, ledger=book(path))
    loop.parts = replace(loop.parts, mode=mode)
    resume(loop, path)
    return loop


def test_a_restart_does_not_learn_everything_anew(tmp_path: Path) -> None:
    plant, _ = first_life(tmp_path / "a")
    reborn = second_life(plant, tmp_path / "a")

    assert reborn.learned["llm"].samples > 10
    assert reborn.learned["llm"].lags
    assert reborn.state.guards[REPLICAS].position is not None


def test_another_config_takes_what_was_learned_and_not_what_its_laws_remembered(tmp_path: Path) -> None:
    plant, _ = first_life(tmp_path / "a")
    other = build(plant, ledger=book(tmp_path / "b"))
    other.parts = replace(other.parts, config_hash="another")
    resume(other, tmp_path / "a")

    assert other.learned["llm"].samples > 10
    assert not other.state.guards


def test_a_write_whose_outcome_nobody_wrote_down_is_verified_first(tmp_path: Path) -> None:
    """kill -9 between plan and outcome."""
    plant = Plant(lambda t: 60.0, replicas=1, cold_start=60.0)
    loop = build(plant, ledger=book(tmp_path))
    loop.parts = replace(loop.parts, mode="live")
    silent = loop.parts.ledger
    drive(loop, plant, 60.0)
    silent.outcomes = lambda at, applied: None  # type: ignore[method-assign]  # it dies before it can write this down
    drive(loop, plant, 15.0)
    while not plant.writes or plant.writes[-1][0] != plant.now:
        drive(loop, plant, 15.0)
    loop.close()

    reborn = second_life(plant, tmp_path, mode="live")
    assert set(reborn.hands.unverified) == {REPLICAS}
    assert not second_life(plant, tmp_path, mode="dry_run").hands.unverified


def test_a_damaged_ledger_does_not_keep_the_fleet_without_its_controller(tmp_path: Path) -> None:
    plant, _ = first_life(tmp_path)
    ledger_files(tmp_path)[-1].write_bytes(b"not a ledger at all")

    assert second_life(plant, tmp_path).learned == {}


def test_states_of_another_version_are_left_behind(tmp_path: Path) -> None:
    plant, loop = first_life(tmp_path / "a")
    odd = book(tmp_path / "odd")
    result = drive(build(plant), plant, 15.0)[0]
    odd.plan(
        {
            "at": plant.now, "snapshot": result.snapshot, "plan": result.plan, "config_hash": "test", "version": "9",
            "mode": "live", "states": {"policies": {}, "guards": {}, "learned": {"llm": {"gone": 1}}}, "config": {},
        }
    )  # fmt: skip
    odd.close()

    assert second_life(plant, tmp_path / "odd").learned == {}
    assert loop.learned["llm"].samples > 0


def test_no_ledger_yet_is_a_first_life(tmp_path: Path) -> None:
    plant = Plant(lambda t: 1.0)
    reborn = build(plant)
    resume(reborn, tmp_path / "nowhere")

    assert reborn.learned == {}
