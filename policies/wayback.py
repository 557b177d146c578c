"""Way back: how a replica that was taken out of rotation comes back, for every law that takes replicas out.

    closed 1 -> open 0 -> probe 0.05 -> ramp 0.25 -> closed 1

A replica without traffic shows nothing, so that a law which waits for its signal to fall would wait for ever, and one
that takes silence for health would send all of its share to a GPU that is still ill. Time alone leads from open to
probe, and evidence that is mostly of the present phase leads on. Open lasts first * 2^k, up to 20 % less by a hash of
the replica's name, where k counts relapses. A phase lasts from when the target has its value. A probe that was given
no request for a while is given more, and no more than the ramp.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol, Self, TypeVar

OPEN_TIME, OPEN_MAX = 10.0, 300.0  # seconds out the first time, and at most
JITTER = 0.2
QUIET = 600.0  # seconds in rotation after which relapses are forgotten
SILENT = 60.0  # seconds after which a probe that got no request is given more


class Phase(StrEnum):
    """Where a replica stands."""

    CLOSED = "closed"  # in rotation
    OPEN = "open"  # out
    PROBE = "probe"
    RAMP = "ramp"


# By their own names, because a member of an enum takes ten times as long to look up, and every replica has a phase.
CLOSED, OPEN, PROBE, RAMP = Phase.CLOSED, Phase.OPEN, Phase.PROBE, Phase.RAMP
FACTOR = {Phase.CLOSED: 1.0, Phase.OPEN: 0.0, Phase.PROBE: 0.05, Phase.RAMP: 0.25}


class Stand(NamedTuple):
    """One replica: its phase and `since` when, `until` when it stays open (unix seconds); `relapses` since the last
    quiet time."""

    phase: Phase = Phase.CLOSED
    since: float = 0.0
    until: float = 0.0
    relapses: int = 0


class Standing(Protocol):
    """A named tuple with the fields of ``Stand`` and what else a law remembers of a replica."""

    @property
    def phase(self) -> Phase: ...
    @property
    def since(self) -> float: ...
    @property
    def until(self) -> float: ...
    @property
    def relapses(self) -> int: ...
    def _replace(
        self, *, phase: Phase = ..., since: float = ..., until: float = ..., relapses: int = ...
    ) -> Self: ...  # fmt: skip


S = TypeVar("S", bound=Standing)


def opened(one: S, name: str, now: float, first: float = OPEN_TIME, most: float = OPEN_MAX) -> S:
    """Out, for longer each time."""
    usual = min(first * 2.0 ** min(one.relapses, 30), most)
    until = now + usual * (1 - JITTER * spread(name, one.relapses))
    return one._replace(phase=Phase.OPEN, since=now, until=until, relapses=one.relapses + 1)


def due(one: Standing, now: float) -> bool:
    """Whether it has been out for long enough to be tried."""
    return one.phase is Phase.OPEN and now >= one.until - 1e-6


def moved(one: S, phase: Phase, now: float) -> S:
    """The same in another phase from now on."""
    return one._replace(phase=phase, since=now)


def arrived(one: Standing, accepted: float | None) -> bool:
    """Whether the target has the factor of the phase, or more."""
    return accepted is None or accepted >= FACTOR[one.phase] - 1e-9


def onward(one: S, now: float, *, well: bool, silent: float = SILENT) -> S:
    """A probe or a ramp that is not ill: on when it is well, and a probe also after `silent` seconds."""
    if one.phase is Phase.RAMP:
        return moved(one, Phase.CLOSED, now) if well else one
    return moved(one, Phase.RAMP, now) if well or now - one.since >= silent - 1e-6 else one


def spread(name: str, count: int) -> float:
    """A number in [0, 1) that depends on the name and the count alone (FNV-1a, then the finaliser of splitmix64), so
    that replicas that went out together do not come back together."""
    bits = 0xCBF29CE484222325
    for byte in f"{name}/{count}".encode():
        bits = ((bits ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = ((bits ^ (bits >> shift)) * factor) & 0xFFFFFFFFFFFFFFFF
    return ((bits ^ (bits >> 31)) >> 11) * 2.0**-53
