"""Reading: one measured quantity with its state, so that no code can mistake "unknown" for a number."""

from dataclasses import dataclass, fields
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


@dataclass(frozen=True, slots=True, init=False)
class Reading:  # noqa: PLW1641 - the dataclass makes its hash
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

    def __init__(
        self,
        state: State,
        value: float | None = None,
        lo: float | None = None,
        hi: float | None = None,
        count: float | None = None,
        age: float | None = None,
        window: float | None = None,
        source: str = "",
        note: str = "",
    ) -> None:
        # Written out: a large fleet makes 100,000 of these per tick, and the generated one takes twice the time.
        if value is not None and state in _VALUELESS:
            raise ValueError(f"a {state} reading carries no value")
        # The sum of finite numbers is finite, but for the very largest; with one that is not, it never is.
        if not isfinite((value or 0.0) + (lo or 0.0) + (hi or 0.0) + (count or 0.0) + (age or 0.0) + (window or 0.0)):
            _refuse(source, value=value, lo=lo, hi=hi, count=count, age=age, window=window)
        _set_state(self, state)
        _set_value(self, value)
        _set_lo(self, lo)
        _set_hi(self, hi)
        _set_count(self, count)
        _set_age(self, age)
        _set_window(self, window)
        _set_source(self, source)
        _set_note(self, note)

    def __eq__(self, other: object) -> bool:
        # Written out for the same reason: most differ in their value, and that is seen first.
        return isinstance(other, Reading) and (
            self.value == other.value
            and self.state is other.state
            and self.count == other.count
            and self.age == other.age
            and self.lo == other.lo
            and self.hi == other.hi
            and self.window == other.window
            and self.source == other.source
            and self.note == other.note
        )

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


def _refuse(source: str, **numbers: float | None) -> None:
    """Raise ValueError for the first number that is not finite; finite ones may still have an infinite sum."""
    for name, number in numbers.items():
        if number is not None and not isfinite(number):
            raise ValueError(f"reading {source or '?'}: {name} must be finite, not {number}")


# The slots' own setters, the only way round "frozen".
_set_state, _set_value, _set_lo, _set_hi, _set_count, _set_age, _set_window, _set_source, _set_note = (
    vars(Reading)[slot.name].__set__ for slot in fields(Reading)
)

MISSING = Reading(State.MISSING)


def ok(value: float, **rest: float | str | None) -> Reading:
    """A plain good reading."""
    return Reading(State.OK, value=value, **rest)  # type: ignore[arg-type]


@cache
def unsupported(why: str) -> Reading:
    """This engine cannot tell, and why."""
    return Reading(State.UNSUPPORTED, note=why)
