"""The wall clock is set back while Governor runs, or between two of its lives: what is remembered lies in the future
then, and must neither hold the fleet until the clock has caught up nor hide what is recorded since."""

from pathlib import Path

import pytest

from controller.core.model import Lever, Target
from controller.core.why import Why
from controller.run.ledger import ledger_files, read_ledger
from controller.run.resume import resume
from controller.run.rewind import earlier
from tests.loop.test_failures import Hands
from tests.loop.test_resume import book, paced
from tests.support.closed_loop import build, drive
from tests.support.plant import Plant

START = 1_800_000_000.0  # 2027-01-15, 08:00
HOUR = 3600.0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_cooldown_lasts_until_the_clock_has_caught_up(tmp_path: Path, restarts: bool) -> None:
    """Two more in two minutes and then a pause of two: the last raise is an hour ahead all at once."""
    hands, wish = Hands({"a": 3.0}), {"a": 3.0}
    loop = paced(hands, wish, tmp_path)
    for tick in range(21):
        wish["a"] = 20.0 if tick == 20 else 3.0
        loop.tick(START + 15 * tick)
    assert hands.have == {"a": 5.0}
    if restarts:
        loop.close()
        loop = paced(hands, wish, tmp_path)
        resume(loop, tmp_path)
    again = START + 15 * 20 - HOUR
    made = {}
    for second in range(15, 301, 15):
        (made[second],) = loop.tick(again + second).plan.decisions
    loop.close()
    assert made[15].why is Why.COOLDOWN, "it is given no allowance by the clock either"
    assert [second for second, one in made.items() if one.changed][:1] == [135]
    assert hands.have["a"] > 5.0


def test_what_is_recorded_after_the_step_is_read_before_what_was_there(tmp_path: Path) -> None:
    hands, wish = Hands({"a": 3.0}), {"a": 3.0}
    loop = paced(hands, wish, tmp_path)
    times = [START, START + 15, START + 15 - HOUR, START + 30 - HOUR, START + 30]
    for at in times:
        loop.tick(at)
    loop.close()
    assert [record.at for record in read_ledger(tmp_path)] == times
    assert len(ledger_files(tmp_path)) == 2
    (*_, newest) = ledger_files(tmp_path)
    head = next(iter(read_ledger(newest)))
    assert head.at == START + 15 - HOUR
    assert head.states is not None
    after = paced(hands, wish, tmp_path)  # and a later process, before the clock has caught up
    resume(after, tmp_path)
    after.tick(START + 45 - HOUR)
    after.close()
    assert [record.at for record in read_ledger(tmp_path)] == [*times, START + 45 - HOUR]


def test_windows_are_of_two_clocks(tmp_path: Path) -> None:
    """Entries from after the step would share a window with those of an hour ahead."""
    plant = Plant(lambda _: 20.0, replicas=3, start=1_800_000_000.0)
    loop = build(plant, ledger=book(tmp_path))
    drive(loop, plant, 900)
    assert loop.parts.meter.pools["llm"].history.filled_since is not None
    plant.now -= HOUR
    plant.since = None  # as sources do
    for replica in plant.replicas:
        replica.ready_at -= HOUR
    (first,) = drive(loop, plant, 15)
    history = loop.parts.meter.pools["llm"].history
    assert all(entry.at <= first.snapshot.tick.at for entry in history.entries)
    assert first.snapshot.tick.since_last is None
    results = drive(loop, plant, 600)
    loop.close()
    there = first.plan.decisions[0].current
    assert all(one.plan.decisions[0].current == there for one in results[:4]), "nothing falls on windows that are new"
    assert loop.learned["llm"].replica.samples > 10, "what was learned stays"
    guard = loop.state.guards[Target("llm", Lever.REPLICAS)]
    assert all(at <= results[-1].snapshot.tick.at for at, _ in (*guard.wishes, *guard.changes))


def test_a_step_moves_moments_and_no_other_number() -> None:
    now = 1_800_000_000.0
    plain = {
        "at": now, "before": [[now - 90.0, 4.0], [now - 86_400.0, 0.5]], "none": None, "is": True, "why": "x",
        "tokens": 5e10, "rate": 3.0, "far": now - 400 * 86_400.0,
    }  # fmt: skip
    assert earlier(plain, 60.0, now) == {
        **plain, "at": now - 60.0, "before": [[now - 150.0, 4.0], [now - 86_460.0, 0.5]]
    }  # fmt: skip
    assert earlier({"at": 900.0}, 60.0, 1000.0) == {"at": 900.0}, "a clock that begins at nothing is none of a wall"
