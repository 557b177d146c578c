"""A request log: when one engine got each request, first scheduled it, and sent its first and last token.

One row a request, CSV with a header. Of each column one of its names must be there:

    queued          queued_ts, queued, arrival_time, arrived, arrival_s      the engine got it
    scheduled       scheduled_ts, scheduled                                  first in a batch; may be absent
    first token     first_token_ts, first_token
    last token      last_token_ts, last_token
    prompt tokens   input_toks, input_tokens, prompt_tokens
    answer tokens   output_toks, output_tokens, completion_tokens
    cached tokens   cached_tokens, cached_toks                               of the prompt; may be absent

Times are seconds of one clock. Of two names of a column the one that is written first here counts: a log that has both
`queued_ts` and `arrival_time` is read by the engine's own clock.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.core.errors import InputError

Floats = NDArray[np.float64]

NAMES: dict[str, tuple[str, ...]] = {
    "queued": ("queued_ts", "queued", "arrival_time", "arrived", "arrival_s"),
    "scheduled": ("scheduled_ts", "scheduled"),
    "first token": ("first_token_ts", "first_token"),
    "last token": ("last_token_ts", "last_token"),
    "prompt tokens": ("input_toks", "input_tokens", "prompt_tokens"),
    "answer tokens": ("output_toks", "output_tokens", "completion_tokens"),
    "cached tokens": ("cached_tokens", "cached_toks"),
}
OPTIONAL = frozenset({"scheduled", "cached tokens"})
FEWEST = 40  # requests: half of them to fit on, half to be held out
UNFINISHED = 0.05  # the largest share of requests without a last token
SLOWEST = 10.0  # seconds per token; more is a log in milliseconds


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Requests in the order in which the engine got them. Seconds since the first of them. `scheduled` is None when the
    log does not tell."""

    queued: Floats
    scheduled: Floats | None
    first: Floats
    last: Floats
    prompt: Floats
    output: Floats
    cached: Floats
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.queued)

    @property
    def ttft(self) -> Floats:
        """Seconds from the engine's queue to the first token."""
        return self.first - self.queued

    @property
    def e2e(self) -> Floats:
        """Seconds from the engine's queue to the last token."""
        return self.last - self.queued

    @property
    def tpot(self) -> Floats:
        """Seconds per token after the first; NaN for answers of one token."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.output > 1, (self.last - self.first) / (self.output - 1), np.nan)

    def head(self, count: int) -> "RequestLog":
        """The first `count` requests."""
        return replace(
            self,
            queued=self.queued[:count],
            scheduled=None if self.scheduled is None else self.scheduled[:count],
            first=self.first[:count],
            last=self.last[:count],
            prompt=self.prompt[:count],
            output=self.output[:count],
            cached=self.cached[:count],
        )


def read_log(text: str) -> RequestLog:
    """The log in a CSV text. Raises InputError that names the line or column, and the mend."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    header = tuple(name.strip() for name in rows.fieldnames or ())
    rows.fieldnames = list(header)
    columns = _columns(header)
    table: list[list[float]] = []
    open_ended, total, engines = 0, 0, set()
    for line, row in _rows(rows):
        total += 1
        engines |= {row.get(name) or "" for name in ("replica", "pod", "instance") if name in header}
        values = [_number(row, name, line, needed=False) for name in columns.values()]
        named = dict(zip(columns, values, strict=True))
        if math.isnan(named["last token"]) or math.isnan(named["first token"]):
            open_ended += 1
            continue
        table.append([_number(row, name, line, needed=True) for name in columns.values()])
        _check(dict(zip(columns, table[-1], strict=True)), line)
    if len(engines) > 1:
        raise InputError(
            f"holds the requests of {len(engines)} replicas; keep the rows of one, for one engine is fitted"
        )
    if open_ended > UNFINISHED * total:
        raise InputError(
            f"{open_ended:,} of {total:,} requests have no last token; they loaded the engine for an unknown time, "
            "so take the log of a stretch in which nearly all finished"
        )
    if len(table) < FEWEST:
        raise InputError(f"has {len(table)} finished requests; {FEWEST} are the fewest that can be fitted and checked")
    notes = (f"{open_ended:,} requests without a last token were left out",) if open_ended else ()
    return _ordered(np.array(table), tuple(columns), notes)


def _columns(header: Sequence[str]) -> dict[str, str]:
    """For each kind of column its name in this file."""
    found = {kind: next((n for n in names if n in header), "") for kind, names in NAMES.items()}
    missing = [kind for kind, name in found.items() if not name and kind not in OPTIONAL]
    if missing:
        wanted = "; ".join(f"{kind} ({' or '.join(NAMES[kind])})" for kind in missing)
        raise InputError(f"has no column for {wanted}; its columns are {', '.join(header) or 'none, it is empty'}")
    return {kind: name for kind, name in found.items() if name}


def _rows(rows: "csv.DictReader[str]") -> Iterator[tuple[int, dict[str, str]]]:
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise InputError(f"line {rows.line_num}: is no CSV: {error}; write one row a request") from error


def _number(row: dict[str, str], name: str, line: int, *, needed: bool) -> float:
    text = (row.get(name) or "").strip()
    if not text and not needed:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"line {line}: {name} is {text!r}, which is no number; write seconds and tokens as numbers")
    return value


def _check(row: dict[str, float], line: int) -> None:
    times = [kind for kind in ("queued", "scheduled", "first token", "last token") if kind in row]
    for before, after in pairwise(times):
        if row[after] < row[before]:
            raise InputError(
                f"line {line}: {after} ({row[after]:.6g}) is before {before} ({row[before]:.6g}); "
                "all times must be of one clock"
            )
    if row["prompt tokens"] < 1 or row["answer tokens"] < 1:
        raise InputError(f"line {line}: a request has at least one token of prompt and one of answer; leave others out")
    if row.get("cached tokens", 0.0) > row["prompt tokens"]:
        raise InputError(f"line {line}: more tokens are cached than the prompt has; check the two columns")


def _ordered(table: Floats, columns: tuple[str, ...], notes: tuple[str, ...]) -> RequestLog:
    at = {kind: table[:, number] for number, kind in enumerate(columns)}
    order = np.argsort(at["queued"], kind="stable")
    start = at["queued"].min()
    scheduled = at.get("scheduled")
    log = RequestLog(
        queued=at["queued"][order] - start,
        scheduled=None if scheduled is None else scheduled[order] - start,
        first=at["first token"][order] - start,
        last=at["last token"][order] - start,
        prompt=at["prompt tokens"][order],
        output=at["answer tokens"][order],
        cached=at["cached tokens"][order] if "cached tokens" in at else np.zeros(len(order)),
        notes=notes,
    )
    if not np.any(log.output > 1):
        raise InputError(
            "all answers have one token, which tells nothing of decoding; log requests with longer answers"
        )
    if np.nanmedian(log.tpot) > SLOWEST:
        raise InputError(
            f"a token takes {np.nanmedian(log.tpot):.0f} s in the median, so these times are no seconds; "
            "write them in seconds"
        )
    return log
