"""The live view: the runs of the controller as they happen, redrawn on a terminal, one line a decision in a pipe."""

from collections import deque

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from controller.core.words import number, percent
from controller.simulate.ports import Scenario
from controller.simulate.run import Change, Frame

_SHOWN = 6  # decisions
_WIDE = 40  # replicas that are drawn one by one


class LiveView:
    """Follows one seed at a time: the first whose controller still runs. Use as a context; `frame` and `done` are what
    a ``crew.Progress`` wants. On a terminal it writes to `console`, which is left clean."""

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._console, self._scenario = console, scenario
        self._live: Live | None = None
        self._frames: dict[int, Frame] = {}
        self._changes: deque[Change] = deque(maxlen=_SHOWN)
        self._seed: int | None = None
        self._done = (0, 0)

    def __enter__(self) -> "LiveView":
        if self._console.is_terminal:
            self._live = Live(
                self._draw(), console=self._console, transient=True, auto_refresh=False, redirect_stdout=False,
                redirect_stderr=False,
            )  # fmt: skip
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def frame(self, frame: Frame) -> None:
        """A look at a run."""
        if self._seed is None:
            self._seed = frame.seed
        if self._live is None:
            if frame.seed == self._seed:
                for change in frame.changes:
                    self._console.print(Text(told(change, self._scenario.start)), soft_wrap=True)
            return
        self._frames[frame.seed] = frame
        current = self._frames[self._seed]
        if current.at >= current.of and frame.seed != self._seed:
            self._seed = frame.seed
            self._changes.clear()
        if frame.seed == self._seed:
            self._changes.extend(frame.changes)
        self._live.update(self._draw(), refresh=True)

    def done(self, count: int, of: int) -> None:
        """So many runs are over."""
        self._done = (count, of)
        if self._live is not None:
            self._live.update(self._draw(), refresh=True)

    # --- drawing ---------------------------------------------------------------------------------------------------

    def _draw(self) -> RenderableType:
        frame = self._frames.get(self._seed) if self._seed is not None else None
        rows: list[RenderableType] = []
        if frame is None:
            rows.append(Text("starting", style="dim"))
        else:
            rows += [self._clock(frame), Text(), *self._pools(frame), self._service(frame), Text()]
            rows += [_decision(change, self._scenario.start) for change in self._changes]
            rows += [Text()] * (_SHOWN - len(self._changes))
        count, of = self._done
        runs = Table.grid(padding=(0, 1))
        runs.add_row("all runs", ProgressBar(total=max(1, of), completed=count, width=30), f"{count} of {of}")
        rows += [Text(), runs]
        return Panel(Group(*rows), title=self._scenario.name, box=box.ROUNDED, padding=(0, 1))

    def _clock(self, frame: Frame) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        text = f"{offset(frame.at)} of {offset(frame.of)}, seed {frame.seed}"
        row.add_row("Governor", ProgressBar(total=frame.of, completed=frame.at, width=30), text, self._event(frame.at))
        return row

    def _event(self, at: float) -> Text:
        now = [event.name for event in self._scenario.events if event.begin <= at < event.end]
        return Text(", ".join(now), style="bold red")

    def _pools(self, frame: Frame) -> list[Text]:
        width = max((len(pool) for pool in frame.replicas), default=0)
        lines = []
        for pool, (wanted, ready, coming) in frame.replicas.items():
            line = Text(f"{pool:<{width}}  ")
            line.append("●" * min(ready, _WIDE), style="green")
            line.append("○" * min(coming, max(0, _WIDE - ready)), style="yellow")
            line.append(f"  {ready} ready, {coming} on the way, {wanted} wanted")
            lines.append(line)
        return lines

    def _service(self, frame: Frame) -> Text:
        line = Text(f"{frame.waiting:,} wait")
        good = self._scenario.good_minute
        for words, value in (("attained so far", frame.attained), ("in the last two minutes", frame.recent)):
            if value is not None:
                line.append(f"; {words} ")
                line.append(percent(value), style="green" if value >= good else "red")
        return line


def told(change: Change, start: float) -> str:
    """`08:15 chat/replicas 3 → 4: why`, the time since the start."""
    return f"{offset(change.at - start)} {change.target} {number(change.before)} → {number(change.after)}: {change.why}"


def offset(seconds: float) -> str:
    """`08:15`, `1:08:15`: time since the start."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _decision(change: Change, start: float) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    up = change.after > change.before
    line.append(f"{offset(change.at - start)} ", style="dim")
    line.append(f"{change.target} {number(change.before)} → {number(change.after)}", style="green" if up else "blue")
    line.append(f": {change.why}")
    return line
