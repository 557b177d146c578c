"""The scoreboard on the terminal; in a pipe it is plain text, one contender a paragraph."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.rehearse.words import percent
from controller.simulate.board import Board, Measure, Row, missed
from controller.simulate.crew import Results
from controller.simulate.jobs import ORACLE
from controller.simulate.ports import Scenario
from controller.simulate.words import FOOT, cell, contender


def show(console: Console, scenario: Scenario, board: Board, results: Results) -> None:
    """The table, why requests were missed, and what else must be known."""
    seeds = f"{len(board.seeds)} seeds, mean ± standard deviation" if len(board.seeds) > 1 else f"seed {board.seeds[0]}"
    console.print(Text(f"{scenario.name}: {seeds}", style="bold"), soft_wrap=True)
    if console.is_terminal:
        console.print(_table(board))
    else:
        for row in board.rows:
            console.print(Text(_line(board, row)), soft_wrap=True)
        console.print()
    for name in results.contenders:
        text = reasons(results, name)
        if text:
            console.print(Text(f"{contender(name)} missed: {text}"), soft_wrap=True)
    for tenant in starved(results):
        console.print(Text(tenant, style="yellow"), soft_wrap=True)
    if board.oracle is not None:
        over = f"Governor used {board.oracle.mean:.2f} times the GPU-hours of the oracle of equal attainment"
        console.print(Text(over + _range(board.oracle.low, board.oracle.high, board.oracle.count)), soft_wrap=True)
    if board.open:
        console.print(f"{board.open:,} requests had no end yet when the clock stopped, and are not counted")
    console.print(Text(FOOT, style="dim"), soft_wrap=not console.is_terminal)


def reasons(results: Results, name: str) -> str:
    """`late 4.1 %, rejected 0.2 %` of all that was offered, over all seeds; empty when nothing was missed."""
    runs = results.of(name)
    offered = sum(run.score.all.offered for run in runs)
    total: dict[str, int] = {}
    for run in runs:
        for why, count in missed(run.score.all).items():
            total[why] = total.get(why, 0) + count
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{why.replace('_', ' ')} {percent(count / offered)}" for why, count in ranked)


def starved(results: Results, fair: float = 0.9) -> list[str]:
    """Sentences on tenants that got less of their max-min share, in the controller's runs."""
    worst: dict[str, float] = {}
    for run in results.of("governor"):
        for tenant, share in run.score.fairness.items():
            worst[tenant] = min(share, worst.get(tenant, share))
    return [
        f"with Governor, tenant {tenant or '(none)'} got {percent(share)} of its max-min share while it had to wait"
        for tenant, share in sorted(worst.items(), key=lambda item: (item[1], item[0]))[:5]
        if share < fair
    ]


def _table(board: Board) -> Table:
    """Measures in rows, contenders in columns; the best of each in bold."""
    cells = [[cell(measure, spread) for measure, spread in zip(board.measures, row.cells, strict=True)]
             for row in board.rows]  # fmt: skip
    names = [contender(row.contender) for row in board.rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    best = [_best(measure, [_mean(row, i) for row in board.rows]) for i, measure in enumerate(board.measures)]
    for i, measure in enumerate(board.measures):
        row = [Text(measure.title)]
        row += [Text(cells[j][i], style="bold" if j in best[i] else "") for j in range(len(names))]
        table.add_row(*row)
    if any(row.note for row in board.rows):
        table.add_row("", *(Text(row.note, style="dim") for row in board.rows))
    return table


def _mean(row: Row, place: int) -> float | None:
    """What competes for the best; the oracle does not."""
    spread = row.cells[place]
    return None if spread is None or row.contender == ORACLE else spread.mean


def _best(measure: Measure, means: list[float | None]) -> set[int]:
    known = [mean for mean in means if mean is not None]
    if measure.better is None or not known or min(known) == max(known):
        return set()
    wanted = max(known) if measure.better else min(known)
    return {i for i, mean in enumerate(means) if mean == wanted}


def _line(board: Board, row: Row) -> str:
    pairs = zip(board.measures, row.cells, strict=True)
    told = [f"{measure.title} {cell(measure, spread)}" for measure, spread in pairs if spread is not None]
    name = contender(row.contender)
    return f"{name}{f' ({row.note})' if row.note else ''}: {', '.join(told) or 'nothing'}"


def _range(low: float, high: float, count: int) -> str:
    return f" ({low:.2f} to {high:.2f})" if count > 1 else ""
