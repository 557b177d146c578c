"""`governor dry-run` and `governor test`: what Governor would have done, and whether that is what the user wants."""

import logging
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.commands_recording import record_range
from controller.cli.findings import tell
from controller.cli.outputs import to_file, to_new_ledger
from controller.cli.terminal import FAILED, err, out, progress, say
from controller.cli.times import parse_duration, parse_time
from controller.config import GovernorConfig, config_hash, hints, load
from controller.core.errors import InputError
from controller.core.model import Plan, Snapshot
from controller.rehearse.lines import summary_json, tick_json, write_line
from controller.rehearse.report import Origin, write_report
from controller.rehearse.run import OnTick, open_recording, recording_of, rehearse
from controller.rehearse.summary import summarise
from controller.rehearse.table import show
from controller.run import logs, memory


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command("dry-run", short_help="Show what it would have done on recorded metrics.")(dry_run)
    app.command("test", short_help="Run unit tests of a config.")(run_tests)


def dry_run(  # noqa: PLR0913, PLR0917 - one argument for each option
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The config to rehearse.")],
    recording: Annotated[
        Path | None,
        typer.Option(
            "--recording",
            "-r",
            metavar="FILE",
            help="A file made by `governor record` or `governor import`. Default: the one that is the config's source.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Read the past from this Prometheus instead.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin: 2026-01-01T12:00:00Z, unix seconds, or 6h (ago). "
            "Default: 6h with --prometheus, else all of the recording.",
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End of the range.")] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Time from tick to tick. Default: the interval of the config."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained HTML report here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines: one per tick, then the summary.")] = False,
    ledger: Annotated[str | None, typer.Option(metavar="DIR", help="Keep the ledger of the rehearsal here.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Most changes to list.")] = 100,
    closed_loop: Annotated[
        bool,
        typer.Option(
            "--closed-loop",
            help="Let the past answer back: fit a twin to the recording, and see whether it would help.",
        ),
    ] = False,
    library: Annotated[
        str,
        typer.Option(
            metavar="MODEL/GPU/TP/PRECISION",
            help="With --closed-loop: the engine, for what the recording does not tell.",
        ),
    ] = "",
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=100, help="With --closed-loop: seeds of the demand's chance.")
    ] = 3,
) -> None:
    """Shows, tick by tick, what Governor would have done on recorded metrics, and why. Moves nothing."""
    settings = load(config)
    if recording is not None and prometheus is not None:
        raise InputError("dry-run: --recording and --prometheus are two pasts; give only one")
    if recording is None and prometheus is None and (recording := recording_of(settings)) is None:
        raise InputError(
            "dry-run: needs a past to run on: give --recording FILE or --prometheus URL, or a config whose source is a "
            "recording"
        )
    width = parse_duration(step, "--step") if step is not None else None
    if report is not None:
        to_file(report, "--report", config, recording)
    kept = to_new_ledger(ledger, "--ledger") if ledger is not None else None
    between = _range(since, until, live=prometheus is not None)
    if closed_loop:
        if step is not None or ledger is not None:
            raise InputError(
                "--closed-loop: ticks at the config's interval and keeps no ledger; leave out --step and --ledger"
            )
        from controller.cli.closed_loop import closed

        with _past(settings, recording, prometheus, between) as path:
            logs.configure(logging.WARNING)
            closed(config, settings, path, between, library=library, seeds=seeds, as_json=as_json, report=report)
        return
    if library:
        raise InputError("--library: is for --closed-loop alone; leave it out")
    with _past(settings, recording, prometheus, between) as path:
        source = open_recording(path, settings, between)
        logs.configure(logging.WARNING)  # to standard error, so that --json stays JSON
        try:
            with progress("rehearsing") as bar:
                task = bar.add_task("", total=None) if bar is not None else None

                def on_tick(tick: int, ticks: int, seen: Snapshot, plan: Plan) -> None:
                    if bar is not None and task is not None:
                        bar.update(task, completed=tick, total=ticks)
                    if as_json:
                        write_line(sys.stdout, tick_json(seen, plan))

                memory.settle()
                watch: OnTick | None = on_tick if as_json or bar is not None else None
                trace = rehearse(settings, source, step=width, ledger=kept, on_tick=watch)
        finally:
            source.close()
    summary = summarise(trace)
    if summary.ticks and summary.errors == summary.ticks:
        raise InputError(f"dry-run: nothing could be read at any of {summary.ticks:,} ticks: {summary.error}")
    # As of when the recording begins: a pin that has ended by now may have held there.
    tell(config, hints(settings, datetime.fromtimestamp(trace.at[0], UTC)))
    if as_json:
        write_line(sys.stdout, summary_json(summary))
    else:
        show(out(), trace, summary, limit=limit)
    if report is not None:
        origin = Origin(
            f"What Governor would have done: {', '.join(settings.pools)}" if len(settings.pools) <= 3 else
            f"What Governor would have done in {len(settings.pools)} pools",
            {
                "config": f"{config} ({config_hash(settings)[:12]})",
                "recording": str(recording or prometheus) + _said(since, until, live=prometheus is not None),
            },
        )  # fmt: skip
        try:
            size = write_report(report, trace, summary, origin)
        except OSError as error:
            raise InputError(f"--report {report}: cannot be written: {error.strerror}") from error
        # On standard error when standard output is a stream of JSON.
        (err() if as_json else out()).print(f"\nReport: {report} ({size / 1024:,.0f} KiB)", soft_wrap=True)


def _range(since: str | None, until: str | None, *, live: bool) -> tuple[float, float]:
    """Unix seconds. A recording is taken whole where nothing is said, a Prometheus for its last six hours."""
    now = time.time()
    start = parse_time(since or "6h", "--from", now) if since or live else -math.inf
    end = parse_time(until or "now", "--to", now) if until or live else math.inf
    if end <= start:
        raise InputError("--to: is not later than --from; the range is empty")
    return start, end


def _said(since: str | None, until: str | None, *, live: bool) -> str:
    """The range as it was asked for, for the report; empty for a whole recording."""
    if not (live or since or until):
        return ""
    begin, end = ("6h", "now") if live else ("its begin", "its end")
    return f", {since or begin} to {until or end}"


@contextmanager
def _past(
    config: GovernorConfig, recording: Path | None, prometheus: str | None, between: tuple[float, float]
) -> Iterator[Path]:
    """The recording to run on. What a Prometheus remembers is recorded first, so that there is one path."""
    if recording is not None:
        yield recording
        return
    if prometheus is None:
        raise AssertionError("unreachable: one of both is given")
    with tempfile.TemporaryDirectory(prefix="governor-") as folder:
        path = Path(folder) / "range.jsonl.gz"
        say(f"recording from {prometheus}; `governor record` would keep it")
        record_range(config, prometheus, *between, path)
        yield path


def run_tests(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Policy tests, in YAML.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Name the tests that pass, too.")] = False,
) -> None:
    """Runs unit tests of a config: given these series, this must be decided. See docs/rehearsing.md."""
    from controller.rehearse.policytest import load_tests, run_test

    console = out()
    passed = failed = 0
    for file in files:
        for one in load_tests(file):
            problems = run_test(one)
            passed, failed = passed + (not problems), failed + bool(problems)
            if problems:
                console.print(f"FAIL {file}: {one.name}", soft_wrap=True)
                for problem in problems:
                    console.print(problem, soft_wrap=True)
            elif verbose:
                console.print(f"ok   {file}: {one.name}", soft_wrap=True)
    console.print(f"{passed} passed, {failed} failed")
    if failed:
        raise typer.Exit(FAILED)
