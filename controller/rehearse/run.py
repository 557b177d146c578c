"""Run the loop over a recording, as fast as it goes. What a Prometheus remembers is recorded first: one path."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Protocol

from controller import registry
from controller.config import GovernorConfig, pool_needs
from controller.core.errors import InputError
from controller.core.model import Plan, Snapshot
from controller.core.ports import PoolNeeds, Source
from controller.core.words import clock
from controller.rehearse.trace import Trace
from controller.run.assembly import RunMode, assemble

OnTick = Callable[[int, int, Snapshot, Plan], None]  # tick, ticks, what was seen, what was decided
_DAY, _YEAR_10000 = 86_400.0, 253_402_300_800.0
_KIND = "recording"
_MOST = 2_000_000  # ticks; more is a mistaken step or a recording with a clock gone wrong


class TimedSource(Source, Protocol):
    """A source that knows when it has something to say."""

    def times(self) -> Sequence[float]:
        """Unix seconds of all frames, ascending."""
        ...


class RehearsalError(InputError):
    """This recording cannot be rehearsed. The message says why and what can be done."""


def open_recording(
    path: Path, config: GovernorConfig, between: tuple[float, float] = (-math.inf, math.inf)
) -> TimedSource:
    """What the recording holds `between` two times (unix seconds), as a source for this config. Errors are those of the
    `recording` source."""
    return open_for(pool_needs(config), path, config, between)


def open_for(
    needs: Sequence[PoolNeeds], path: Path, config: GovernorConfig, between: tuple[float, float]
) -> TimedSource:
    """The same for needs of one's own. A config whose source is a recording says whether a damaged one is read."""
    kind = registry.source(_KIND)
    damaged = config.source.kind == _KIND and config.source.settings.damaged
    source: TimedSource = kind(kind.Config(path=str(path), damaged=damaged), needs, between)
    return source


def recording_of(config: GovernorConfig) -> Path | None:
    """The recording that the config itself names as its source, if it does."""
    return Path(config.source.settings.path) if config.source.kind == _KIND else None


def rehearse(
    config: GovernorConfig,
    source: TimedSource,
    *,
    step: float | None = None,
    ledger: Path | None = None,
    on_tick: OnTick | None = None,
) -> Trace:
    """Tick through the whole recording; `step` seconds from tick to tick, by default the interval of the config.

    Raises RehearsalError when the recording holds nothing, or needs an absurd number of ticks.
    """
    times, width = tick_times(source.times(), step or config.interval)
    trace = Trace.begin(
        width,
        {name: pool.to_objectives() for name, pool in config.pools.items()},
        {name: pool.gpus_per_replica for name, pool in config.pools.items()},
    )
    loop = assemble(config, mode=RunMode.REPLAY, source=source, ledger_path=ledger)
    try:
        for number, at in enumerate(times, start=1):
            result = loop.tick(at)
            trace.append(result.snapshot, result.plan)
            if on_tick is not None:
                on_tick(number, len(times), result.snapshot, result.plan)
    finally:
        loop.close()
    trace.finish()
    return trace


def tick_times(frames: Sequence[float], step: float) -> tuple[list[float], float]:
    """When to tick, and the distance that this amounts to.

    Slots `step` seconds apart from the first frame on, through holes too, for blindness is part of the rehearsal. Where
    frames are sparser than `step` the ticks are the frames themselves: looking more often would show nothing new, and
    would call every second look stale.
    """
    if not frames:
        raise RehearsalError("the recording holds no frame; record a longer range, or check the config's selectors")
    gaps = [b - a for a, b in pairwise(frames)]
    _sane_clock(frames, gaps)
    usual = median(gaps) if gaps else step
    if usual <= step * 1.05:
        count = int((frames[-1] - frames[0]) / step + 1e-9) + 1
        _sane(count, step)
        return [frames[0] + i * step for i in range(count)], step
    times = list(frames[:1])
    for before, at in pairwise(frames):
        missing = int((at - before) / usual - 0.5) if at - before > 1.5 * usual else 0
        _sane(len(times) + missing, usual)
        times += [before + usual * i for i in range(1, missing + 1)] + [at]
    return times, usual


def _sane_clock(frames: Sequence[float], gaps: Sequence[float]) -> None:
    """Times that no fleet has: judged all the same, the fleet would be missing for nearly all of the rehearsal."""
    if not 0 <= frames[0] <= frames[-1] < _YEAR_10000:
        raise RehearsalError(
            f"the recording is from {frames[0]:.0f} to {frames[-1]:.0f}, which are no unix seconds; import it again"
        )
    longest = max(gaps, default=0.0)
    if longest > _DAY and longest > frames[-1] - frames[0] - longest:
        hole = gaps.index(longest)
        before, after = (clock(at, date=True) for at in frames[hole : hole + 2])
        raise RehearsalError(
            f"nothing was recorded between {before} and {after} UTC, longer than all that was; if this is no mistaken "
            "timestamp, rehearse one side of it with --from or --to"
        )


def _sane(count: int, step: float) -> None:
    if count > _MOST:
        raise RehearsalError(
            f"the recording would need {count:,} ticks of {step:g} s; use a longer --step, or check its timestamps"
        )
