"""Exposition text becomes a recording: every scrape counts, an empty one too, and nothing is guessed."""

import gzip
from pathlib import Path

import pytest

from controller import registry
from controller.core.facts import Fact
from sources.import_exposition import import_exposition
from sources.imported import Imported, ImportFailed
from sources.recording import RecordingConfig, RecordingSource
from sources.recording_file import Recording
from tests.support.streams import needs

SCRAPES = """\
# SCRAPE 100
# HELP vllm:num_requests_running something
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1.0
vllm:generation_tokens_total{engine="0",model_name="m"} 10.0
python_gc_objects_collected_total{generation="0"} 5.0
# SCRAPE 115.5
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:generation_tokens_total{engine="0",model_name="m"} 30.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
"""


def convert(tmp_path: Path, text: str, **options: object) -> tuple[Imported, Recording]:
    source = tmp_path / "scrapes.txt"
    source.write_text(text)
    done: Imported = registry.tool("import-exposition")(source, tmp_path / "r.jsonl.gz", **options)
    return done, Recording(done.path)


def names(recording: Recording) -> list[set[str]]:
    return [{sample.name for sample in frame.samples()} for frame in recording.frames()]


def test_each_scrape_becomes_a_frame_with_the_families_that_facts_are_read_from(tmp_path: Path) -> None:
    done, recording = convert(tmp_path, SCRAPES, extra={"job": "j", "instance": "i", "pod": "x"})
    assert (done.frames, done.start, done.end, done.interval, done.notes) == (2, 100, 115.5, 15.5, ())
    assert recording.header.engines == ("vllm",)
    assert names(recording)[0] == {"up", "vllm:num_requests_running", "vllm:generation_tokens_total"}
    first = next(iter(recording.frames()))
    assert all(dict(sample.labels)["job"] == "j" for sample in first.samples())


def test_a_series_born_between_two_scrapes_starts_at_zero_for_a_scrape_proves_its_target_up(tmp_path: Path) -> None:
    convert(tmp_path, SCRAPES)
    eyes = RecordingSource(RecordingConfig(str(tmp_path / "r.jsonl.gz")), [needs()])
    eyes.observe(100, 1)
    assert eyes.observe(115.5, 1).pools["p"].counters[Fact.FINISHED] == 3


def test_an_empty_scrape_is_a_target_that_was_down_and_loses_nothing_afterwards(tmp_path: Path) -> None:
    text = SCRAPES + "# SCRAPE 131\n" + SCRAPES.split("\n", 1)[1].replace("# SCRAPE 115.5", "# SCRAPE 162")
    text = text.replace("# SCRAPE 131\n# HELP", "# SCRAPE 131\n# SCRAPE 146.5\n# HELP")
    done, recording = convert(tmp_path, text)
    assert done.frames == 5
    health = [sample.value for frame in recording.frames() for sample in frame.samples() if sample.name == "up"]
    assert health == [1, 1, 0, 1, 1]


def test_health_that_the_text_tells_itself_is_believed(tmp_path: Path) -> None:
    _, recording = convert(tmp_path, "# SCRAPE 100\nup 0\nvllm:num_requests_running 1\n")
    assert [s.value for s in next(iter(recording.frames())).samples() if s.name == "up"] == [0]


@pytest.mark.parametrize("unit", [1, 1000])
def test_times_behind_the_samples_are_read_in_seconds_and_milliseconds(tmp_path: Path, unit: int) -> None:
    rows = [
        f'vllm:num_requests_running{{model_name="m"}} {value} {at * unit}'
        for value, at in ((1, 1795963558), (2, 1795963573))
    ]
    rows.append(f"vllm:num_preemptions_total 7 {1795963573 * unit} # {{}} 1 2")
    done, recording = convert(tmp_path, "\n".join((*rows, "# EOF", "")))
    assert recording.times() == (1795963558, 1795963573)
    assert names(recording)[1] == {"up", "vllm:num_requests_running", "vllm:num_preemptions_total"}
    assert done.interval == 15


def test_labels_of_the_scrape_job_win_and_the_exposed_ones_are_kept_beside_them(tmp_path: Path) -> None:
    _, recording = convert(tmp_path, '# SCRAPE 1\nvllm:num_requests_running{pod="own"} 1\n', extra={"pod": "job"})
    sample = next(s for s in next(iter(recording.frames())).samples() if s.name != "up")
    assert dict(sample.labels) == {"pod": "job", "exported_pod": "own"}


def test_a_file_cut_off_in_a_scrape_loses_that_scrape_and_says_so(tmp_path: Path) -> None:
    # Half a scrape would look as if the other half of the series had vanished.
    done, _ = convert(tmp_path, SCRAPES[:-20])
    assert (done.frames, done.notes) == (1, ("the file is cut off, so its last scrape was left out",))


def test_an_engine_that_nobody_knows_is_kept_whole_and_said(tmp_path: Path) -> None:
    done, recording = convert(tmp_path, "# SCRAPE 1\nmine_total 1\n")
    assert done.notes == ("no known engine proved itself, so everything was kept",)
    assert names(recording) == [{"up", "mine_total"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no scrape with a time; put a line `# SCRAPE <unix seconds>` before each"),
        ("vllm:num_requests_running 1\n", "holds no scrape with a time"),
        ("# SCRAPE noon\nvllm:num_requests_running 1\n", r"line 1: 'noon' is not a time in unix seconds"),
        ("# SCRAPE nan\nvllm:num_requests_running 1\n", r"line 1: 'nan' is not a time in unix seconds"),
        ("# SCRAPE 1\nvllm:num_requests_running 1\n# SCRAPE 2\n}}garbage\n", "begins in line 4: line 1: not a sample"),
    ],
)
def test_text_that_is_no_recording_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        convert(tmp_path, text)


def test_an_unknown_engine_a_missing_file_and_a_truncated_archive_are_named(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="no metric contract for engine 'nope'"):
        convert(tmp_path, SCRAPES, engine="nope")
    with pytest.raises(ImportFailed, match=r"none\.txt: cannot be read"):
        import_exposition(tmp_path / "none.txt", tmp_path / "r.jsonl.gz")
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(SCRAPES.encode())[:-9])
    with pytest.raises(ImportFailed, match=r"cut\.txt\.gz: cannot be read"):
        import_exposition(cut, tmp_path / "r.jsonl.gz")
