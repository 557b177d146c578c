"""promtool's series notation: `'0+5x10 _ 8 stale'` and `metric{label="value"}`."""

import math
import re

from controller.core.errors import InputError

_UNSIGNED = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_RUN = re.compile(rf"(?P<first>[+-]?{_UNSIGNED})(?P<step>[+-]{_UNSIGNED})?(?:x(?P<times>\d+))?")
_GAP = re.compile(r"_(?:x(?P<times>\d+))?")
_SERIES = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:.]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)', re.DOTALL)
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}
_MOST = 1_000_000  # values of one series; more is a slip of the pen


def parse_values(text: str, place: str) -> list[float | None]:
    """The values of a series, None where there is no sample (`_`, `stale`).

    As in promtool `a+bxn` is a, a+b, ... a+n*b (n+1 values), `axn` is a repeated n+1 times, and `_xn` n gaps. Raises
    InputError naming `place`.
    """
    values: list[float | None] = []
    for word in text.split():
        if word == "stale":
            values.append(None)
        elif gap := _GAP.fullmatch(word):
            values += [None] * _count(gap["times"] or "1", place, word)
        elif run := _RUN.fullmatch(word):
            if run["step"] and run["times"] is None:
                raise InputError(f"{place}: {word!r} lacks its length; write {word}x10 for ten more values")
            first, step = float(run["first"]), float(run["step"] or 0)
            values += [first + i * step for i in range(_count(run["times"] or "0", place, word) + 1)]
        else:
            raise InputError(
                f"{place}: {word!r} is not promtool's series notation; write for example '1+2x5 _ 8 stale' "
                "(NaN, Inf and native histograms have no meaning here)"
            )
        if any(value is not None and not math.isfinite(value) for value in values[-1:]):
            raise InputError(f"{place}: {word!r} is not finite")
    return values


def parse_series(text: str, place: str) -> tuple[str, dict[str, str]]:
    """Name and labels of `name{label="value", ...}`. Raises InputError naming `place`."""
    match = _SERIES.fullmatch(text)
    if match is None:
        raise InputError(f'{place}: {text!r} is not a series; write name{{label="value"}}')
    name, inside = match[1], match[2] or ""
    found: dict[str, str] = {}
    at = 0
    while inside[at:].strip():
        label = _LABEL.match(inside, at)
        if label is None:
            rest = inside[at:]
            raise InputError(f'{place}: in {text!r} the labels cannot be read from {rest!r} on; write label="value"')
        found[label[1]] = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), label[2])
        at = label.end()
    return name, found


def _count(text: str, place: str, word: str) -> int:
    count = int(text)
    if count > _MOST:
        raise InputError(f"{place}: {word!r} stands for more than {_MOST:,} values")
    return count
