"""Write docs/fidelity.md: how far the twin is from real engines whose logs and recordings are public.

make fidelity. Needs ../shared/data. The same numbers are asserted in tests/acceptance/test_fidelity.py.
"""

import csv
import gzip
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import collapse, recorded
from controller.config import load
from controller.core.errors import InputError
from controller.core.step_model import Profile
from controller.rehearse.intervals import read_intervals
from routing.model import Request
from simulator import library
from simulator.calibrate.log import RequestLog, read_log
from simulator.calibrate.recording import RecordingFit, calibrate_recording
from simulator.calibrate.replay import replay
from simulator.calibrate.requests import Calibration, calibrate_requests
from simulator.calibrate.score import Score, score
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from simulator.job import Job
from sources.import_csv import import_csv

PAGE = recorded.ROOT / "docs" / "fidelity.md"
LOG = recorded.RECORDINGS / "vllm019_llama31_8b_rtxpro6000_requests.csv.gz"
SERVER_METRICS = recorded.RECORDINGS / "inferencex_vllm_server_metrics_1hz.csv.gz"
BATCHED = 2048  # max_num_batched_tokens of the logged engine, from the table of its own metrics
PRIORS = ("", "llama-3.1-8b/h100/1/bf16")
USERS = (128, 256, 512)
SERVED = "llama-3.1-70b/b200/1/fp4"
PARTS = 10  # of the requests of a run, in order
SPREAD = {"prompt": 0.5, "answer": 0.6}  # coefficients of variation; the recordings have means only
TURNS = 5000  # requests of a run

HEAD = """\
# Fidelity

How far the twin is from real engines. This page is written by `make fidelity`; a test holds its numbers to what the
code gives. The public logs and recordings are not part of the repository. How to calibrate your own engine:
[calibrating.md](calibrating.md). Library coefficients against measured servers, one by one: [library.md](library.md).
"""

REQUESTS = """
## A request log of vLLM 0.19

Llama-3.1-8B on an RTX PRO 6000, 300 ShareGPT requests at about ten a second, 128 at a time; the others wait up
to 20 s. The coefficients are fitted to the times of the first 150 requests; all 300 are then simulated, and the
last 150 are scored: error of the mean and of the 99th percentile, and the median of the error of single requests.
Arrivals, prompts and answer lengths of all 300 are given to the twin, as they are to a real engine.
The GPU of the log was not in any prior. The command is `governor calibrate --requests LOG --max-batched-tokens 2048`,
with `--library` for a prior: 2048 is what the logged engine's own metrics show. With another budget the predictions
stay and single terms move.

| prior | TTFT mean | p99 | one | TPOT mean | p99 | one | E2E mean | p99 | one |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""

FITTED = """
What was fitted, in microseconds (d and e in nanoseconds), and what the log leaves open of a full step. Fits with other
priors agree in what they predict and less in single terms: here sequences and their contexts grow together, so that
the log knows c + d times the context better than either.

| prior | a | b | c | d | e | left open |
| --- | --- | --- | --- | --- | --- | --- |
"""

SATURATION = """
## When the KV cache is full

Llama-3.3-70B FP4 on one B200 with 128, 256 and 512 conversations at a time (vLLM, 1 Hz metrics). The size of the KV
cache is read off the run with 128, which never fills it; step times are the library's. The twin then gets as many
requests in flight, of the recorded mean lengths, each tenth of the run its own. Lengths are spread by assumption, and
no prefix is shared, so the first tenths, in which the real cache shared most of the prompts, fill earlier here. Shown
is the second half of each run.

| in flight | KV usage | running | waiting | preempted, all of the run |
| --- | --- | --- | --- | --- |
"""

WVA = """
## Means once a minute

The WVA runs (Llama-3.1-8B on H100s, one sample a minute, latencies as means) calibrated by `governor calibrate
--recording`, each run on its own: fitted to the first half of its calm intervals, scored on the others.

| run | calm | a | sequence | prefill | KV tokens | ITL off by | TTFT off by | KV usage off by |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Full:
    """A closed loop in its second half: means of KV usage (0..1), running and waiting, and preemptions of the whole."""

    usage: float
    running: float
    waiting: float
    preempted: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded closed loop: mean prompt and answer tokens of each tenth of its requests, and what became of it."""

    lengths: tuple[tuple[float, float], ...]
    kv_tokens: float  # held over said to be in use, in the second half
    full: Full


def requests() -> dict[str, Calibration]:
    """The request log, calibrated from several priors."""
    text = gzip.decompress(LOG.read_bytes()).decode()
    return {prior: calibrate_requests(text, entry=prior, max_batched_tokens=BATCHED) for prior in PRIORS}


def untouched() -> tuple[Score, ...]:
    """The same with the library's H100 entry as it is: what calibration is for."""
    log: RequestLog = read_log(gzip.decompress(LOG.read_bytes()).decode())
    profile = replace(library.profile("llama-3.1-8b", "h100"), max_num_seqs=128.0, kv_tokens=None)
    run = replay(log, EngineSpec(profile, max_batched_tokens=BATCHED, prefix_cache=False), profile)
    return score(log, run, slice(len(log) // 2, None))


def saturated() -> Mapping[int, tuple[Recorded, Full]]:
    """By conversations at a time: the recorded loop and the twin's."""
    real = {users: _recorded(users) for users in USERS}
    model, gpu, tp, precision = SERVED.split("/")
    profile = replace(
        library.profile(model, gpu, int(tp), precision),
        max_num_seqs=1024.0,
        kv_tokens=float(round(real[USERS[0]].kv_tokens)),
    )
    return {users: (one, closed_loop(profile, users, one.lengths)) for users, one in real.items()}


def _recorded(users: int) -> Recorded:
    name = f"llama70b-fp4-multiturn/tp1_bs{users}_offloadoff"
    with gzip.open(SERVER_METRICS, "rt", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["run"] == name]
    done, prompt, answer, running, waiting, usage, preempted = (
        np.array([float(row[column]) for row in rows])
        for column in (
            "request_success_total", "prompt_tokens_total", "generation_tokens_total", "num_requests_running",
            "num_requests_waiting", "kv_cache_usage_pct", "num_preemptions_total",
        )
    )  # fmt: skip
    edges = np.searchsorted(done, np.linspace(0, done[-1], PARTS + 1))
    ended = np.diff(done[edges])
    lengths = tuple(zip(np.diff(prompt[edges]) / ended, np.diff(answer[edges]) / ended, strict=True))
    late = slice(int(edges[PARTS // 2]), None)
    held = np.mean([p + a / 2 for p, a in lengths[PARTS // 2 :]]) * running[late].mean()
    return Recorded(
        tuple((float(p), float(a)) for p, a in lengths),
        float(held / (usage[late].mean() / 100)),
        Full(
            float(usage[late].mean() / 100), float(running[late].mean()), float(waiting[late].mean()),
            float(preempted[-1]),
        ),
    )  # fmt: skip


def closed_loop(profile: Profile, users: int, lengths: Sequence[tuple[float, float]], seed: int = 1) -> Full:
    """An engine that always has so many requests in flight; whoever is served comes again."""
    chance = np.random.default_rng(seed)
    engine = Engine(EngineSpec(profile, prefix_cache=False), 0.0)

    def send(number: int, now: float) -> None:
        prompt, answer = lengths[min(len(lengths) - 1, number * len(lengths) // TURNS)]
        tokens = [
            max(1, round(chance.gamma(spread**-2, mean * spread**2)))
            for mean, spread in ((prompt, SPREAD["prompt"]), (answer, SPREAD["answer"]))
        ]
        engine.submit(Job(Request(number, tokens[0], tokens[1]), tokens[1], now), now)

    for number in range(users):
        send(number, 0.0)
    sent, done, before = users, 0, 0.0
    sums = np.zeros(4)  # seconds, and KV usage, running and waiting times seconds
    while done < TURNS:
        seen = (1.0, engine.kv_usage, engine.running, engine.waiting)
        now = engine.next_at
        if done >= TURNS / 2:
            sums += (now - before) * np.array(seen)
        before = now
        for _ in engine.advance(now):
            done += 1
            send(sent, now)
            sent += 1
    usage, running, waiting = (float(value) for value in sums[1:] / sums[0])
    return Full(usage, running, waiting, float(engine.counts.preemptions))


def minutes() -> dict[str, RecordingFit]:
    """Every WVA run that is calm for long enough."""
    config = load(recorded.CONFIG)
    found: dict[str, RecordingFit] = {}
    with tempfile.TemporaryDirectory() as work:
        tables = [recorded.RECORDINGS / f"wva_llama31_8b_h100_{part}.csv.gz" for part in ("autoscaling", "pods")]
        mapping = recorded.ROOT / "examples" / "import" / "wva.yaml"
        for run in import_csv(tables, mapping, Path(work) / "runs"):
            try:
                fit = calibrate_recording(read_intervals(run.path, config, "llama"), entry=PRIORS[1])
            except InputError:
                continue  # too few calm intervals
            found[run.group.removeprefix("model-based-")] = fit
    return found


def text() -> str:
    """The whole page. Needs shared/data beside the repository."""
    return "".join((HEAD, *_requests(), *_saturation(), *_minutes(), *collapse.section()))


def _requests() -> Iterator[str]:
    found = requests()
    yield REQUESTS
    for prior, one in found.items():
        yield f"| {prior or 'none'} | {' | '.join(_cells(one.held_out))} |\n"
    yield f"| {PRIORS[1]}, not calibrated | {' | '.join(_cells(untouched()))} |\n"
    yield FITTED
    for prior, one in found.items():
        a, b, c, d, e = (term.value * 1e6 for term in one.terms)
        left = ", ".join(f"{term.name} {term.unsure:.0%}" for term in one.terms)
        yield f"| {prior or 'none'} | {a:.0f} | {b:.1f} | {c:.0f} | {d * 1e3:.0f} | {e * 1e3:.1f} | {left} |\n"


def _cells(scores: Sequence[Score]) -> Iterator[str]:
    for one in scores:
        yield from (f"{one.mean_error:+.1%}", f"{one.p99_error:+.1%}", f"{one.typical:.1%}")


def _saturation() -> Iterator[str]:
    yield SATURATION
    for users, (real, twin) in saturated().items():
        usage = f"{real.full.usage:.0%} → {twin.usage:.0%}"
        running, waiting, preempted = (
            f"{getattr(real.full, what):.0f} → {getattr(twin, what):.0f}"
            for what in ("running", "waiting", "preempted")
        )
        yield f"| {users} | {usage} | {running} | {waiting} | {preempted} |\n"
    yield "\nEach cell: recorded → twin.\n"


def _minutes() -> Iterator[str]:
    found = minutes()
    yield WVA
    for run, fit in found.items():
        fixed, sequence, prefill = fit.factors
        typical = {error.signal: error.typical for error in fit.errors}
        errors = (f"{typical[s]:.1%}" if s in typical else "" for s in ("itl", "ttft", "kv_usage"))
        moved, followed = ("*" if part in fit.held else "" for part in ("sequence", "prefill"))
        yield (
            f"| {run} | {fit.calm} of {fit.intervals} | {fixed:.2f} | {sequence:.2f}{moved} | {prefill:.2f}{followed} "
            f"| {fit.profile.kv_tokens or 0:.0f} | {' | '.join(errors)} |\n"
        )
    middle = {
        signal: median(error.typical for fit in found.values() for error in fit.errors if error.signal == signal)
        for signal in ("itl", "ttft", "kv_usage")
    }
    yield (
        "\na, sequence and prefill are factors on the library's entry; * moved along with the one before, from which\n"
        f"the run does not tell it apart. Median over the {len(found)} runs: ITL {middle['itl']:.1%}, TTFT "
        f"{middle['ttft']:.1%}, KV usage {middle['kv_usage']:.1%},\nwhich is a gauge of one moment a minute. The other "
        "runs have too few calm intervals.\n"
    )


if __name__ == "__main__":
    if not recorded.RECORDINGS.exists():
        sys.exit(f"{recorded.RECORDINGS} is not there; the public recordings are not part of the repository")
    PAGE.write_text(text(), encoding="utf-8")
    print(f"wrote {PAGE}")
