"""A recording is written once and read for years: exact, readable without Governor, and honest about damage."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.errors import InputError
from sources.frames import Frame, Layout, Sample
from sources.recording_file import Header, Recording, RecordingError, RecordingWriter

HEADER = Header("series", 15.0, source="test", comment="made up", engines=("vllm",))
names = st.sampled_from(["up", "a_total", "b"])
label_sets = st.sampled_from([(), (("pod", "x"),), (("pod", 'quote " and \n line'), ("zone", "ü"))])
scrapes = st.lists(
    st.dictionaries(st.tuples(names, label_sets), st.floats(allow_nan=False, allow_infinity=False), max_size=9),
    min_size=1,
    max_size=8,
)


def write(path: Path, *frames: dict[str, float]) -> Path:
    layout = Layout()
    with RecordingWriter(path, HEADER) as writer:
        for number, values in enumerate(frames):
            writer.write(layout.frame(15.0 * number, (Sample(name, (), value) for name, value in values.items())))
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "r.jsonl.gz", *({"a": float(n), "b": 0.1 * n} for n in range(200)))


@given(scrapes)
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, contents: list[dict[tuple[str, tuple[tuple[str, str], ...]], float]]
) -> None:
    path = tmp_path_factory.mktemp("r") / "r.jsonl.gz"
    layout = Layout()
    with RecordingWriter(path, HEADER) as writer:
        for number, content in enumerate(contents):
            rows = (Sample(name, pairs, value) for (name, pairs), value in content.items())
            writer.write(layout.frame(number / 7, rows))
    recording = Recording(path)
    assert recording.header == HEADER
    assert recording.times() == tuple(number / 7 for number in range(len(contents)))
    read = [{(s.name, s.labels): s.value for s in frame.samples()} for frame in recording.frames()]
    assert read == contents


def test_a_vanished_series_is_gone_and_not_frozen_at_its_last_value(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl.gz", {"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 2})
    assert [[s.name for s in frame.samples()] for frame in Recording(path).frames()] == [["a", "b"], ["a"], ["a", "b"]]


def test_zcat_shows_json_lines_and_unchanged_values_cost_nothing(tmp_path: Path) -> None:
    lines = gzip.decompress(
        write(tmp_path / "r.jsonl.gz", {"a": 1, "b": 2}, {"a": 1, "b": 3}).read_bytes()
    ).splitlines()
    assert json.loads(lines[0])["format"] == "governor-recording"
    assert json.loads(lines[2]) == {"t": 15, "set": [[1], [3]]}


def test_the_same_frames_make_the_same_bytes(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.gz", {"a": 1}), write(tmp_path / "two.gz", {"a": 1})
    assert one.read_bytes() == two.read_bytes()


def test_a_file_that_somebody_unpacked_is_read_all_the_same(good: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(gzip.decompress(good.read_bytes()))
    assert len(list(Recording(plain).frames())) == 200


def test_a_writer_that_fails_leaves_no_file_behind(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    frame = Layout().frame(15.0, ())

    def write_twice() -> None:
        with RecordingWriter(path, HEADER) as writer:
            writer.write(frame)
            writer.write(frame)

    with pytest.raises(ValueError, match="not newer"):
        write_twice()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_fails_leaves_the_old_recording_as_it_was(good: Path) -> None:
    before = good.read_bytes()
    with pytest.raises(RuntimeError), RecordingWriter(good, HEADER):
        raise RuntimeError("the disk is full")
    assert good.read_bytes() == before


def test_a_truncated_file_is_refused_with_the_place_and_read_up_to_the_damage_when_asked(good: Path) -> None:
    whole = [frame.values[0] for frame in Recording(good).frames()]
    good.write_bytes(good.read_bytes()[:-200])
    with pytest.raises(RecordingError, match=r"damaged in line \d+ .* good frames; .*damaged: true"):
        list(Recording(good).frames())
    with pytest.raises(RecordingError, match="damaged in line"):
        Recording(good).times()
    partial = Recording(good, damaged=True)
    read = [frame.values[0] for frame in partial.frames()]
    assert 0 < len(read) < 200
    assert read == whole[: len(read)]
    assert len(partial.times()) == len(read)


def line(number: int, text: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[:number], text, *lines[number + 1 :]]


@pytest.mark.parametrize(
    "break_it",
    [
        line(5, "{not json"),
        line(5, "[1, 2]"),
        line(5, '{"set": [[0], [1]]}'),
        line(5, '{"t": 60, "set": [[0, 1], [1]]}'),
        line(5, '{"t": 60, "set": [[99], [1]]}'),
        line(5, '{"t": 60, "set": [[-1], [1]]}'),
        line(5, '{"t": 60, "set": [[0], ["x"]]}'),
        line(5, '{"t": 60, "set": [[0], [Infinity]]}'),
        line(5, '{"t": 60, "gone": [99]}'),
        line(5, '{"t": 1, "set": [[0], [1]]}'),
        line(5, '{"t": 60, "new": [["x", ["pod"]]]}'),
    ],
)
def test_a_damaged_line_is_named(good: Path, break_it: Callable[[list[str]], list[str]]) -> None:
    lines = gzip.decompress(good.read_bytes()).decode().splitlines()
    good.write_bytes(gzip.compress("\n".join((*break_it(lines), "")).encode()))
    with pytest.raises(RecordingError, match=r"r\.jsonl\.gz: damaged in line 6 .*after 4 good frames"):
        list(Recording(good).frames())
    with pytest.raises(RecordingError, match=r"r\.jsonl\.gz: damaged in line 6 .*after 4 good frames"):
        Recording(good).times()  # what is asked first: nobody begins a rehearsal that ends in the middle
    assert len(list(Recording(good, damaged=True).frames())) == 4
    assert len(Recording(good, damaged=True).times()) == 4


def test_a_series_that_was_never_declared_is_told_without_python(good: Path) -> None:
    lines = gzip.decompress(good.read_bytes()).decode().splitlines()
    lines[5] = '{"t": 75, "set": [[99], [1]]}'
    good.write_bytes(gzip.compress("\n".join((*lines, "")).encode()))
    with pytest.raises(RecordingError, match=r"damaged in line 6 \(series 99 was never declared\)"):
        Recording(good).times()


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl.gz"
    for content in (b"", gzip.compress(b"")):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match=r"empty\.jsonl\.gz: is empty; record or import it again"):
            Recording(path)


def test_a_recording_cut_inside_its_header_is_refused_even_when_damage_is_allowed(good: Path) -> None:
    good.write_bytes(good.read_bytes()[:20])
    with pytest.raises(RecordingError, match="damaged in its first line"):
        Recording(good, damaged=True)


@pytest.mark.parametrize("content", [b"vllm:num_requests_running 1\n", b'{"hello": 1}\n', b"[]\n", b"\xff\xfe\n"])
def test_another_file_is_told_from_a_recording(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="is not a recording of Governor; `governor import` makes one"):
        Recording(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has version 2 of the format and this Governor reads version 1"),
        ({"kind": "pictures"}, "its kind is 'pictures', neither series nor facts"),
        ({"interval": 0}, "its interval 0 is not a number of seconds above 0"),
        ({"interval": "15s"}, "its interval '15s' is not a number of seconds above 0"),
    ],
)
def test_a_header_that_this_version_cannot_read_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    header = {"format": "governor-recording", "version": 1, "kind": "series", "interval": 15, **change}
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(RecordingError, match=message):
        Recording(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.gz: cannot be read: No such file"):
        Recording(tmp_path / "none.gz")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        Recording(tmp_path)


def test_a_frame_keeps_its_values_when_later_frames_come(good: Path) -> None:
    frames: list[Frame] = list(Recording(good).frames())
    assert np.array_equal(frames[0].values, [0.0, 0.0])
    assert frames[199].values[0] == 199
