"""Fit the library to serving measurements (simulator/fits.toml), and hold the library against them (docs/library.md).

python -m benchmarks.library. Needs ../shared/data/perf/aiconfigurator_silicon_sample.csv.gz: mean time to first token
and mean time per output token of real servers at a fixed number of requests in flight, all of one length.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt

from routing.model import Request
from simulator import library
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from simulator.job import Job

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT.parent / "shared" / "data" / "perf" / "aiconfigurator_silicon_sample.csv.gz"
FITS = ROOT / "simulator" / "fits.toml"
PAGE = ROOT / "docs" / "library.md"

FOLDS = 5
ROWS = 12  # a fit of five coefficients to fewer says little
WORST = 0.10  # median held-out error; what is worse is left out and named
ROUNDS = 3  # of the requests in flight; the first round is not counted

Key = tuple[str, str, int, str, str]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: tokens, requests in flight, seconds."""

    prompt: int
    output: int
    flying: int
    tpot: float
    ttft: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients in seconds and the median held-out relative error of TPOT."""

    coefficients: tuple[float, ...]
    error: float
    rows: int


def measured() -> Mapping[Key, Sequence[Row]]:
    """The measurements of configurations whose model and GPU the library knows, without data, pipeline or expert
    parallelism, which are other machines. An unnamed precision is the model's own, bf16."""
    found: defaultdict[Key, list[Row]] = defaultdict(list)
    with gzip.open(MEASURED, "rt", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            plain = line["mode"] == "agg" and line["pp_size"] == "1.0"
            alone = line["attention_dp_size"] in ("", "0.0", "1.0") and line["moe_ep_size"] in ("", "0.0", "1.0")
            if not plain or not alone or not line["concurrency"] or not line["silicon_tpot_ms"]:
                continue
            try:
                entry = (library.named("models", line["model_path"]), library.named("gpus", line["system"]))
            except library.NotInLibrary:
                continue
            key = (*entry, int(float(line["tp_size"])), line["precision"] or "bf16", line["backend"])
            row = Row(
                int(line["isl"]), int(line["osl"]), int(float(line["concurrency"])),
                float(line["silicon_tpot_ms"]) / 1e3, float(line["silicon_ttft_ms"] or "nan") / 1e3,
            )  # fmt: skip
            found[key].append(row)
    return dict(sorted(found.items()))


def design(rows: Sequence[Row]) -> Array:
    """A decode step with n sequences, of which each also brings its share of the prefill of who comes next."""
    return np.array(
        [
            (
                1.0,
                row.prompt * row.flying / row.output,
                row.flying,
                row.flying * (row.prompt + row.output / 2),
                row.flying * row.prompt**2 / 2 / row.output,
            )
            for row in rows
        ]
    )


def solve(rows: Sequence[Row]) -> Array:
    """Least squares of the relative error without negative coefficients: the best of all sets of terms."""
    terms = design(rows) / np.array([[row.tpot] for row in rows])
    scale = np.abs(terms).max(axis=0)
    terms = terms / scale
    best, least = np.zeros(5), inf
    for count in range(1, 6):
        for chosen in combinations(range(5), count):
            part = np.linalg.lstsq(terms[:, chosen], np.ones(len(rows)), rcond=None)[0]
            misfit = float(((terms[:, chosen] @ part - 1.0) ** 2).sum())
            if (part >= 0).all() and misfit < least - 1e-12:
                best, least = np.zeros(5), misfit
                best[list(chosen)] = part
    solution: Array = best / scale
    return solution


def fit(rows: Sequence[Row]) -> Fit:
    """On all rows; the error is of rows left out, a fifth at a time."""
    errors: list[float] = []
    for fold in range(FOLDS):
        taught = [row for index, row in enumerate(rows) if index % FOLDS != fold]
        asked = [row for index, row in enumerate(rows) if index % FOLDS == fold]
        told = design(asked) @ solve(taught)
        errors += [abs(float(value) / row.tpot - 1.0) for value, row in zip(told, asked, strict=True)]
    return Fit(tuple(float(value) for value in solve(rows)), float(np.median(errors)), len(rows))


def fits(rows: Mapping[Key, Sequence[Row]]) -> tuple[dict[Key, Fit], dict[Key, Fit]]:
    """What goes into the library, and what is too far off."""
    good: dict[Key, Fit] = {}
    poor: dict[Key, Fit] = {}
    for key, some in rows.items():
        if len(some) < ROWS:
            continue
        one = fit(some)
        # A server without a fixed cost, or without a cost of prefill, is a fit that went astray.
        sane = one.coefficients[0] > 0 and one.coefficients[1] > 0
        (good if sane and one.error <= WORST else poor)[key] = one
    return good, poor


def toml(good: Mapping[Key, Fit]) -> str:
    """simulator/fits.toml."""
    lines = [
        "# Written by `python -m benchmarks.library`. Units as in library.toml; error: median of held-out rows' TPOT.",
        "",
        "[sources]",
        'serving = "fitted to measured serving runs at fixed requests in flight; error of the TPOT of held-out runs"',
    ]
    for (model, gpu, tp, precision, engine), one in good.items():
        a, b, c, d, e = one.coefficients
        values = (a * 1e6, b * 1e6, c * 1e6, d * 1e9, e * 1e9)
        lines += [
            "",
            "[[entries]]",
            f'model = "{model}"',
            f'gpu = "{gpu}"',
            f"tp = {tp}",
            f'precision = "{precision}"',
            f'engine = "{engine}"',
            f"coefficients = [{', '.join(f'{value:.4g}' for value in values)}]",
            f"error = {one.error:.3f}",
            'source = "serving"',
        ]
    return "\n".join(lines) + "\n"


def closed_loop(spec: EngineSpec, row: Row) -> tuple[float, float]:
    """Mean TPOT and TTFT, seconds, of an engine that always has so many requests in flight."""
    engine = Engine(spec, 0.0)
    total = ROUNDS * row.flying
    sent = 0
    counted: list[Job] = []

    def send(now: float) -> None:
        nonlocal sent
        # Those of the first round end one after the other; or all would come and go together for ever.
        output = max(1, row.output * (sent + 1) // row.flying) if sent < row.flying else row.output
        engine.submit(Job(Request(sent, row.prompt, output), output, now), now)
        sent += 1

    for _ in range(row.flying):
        send(0.0)
    while engine.next_at < inf:
        now = engine.next_at
        for job in engine.advance(now):
            if row.flying <= job.request.id < total:
                counted.append(job)
            if sent < total + row.flying:  # the last counted ones too run among others
                send(now)
    first = [job.ttft for job in counted if job.ttft is not None]
    return float(np.mean([job.tpot for job in counted if job.tpot is not None])), float(np.mean(first))


def held_against(rows: Mapping[Key, Sequence[Row]]) -> Iterator[tuple[library.Entry, int, float, float]]:
    """For each entry that was measured: rows, and the median relative errors of TPOT and TTFT."""
    for entry in library.entries():
        some = rows.get((entry.model, entry.gpu, entry.tp, entry.precision, entry.engine))
        if not some:
            continue
        # A server that is asked to hold so many in flight is started with as many seats.
        seats = max(library.MAX_NUM_SEQS, *(float(row.flying) for row in some))
        spec = EngineSpec(replace(entry.profile, max_num_seqs=seats))
        tpot: list[float] = []
        ttft: list[float] = []
        for row in some:
            if row.prompt + row.output > (entry.profile.kv_tokens or inf) or row.output < 2:
                continue
            told = closed_loop(spec, row)
            tpot.append(abs(told[0] / row.tpot - 1.0))
            ttft.append(abs(told[1] / row.ttft - 1.0))
        yield entry, len(tpot), float(np.median(tpot)), float(np.nanmedian(ttft))


HEAD = """\
# Library

Coefficients of the step time that ship with the twin (`simulator/library.py`). A step with P prefill tokens and n
decoding sequences whose contexts add up to KV tokens lasts `a + b*P + c*n + d*KV + e*sum(p*(ctx + p/2))`. This page is
written by `python -m benchmarks.library`, which also fits the entries of `simulator/fits.toml`.

"Error" is what the source says of itself: {tables}; {log}; {serving}.

A prior is no measurement of your fleet: expect 5 to 20 % off, more where GPUs talk over PCIe, and calibrate.

| model | GPU | TP | precision | engine | a us | b us | c us | d ns | e ns | KV tokens | error | source |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""

CHECK = """
## Held against measured servers

The engine of the twin, with as many requests always in flight as in the measurement, all of the same length; the mean
of the requests after the first round against the measured mean. Median of the relative errors over the measured
lengths and concurrencies. Entries from `tables` never saw these measurements; those from `serving` were fitted to
them, by a formula for the steady state and not by the engine. The TTFT of a closed loop depends on how a benchmark
spreads its first requests (here they end evenly); nothing was fitted to it, and it is shown as it is.

| configuration | source | runs | TPOT off by | TTFT off by |
| --- | --- | --- | --- | --- |
"""

POOR = """
## Left out

Configurations with enough measurements ({rows} or more) that no such formula describes: held-out median above
{worst:.0%}, or no fixed cost at all.

"""


def text(rows: Mapping[Key, Sequence[Row]], poor: Mapping[Key, Fit]) -> str:
    """docs/library.md."""
    words = library.sources()
    kinds = {told: kind for kind, told in words.items()}
    lines = [HEAD.format(**words)]
    for entry in library.entries():
        one = entry.profile
        lines.append(
            f"| {entry.model} | {entry.gpu} | {entry.tp} | {entry.precision} | {entry.engine} | {one.a * 1e6:.0f} "
            f"| {one.b * 1e6:.4g} | {one.c * 1e6:.4g} | {one.d * 1e9:.4g} | {one.e * 1e9:.3g} "
            f"| {one.kv_tokens or 0:.0f} | {entry.error:.1%} | {kinds[entry.source]} |\n"
        )
    lines.append(CHECK)
    told = list(held_against(rows))
    lines += [
        f"| {entry} | {kinds[entry.source]} | {count} | {tpot:.1%} | {ttft:.0%} |\n"
        for entry, count, tpot, ttft in told
    ]
    unseen = [tpot for entry, _, tpot, _ in told if kinds[entry.source] != "serving"]
    every = [tpot for _, _, tpot, _ in told]
    lines.append(
        f"\nMedian over the {len(every)} configurations: {np.median(every):.1%}, worst {max(every):.1%}. Over the "
        f"{len(unseen)} that never saw the measurements: {np.median(unseen):.1%}, worst {max(unseen):.1%}.\n"
    )
    lines.append(POOR.format(rows=ROWS, worst=WORST))
    lines += [
        f"* {model} on {tp}x {gpu}, {precision}, {engine}: {one.error:.0%} in {one.rows} runs\n"
        for (model, gpu, tp, precision, engine), one in poor.items()
    ]
    return "".join(lines)


def main() -> None:
    """Fit first: the page is about the library that results."""
    rows = measured()
    good, poor = fits(rows)
    FITS.write_text(toml(good), encoding="utf-8")
    library.forget()
    PAGE.write_text(text(rows, poor), encoding="utf-8")
    print(f"wrote {len(good)} fits to {FITS} and {PAGE}")


if __name__ == "__main__":
    main()
