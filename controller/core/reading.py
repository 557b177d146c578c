"""Reading: one measured quantity with its state, so that no code can mistake "unknown" for a number."""

from enum import StrEnum
from functools import cache
from math import inf
from typing import NamedTuple, Self


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


class _Fields(NamedTuple):
    """What a reading is made of. A tuple, because it is frozen and yet made in a third of the time that a frozen
    dataclass takes: a large fleet makes 100,000 readings a tick."""

    state: State
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    count: float | None = None  # type: ignore[assignment]  # not the method of tuples
    age: float | None = None
    window: float | None = None
    source: str = ""
    note: str = ""


class Reading(_Fields):
    """A quantity in the unit of its signal, with bounds; finite or absent, never NaN.

    `count` is the number of samples behind it, `age` the seconds since its newest sample, `window` the seconds it
    covers, `source` the metric it came from, `note` the reason when the state is not ok.
    """

    __slots__ = ()

    def __new__(
        cls,
        state: State,
        value: float | None = None,
        lo: float | None = None,
        hi: float | None = None,
        count: float | None = None,
        age: float | None = None,
        window: float | None = None,
        source: str = "",
        note: str = "",
    ) -> Self:
        # Comparing is quicker than asking isfinite, and no NaN lies between any bounds.
        if value is not None and (state in _VALUELESS or not -inf < value < inf):
            if state in _VALUELESS:
                raise ValueError(f"a {state} reading carries no value")
            raise _infinite(source, "value", value)
        if lo is not None and not -inf < lo < inf:
            raise _infinite(source, "lo", lo)
        if hi is not None and not -inf < hi < inf:
            raise _infinite(source, "hi", hi)
        if count is not None and not -inf < count < inf:
            raise _infinite(source, "count", count)
        if age is not None and not -inf < age < inf:
            raise _infinite(source, "age", age)
        if window is not None and not -inf < window < inf:
            raise _infinite(source, "window", window)
        return _tuple(cls, (state, value, lo, hi, count, age, window, source, note))

    @property
    def usable(self) -> float | None:
        """The number to protect by: the value, else the lower bound (a censored wait is at least that long)."""
        if self.state not in USABLE:
            return None
        value = self.value
        return self.lo if value is None else value

    @property
    def trusted(self) -> bool:
        """Whether the reading is evidence for relaxing."""
        return self.state in TRUSTED


def _infinite(source: str, name: str, number: float) -> ValueError:
    return ValueError(f"reading {source or '?'}: {name} must be finite, not {number}")


_tuple = tuple.__new__  # past the one of the fields, which would make the same tuple in twice the time
MISSING = Reading(State.MISSING)


def ok(value: float, **rest: float | str | None) -> Reading:
    """A plain good reading."""
    return Reading(State.OK, value=value, **rest)  # type: ignore[arg-type]


@cache
def unsupported(why: str) -> Reading:
    """This engine cannot tell, and why."""
    return Reading(State.UNSUPPORTED, note=why)
