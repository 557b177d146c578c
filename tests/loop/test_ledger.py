"""The ledger is lossless, survives crashes and full disks, and replays to the same plans."""

import json
import math
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import (
    Applied,
    Decision,
    Lever,
    Outcome,
    Pending,
    Phase,
    Plan,
    PoolReadings,
    Scope,
    Snapshot,
    Target,
    TargetState,
    Tick,
)
from controller.core.ports import LedgerFull
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.sizes import Sizes
from controller.core.why import Why
from controller.run import codec
from controller.run.ledger import FileLedger, LedgerError, Record, kinds, ledger_files, read_ledger
from tests.support.closed_loop import build, drive
from tests.support.lines import program
from tests.support.plant import Plant

ROOT = Path(__file__).parents[2]
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
READINGS = st.builds(
    Reading,
    st.sampled_from([State.OK, State.PARTIAL, State.STALE]),
    value=NUMBERS, lo=st.none() | NUMBERS, hi=st.none() | NUMBERS, count=st.none() | NUMBERS, age=st.none() | NUMBERS,
    window=st.none() | NUMBERS, source=st.text(max_size=5), note=st.text(max_size=5),
)  # fmt: skip
KEYS = st.sampled_from(["a", "b", "-", "~", "="])  # a tenant may be called like a mark of the format
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=4),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)

DICTS = st.dictionaries(KEYS, JSON, max_size=4)
SIGNALS = st.dictionaries(st.sampled_from(Signal), READINGS, max_size=3)
TARGETS = st.builds(Target, st.sampled_from("ab"), st.just(Lever.REPLICAS))
STATES = st.builds(
    TargetState, st.none() | st.sampled_from([1.0, 2.0]),
    pending=st.lists(st.builds(Pending, st.integers(1, 3), st.sampled_from(Phase), NUMBERS), max_size=2).map(tuple),
)  # fmt: skip
POOLS = st.builds(
    PoolReadings, SIGNALS, st.dictionaries(st.sampled_from(Signal), st.dictionaries(KEYS, READINGS), max_size=2),
    replicas=st.dictionaries(KEYS, st.builds(Scope, SIGNALS), max_size=3), filled_since=st.none() | NUMBERS,
)  # fmt: skip
SNAPSHOTS = st.builds(
    Snapshot, st.builds(Tick, st.integers(0, 3), NUMBERS), st.dictionaries(KEYS, POOLS, max_size=3),
    st.dictionaries(TARGETS, STATES, max_size=2), st.sampled_from(["", "down"]),
)  # fmt: skip


def ledger(path: Path, *, max_size: int = 1 << 22, rotate_size: int = 1 << 20, behind: bool = False) -> FileLedger:
    return FileLedger(path, max_size=max_size, rotate_size=rotate_size, behind=behind)


def night(path: Path, seconds: float = 900.0, *, max_size: int = 1 << 22, rotate_size: int = 1 << 20) -> list[Record]:
    """A loop on the plant with a ledger; what is read back."""
    plant = Plant(lambda t: 10.0 + t / 30, replicas=1, cold_start=60.0)
    loop = build(plant, ledger=ledger(path, max_size=max_size, rotate_size=rotate_size))
    drive(loop, plant, seconds)
    loop.close()
    return list(read_ledger(path))


def test_what_was_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    plant = Plant(lambda t: 10.0 + t / 30, replicas=1, cold_start=60.0)
    loop = build(plant, ledger=ledger(tmp_path))
    results = drive(loop, plant, 900)
    loop.close()
    records = list(read_ledger(tmp_path))

    assert [r.snapshot for r in records] == [r.snapshot for r in results]
    assert [r.plan for r in records] == [r.plan for r in results]
    assert [r.applied for r in records] == [r.applied for r in results]
    assert all(r.complete for r in records)


@given(st.lists(READINGS, min_size=1, max_size=4), st.dictionaries(st.sampled_from("xyz"), NUMBERS, max_size=3))
def test_any_snapshot_survives_the_codec(readings: list[Reading], replicas: dict[str, float]) -> None:
    pool = PoolReadings(
        sizes=Sizes((100.0, 1000.0), (1.0, 2.5), 3.0),
        signals=dict(zip(Signal, readings, strict=False)),
        replicas={name: Scope({Signal.RUNNING: ok(value)}) for name, value in replicas.items()},
    )
    made = Snapshot(Tick(3, 1.5, None), {"a/b": pool}, {Target("a", Lever.REPLICAS, "m/1"): TargetState(2.0)})

    assert codec.decode(Snapshot, json.loads(json.dumps(codec.encode(made), allow_nan=False))) == made


@given(DICTS, DICTS)
def test_a_patch_of_a_difference_gives_the_new_value(old: dict[str, object], new: dict[str, object]) -> None:
    assert codec.patch(old, codec.diff(old, new)) == new


@given(SNAPSHOTS, SNAPSHOTS)
def test_a_difference_of_values_is_the_difference_of_what_is_written(old: Snapshot, new: Snapshot) -> None:
    plain = codec.encode(new)

    assert codec.patch(codec.encode(old), codec.diff(old, new)) == plain
    assert codec.diff(codec.encode(old), plain) == codec.diff(old, new)


def test_a_number_that_json_cannot_tell_is_written_as_another(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    decision = Decision(Target("a", Lever.REPLICAS), 1.0, 1.0, Why.STEADY, evidence={"odd": math.nan})

    with pytest.raises(ValueError, match="nan"):
        book.plan({**_record(1.0), "plan": Plan(1.0, (decision,))})
    book.close()


def test_a_tenant_named_like_a_mark_of_the_format_breaks_the_file(tmp_path: Path) -> None:
    book, snapshots = ledger(tmp_path), []
    for at, tenants in enumerate((["-", "~"], ["~", "="], ["-"]), 1):
        scopes = {name: Scope({Signal.RUNNING: ok(float(at))}) for name in tenants}
        made = Snapshot(Tick(at, float(at)), {"a": PoolReadings(tenants=scopes)})
        snapshots.append(made)
        book.plan({**_record(float(at)), "snapshot": made})
    book.close()

    assert [r.snapshot for r in read_ledger(tmp_path)] == snapshots


def test_a_crash_in_the_middle_of_a_record_loses_that_record_alone(tmp_path: Path) -> None:
    records = night(tmp_path)
    file = ledger_files(tmp_path)[0]
    whole = file.read_bytes()
    after_the_last_tick = whole.rindex(b"\x00\x00\xff\xff", 0, whole.rindex(b"\x00\x00\xff\xff"))
    file.write_bytes(whole[: after_the_last_tick - 200])

    survivors = list(read_ledger(tmp_path))
    assert len(records) > len(survivors) >= len(records) - 3
    assert [r.plan for r in survivors] == [r.plan for r in records[: len(survivors)]]


@pytest.mark.parametrize("part", [0.5, 0.9, 0.999])
def test_a_file_that_was_cut_is_not_taken_for_a_crash_and_its_last_tick_not_for_the_newest(
    tmp_path: Path, part: float
) -> None:
    """Half of a night was gone, and explain showed a tick of midnight as what Governor did last."""
    records = night(tmp_path)
    (file,) = ledger_files(tmp_path)
    cut = file.read_bytes()[: int(file.stat().st_size * part)]
    if cut.endswith(b"\x00\x00\xff\xff"):
        cut = cut[:-1]  # just behind a whole record it could have been a crash
    file.write_bytes(cut)
    damage: list[LedgerError] = []

    survivors = list(read_ledger(tmp_path, damage))

    (found,) = damage
    assert f"{file}: ends in the middle of a record, after " in str(found)
    last = datetime.fromtimestamp(survivors[-1].at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert str(found).endswith(f"; {len(survivors)} ticks of it were read, the last of {last} UTC")
    assert [r.plan for r in survivors] == [r.plan for r in records[: len(survivors)]]
    assert sum(kind == "applied" for kind, _ in kinds(file)) == sum(r.complete for r in survivors)


def test_a_governor_that_was_killed_between_two_records_leaves_no_damage(tmp_path: Path) -> None:
    """Every kill -9 would have made each later explain end with 2."""
    book = ledger(tmp_path)
    for at in (1.0, 2.0, 3.0):
        book.plan(_record(at=at))
    damage: list[LedgerError] = []

    assert [r.at for r in read_ledger(tmp_path, damage)] == [1.0, 2.0, 3.0]
    assert damage == []
    book.close()


def test_a_plan_without_outcomes_says_so(tmp_path: Path) -> None:
    """kill -9 between plan and outcome: the successor must verify, not apply again."""
    book = ledger(tmp_path)
    book.plan(_record(at=1.0))
    book.outcomes(1.0, [Applied(Target("a", Lever.REPLICAS), Outcome.DONE)])
    book.plan(_record(at=2.0))
    book.close()

    assert [(r.at, r.complete) for r in read_ledger(tmp_path)] == [(1.0, True), (2.0, False)]


def test_the_ledger_stays_within_its_cap_and_loses_the_oldest(tmp_path: Path) -> None:
    night(tmp_path, 7200.0, max_size=60_000, rotate_size=15_000)
    files = ledger_files(tmp_path)

    assert sum(f.stat().st_size for f in files) <= 60_000 + 15_000
    assert len(files) > 1
    records = list(read_ledger(tmp_path))
    assert records[0].states is not None, "every file stands on its own"
    assert records[0].at > 1_000_015.0
    assert records[-1].at == 1_007_200.0


def test_a_full_disk_is_told_and_the_ledger_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = ledger(tmp_path)
    book.plan(_record(at=1.0))

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(book, "_write", full)
        with pytest.raises(LedgerFull, match="No space left"):
            book.plan(_record(at=2.0))
    book.plan(_record(at=3.0))
    book.outcomes(3.0, [])
    book.close()

    assert [r.at for r in read_ledger(tmp_path)] == [1.0, 3.0]


def test_a_really_full_device_is_told(tmp_path: Path) -> None:
    """/dev/full: every write fails, as on a full disk."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    book = ledger(tmp_path)
    book.plan(_record(at=1.0))
    assert book._file is not None  # noqa: SLF001
    book._file.file.close()  # noqa: SLF001
    book._file.file = Path("/dev/full").open("wb")  # noqa: SLF001, SIM115 - the disk fills up now

    with pytest.raises(LedgerFull):
        book.plan(_record(at=2.0))


def test_what_is_packed_in_passing_is_read_back_and_rotated_like_what_is_flushed(tmp_path: Path) -> None:
    results = {}
    for behind in (False, True):
        plant = Plant(lambda t: 10.0 + t / 30, replicas=1, cold_start=60.0)
        loop = build(plant, ledger=ledger(tmp_path / str(behind), rotate_size=4_000, behind=behind))
        results[behind] = drive(loop, plant, 7200)
        loop.close()
    flushed, passing = (list(read_ledger(tmp_path / str(behind))) for behind in (False, True))

    assert [r.snapshot for r in passing] == [r.snapshot for r in results[True]]
    assert [(r.plan, r.applied, r.complete) for r in passing] == [(r.plan, r.applied, r.complete) for r in flushed]
    assert len(ledger_files(tmp_path / "True")) > 1


@pytest.mark.parametrize("size", [1, 4 << 20], ids=["at the end", "on the way"])
def test_a_disk_that_fills_up_behind_the_back_of_a_rehearsal_goes_unnoticed(tmp_path: Path, size: int) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    book = ledger(tmp_path, behind=True)
    book.plan(_record(at=1.0))
    assert book._file is not None  # noqa: SLF001
    book._file.file.close()  # noqa: SLF001
    book._file.file = Path("/dev/full").open("wb")  # noqa: SLF001, SIM115 - the disk fills up now

    def go_on() -> None:
        for at in range(2, 5):
            book.plan({**_record(float(at)), "memo": {"noise": secrets.token_hex(size)}})
        book.close()

    with pytest.raises((LedgerError, LedgerFull), match="No space left"):
        go_on()
    book.close()
    ledger(tmp_path).close()


def test_a_full_night_leaves_an_empty_file_for_each_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The format line of a new file fits in where no record does."""
    book = ledger(tmp_path)
    write = book._write  # noqa: SLF001

    def no_room(*lines: Mapping[str, Any]) -> None:
        write(*lines)
        if "format" not in lines[0]:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(book, "_write", no_room)
        for at in range(1, 20):
            with pytest.raises(LedgerFull):
                book.plan(_record(float(at)))
    assert ledger_files(tmp_path) == []

    book.plan(_record(at=20.0))
    book.close()
    assert [r.at for r in read_ledger(tmp_path)] == [20.0]


def test_two_governors_write_one_ledger(tmp_path: Path) -> None:
    """Each would resume, verify and count what the other did."""
    with program(["-m", "tests.support.ledger_holder", str(tmp_path)], ROOT) as other:
        other.wait("holding")
        with pytest.raises(LedgerError, match=rf"process {other.process.pid} writes there; stop it, or give each"):
            ledger(tmp_path)
        other.process.kill()
        assert other.end() < 0
    ledger(tmp_path).close()


def test_a_reload_cannot_open_the_ledger_that_it_still_holds(tmp_path: Path) -> None:
    old = ledger(tmp_path)
    new = ledger(tmp_path)
    old.close()
    old.close()
    with program(["-m", "tests.support.ledger_holder", str(tmp_path)], ROOT) as other:
        other.wait("taken")
    new.close()
    with program(["-m", "tests.support.ledger_holder", str(tmp_path)], ROOT) as other:
        other.wait("holding")


def test_a_directory_that_cannot_be_written_names_the_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(
        LedgerError, match=r"move away the file that stands where a folder must be, or set ledger\.path"
    ):
        ledger(tmp_path / "file" / "ledger")
    with pytest.raises(LedgerError, match=r"make the directory writable, or set ledger\.path"):
        ledger(Path("/proc/ledger"))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", r"1\.ledger\.gz: is empty"), (b"hello\n", r"1\.ledger\.gz: .*give a file that Governor wrote")],
    ids=["empty", "text"],
)
def test_something_that_is_no_ledger_is_refused_with_its_name(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "1.ledger.gz"
    file.write_bytes(content)
    with pytest.raises(LedgerError, match=message):
        list(read_ledger(tmp_path))


def overwritten(file: Path, at: int) -> None:
    """Some bytes of it are not what they were."""
    data = bytearray(file.read_bytes())
    data[at : at + 7] = b"garbage"
    file.write_bytes(data)


@pytest.mark.parametrize("where", [0.02, 0.6])
def test_a_damaged_ledger_is_not_taken_for_a_quiet_night(tmp_path: Path, where: float) -> None:
    """Seven bytes were overwritten, and explain said nothing at all, with an exit code of zero."""
    records = night(tmp_path)
    (file,) = ledger_files(tmp_path)
    overwritten(file, int(file.stat().st_size * where))
    damage: list[LedgerError] = []

    survivors = list(read_ledger(tmp_path, damage))

    (found,) = damage
    assert str(file) in str(found)
    assert [r.plan for r in survivors] == [r.plan for r in records[: len(survivors)]]
    assert len(survivors) < len(records)
    assert bool(survivors) is (where > 0.5)
    with pytest.raises(LedgerError, match=r"ledger\.gz"):
        list(read_ledger(tmp_path))


def test_what_comes_after_a_damaged_file_is_read(tmp_path: Path) -> None:
    night(tmp_path, 7200.0, max_size=600_000, rotate_size=15_000)
    first, *_, last = ledger_files(tmp_path)
    every = [r.at for r in read_ledger(tmp_path)]
    overwritten(first, 400)
    damage: list[LedgerError] = []

    assert [r.at for r in read_ledger(tmp_path, damage)][-1] == every[-1] == list(read_ledger(last))[-1].at
    assert len(damage) == 1


def test_no_ledger_at_all_names_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"give the directory that ledger\.path names"):
        list(read_ledger(tmp_path))


def _record(at: float) -> dict[str, object]:
    return {
        "at": at, "snapshot": Snapshot(Tick(1, at)), "plan": Plan(at), "config_hash": "h", "version": "v",
        "mode": "live", "states": {}, "config": {},
    }  # fmt: skip
