"""PromQL as strings: selectors with escaped values, exact increments, aggregation with tagged parts. Pure.

An increment between `at - d` and `at` is written per series, before any sum, as the rules of ``Observation`` want it:

    (clamp_min(x - x offset d, -1e-9) != -1e-9) or (x and on(job,instance) (up offset d == 1))

The left side is what was added. It is empty where the value fell or the series was not there at ``at - d``; then the
right side gives the whole new value, but only if the target was up at ``at - d``: its process restarted, or the series
was born, in between. A target that was down or unknown has counted for we do not know how long, and gives nothing.
``or`` compares labels without the name, so no series counts twice. A missed scrape gives 0 now and all later; a
staleness marker ends a series at once; without one (Prometheus itself was away) the five minutes of lookback repeat
the last value, which again is 0 now and all later. ``rate`` would do none of this: it extrapolates, and it drops what
a series counted before its second sample.
"""

from collections.abc import Iterable, Sequence

from controller.core.ports import Matcher
from sources.contracts.contract import Candidate

PART = "governor_part"  # tells the parts of one answer apart
TARGET = ("job", "instance")
_SUM_OF = {"sum": "sum", "max": "max", "mean": "avg"}
_FELL = "-1e-9"  # what all that fell is set to; a counter falls by more
_LONG = 200  # values; a longer list costs more than it saves


def quote(text: str) -> str:
    """A PromQL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def literal(text: str) -> str:
    """A regular expression that matches `text` alone. RE2 takes a backslash before punctuation only, so not
    ``re.escape``, which also escapes spaces."""
    return "".join(f"\\{char}" if char in r"\.+*?()|[]{}^$" else char for char in text)


def one_of(label: str, values: Iterable[str]) -> tuple[Matcher, ...]:
    """A matcher for any of `values`; none when there are too many, or none, to be worth it."""
    wanted = sorted(set(values))
    if not wanted or len(wanted) > _LONG:
        return ()
    if len(wanted) == 1:
        return (Matcher(label, "=", wanted[0]),)
    return (Matcher(label, "=~", "|".join(literal(value) for value in wanted)),)


def selector(name: str, matchers: Iterable[Matcher]) -> str:
    """``name{...}``; `name` is a metric name, or empty when a matcher on ``__name__`` is among the matchers."""
    inner = ",".join(f"{m.label}{m.op}{quote(m.value)}" for m in matchers)
    return f"{name}{{{inner}}}"


def offset(seconds: float) -> str:
    """``offset Nms``: milliseconds, because ticks do not come on whole seconds."""
    return f"offset {max(1, round(seconds * 1000))}ms"


def increment(series: str, back: str, up: str, now: str = "", total: str = "") -> str:
    """What `series` (a selector) gained from `back` to `now` (offsets; `now` empty for the time of evaluation). `up`
    selects the health of its targets; empty where this backend has no ``up``, and then births are not told from old
    series and only a fall counts as a restart. `total` is the count of a histogram that `series` is a part of: when it
    fell, the whole histogram was started anew, also the buckets that are fuller than before."""
    new, old = f"{series} {now}".rstrip(), f"{series} {back}"
    # All that did not fall. A comparison with 0 would drop NaN too, and what was no number then would pass for born.
    gained = f"clamp_min({new} - {old}, {_FELL}) != {_FELL}"
    fell = f"({new} < {old})"
    if total:
        restarted = f"ignoring(le) ({f'{total} {now}'.rstrip()} < {total} {back})"
        gained = f"({gained}) unless {restarted}"
        fell = f"({new} and {restarted})"
    reborn = f"({new} and on({','.join(TARGET)}) ({up} {back} == 1))" if up else fell
    return f"(({gained}) or {reborn})"


def aggregate(op: str, labels: Sequence[str], inner: str, duplicates: Sequence[str] = ()) -> str:
    """Sum, max or mean by labels, after series that only repeat each other are made one."""
    if duplicates:
        inner = f"max without ({','.join(duplicates)}) ({inner})"
    return f"{_SUM_OF[op]} by ({','.join(labels)}) ({inner})"


def tagged(part: str, expression: str) -> str:
    """Rows that say which part they are; for the only part, "", they need not."""
    if not part:
        return expression
    return f'label_replace({expression},"{PART}","{part}","","")'


def tagged_count(part: str, expression: str) -> str:
    """A count that poses as the +Inf bucket of a histogram without buckets."""
    return tagged(part, f'label_replace({expression},"le","+Inf","","")')


class Reader:
    """Writes the expression that reads one candidate, for one way of grouping and one span of time."""

    def __init__(
        self, labels: Sequence[str], matchers: Sequence[Matcher], back: str = "", up: str = "", now: str = ""
    ) -> None:
        self._labels = tuple(labels)
        self._matchers = tuple(matchers)
        self._back = back
        self._up = up
        self._now = now

    def histogram(self, part: str, candidate: Candidate, older: str = "") -> str:
        """Rows with ``le`` are the buckets, the row without it is the sum. `older` excludes targets (see `without`)."""
        return f"{tagged(part, self.buckets(candidate, older))} or {tagged(part, self.total(candidate, older))}"

    def buckets(self, candidate: Candidate, older: str = "") -> str:
        gained = self._gained(f"{candidate.metric}_bucket", candidate, older, f"{candidate.metric}_count")
        return aggregate("sum", (*self._labels, "le"), gained, candidate.duplicates)

    def total(self, candidate: Candidate, older: str = "") -> str:
        gained = self._gained(f"{candidate.metric}_sum", candidate, older, f"{candidate.metric}_count")
        return aggregate("sum", self._labels, gained, candidate.duplicates)

    def mean(self, part: str, candidate: Candidate, older: str = "") -> str:
        """Two counters as a histogram without buckets."""
        total = self._gained(candidate.metric, candidate, older)
        count = self._gained(candidate.count_metric, candidate, older)
        return " or ".join(
            (
                tagged_count(part, aggregate("sum", self._labels, count, candidate.duplicates)),
                tagged(part, aggregate("sum", self._labels, total, candidate.duplicates)),
            )
        )

    def counter(self, part: str, candidate: Candidate, older: str = "") -> str:
        inner = self._gained(candidate.metric, candidate, older)
        return tagged(part, aggregate(candidate.within, self._labels, inner, candidate.duplicates))

    def gauge(self, part: str, candidate: Candidate, older: str = "") -> str:
        """A gauge, as a ratio where the candidate has `over`. A denominator of 0 gives no row."""
        value = self._level(candidate, older)
        if candidate.over is not None:
            value = f"{value} / ({self._level(candidate.over, older)} > 0)"
        return tagged(part, value)

    def grid(self, part: str, candidate: Candidate) -> str:
        """How many series have each bucket edge: an edge that not all have must not be summed."""
        series = self.select(f"{candidate.metric}_bucket", candidate)
        return tagged(part, f"count by ({','.join((*self._labels, 'le'))}) ({series})")

    def select(self, name: str, candidate: Candidate) -> str:
        return selector(name, (*self._matchers, *candidate.where))

    def _gained(self, name: str, candidate: Candidate, older: str, total: str = "") -> str:
        count = self.select(total, candidate) if total else ""
        gained = increment(self.select(name, candidate), self._back, self._up, self._now, count)
        if (only := candidate.only_with) is not None:
            witness = selector(only.metric, (*self._matchers, *only.where))
            gained = f"({gained} and on({','.join(candidate.on)}) ({witness} > 0))"
        return without(gained, older)

    def _level(self, candidate: Candidate, older: str) -> str:
        series = self.select(candidate.metric, candidate)
        if candidate.ignore_below is not None:
            series = f"({series} >= {candidate.ignore_below!r})"
        if candidate.ignore_above is not None:
            series = f"({series} <= {candidate.ignore_above!r})"
        labels = (*self._labels, candidate.value_label) if candidate.value_label else self._labels
        op = "max" if candidate.value_label else candidate.within
        return aggregate(op, labels, without(series, older), candidate.duplicates)


def without(series: str, better: str) -> str:
    """Leave out the targets that expose a better candidate (a selector), so that a pool in the middle of an upgrade is
    read once per target."""
    return f"({series} unless on({','.join(TARGET)}) {better})" if better else series
