"""Own oscillation: a lever that swings by itself is turned down, one that follows a swinging load is not.

The value of a lever is cut into swings from turn to turn. A swing is the lever's own when what drives it moved by less
than half of it in the same direction, from a dead time and a release before its start until its end: feed-forward
follows its load, and so does a release that waits. Four own swings in a row, two whole periods of 2 to 8 dead times,
are an oscillation: faster ones are noise, slower ones no feedback behind this dead time would make.

Each time one is found the gain halves, down to a quarter; it comes back over twenty dead times in which there is none.
The gain multiplies what integrates feedback and slows what is released. Feed-forward and protection never see it, so
that a gain lowered by mistake costs capacity and no promise.
"""

import math
from typing import NamedTuple

SWING = 0.05  # ln of the value; what is less is no swing
OWN = 0.5  # share of a swing that its drive must at least explain
SWINGS = 4  # own swings in a row that make an oscillation
SHORTEST, LONGEST = 2.0, 8.0  # period of an oscillation in dead times
LEAST = 0.25  # lowest gain
RECOVERY = 20.0  # dead times in which the gain comes back by an e-fold
CELLS = 8  # parts into which a dead time and a release are cut, to remember the drive
MOST_CELLS = 20 * CELLS  # of a climb that does not end, the beginning is forgotten


class Swing(NamedTuple):
    """A stretch from turn to turn: unix seconds, its sign and size in ln, and whether nothing drove it."""

    start: float
    end: float
    size: float
    own: bool


class Cell(NamedTuple):
    """Least and most of the drive in a part of the past that begins at `at`, unix seconds."""

    at: float
    least: float
    most: float


class OscillationState(NamedTuple):
    """Memory of one lever: its gain; the last turn (unix seconds, ln of the value) and the furthest point since; the
    swings in a row that were its own; and the drive since a while before the last turn."""

    at: float | None = None
    gain: float = 1.0
    turn: tuple[float, float] | None = None
    peak: tuple[float, float] | None = None
    swings: tuple[Swing, ...] = ()
    drive: tuple[Cell, ...] = ()


def note(
    at: float, position: float, drive: float, dead_time: float, release: float, grain: float, state: OscillationState
) -> OscillationState:
    """Take in one tick. `position` is the ln of the lever's value and `drive` the ln of what feed-forward follows;
    `dead_time` seconds until a change shows, `release` seconds that a release waits at most, `grain` the ln of one
    quantum: the last replica that comes and goes is rounding."""
    reach, least = dead_time + release, max(SWING, 1.2 * grain)
    cells = _remember(state.drive, at, drive, reach / CELLS)
    gain = _recover(state, at, dead_time)
    if state.turn is None or state.peak is None:
        return OscillationState(at, gain, (at, position), (at, position), (), cells)
    turn, peak, swings = state.turn, state.peak, state.swings
    rising = peak[1] - turn[1]
    if rising == 0.0:
        # The way from the last turn is not known yet: the turn moves along until a swing begins.
        peak = (at, position) if abs(position - turn[1]) >= least else peak
        turn = turn if peak[0] == at else (at, turn[1])
    elif (position - peak[1]) * rising > 0:
        peak = (at, position)
    elif (position - peak[1]) * rising < 0 and abs(position - peak[1]) >= least:
        swing = Swing(turn[0], peak[0], rising, not _explained(cells, turn[0] - reach, peak[0], rising))
        swings = (*swings, swing)[-SWINGS:] if swing.own else ()
        # It lay at its furthest point until the tick before this one.
        turn, peak = (state.at if state.at is not None else peak[0], peak[1]), (at, position)
    if _oscillates(swings, dead_time):
        gain, swings = max(LEAST, gain / 2), ()
    elif at - peak[0] > LONGEST * dead_time:
        # It came to rest: the next swing begins here.
        turn = peak = (at, position)
        swings = ()
    first, begin = 0, turn[0] - reach  # a cell lasts until the next one begins
    while first + 1 < len(cells) and cells[first + 1].at <= begin:
        first += 1
    return OscillationState(at, gain, turn, peak, swings, cells[first:][-MOST_CELLS:])


def _oscillates(swings: tuple[Swing, ...], dead_time: float) -> bool:
    if len(swings) < SWINGS:
        return False
    period = 2 * (swings[-1].end - swings[0].start) / len(swings)
    return SHORTEST * dead_time <= period <= LONGEST * dead_time


def _explained(cells: tuple[Cell, ...], start: float, end: float, size: float) -> bool:
    """Whether the drive moved in the direction of a swing by at least its share, at any time from `start` to `end`."""
    sign = math.copysign(1.0, size)
    most, low = 0.0, math.inf
    for i, cell in enumerate(cells):
        if cell.at > end or (i + 1 < len(cells) and cells[i + 1].at <= start):
            continue
        low = min(low, cell.least if sign > 0 else -cell.most)
        most = max(most, (cell.most if sign > 0 else -cell.least) - low)
    return most >= OWN * abs(size)


def _recover(state: OscillationState, at: float, dead_time: float) -> float:
    if state.at is None or state.swings or state.gain == 1.0:
        return state.gain
    gone = min(max(0.0, at - state.at), dead_time)
    lost = (1.0 - state.gain) * math.exp(-gone / (RECOVERY * dead_time))
    return 1.0 - lost if lost > 0.01 else 1.0


def _remember(cells: tuple[Cell, ...], at: float, drive: float, width: float) -> tuple[Cell, ...]:
    if cells and at - cells[-1].at < width:
        last = cells[-1]
        return (*cells[:-1], Cell(last.at, min(last.least, drive), max(last.most, drive)))
    return (*cells, Cell(at, drive, drive))
