"""`governor explain` and `governor replay`: what was decided, why, and whether it would be decided again."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from controller.cli.terminal import FAILED, out
from controller.cli.times import parse_time
from controller.config import config_hash, load
from controller.core.errors import InputError
from controller.core.model import Decision, Outcome, Pin, Target
from controller.core.telling import TIMES, because
from controller.core.words import clock
from controller.explain import chain, decision_json, movement, outcome_words, pin_words, sentence
from controller.explain import explain as sentences
from controller.rehearse.lines import write_line
from controller.run.ledger import LedgerError, Record, read_ledger
from controller.run.replay import replay as replay_ledger

_MOST = 1_000_000_000  # ticks; a second each they are thirty years


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="Explain recorded decisions.")(explain)
    app.command(short_help="Decide a ledger again, and compare.")(replay)


def explain(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger: its directory, or one file of it.")],
    pool: Annotated[str | None, typer.Option("--pool", "-p", metavar="POOL", help="This pool only.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", "-t", metavar="TARGET", help="This target only: POOL/LEVER, with its members, or one of them."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="The tick at or before this time: 2026-01-01T12:00:00Z or 10m (ago)."
        ),
    ] = None,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", min=1, max=_MOST, help="The newest ticks.")] = 1,
    changes: Annotated[bool, typer.Option("--changes", help="Only decisions that change something.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Each decision's chain of steps as a table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per decision.")] = False,
) -> None:
    """Explains recorded decisions: what each policy asked, what each guard made of it, and what came of it."""
    if pool is not None and target is not None and target.partition("/")[0] != pool:
        raise InputError(f"--pool {pool}: --target {target} is not of this pool; leave one of them out")
    damage: list[LedgerError] = []
    records = _chosen(read_ledger(ledger, damage), at, last)
    if not records:
        _told(damage)
        raise LedgerError(f"{ledger}: no complete record; nothing to explain")
    shown = 0
    for record in records:
        mine = [
            one
            for one in record.plan.decisions
            if (pool is None or one.target.pool == pool)
            and (target is None or _within(one.target, target))
            and (one.changed or not changes)
        ]
        shown += len(mine)
        if as_json:
            _print_json(record, mine)
        elif table:
            _print_tables(record, mine)
        else:
            lines = sentences(
                replace(record.plan, decisions=tuple(mine)), record.applied, states=record.snapshot.targets,
                folded=target is None, date=True,
            )  # fmt: skip
            if len(mine) > 1 and target is None:
                lines.insert(0, f"{clock(record.at, date=True)} {_headline(record)}")
            for line in lines:
                out().print(line, soft_wrap=True)
    _told(damage)
    known = sorted({one.target.pool for record in records for one in record.plan.decisions})
    if not shown and pool is not None and pool not in known and not changes:
        raise InputError(f"--pool {pool}: no such pool in these records; there are {', '.join(known) or 'none'}")
    if not shown and target is not None and not changes:
        levers = sorted(
            {f"{one.target.pool}/{one.target.lever}" for record in records for one in record.plan.decisions}
        )
        raise InputError(f"--target {target}: no such target in these records; there are {', '.join(levers) or 'none'}")


def _told(damage: Sequence[LedgerError]) -> None:
    """What could not be read, after what could. Raises LedgerError, if there is anything."""
    if damage:
        raise LedgerError("\n".join(map(str, damage)))


def _within(target: Target, wanted: str) -> bool:
    """Whether it is the target that was asked for, or one of its members."""
    return str(target) == wanted or f"{target.pool}/{target.lever}" == wanted


def _chosen(records: Iterable[Record], at: str | None, last: int) -> list[Record]:
    """The `last` records up to the time asked for."""
    newest = parse_time(at, "--at", time.time()) if at is not None else None
    first: float | None = None
    kept: deque[Record] = deque(maxlen=last)
    for record in records:
        first = record.at if first is None else first
        if newest is not None and record.at > newest:
            break
        kept.append(record)
    if not kept and first is not None:
        raise InputError(f"--at {at}: the ledger begins later, at {clock(first, date=True)} UTC")
    return list(kept)


def _headline(record: Record) -> str:
    """The plan's one sentence. A plan does not know that nothing of it is sent in a dry run."""
    dry = any(one.outcome is Outcome.DRY_RUN for one in record.applied)
    return f"dry run, so nothing of this is sent: {record.plan.summary}" if dry else record.plan.summary


def _pins(record: Record) -> dict[Target, Pin]:
    return {target: state.pin for target, state in record.snapshot.targets.items() if state.pin is not None}


def _print_json(record: Record, decisions: list[Decision]) -> None:
    applied, pins = {one.target: one for one in record.applied}, _pins(record)
    for one in decisions:
        outcome = applied.get(one.target)
        line: dict[str, object] = {"at": record.at, **decision_json(one, record.snapshot.targets.get(one.target))}
        line["outcome"] = outcome.word if outcome is not None else None
        line["detail"] = outcome.detail if outcome is not None else ""
        held = pins.get(one.target)
        line["pin"] = None if held is None else {"value": held.value, "until": held.until, "reason": held.reason}
        write_line(sys.stdout, line)


def _print_tables(record: Record, decisions: list[Decision]) -> None:
    console = out()
    applied, pins = {one.target: one for one in record.applied}, _pins(record)
    for one in decisions:
        console.print(Text(f"{clock(record.at, date=True)} {one.target} {movement(one)}", style="bold"), soft_wrap=True)
        rows = chain(one)
        if rows:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for heading in ("by", "before", "after", "reason"):
                table.add_column(heading, overflow="fold")
            for row in rows:
                table.add_row(*map(Text, row))
            console.print(table)
        else:
            console.print(Text(f"  {because(one, state=record.snapshot.targets.get(one.target))}"), soft_wrap=True)
        if one.evidence:
            numbers = ", ".join(
                f"{name} {clock(value)} UTC" if name in TIMES else f"{name} {value:g}"
                for name, value in one.evidence.items()
            )
            console.print(Text(f"  evidence: {numbers}"), soft_wrap=True)
        if one.target in pins:
            console.print(Text(f"  {pin_words(pins[one.target], one)}"), soft_wrap=True)
        if one.target in applied:
            console.print(Text(f"  {outcome_words(applied[one.target])}"), soft_wrap=True)


def replay(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger: its directory, or one file of it.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Decide under this config instead of the recorded ones."),
    ] = None,
) -> None:
    """Decides every recorded tick again and compares. Exits 1 at the first plan that comes out differently."""
    settings = load(config) if config is not None else None
    report = replay_ledger(ledger, settings)
    console = out()
    own = settings is None or set(report.hashes) == {config_hash(settings)}
    console.print(f"{report.equal:,} of {report.ticks:,} plans came out equal", soft_wrap=True)
    if report.reproduced:
        return _told(report.damage)
    if report.stopped:
        console.print(f"What follows was not replayed: {report.stopped}", soft_wrap=True)
    if report.first is not None:
        console.print(f"The first difference, at {clock(report.first.at, date=True)} UTC:", soft_wrap=True)
        for recorded, again in _different(report.first.recorded.decisions, report.first.replayed.decisions):
            for label, one in (("recorded", recorded), ("replayed", again)):
                console.print(f"  {label}: {_line(one, report.first.at)}", soft_wrap=True)
        if report.first.recorded.decisions == report.first.replayed.decisions:
            console.print(f"  recorded: {report.first.recorded.summary}", soft_wrap=True)
            console.print(f"  replayed: {report.first.replayed.summary}", soft_wrap=True)
    if not own:
        console.print(
            "The config is not the one that the ledger was made with. From the first difference on the comparison says "
            "little: the recorded world followed the recorded plan.",
            soft_wrap=True,
        )
    _told(report.damage)
    raise typer.Exit(FAILED)


def _different(
    recorded: tuple[Decision, ...], replayed: tuple[Decision, ...]
) -> Iterator[tuple[Decision | None, Decision | None]]:
    before, after = {one.target: one for one in recorded}, {one.target: one for one in replayed}
    for target in sorted(before | after):
        if before.get(target) != after.get(target):
            yield before.get(target), after.get(target)


def _line(one: Decision | None, at: float) -> str:
    if one is None:
        return "no decision"
    return sentence(one, at)
