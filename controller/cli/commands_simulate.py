"""`governor simulate`: the loop on the fleet twin, against what else could have been done."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.findings import tell
from controller.cli.outputs import to_file, to_new_ledger
from controller.cli.terminal import err, out, warn


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="Run a scenario on the fleet twin, and score it.")(simulate)


def simulate(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="The scenario file; see docs/simulating.md.")],
    seeds: Annotated[
        int | None, typer.Option("--seeds", "-n", metavar="N", min=1, max=1000, help="Run seeds 1 to N.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Governor's config, in place of the scenario's own."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML report with plots, for people who decide.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Keep the ledger of the first seed's run in a folder, for explain and replay."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing on the way.")] = False,
    cores: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=256, help="Processes to use; by default one a core.")
    ] = None,
) -> None:
    """Runs Governor on a simulated fleet, in virtual time, and its peers on the same seeds: who kept which promise at
    what cost. Moves nothing real."""
    from controller.config import hints
    from controller.core.errors import InputError
    from controller.rehearse.lines import write_line
    from controller.run import logs, memory
    from controller.simulate.board import board
    from controller.simulate.checks import idle, misfits
    from controller.simulate.crew import Progress, run_all
    from controller.simulate.jobs import GOVERNOR
    from controller.simulate.lines import simulation_json
    from controller.simulate.live import LiveView
    from controller.simulate.load import open_study
    from controller.simulate.table import show

    study = open_study(scenario, config)
    file, at = study.place
    begin = datetime.fromtimestamp(study.scenario.start, UTC)  # a pin that has ended by now may hold there
    tell(file, (*idle(study.config), *hints(study.config, begin)), at)
    for sentence in (*study.scenario.warnings(), *misfits(study.scenario, study.config)):
        warn(f"{scenario}: {sentence}")
    if report is not None:
        to_file(report, "--report", scenario, config)
    kept = str(to_new_ledger(ledger, "--ledger")) if ledger is not None else ""
    logs.configure(logging.WARNING)
    memory.settle()
    chosen = range(1, (seeds or study.scenario.seeds) + 1)
    workers = cores or _cores()
    with _ends_at_once():
        if as_json:
            results = run_all(study, chosen, cores=workers, ledger=kept)
        else:
            with LiveView(out(), study.scenario) as view:
                progress = Progress(view.frame, view.done, frames=True)
                results = run_all(study, chosen, cores=workers, progress=progress, ledger=kept)
    scores = board(study.scenario, results)
    if not any(run.score.all.offered for run in results.of(GOVERNOR)):
        warn(f"{scenario}: no request arrived in the part that is scored, so nothing was attained or missed")
    if as_json:
        write_line(sys.stdout, simulation_json(study, scores, results))
    else:
        show(out(), study.scenario, scores, results)
    if report is not None:
        from controller.simulate.report import write_report

        try:
            size = write_report(report, study, scores, results)
        except OSError as error:
            raise InputError(f"--report {report}: cannot be written: {error.strerror}") from error
        (err() if as_json else out()).print(f"\nReport: {report} ({size / 1024:,.0f} KiB)", soft_wrap=True)


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _ends_at_once() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: workers are told, the terminal is left clean."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
