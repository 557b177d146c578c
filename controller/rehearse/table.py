"""A rehearsal on the terminal: the table of changes and the summary. In a pipe it is plain text, one change a line."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.core.model import Decision
from controller.core.words import clock, number, percent
from controller.rehearse.members import rows
from controller.rehearse.summary import PoolSummary, Summary
from controller.rehearse.trace import Trace
from controller.rehearse.words import OPEN_LOOP, attained, duration, held, hours, promise, why_changed

_VERDICT = {"kept": "green", "broken": "red", "cannot tell": "yellow", "no traffic": "dim", "no data": "yellow"}


def show(console: Console, trace: Trace, summary: Summary, *, limit: int = 100) -> None:
    """Changes (at most `limit`, the rest is counted) and summary."""
    _changes(console, trace, summary, limit)
    for pool in summary.pools:
        _pool(console, pool)
    _foot(console, summary)


def found_changes(trace: Trace) -> list[tuple[float, float, Decision]]:
    """(time, proposal before, decision) of all targets, in order of time."""
    rows = [
        (trace.at[tick], was, decision)
        for pool in trace.pools.values()
        for lane in pool.targets.values()
        for tick, was, decision in lane.changes()
    ]
    return sorted(rows, key=lambda row: (row[0], row[2].target))


def _changes(console: Console, trace: Trace, summary: Summary, limit: int) -> None:
    found = found_changes(trace)
    date = clock(summary.start, date=True)[:10] != clock(summary.end, date=True)[:10]
    console.print(Text(f"What Governor would have changed: {len(found):,}", style="bold"))
    if not console.is_terminal:
        for at, was, decision in found[:limit]:
            moved = f"{number(was)} → {number(decision.final)}"
            line = f"{clock(at, date=date)} {decision.target} {moved} (recorded {number(decision.current)}): "
            console.print(Text(line + why_changed(decision)), soft_wrap=True)
    elif found:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("time (UTC)", "target", "recorded", "proposal"):
            table.add_column(heading, no_wrap=True)
        table.add_column("reason", overflow="fold")
        for at, was, decision in found[:limit]:
            moved = f"{number(was)} → {number(decision.final)}"
            table.add_row(
                clock(at, date=date),
                Text(str(decision.target)),
                number(decision.current),
                moved,
                Text(why_changed(decision)),
            )
        console.print(table)
    if len(found) > limit:
        console.print(f"... and {len(found) - limit:,} more; --limit shows more of them, --json has all")
    console.print()


def _pool(console: Console, pool: PoolSummary) -> None:
    console.print(Text(pool.pool, style="bold"))
    for one in pool.objectives:
        line = Text(f"  {promise(one)}: ")
        line.append(one.verdict, style=_VERDICT[one.verdict])
        line.append(f", {attained(one)}")
        if one.seen < 0.995:
            line.append(f"; data at {percent(one.seen)} of ticks")
        console.print(line, soft_wrap=True)
    for row in rows(pool.targets):
        target = row.one
        text = f"  {row.name}: {hours(target)}; the proposal rose {target.ups} and fell {target.downs} times, "
        text += f"{target.turns} reversals of direction (recorded {target.recorded_turns})"
        console.print(Text(text), soft_wrap=True)
        if target.held:
            total = sum(target.held.values())
            console.print(Text(f"    held at {total:,} of {target.ticks:,} ticks: {held(target)}"), soft_wrap=True)
    console.print()


def _foot(console: Console, summary: Summary) -> None:
    length = duration(max(0.0, summary.end - summary.start))
    console.print(
        f"{summary.ticks:,} ticks every {duration(summary.step)}, {length} from {clock(summary.start, date=True)} UTC",
        highlight=False,
    )
    if summary.errors:
        console.print(
            Text(f"{summary.errors:,} ticks without any data; the first reason: {summary.error}", style="yellow"),
            soft_wrap=True,
        )
    console.print(Text(OPEN_LOOP, style="dim"), soft_wrap=not console.is_terminal)
