"""Reading: one measured quantity with its state, so that no code can mistake "unknown" for a number."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import isfinite


class State(StrEnum):
    """What kind of knowledge a reading is."""

    OK = "ok"
    NO_TRAFFIC = "no_traffic"  # nothing happened, and we know that nothing happened
    MISSING = "missing"  # a query or scrape gave nothing
    STALE = "stale"  # the newest sample is too old
    PARTIAL = "partial"  # some replicas or stores did not answer
    UNDERFILLED = "underfilled"  # the window reaches back past the first sample we have
    SATURATED_TOP = "saturated_top"  # above the largest finite bucket: lo only
    BELOW_FIRST = "below_first"  # below the first bucket edge: hi only
    CENSORED = "censored"  # work in flight that has not reported yet
    UNSUPPORTED = "unsupported"  # this engine cannot tell


# States in which `value` may be used as a number by a law that only ever tightens or adds capacity.
USABLE = frozenset({State.OK, State.PARTIAL, State.UNDERFILLED, State.SATURATED_TOP, State.BELOW_FIRST, State.CENSORED})
# States that count as evidence for relaxing a lever or lowering capacity.
TRUSTED = frozenset({State.OK, State.NO_TRAFFIC, State.BELOW_FIRST})

_VALUELESS = frozenset({State.MISSING, State.UNSUPPORTED, State.NO_TRAFFIC})


@dataclass(frozen=True, slots=True)
class Reading:
    """A quantity in the unit of its signal, with bounds; finite or absent, never NaN.

    `count` is the number of samples behind it, `age` the seconds since its newest sample, `window` the seconds it
    covers, `source` the metric it came from, `note` the reason when the state is not ok.
    """

    state: State
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    count: float | None = None
    age: float | None = None
    window: float | None = None
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for number in (self.value, self.lo, self.hi, self.count, self.age, self.window):
            if number is not None and not isfinite(number):
                self._refuse_infinite()
        if self.value is not None and self.state in _VALUELESS:
            raise ValueError(f"a {self.state} reading carries no value")

    def _refuse_infinite(self) -> None:
        for name in ("value", "lo", "hi", "count", "age", "window"):
            number = getattr(self, name)
            if number is not None and not isfinite(number):
                raise ValueError(f"reading {self.source or '?'}: {name} must be finite, not {number}")

    @property
    def usable(self) -> float | None:
        """The number to protect by: the value, else the lower bound (a censored wait is at least that long)."""
        if self.state not in USABLE:
            return None
        return self.value if self.value is not None else self.lo

    @property
    def trusted(self) -> bool:
        """Whether the reading is evidence for relaxing."""
        return self.state in TRUSTED


MISSING = Reading(State.MISSING)


def ok(value: float, **rest: float | str | None) -> Reading:
    """A plain good reading."""
    return Reading(State.OK, value=value, **rest)  # type: ignore[arg-type]


@cache
def unsupported(why: str) -> Reading:
    """This engine cannot tell, and why."""
    return Reading(State.UNSUPPORTED, note=why)
