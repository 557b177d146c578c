"""A new process takes over what its predecessor knew, and asks what became of its last write."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controller.core.drain import Drain
from controller.core.model import Lever, Outcome, Snapshot, Target
from controller.core.rules import FleetRules, Rate
from controller.core.tilt import Tilt
from controller.core.why import Why
from controller.run import codec
from controller.run.ledger import FileLedger, LedgerError, ledger_files, read_ledger
from controller.run.loop import ControlLoop
from controller.run.resume import resume
from tests.loop.test_failures import START, Hands, loop
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

    assert reborn.learned["llm"].replica.samples > 10
    assert reborn.learned["llm"].lags
    assert reborn.state.guards[REPLICAS].position is not None


def test_another_config_takes_what_was_learned_and_the_guards_and_not_its_laws(
    tmp_path: Path,
) -> None:
    plant, _ = first_life(tmp_path / "a")
    other = build(plant, ledger=book(tmp_path / "b"))
    other.parts = replace(other.parts, config_hash="another")
    resume(other, tmp_path / "a")

    assert other.learned["llm"].replica.samples > 10
    assert other.state.guards[REPLICAS].position is not None
    assert not other.state.policies


def paced(hands: Hands, wish: dict[str, float], path: Path) -> ControlLoop:
    """Two more replicas at most in two minutes, and then a pause of two."""
    made = loop(hands, wish, ledger=book(path))
    (pool,) = made.parts.rules.pools
    (lever,) = pool.levers
    slow = replace(lever, cooldown_up=120.0, rate_up=Rate(2.0, 120.0))
    made.parts = replace(made.parts, rules=FleetRules((replace(pool, levers=(slow,)),)))
    return made


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("ticks", [14, 20, 21, 25])
def test_a_restart_gives_a_rate_limit_its_whole_allowance_again(tmp_path: Path, ticks: int, killed: bool) -> None:
    """A controller that crashes at every tick would have no limit at all."""
    hands, wish = Hands({"a": 3.0}), {"a": 3.0}
    first = paced(hands, wish, tmp_path / "first")
    for tick in range(ticks):
        wish["a"] = 20.0 if tick == ticks - 1 else 3.0
        first.tick(START + 15 * tick)
    assert hands.have == {"a": 5.0}
    left = shutil.copytree(tmp_path / "first", tmp_path / "left") if killed else tmp_path / "first"
    first.close()

    reborn = paced(hands, wish, tmp_path / "second")
    resume(reborn, left)
    assert reborn.state == first.state
    (decision,) = reborn.tick(START + 15 * ticks).plan.decisions
    reborn.close()
    assert (decision.final, decision.why) == (5.0, Why.COOLDOWN)


def test_a_drain_is_forgotten_with_the_config_and_its_replica_left_at_nothing(tmp_path: Path) -> None:
    """An upgrade changes a line of the config, and restarts Governor in the middle of it."""
    held = Drain(START, ("x",), {"x": START}, taken={"x": 1.0})
    first = loop(Hands({"a": 3.0}), {"a": 3.0}, ledger=book(tmp_path))
    first.tick(START)
    first.state = replace(first.state, drains={"a": held})
    first.close()
    reborn = loop(Hands({"a": 3.0}), {"a": 3.0}, config_hash="another")
    resume(reborn, tmp_path)

    assert reborn.state.drains == {"a": held}


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


def left_open(path: Path, ticks: int, *, open_for: int = 1) -> dict[str, int]:
    """A process that sent one write of unknown outcome at tick 3, verified in vain `open_for` times."""
    hands, wish = Hands({"a": 3.0}), {"a": 3.0}
    made = loop(hands, wish, ledger=book(path))
    for tick in range(ticks):
        if tick == 3:
            hands.answers, wish["a"] = {"a": Outcome.UNKNOWN}, 5.0
        if tick == 3 + open_for:
            hands.verdicts = {"a": Outcome.DONE}
            hands.have["a"] = 5.0
        made.tick(START + 15 * tick)
    made.parts.ledger.close()
    return {call[0]: sum(c[0] == call[0] for c in hands.calls) for call in hands.calls}


@pytest.mark.parametrize(("ticks", "opened"), [(3, False), (4, True), (9, True), (50, True), (52, False)])
def test_a_restart_forgets_a_write_that_its_predecessor_could_not_verify(
    tmp_path: Path, ticks: int, opened: bool
) -> None:
    calls = left_open(tmp_path, ticks, open_for=48)
    assert calls.get("apply", 0) == (ticks > 3)
    hands = Hands({"a": 3.0})
    reborn = loop(hands, {"a": 5.0}, ledger=book(tmp_path))
    resume(reborn, tmp_path)
    assert set(reborn.hands.unverified) == ({Target("a", Lever.REPLICAS)} if opened else set())

    reborn.tick(START + 1000)
    reborn.parts.ledger.close()
    assert [call[0] for call in hands.calls] == ["verify" if opened else "apply"], "asked, and not sent again"
    again = loop(Hands({"a": 3.0}), {"a": 5.0})
    resume(again, tmp_path)
    assert bool(again.hands.unverified) == opened, "nor by the process after that"


def test_a_decision_in_words_of_another_version_keeps_the_controller_from_starting(tmp_path: Path) -> None:
    left_open(tmp_path, 4)
    (file,) = ledger_files(tmp_path)
    lines = gzip.decompress(file.read_bytes()).decode().replace('"why":"demand"', '"why":"a_reason_of_version_2"')
    lines = lines.replace('"since_last":15.0', '"since_last":15.0,"moon":"full"')
    assert "a_reason_of_version_2" in lines
    file.write_bytes(gzip.compress(lines.encode()))

    reborn = loop(Hands({"a": 3.0}), {"a": 5.0})
    resume(reborn, tmp_path)
    (decision,) = reborn.hands.unverified.values()
    assert (decision.current, decision.final) == (3.0, 5.0)
    with pytest.raises(LedgerError, match="of another version of Governor"):
        list(read_ledger(tmp_path))


@pytest.mark.parametrize("odd", ['{"memo":{"sends":3},"at":1}', '{"memo":7}', '{"applied":[{}]}', '{"memo', "[]", "{"])
def test_one_odd_record_costs_what_was_learned_before_it(tmp_path: Path, odd: str) -> None:
    plant, _ = first_life(tmp_path)
    file = ledger_files(tmp_path)[-1]
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()) + odd.encode() + b"\n"))

    assert second_life(plant, tmp_path).learned["llm"].replica.samples > 10


def test_a_newest_file_without_a_record_hides_the_one_before_it(tmp_path: Path) -> None:
    plant, _ = first_life(tmp_path)
    (tmp_path / "09999999999-1.ledger.gz").write_bytes(gzip.compress(b'{"format":2}\n'))
    (tmp_path / "09999999999-2.ledger.gz").write_bytes(b"")

    assert second_life(plant, tmp_path).learned["llm"].replica.samples > 10


def test_where_a_mute_target_was_left_is_known_to_the_next_process(tmp_path: Path) -> None:
    hands = Hands({"a": 3.0})
    first = loop(hands, {"a": 8.0}, ledger=book(tmp_path))
    first.tick(START)
    first.parts.ledger.close()
    reborn = loop(Hands({"a": 3.0}), {"a": 8.0})
    resume(reborn, tmp_path)

    assert reborn.hands.positions == {Target("a", Lever.REPLICAS): 8.0}


def test_a_start_decodes_every_snapshot_of_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 pools took minutes."""
    plant, _ = first_life(tmp_path)
    decoded: list[object] = []
    decode = codec.decode

    def counting(kind: type[object], data: object) -> object:
        decoded.append(kind)
        return decode(kind, data)

    monkeypatch.setattr(codec, "decode", counting)
    second_life(plant, tmp_path)

    assert decoded
    assert Snapshot not in decoded


MODEL = {"engine": "vllm", "selector": {"model_name": "llama"}, "profile": {"alpha": 0.01}}


@pytest.mark.parametrize(
    ("change", "kept"),
    [({}, True), ({"cold_start": "90s"}, True), ({"engine": "sglang"}, False),
     ({"selector": {"model_name": "deepseek"}}, False), ({"profile": {"alpha": 0.02}}, False)],
)  # fmt: skip
def test_what_was_learned_of_one_model_is_believed_of_another(
    tmp_path: Path, change: dict[str, object], kept: bool
) -> None:
    before, after = ({"pools": {"llm": one}} for one in (MODEL, {**MODEL, **change}))
    plant = Plant(lambda t: 20.0, replicas=1, cold_start=60.0)
    old = build(plant, ledger=book(tmp_path))
    old.parts = replace(old.parts, config=before)
    drive(old, plant, 600.0)
    reloaded = build(plant)
    reloaded.parts = replace(reloaded.parts, config=after)
    reloaded.adopt(old)
    old.parts.ledger.close()
    restarted = build(plant)
    restarted.parts = replace(restarted.parts, config=after, config_hash="another")
    resume(restarted, tmp_path)

    for one in (reloaded, restarted):
        assert bool(one.learned) is kept
    assert bool(reloaded.parts.meter.pools["llm"].history.entries) is kept
    assert bool(reloaded.state.policies) is kept
    assert reloaded.state.guards, "cooldowns and rates protect whatever runs there"


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
    assert loop.learned["llm"].replica.samples > 0


def test_a_version_that_remembers_other_things_does_not_learn_all_anew(tmp_path: Path) -> None:
    """After an upgrade nothing was known of the fleet any more, nor what guards held, because of one field."""
    plant, loop = first_life(tmp_path)
    (file,) = ledger_files(tmp_path)
    text = gzip.decompress(file.read_bytes()).decode()
    for mine, theirs in (('"lags":', '"delays":'), ('"kv_sequences":', '"kv_batch":'), ('"tilt":{', '"tilt":{"of":3,')):
        assert mine in text
        text = text.replace(mine, theirs)
    file.write_bytes(gzip.compress(text.encode()))
    with capture_logs() as logs:
        reborn = second_life(plant, tmp_path)

    known = reborn.learned["llm"]
    assert known.replica.samples > 10
    assert known.replica.kappa == pytest.approx(loop.learned["llm"].replica.kappa, rel=0.05)
    assert (known.lags, known.replica.kv_sequences) == ((), None)
    assert known.replica.tilt != Tilt()
    (said,) = [one for one in logs if one["event"] == "learned_anew"]
    assert said["what"] == ["delays", "replica.kv_batch", "replica.tilt.of"]
    assert reborn.state.guards[REPLICAS].position is not None


def test_no_ledger_yet_is_a_first_life(tmp_path: Path) -> None:
    plant = Plant(lambda t: 1.0)
    reborn = build(plant)
    resume(reborn, tmp_path / "nowhere")

    assert reborn.learned == {}
