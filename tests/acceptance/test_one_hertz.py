"""Done when 4: twelve real one-second runs of vLLM, read tick by tick, and again with faults put in.

The increments that a source makes of such faults are tested in tests/recording; here the question is what a person or a
policy is told: the state and value of each reading.
"""

import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from controller.core.meter import Meter, PoolSpec
from controller.core.model import PoolReadings
from controller.core.reading import State
from controller.core.signals import Signal
from sources.frames import Frame, Layout, Sample
from sources.import_csv import import_csv
from sources.recording import RecordingConfig, RecordingSource
from sources.recording_file import Recording, RecordingWriter
from tests.support.repository import ROOT
from tests.support.streams import needs, shared

WINDOW = 10.0
NEED = needs(model_name="llama-3.3-70b")
GAUGES = ("kv_cache_usage_pct", "num_requests_waiting", "num_requests_running")
COUNTERS = {
    "generation_tokens_total": Signal.GENERATION_TOKEN_RATE,
    "prompt_tokens_total": Signal.PROMPT_TOKEN_RATE,
    "request_success_total": Signal.FINISHED_RATE,
    "num_preemptions_total": Signal.PREEMPTIONS,
}

Seen = list[tuple[float, PoolReadings]]


class Run:
    """One run: its recording, and its rows as columns."""

    def __init__(self, path: Path, rows: Sequence[Mapping[str, str]]) -> None:
        self.path = path
        self.at = np.array(Recording(path).times())
        self.columns = {name: np.array([float(row[name]) for row in rows]) for name in (*GAUGES, *COUNTERS)}
        self.gains = {name: np.diff(self.columns[name]) / np.diff(self.at) for name in COUNTERS}

    def row_at(self, at: float) -> int:
        return int(np.abs(self.at - at).argmin())

    def fastest(self, name: str, since: float, until: float) -> float:
        """The largest gain per second from row to row, of the rows that touch a span of time."""
        first, last = np.searchsorted(self.at, (since, until))
        return float(self.gains[name][max(first - 1, 0) : last].max())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    source = shared("recordings/inferencex_vllm_server_metrics_1hz.csv.gz")
    rows: dict[str, list[dict[str, str]]] = {}
    with gzip.open(source, "rt") as text:
        for row in csv.DictReader(text):
            rows.setdefault(row["run"], []).append(row)
    mapping = ROOT / "examples" / "import" / "inferencex.yaml"
    done = import_csv([source], mapping, tmp_path_factory.mktemp("one_hertz"))
    return [Run(one.path, rows[one.group]) for one in done]


def read(path: Path, times: Sequence[float]) -> Seen:
    source, meter = RecordingSource(RecordingConfig(str(path)), [NEED]), Meter([PoolSpec("p", WINDOW, stale_after=5.0)])
    seen = [(at, meter.update(source.observe(at, 1.0))["p"]) for at in times]
    source.close()
    return seen


def test_states_agree_with_the_tables_at_every_tick(runs: list[Run]) -> None:
    full = queued = preempted = 0
    for run in runs:
        kv, waiting, running = (run.columns[name] for name in GAUGES)
        preemptions = run.columns["num_preemptions_total"]
        for i, (at, seen) in enumerate(read(run.path, run.at.tolist())):
            for signal, value in (
                (Signal.KV_USAGE, kv[i] / 100),
                (Signal.KV_USAGE_MAX, kv[i] / 100),
                (Signal.QUEUE_DEPTH, waiting[i]),
                (Signal.RUNNING, running[i]),
            ):
                assert seen.get(signal).state is State.OK, (run.path.name, i, signal)
                assert seen.get(signal).value == pytest.approx(value), (run.path.name, i, signal)
            if i == 0:
                continue
            _queue_agrees(seen, waiting[i])
            counted = seen.get(Signal.PREEMPTIONS)
            assert counted.window is not None
            assert counted.window <= WINDOW + 1.1
            begin = run.row_at(at - counted.window)
            assert counted.value == preemptions[i] - preemptions[begin], (run.path.name, i)
            # Nobody recorded latency here, so nobody may be told one.
            assert seen.get(Signal.TTFT).state is State.UNSUPPORTED
            full += kv[i] >= 100
            queued += waiting[i] > 0
            preempted += bool(counted.value)
    assert len(runs) == 12
    assert full > 50
    assert min(queued, preempted) > 1000


def _queue_agrees(seen: PoolReadings, waiting: float) -> None:
    delay = seen.get(Signal.QUEUE_DELAY)
    if waiting <= 0:
        assert (delay.state, delay.value) == (State.OK, 0.0)
    elif delay.state is State.CENSORED:  # they wait, and nobody has left the queue
        assert delay.value is None
        assert delay.lo is not None
    else:
        assert delay.state is State.OK
        assert delay.value is not None
        assert delay.value > 0


def broken(frames: Iterator[Frame]) -> Iterator[Frame]:
    """The run with a process that restarts, a recorder that sleeps, scrapes that fail, and a pod that vanishes for
    forty seconds and returns with all that it had counted meanwhile; beside it a second pod that dies for good."""
    layout, base = Layout(), dict[str, float]()
    for number, frame in enumerate(frames):
        whole, beat = list(frame.samples()), number % 400
        if number % 250 == 150 or not base:
            base = {s.name: s.value for s in whole if s.name.endswith("_total")}
        own = [s._replace(value=s.value - base.get(s.name, 0.0)) for s in whole]
        if beat in range(40, 45):
            own = [s._replace(value=0.0) for s in own if s.name == "up"]
        elif beat in range(300, 340):
            own = []
        if beat not in {*range(80, 83), *range(200, 225)}:
            yield layout.frame(frame.at, own + (_second_pod(whole) if 20 <= number < 140 else []))


def _second_pod(whole: Sequence[Sample]) -> list[Sample]:
    """A replica that had counted for long when it is first seen, and counts nothing more."""
    moved = [s._replace(labels=tuple(sorted({**dict(s.labels), "instance": "other"}.items()))) for s in whole]
    return [s._replace(value=1.0 if s.name == "up" else 1e7 if s.name.endswith("_total") else 0.0) for s in moved]


def test_with_restarts_gaps_and_a_vanished_pod_no_rate_is_negative_or_jumps(runs: list[Run], tmp_path: Path) -> None:
    """A jump is a rate above the fastest of the unbroken run, row to row, in the time that the reading speaks of."""
    told = 0
    for run in runs:
        path, whole = tmp_path / run.path.name, Recording(run.path)
        with RecordingWriter(path, whole.header) as writer:
            for frame in broken(whole.frames()):
                writer.write(frame)
        for at, seen in read(path, run.at.tolist()):
            for name, signal in COUNTERS.items():
                reading = seen.get(signal)
                if reading.value is None:
                    continue
                assert reading.window is not None
                assert reading.value >= 0, (run.path.name, at, signal)
                rate = reading.value / reading.window if signal is Signal.PREEMPTIONS else reading.value
                # The newest sample may be older than the tick by what a missed scrape leaves standing.
                most = run.fastest(name, at - reading.window - 3, at)
                assert rate <= most * (1 + 1e-9), (run.path.name, at - run.at[0], signal, reading, most)
                told += 1
    assert told > 50_000
