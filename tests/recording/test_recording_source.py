"""A recording as a source: any ticking tells the same story, and a hole in it is told and not smoothed over."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from controller import registry
from controller.core.facts import Fact
from controller.core.observation import Observation
from controller.core.ports import PoolNeeds
from sources.frames import Layout
from sources.import_exposition import import_exposition
from sources.recording import RecordingConfig, RecordingSource
from sources.recording_file import Header, RecordingError, RecordingWriter
from tests.support.repository import ROOT
from tests.support.streams import needs, samples, shared

EXAMPLE = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"
TARGET = {"job": "vllm", "instance": "vllm-0:8000", "namespace": "demo", "pod": "vllm-0"}
TINY = needs(model_name="tiny-llama-random")
UP = 'up{job="j",instance="a"} 1;'


def source(path: Path, need: PoolNeeds | None = None, *, damaged: bool = False) -> RecordingSource:
    return RecordingSource(RecordingConfig(str(path), damaged), [need or needs()])


def recorded(tmp_path: Path, counts: Mapping[float, float]) -> Path:
    path, layout = tmp_path / "r.jsonl.gz", Layout()
    with RecordingWriter(path, Header("series", 15.0)) as writer:
        for at, value in counts.items():
            text = UP + f'vllm:generation_tokens_total{{job="j",instance="a",pod="a",model_name="m"}} {value}'
            writer.write(layout.frame(at, samples(text)))
    return path


def tokens(seen: Observation) -> float | None:
    return seen.pools["p"].counters.get(Fact.GENERATION_TOKENS)


def test_it_is_found_by_its_entry_point() -> None:
    assert registry.source("recording") is RecordingSource


def test_a_tick_that_spans_several_frames_gets_all_their_increments(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {0: 0, 15: 10, 30: 5, 45: 6, 60: 8}))
    assert eyes.times() == (0, 15, 30, 45, 60)
    assert eyes.observe(0, 1).since is None
    # 10 before the process restarted and 5 after it, which a look at both ends alone would not see.
    coarse = eyes.observe(30, 1)
    assert (coarse.since, tokens(coarse)) == (0, 15)
    assert tokens(eyes.observe(60, 1)) == 3


def test_ticks_between_frames_hold_the_newest_one_with_its_age(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {0: 0, 15: 10, 30: 25}))
    eyes.observe(0, 1)
    seen = [eyes.observe(at, 1) for at in (15, 20, 25, 32)]
    assert [tokens(one) for one in seen] == [10, 0, 0, 15]
    assert [one.since for one in seen] == [0, 15, 20, 25]
    assert [one.pools["p"].replicas["a"].age for one in seen] == [0, 5, 10, 2]


def test_a_hole_is_an_error_and_what_was_counted_meanwhile_comes_after_it_over_its_whole_time(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {0: 0, 15: 10, 105: 100}))
    eyes.observe(0, 1)
    eyes.observe(15, 1)
    hole = eyes.observe(75, 1)
    assert not hole.pools
    assert "no sample since 15.000, 60.0 s ago" in hole.error
    assert "the next is at 105.000" in hole.error
    after = eyes.observe(105, 1)
    assert (after.since, tokens(after)) == (15, 90)  # 1 a second, as before the hole: no jump


def test_one_missing_frame_does_not_crowd_what_was_counted_into_half_of_its_time(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {0: 0, 15: 15, 45: 45, 60: 60}))
    seen = [eyes.observe(at, 1) for at in (0, 15, 30, 45, 60)]
    assert [bool(one.error) for one in seen] == [False, False, True, False, False]
    assert [(one.since, tokens(one)) for one in seen[3:]] == [(15, 30), (45, 15)]


def test_after_the_end_it_says_that_the_recording_ended(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {0: 0, 15: 10}))
    assert not eyes.observe(15, 1).error
    assert "it ended" in eyes.observe(600, 1).error


def test_before_the_beginning_it_says_when_the_recording_begins(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {100: 0, 115: 10}))
    assert "nothing recorded before 50.000; it begins at 100.000" in eyes.observe(50, 1).error
    assert eyes.observe(100, 1).since is None


def test_a_recording_without_frames_says_so(tmp_path: Path) -> None:
    assert "it has no frames" in source(recorded(tmp_path, {})).observe(0, 1).error


def test_going_backwards_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {0: 0, 15: 10, 30: 25}))
    eyes.observe(0, 1)
    eyes.observe(15, 1)
    assert "runs forward only" in eyes.observe(15, 1).error
    assert tokens(eyes.observe(30, 1)) == 15


def test_a_selector_that_fits_nothing_names_the_labels_that_are_there(tmp_path: Path) -> None:
    seen = source(recorded(tmp_path, {0: 0}), needs(model_name="other")).observe(0, 1)
    assert "matches the selector of any pool" in seen.error
    assert "model_name='m'" in seen.error


def test_damage_is_told_at_the_tick_that_reaches_it(tmp_path: Path) -> None:
    path = recorded(tmp_path, {float(at): at for at in range(0, 15000, 15)})
    path.write_bytes(path.read_bytes()[:-100])
    eyes = source(path)
    assert not eyes.observe(0, 1).error
    assert "damaged in line" in eyes.observe(15000, 1).error
    with pytest.raises(RecordingError):
        eyes.times()
    assert len(source(path, damaged=True).times()) > 100


def test_closing_it_in_the_middle_leaves_no_open_file(tmp_path: Path) -> None:
    eyes = source(recorded(tmp_path, {0: 0, 15: 10}))
    eyes.observe(0, 1)
    eyes.close()


def test_the_shipped_copy_of_the_real_recording_tells_what_the_original_tells(tmp_path: Path) -> None:
    original = shared("metrics/vllm-0.32.0-cpu_recording_1s.txt.gz")
    whole = tmp_path / "whole.jsonl.gz"
    import_exposition(original, whole, extra=TARGET, everything=True)
    copy, full = source(EXAMPLE, TINY), source(whole, TINY)
    assert copy.times() == full.times()
    assert len(copy.times()) == 244
    assert EXAMPLE.stat().st_size < 300_000
    for at in full.times():
        assert copy.observe(at, 1) == full.observe(at, 1)


def test_sixteen_clients_left_and_nothing_else_is_unaccounted_for() -> None:
    """The truth of the shipped recording: 78 answers of the HTTP layer, 62 finished requests, 16 clients that left."""
    eyes = source(EXAMPLE, TINY)
    seen = [eyes.observe(at, 1) for at in eyes.times()]
    counters = [one.pools["p"].counters for one in seen]
    assert not any(one.error for one in seen)
    assert sum(one.get(Fact.RESPONSES, 0) for one in counters) == 78
    assert sum(one.get(Fact.FINISHED, 0) for one in counters) == 62
    assert sum(one.pools["p"].histograms[Fact.TTFT].count for one in seen[1:]) == 66
    assert max(one.pools["p"].gauges[Fact.WAITING] for one in seen) == 43


def test_any_ticking_of_the_real_recording_gives_the_same_sums() -> None:
    times = source(EXAMPLE, TINY).times()

    def sums(ticks: tuple[float, ...]) -> list[float]:
        eyes = source(EXAMPLE, TINY)
        seen = [eyes.observe(at, 1) for at in ticks]
        rows = [
            [*one.pools["p"].counters.values(), *(h.count for h in one.pools["p"].histograms.values())]
            for one in seen[1:]
        ]
        facts = [
            {**one.pools["p"].counters, **{fact: h.count for fact, h in one.pools["p"].histograms.items()}}
            for one in seen
        ]
        assert all(value >= 0 for row in rows for value in row)
        return [sum(one.get(fact, 0.0) for one in facts) for fact in Fact]

    fine = sums(times)
    for every in (2, 5, 15, 60):
        assert sums((*times[:-1:every], times[-1])) == fine
