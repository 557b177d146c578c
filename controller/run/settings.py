"""What the daemon, its metrics and its status page need to know of a config, and what they ask of a loop.

Kept apart from the config models so that this half of the room can run, and be tested, with toy loops.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from controller.core.model import Lever, Mode
from controller.core.slo import Objective
from controller.run.loop import TickResult


class Loop(Protocol):
    """What the daemon drives (``loop.ControlLoop``)."""

    def tick(self, at: float) -> TickResult: ...
    def adopt(self, previous: Self) -> None: ...
    def stop(self) -> None: ...  # from any thread: nothing is sent any more
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LeverSettings:
    """Mode and hard bounds of one lever of one pool, in the unit of the lever; a bound may be absent."""

    mode: Mode
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """One config as the daemon sees it. `interval` and `deadline` in seconds, `listen` as host:port, `objectives` and
    `levers` by pool; `doubts` are sentences on what is allowed and hardly meant."""

    interval: float
    deadline: float
    listen: str
    config_hash: str
    objectives: Mapping[str, tuple[Objective, ...]] = field(default_factory=dict)
    levers: Mapping[str, Mapping[Lever, LeverSettings]] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()

    @property
    def pools(self) -> frozenset[str]:
        """Every pool of the config."""
        return frozenset({*self.objectives, *self.levers})

    def __post_init__(self) -> None:
        if self.interval < 0.001:  # slots are whole milliseconds
            raise ValueError(f"interval must be at least 1 ms, not {self.interval} s")
