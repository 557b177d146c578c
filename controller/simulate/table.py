"""The scoreboard on the terminal, and in a pipe as plain aligned text; where it is too narrow, one contender a line."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from controller.simulate.board import Board, Row, by_tenant, missed, tenants
from controller.simulate.crew import Results
from controller.simulate.jobs import ORACLE
from controller.simulate.ports import Scenario
from controller.simulate.words import cell, contender, foot, share

TENANTS = 12  # that have a line of their own


def show(console: Console, scenario: Scenario, board: Board, results: Results) -> None:
    """The table, why requests were missed, and what else must be known."""
    seeds = f"{len(board.seeds)} seeds, mean ± standard deviation" if len(board.seeds) > 1 else f"seed {board.seeds[0]}"
    console.print(Text(f"{scenario.name}: {seeds}", style="bold"), soft_wrap=True)
    _print(console, board)
    if names := tenants(results):
        console.print(Text(of_tenants(len(names), TENANTS), style="bold"), soft_wrap=True)
        _print(console, by_tenant(results, names[:TENANTS]))
    for name in results.contenders:
        text = reasons(results, name)
        if text:
            console.print(Text(f"{contender(name)} missed: {text}"), soft_wrap=True)
    for tenant in starved(results):
        console.print(Text(tenant, style="yellow"), soft_wrap=True)
    if board.oracle is not None:
        console.print(Text(over_oracle(board)), soft_wrap=True)
    told = foot(results.contenders, board.open)
    console.print(Text(told, style="dim"), soft_wrap=not console.is_terminal)


def of_tenants(count: int, most: int) -> str:
    """What stands above the table of so many tenants, of which so many have a line."""
    least = f": the {most} of {count:,} that attained least with Governor" if count > most else ""
    return f"attained by tenant{least}"


def _print(console: Console, board: Board) -> None:
    if not console.is_terminal:
        for line in _aligned(board):
            console.print(line, soft_wrap=True)
        console.print()
    elif tables := _fitting(console, board):
        for table in tables:
            console.print(table)
    else:
        for row in board.rows:
            console.print(Text(_line(board, row)), soft_wrap=True)
        console.print()


def reasons(results: Results, name: str) -> str:
    """`late 4.1 %, rejected 0.2 %` of all that was offered, over all seeds; empty when nothing was missed."""
    runs = results.of(name)
    offered = sum(run.score.all.offered for run in runs)
    total: dict[str, int] = {}
    for run in runs:
        for why, count in missed(run.score.all).items():
            total[why] = total.get(why, 0) + count
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{why.replace('_', ' ')} {share(count / offered)}" for why, count in ranked)


def starved(results: Results, fair: float = 0.9) -> list[str]:
    """Sentences on tenants that got less of their max-min share, in the controller's runs."""
    worst: dict[str, float] = {}
    for run in results.of("governor"):
        for tenant, part in run.score.fairness.items():
            worst[tenant] = min(part, worst.get(tenant, part))
    return [
        f"with Governor, tenant {tenant or '(none)'} got {share(part)} of its max-min share while it had to wait"
        for tenant, part in sorted(worst.items(), key=lambda item: (item[1], item[0]))[:5]
        if part < fair
    ]


def _cells(board: Board) -> list[list[str]]:
    """Measures in rows, contenders in columns, with titles and notes."""
    rows = [["", *(contender(row.contender) for row in board.rows)]]
    rows += [
        [measure.title, *(cell(measure, row.cells[place]) for row in board.rows)]
        for place, measure in enumerate(board.measures)
    ]
    if any(row.note for row in board.rows):
        rows.append(["", *(row.note for row in board.rows)])
    return rows


def _aligned(board: Board) -> list[str]:
    rows = _cells(board)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(one.rjust(width) for one, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]


def _fitting(console: Console, board: Board) -> list[Table]:
    """The board as one table, or as several with fewer contenders each where the terminal is narrow; none where not
    even one contender fits."""
    groups: list[list[int]] = [[]]
    for place in range(len(board.rows)):
        if _width(console, _table(board, [*groups[-1], place])) <= console.width:
            groups[-1].append(place)
        elif _width(console, _table(board, [place])) <= console.width:
            groups.append([place])
        else:
            return []
    return [_table(board, group) for group in groups if group]


def _width(console: Console, table: Table) -> int:
    """What the table needs to be shown whole."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def _table(board: Board, places: Sequence[int]) -> Table:
    """Some of the contenders, the best of each measure in bold."""
    head, *rows = _cells(board)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(head[0], no_wrap=True)
    for place in places:
        table.add_column(head[1 + place], justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        measured = number < len(board.measures)
        winners = best(board, number) if measured else set()
        cells = [(row[1 + place], "bold" if place in winners else "" if measured else "dim") for place in places]
        if measured or any(text for text, _ in cells):
            table.add_row(row[0], *(Text(text, style=style) for text, style in cells))
    return table


def best(board: Board, place: int) -> set[int]:
    """The rows that are best in one measure; the oracle does not compete. Empty where all are alike."""
    measure = board.measures[place]
    means = [None if row.contender == ORACLE else row.cells[place] for row in board.rows]
    known = [one.mean for one in means if one is not None]
    if measure.better is None or not known or min(known) == max(known):
        return set()
    wanted = max(known) if measure.better else min(known)
    return {i for i, one in enumerate(means) if one is not None and one.mean == wanted}


def over_oracle(board: Board) -> str:
    """A sentence on what the controller paid over the bound; empty when the bound is not known."""
    if board.oracle is None:
        return ""
    over = f"Governor used {board.oracle.mean:.2f} times the GPU-hours of the oracle of equal attainment"
    return over + _range(board.oracle.low, board.oracle.high, board.oracle.count)


def _line(board: Board, row: Row) -> str:
    pairs = zip(board.measures, row.cells, strict=True)
    told = [f"{measure.title} {cell(measure, spread)}" for measure, spread in pairs if spread is not None]
    name = contender(row.contender)
    return f"{name}{f' ({row.note})' if row.note else ''}: {', '.join(told) or 'nothing'}"


def _range(low: float, high: float, count: int) -> str:
    return f" ({low:.2f} to {high:.2f})" if count > 1 else ""
