"""Tables become recordings of facts. The numbers that come out are those of the rows, worked out again here by hand."""

import csv
import gzip
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from controller import registry
from controller.core.facts import Fact
from controller.core.observation import HistogramIncrement, Observation
from controller.core.ports import PoolNeeds
from sources.csv_mapping import MappingError
from sources.imported import Imported, ImportFailed
from sources.recording import RecordingConfig, RecordingSource
from tests.support.repository import ROOT
from tests.support.streams import needs, shared

MAPPINGS = ROOT / "examples" / "import"
LLAMA = needs(model_name="llama-3.1-8b")
HEADER = "format: governor-import\nversion: 1\ntables:\n"
TABLE = HEADER + "  - time: {column: t}\n    labels: {model_name: m}\n    facts:\n"


def convert(csvs: Sequence[Path], mapping: Path, out: Path, **options: str) -> tuple[Imported, ...]:
    done: tuple[Imported, ...] = registry.tool("import-csv")(csvs, mapping, out, **options)
    return done


def table(tmp_path: Path, text: str, mapping: str) -> list[Observation]:
    """The observations of a small table, one per row."""
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "m.yaml").write_text(mapping)
    (done,) = convert([tmp_path / "t.csv"], tmp_path / "m.yaml", tmp_path / "r.jsonl.gz")
    return list(observations(done.path))


def observations(path: Path, need: PoolNeeds | None = None) -> Iterator[Observation]:
    eyes = RecordingSource(RecordingConfig(str(path)), [need or needs()])
    for at in eyes.times():
        yield eyes.observe(at, 1)
    eyes.close()


def rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as text:
        return list(csv.DictReader(text))


def test_a_rate_becomes_the_events_of_the_time_that_passed(tmp_path: Path) -> None:
    seen = table(
        tmp_path, "t,rpm\n0,600\n30,60\n90,120\n", TABLE + "      finished: {column: rpm, kind: rate, per: 60}\n"
    )
    assert [one.pools["p"].counters.get(Fact.FINISHED) for one in seen] == [None, 30, 120]


def test_a_mean_with_its_count_keeps_both_and_has_no_buckets(tmp_path: Path) -> None:
    mapping = TABLE + '      ttft: {column: ms, kind: mean, scale: 0.001, "null": [0], count: {column: rps}}\n'
    seen = table(tmp_path, "t,ms,rps\n0,0,0\n10,250,2\n20,0,3\n30,,4\n", mapping)
    means = [one.pools["p"].histograms[Fact.TTFT] for one in seen[1:]]
    assert means[0] == HistogramIncrement((), (), 20, 5)
    # 0 ms and an empty cell are not fast answers; nothing was measured.
    assert [(mean.count, mean.sum) for mean in means[1:]] == [(0, 0), (0, 0)]


def test_a_blank_cell_of_a_counter_is_not_a_restart(tmp_path: Path) -> None:
    seen = table(tmp_path, "t,n\n0,100\n15,\n30,130\n45,5\n", TABLE + "      finished: {column: n, kind: counter}\n")
    assert [one.pools["p"].counters.get(Fact.FINISHED) for one in seen] == [None, 0, 30, 5]


def test_a_blank_cell_of_a_gauge_is_absent_and_not_zero(tmp_path: Path) -> None:
    seen = table(
        tmp_path, "t,q,k\n0,5,0\n15,,0\n30,0,0\n", TABLE + "      waiting: {column: q}\n      kv_usage: {column: k}\n"
    )
    assert [one.pools["p"].gauges.get(Fact.WAITING) for one in seen] == [5, None, 0]


def test_what_a_table_does_not_hold_is_unsupported_and_the_rest_names_its_column(tmp_path: Path) -> None:
    pool = table(tmp_path, "t,q\n0,5\n", TABLE + "      waiting: {column: q}\n")[0].pools["p"]
    assert pool.sources == {Fact.WAITING: "q"}
    assert pool.unsupported[Fact.TTFT] == "not in this recording"


def test_the_wva_recordings_come_out_as_they_are_in_their_tables(tmp_path: Path) -> None:
    """All 33 runs: means, completions, queue, KV and replicas of every row; per-pod values of every pod."""
    pools, pods = (shared(f"recordings/wva_llama31_8b_h100_{name}.csv.gz") for name in ("autoscaling", "pods"))
    done = convert([pools, pods], MAPPINGS / "wva.yaml", tmp_path)
    assert len(done) == 33
    by_pod = rows(pods)
    checked = 0
    for one in done:
        own = _distinct([row for row in rows(pools) if row["experiment"] == one.group])
        seen = list(observations(one.path, LLAMA))
        assert len(own) == len(seen) == one.frames
        for before, row, observation in zip([None, *own], own, seen, strict=False):
            _same(before, row, observation)
            mine = {
                r["pod"]: float(r["queue_len"])
                for r in by_pod
                if (r["experiment"], r["ts_utc"]) == (one.group, row["ts_utc"])
            }
            replicas = observation.pools["p"].replicas
            assert {name: facts.gauges[Fact.WAITING] for name, facts in replicas.items()} == mine
            checked += 1
    assert checked == 986 - 103


def _distinct(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Without the repetitions: in four runs each sample was written twice, some hundredths of a second apart."""
    kept: list[dict[str, str]] = []
    for row in rows:
        now = datetime.fromisoformat(row["ts_utc"])
        if not kept or (now - datetime.fromisoformat(kept[-1]["ts_utc"])).total_seconds() >= 5:
            kept.append(row)
    return kept


def _same(before: dict[str, str] | None, row: dict[str, str], observation: Observation) -> None:
    assert not observation.error
    pool = observation.pools["p"]
    assert pool.late >= {
        Fact.FINISHED,
        Fact.GENERATION_TOKENS,
    }  # completions times their mean length: no sign of progress
    assert pool.gauges[Fact.READY_REPLICAS] == float(row["pods_seen"])
    assert pool.gauges[Fact.WANTED_REPLICAS] == float(row["replicas_ready"])
    if row["queue_len_sum"]:
        assert pool.gauges[Fact.WAITING] == float(row["queue_len_sum"])
        assert pool.gauges[Fact.KV_USAGE] == float(row["kv_usage_mean"])
    if before is not None and observation.since is not None:
        passed = observation.at - observation.since
        rate, ttft = float(row["arrival_rpm"]), pool.histograms[Fact.TTFT]
        assert pool.counters[Fact.FINISHED] == pytest.approx(rate * passed / 60, abs=1e-6)
        if rate and float(row["ttft_ms"]):
            assert ttft.sum / ttft.count == pytest.approx(float(row["ttft_ms"]) / 1000, rel=1e-6)
        else:
            assert ttft.count == pytest.approx(0, abs=1e-9)


def test_a_kubernetes_quantity_that_lost_its_letter_is_sixty_and_not_sixty_thousand(tmp_path: Path) -> None:
    done = convert([shared("recordings/hpa_llama31_8b_h100_autoscaling.csv.gz")], MAPPINGS / "hpa.yaml", tmp_path)
    assert len(done) == 3
    seen = [one.pools["p"] for run in done for one in observations(run.path, LLAMA)]
    waiting = [pool.gauges[Fact.WAITING] for pool in seen]
    assert len(waiting) == 140
    assert 60.25 in waiting
    assert max(waiting) == 510
    assert all(Fact.TTFT in pool.unsupported for pool in seen)  # its column holds 0.00, which nobody measured


def test_the_twelve_one_hertz_runs_tell_tick_by_tick_what_their_tables_say(tmp_path: Path) -> None:
    source = shared("recordings/inferencex_vllm_server_metrics_1hz.csv.gz")
    done = convert([source], MAPPINGS / "inferencex.yaml", tmp_path)
    by_run: dict[str, list[dict[str, str]]] = {}
    for row in rows(source):
        by_run.setdefault(row["run"], []).append(row)
    assert {one.group for one in done} == set(by_run)
    full = 0
    for one in done:
        own = by_run[one.group]
        last: dict[str, str] | None = None
        for row, seen in zip(own, observations(one.path, needs(model_name="llama-3.3-70b")), strict=True):
            pool = seen.pools["p"]
            assert pool.gauges[Fact.KV_USAGE] == pytest.approx(float(row["kv_cache_usage_pct"]) / 100)
            assert pool.gauges[Fact.WAITING] == float(row["num_requests_waiting"])
            assert pool.gauges[Fact.RUNNING] == float(row["num_requests_running"])
            if last is not None:
                preempted = float(row["num_preemptions_total"]) - float(last["num_preemptions_total"])
                assert pool.counters[Fact.PREEMPTIONS] == preempted
            last = row
        full += any(float(row["kv_cache_usage_pct"]) >= 100 for row in own)
    assert full == 4


def test_a_sample_that_was_written_twice_is_taken_once_and_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t,q\n0,1\n0.02,1\n60,2\n60.03,2\n")
    (tmp_path / "m.yaml").write_text("apart: 5\n" + TABLE + "      waiting: {column: q}\n")
    (one,) = convert([tmp_path / "t.csv"], tmp_path / "m.yaml", tmp_path / "r.gz")
    assert (one.frames, one.interval, one.notes) == (
        2,
        60,
        ("2 rows less than 5 s after the one before were left out",),
    )


def test_one_group_alone_goes_into_one_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t,run,q\n0,a/1,1\n0,b/2,2\n15,a/1,3\n")
    (tmp_path / "m.yaml").write_text(TABLE.replace("labels", "group: run\n    labels") + "      waiting: {column: q}\n")
    (one,) = convert([tmp_path / "t.csv"], tmp_path / "m.yaml", tmp_path / "one.gz", group="a/1")
    assert (one.path, one.group, one.frames) == (tmp_path / "one.gz", "a/1", 2)
    both = convert([tmp_path / "t.csv"], tmp_path / "m.yaml", tmp_path / "runs")
    assert [run.path.name for run in both] == ["a_1.jsonl.gz", "b_2.jsonl.gz"]
    with pytest.raises(ImportFailed, match=r"has no rows with run = 'c'"):
        convert([tmp_path / "t.csv"], tmp_path / "m.yaml", tmp_path / "one.gz", group="c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column q, t; its columns are none, the file is empty"),
        ("t,queue\n0,1\n", "has no column q; its columns are t, queue"),
        ("t,q\n", "has no rows"),
        ("t,q\nsoon,1\n", "line 2, column t: 'soon' is neither seconds nor an ISO 8601 time"),
        ("t,q\n0,1\n15,many\n", "line 3, column q: 'many' is not a number"),
        ("t,q\n15,1\n0,1\n", "line 3: is not later than the row before it; name a `group` or `replica` column"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        table(tmp_path, text, TABLE + "      waiting: {column: q}\n")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("", "the file: must be a mapping"),
        ("format: other\n", "it must begin with `format: governor-import` and `version: 1`"),
        ("format: governor-import\nversion: 1\n", "it names no tables"),
        (HEADER + "  - time: {column: t}\n", r"tables\[0\].facts: must be a mapping"),
        (HEADER + "  - facts: {waiting: {column: q}}\n", r"tables\[0\].time: must be a mapping"),
        (TABLE + "      queue: {column: q}\n", r"tables\[0\].facts.queue: there is no such fact; there are aborted,"),
        (TABLE + "      waiting: {columns: q}\n", "facts.waiting: unknown key columns; known are column,"),
        (TABLE + "      waiting: {column: q, kind: rate}\n", "a gauge is read from gauge, not from 'rate'"),
        (TABLE + "      ttft: {column: q, kind: mean}\n", "a mean needs the `count` of what it is the mean of"),
        (TABLE + "      waiting: {column: q, scale: big}\n", "facts.waiting.scale: must be a number, not 'big'"),
        (TABLE + "      finished: {column: q, per: 0}\n", "facts.finished.per: must be seconds above 0"),
        (TABLE + "      waiting: {column: q, null: [0]}\n", 'write "null" in quotes'),
        (TABLE + "      waiting: [\n", "while parsing"),
    ],
)
def test_a_mapping_that_is_wrong_is_refused_with_its_place(tmp_path: Path, mapping: str, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        table(tmp_path, "t,q\n0,1\n", mapping)


def test_each_table_of_the_mapping_wants_its_file(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="maps 2 tables and 1 CSV files were given"):
        convert([tmp_path / "a.csv"], MAPPINGS / "wva.yaml", tmp_path)
