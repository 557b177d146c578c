"""What `governor dry-run --closed-loop` does and says."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from controller.cli.findings import tell
from controller.cli.terminal import err, out, progress
from controller.config import GovernorConfig, hints
from controller.core.errors import InputError
from controller.rehearse.intervals import read_intervals
from controller.rehearse.lines import write_line
from controller.simulate import closed_loop, mirror
from controller.simulate.closed_loop import GOVERNOR, RECORDED, Answer, Pair
from controller.simulate.mirror import Likeness
from controller.simulate.run import Run
from controller.simulate.spread import Spread
from controller.simulate.words import share

NAMES = {RECORDED: "recorded replicas", GOVERNOR: "Governor"}
LIKE = {"itl": "itl mean", "ttft": "ttft mean", "kv_usage": "KV usage", "waiting": "waiting"}


def closed(
    file: Path, config: GovernorConfig, recording: Path, between: tuple[float, float], *, library: str, seeds: int,
    as_json: bool, report: Path | None,
) -> None:  # fmt: skip
    """Fit a twin to the recording, run it with the recorded replicas and with Governor, and say what came of it."""
    images = [
        mirror.image(config, pool, read_intervals(recording, config, pool, between), library) for pool in config.pools
    ]
    begin = min(one.intervals[0].at for one in images)
    tell(file, hints(config, datetime.fromtimestamp(begin, UTC)))
    with progress("closed loop") as bar:
        task = bar.add_task("", total=None) if bar is not None else None

        def done(runs: int, of: int) -> None:
            if bar is not None and task is not None:
                bar.update(task, completed=runs, total=of)

        answer = closed_loop.ask(config, images, seeds=seeds, done=done)
    if as_json:
        write_line(sys.stdout, plain(answer))
    else:
        for line in lines(answer):
            out().print(line, soft_wrap=True)
    if report is not None:
        write(report, answer, quiet=as_json)


def lines(answer: Answer) -> Iterator[str]:
    """The answer for people: how like the twin is, then what came of it."""
    for image in answer.images:
        fit = image.fit
        yield f"{image.pool}: a twin with step times fitted to {fit.calm} calm of {fit.intervals} samples"
        yield "  with the recorded replicas it is off by:"
        for one in answer.likeness[image.pool]:
            yield f"    {LIKE[one.signal]:<10} {_off(one)} ({one.intervals} samples)"
        for note in fit.notes:
            yield f"  {note}"
    yield f"step times were varied by ±{answer.error:.0%}, the error of the fit on samples that it had not seen"
    if answer.assumed:
        yield f"in {share(answer.assumed)} of the time no demand was recorded; it is taken to have gone on as before"
    yield ""
    yield f"{'':<20} {'good answers':<28} {'GPU-hours':<22} bad minutes"
    for name in (RECORDED, GOVERNOR):
        yield _row(name, answer.pairs)
    yield ""
    yield verdict(answer.pairs, answer.unlike)
    yield (
        "Good is an answer that kept the targets of all objectives on single requests. In brackets: over all step "
        "times and seeds."
    )


def _off(one: Likeness) -> str:
    if one.relative:
        return f"{one.bias:+7.1%} on average, {one.typical:6.1%} typically"
    if one.signal == "kv_usage":
        return f"{one.bias * 100:+5.1f} points on average, {one.typical * 100:.1f} typically"
    return f"{one.bias:+7.1f} on average, {one.typical:6.1f} typically"


def _row(name: str, pairs: tuple[Pair, ...]) -> str:
    runs: list[Run] = [getattr(pair, name) for pair in pairs]
    good = _band([run.score.all.attainment for run in runs], share)
    hours = _band([run.score.gpu_hours for run in runs], lambda value: f"{value:.2f}")
    bad = _band([float(run.score.bad_minutes) for run in runs], lambda value: f"{value:.0f}")
    return f"{NAMES[name]:<20} {good:<28} {hours:<22} {bad}"


def _band(values: list[float | None], say: Callable[[float], str]) -> str:
    spread = Spread.of(values)
    return "-" if spread is None else f"{say(spread.mean)} ({say(spread.low)} to {say(spread.high)})"


def verdict(pairs: tuple[Pair, ...], unlike: tuple[str, ...] = ()) -> str:
    """One sentence that answers the question. `unlike` is why the twin may not answer for the fleet."""
    gains = [pair.gain for pair in pairs if pair.gain is not None]
    if not gains:
        return "Nothing was asked of the fleet, so nothing can be said."
    if unlike:
        return f"It cannot be told: {'; '.join(unlike)}."
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    low, high = min(gains) * 100, max(gains) * 100
    costs = Spread.of([pair.cost for pair in pairs])
    price = "" if costs is None else f", with {costs.low:+.0%} to {costs.high:+.0%} GPU-hours"
    if better == len(gains):
        return f"It would have helped: {low:+.2f} to {high:+.2f} points of good answers{price}."
    if worse == len(gains):
        return f"It would have done harm: {low:+.2f} to {high:+.2f} points of good answers{price}."
    if not better and not worse:
        return f"It would have changed nothing in the answers{price}."
    return (
        f"It cannot be told: better in {better} of {len(gains)} runs, worse in {worse}, "
        f"{low:+.2f} to {high:+.2f} points{price}."
    )


def plain(answer: Answer) -> dict[str, object]:
    """The answer as plain data."""
    return {
        "closed_loop": {
            "pools": {
                image.pool: {
                    "calm": image.fit.calm, "samples": image.fit.intervals, "notes": list(image.fit.notes),
                    "likeness": {
                        one.signal: {"samples": one.intervals, "bias": one.bias, "typical": one.typical,
                                     "relative": one.relative}
                        for one in answer.likeness[image.pool]
                    },
                }
                for image in answer.images
            },
            "step_time_error": answer.error,
            "assumed": answer.assumed,
            "pairs": [
                {"slower": pair.slower, "seed": pair.seed, "gain": pair.gain, "cost": pair.cost,
                 RECORDED: _numbers(pair.recorded), GOVERNOR: _numbers(pair.governor)}
                for pair in answer.pairs
            ],
            "unlike": list(answer.unlike), "verdict": verdict(answer.pairs, answer.unlike),
        }
    }  # fmt: skip


def _numbers(run: Run) -> dict[str, object]:
    score = run.score
    return {
        "attainment": score.all.attainment, "offered": score.all.offered, "gpu_hours": score.gpu_hours,
        "bad_minutes": score.bad_minutes, "reversals": score.reversals,
    }  # fmt: skip


def write(path: Path, answer: Answer, *, quiet: bool) -> None:
    """The report of a simulation on the twin with the fitted step times, with the answer before it."""
    from controller.simulate.board import board
    from controller.simulate.crew import Results
    from controller.simulate.report import write_report

    nominal = [pair for pair in answer.pairs if pair.slower == 1.0]
    runs = {name: tuple(getattr(pair, name) for pair in nominal) for name in (GOVERNOR, RECORDED)}
    results = Results((GOVERNOR, RECORDED), tuple(pair.seed for pair in nominal), runs)
    remarks = (*lines(answer), "", "Table and plots below: the twin with the fitted step times alone.")
    try:
        size = write_report(path, answer.study, board(answer.study.scenario, results), results, remarks)
    except OSError as error:
        raise InputError(f"--report {path}: cannot be written: {error.strerror}") from error
    (err() if quiet else out()).print(f"\nReport: {path} ({size / 1024:,.0f} KiB)", soft_wrap=True)
