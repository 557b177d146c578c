"""A recording as a source: what Prometheus or the engine said then, given again tick by tick."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import ClassVar

from controller.core.observation import Observation
from controller.core.params import param
from controller.core.ports import PoolNeeds
from sources.frames import Frame, Layout
from sources.increments import LONGEST_GAP, Increments
from sources.recording_file import Recording, RecordingError

_LATE = 1.5  # intervals after which a frame is missing
_DUE = 0.75  # intervals after which the newest frame does not stand for the present, where it is known to be the last


@dataclass(frozen=True, slots=True)
class RecordingConfig:
    """Where the recording is."""

    path: str = param("the recording, made by `governor record` or `governor import`")
    damaged: bool = param("read a damaged file up to the damage instead of refusing it", False)


class RecordingSource:
    """Implements ``ports.Source``. Raises RecordingError when the file cannot be opened or is no recording; damage
    further on is told in the observation. Of the recording only what lies `between` two times is given (unix seconds,
    both included).

    `observe` takes times that move forward and may be coarser or finer than the frames. Between two frames the newest
    one stands, with its age; once that age says that frames are missing, the observation carries an error, and what was
    counted meanwhile is in the next good one.
    """

    Config: ClassVar[type[RecordingConfig]] = RecordingConfig

    def __init__(
        self, config: RecordingConfig, needs: Sequence[PoolNeeds], between: tuple[float, float] = (-math.inf, math.inf)
    ) -> None:
        self._between = between
        self.recording = Recording(Path(config.path), damaged=config.damaged)
        header = self.recording.header
        self._interval = header.interval
        self._of_facts = header.kind == "facts"
        self._increments = Increments(
            needs,
            recorded=header.facts if header.kind == "facts" else None,
            late=header.late,
            longest_gap=max(LONGEST_GAP, 5 * self._interval),
        )
        self._layout = Layout()
        first, last = between
        self._frames = (frame for frame in self.recording.frames(self._layout) if first <= frame.at <= last)
        self._next: Frame | None = None
        self._ended = False
        self._damage = ""
        self._at: float | None = None

    def times(self) -> tuple[float, ...]:
        """The times of the frames, unix seconds: the natural ticks of a rehearsal. Raises RecordingError on damage,
        and when the recording has nothing of the range asked for."""
        times = self.recording.times()
        first, last = self._between
        chosen = tuple(at for at in times if first <= at <= last)
        if times and not chosen:
            begin, end = (datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") for at in (times[0], times[-1]))
            raise RecordingError(
                f"{self.recording.path}: has nothing of the range asked for; it is from {begin} to {end}"
            )
        return chosen

    def observe(self, at: float, deadline: float) -> Observation:
        """Everything recorded since the previous call. `deadline` is not needed: the disk is near."""
        since = self._increments.base
        if self._at is not None and at <= self._at:
            return Observation(at, since, error=f"a recording runs forward only; {self._at:.3f} was observed before")
        self._at = at
        while (frame := self._peek()) is not None and frame.at <= at:
            # Rows of facts are of their time; series are what a query saw, and not when they were scraped.
            self._increments.feed(frame, stamps={} if self._of_facts else None)
            self._next = None
        newest = self._increments.newest
        if self._damage and newest is None:
            return Observation(at, None, error=self._damage)
        if newest is None:
            begins = "it has no frames" if frame is None else f"it begins at {frame.at:.3f}"
            return Observation(at, None, error=f"{self.recording.path}: nothing recorded before {at:.3f}; {begins}")
        # A recording knows what comes: the first tick inside a hole is told as one. Were the old frame held there, all
        # that was counted across the hole would be crowded into the rest of it.
        hole = frame is not None and frame.at - newest > _LATE * self._interval
        if at - newest > (_DUE if hole else _LATE) * self._interval:
            then = self._damage or ("it ended" if frame is None else f"the next is at {frame.at:.3f}")
            return Observation(
                at,
                since,
                error=f"no sample since {newest:.3f}, {at - newest:.1f} s ago, in {self.recording.path}; {then}",
            )
        if not self._increments.matched:
            return Observation(at, since, error=self._unmatched())
        return self._increments.take(at)

    def close(self) -> None:
        self._frames.close()

    def _peek(self) -> Frame | None:
        if self._next is None and not self._ended:
            try:
                self._next = next(self._frames, None)
                self._ended = self._next is None
            except RecordingError as error:
                self._damage, self._ended = str(error), True
        return self._next

    def _unmatched(self) -> str:
        values: dict[str, set[str]] = {}
        for _, pairs in self._layout.keys:
            for name, value in pairs:
                values.setdefault(name, set()).add(value)
        common = [f"{name}={next(iter(found))!r}" for name, found in sorted(values.items()) if len(found) == 1]
        several = [name for name, found in sorted(values.items()) if len(found) > 1]
        shown = ", ".join(islice([*common, *several], 12)) or "none"
        return f"no series of {self.recording.path} matches the selector of any pool; its labels are {shown}"
