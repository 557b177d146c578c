"""Pace: how slow each replica is at the batch that it has, so that replicas with different batches can be compared.

    n    = max(samples of ITL * mean ITL / seconds of data, running, 1)       sequences while it decoded
    own  = mean ITL / T(n)          T(n) = max(base + each * n, least * n), the step-time model of the pool

Little's law gives the batch from the latencies themselves, so that it is of the same seconds as they are; the gauge is
of one moment, and the larger of the two counts. Before the pool has a model, `own` is the mean ITL itself and only
replicas whose batch is within 35 % of the median's are compared. Times to the first token have no model, so they are
always compared like that. What all replicas share (a model that is wrong in scale, a fleet that is slow as a whole)
cancels out in the comparison with the median.
"""

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from controller.core.model import Scope
from controller.core.ports import View
from controller.core.reading import Reading
from controller.core.signals import Signal

SIMILAR = 0.35  # share by which batches may differ from the median's and still be compared without a model
LEAST_ITL = 20.0  # gaps between tokens that make a mean
LEAST_TTFT = 20.0  # first tokens that make a mean; their spread is that of prompts
LEAST_TPOT = 5.0  # requests that make one; and gaps that tell how a probe fares


class Pace(NamedTuple):
    """One replica now. `own` is seconds per token over what the model says for its batch, or seconds per token where
    there is no model; `raw` seconds per token; `first` mean seconds to the first token, None when too few; `read` when
    its sample was taken, unix seconds; `since` when the data behind it begins; `samples` gaps between tokens, and
    whether they are `enough` to judge who is in full rotation."""

    own: float
    raw: float
    batch: float
    first: float | None
    read: float
    since: float
    samples: float
    enough: bool = True


class Against(NamedTuple):
    """A replica against its peers: how many times as slow at its batch, how many times as slow as it stands, and how
    many times as long to the first token (None where that cannot be compared)."""

    ratio: float
    raw: float
    first: float | None


def paces(view: View) -> dict[str, Pace]:
    """The pace of every replica that told any: usable latencies of at least a few tokens."""
    modelled = known(view)
    found: dict[str, Pace] = {}
    for name, scope in sorted(view.pool.replicas.items()):
        latency, least = _per_token(scope)
        if latency is None or latency.value is None:
            continue
        batch = _batch(scope, latency)
        if batch is None:
            continue
        own = latency.value / _step(view, batch) if modelled else latency.value
        read = view.tick.at - (latency.age or 0.0)
        first = scope.latency(Signal.TTFT, "mean")
        few = first.usable is None or (first.count or 0.0) < LEAST_TTFT
        since = read - (latency.window or 0.0)
        count = latency.count or 0.0
        found[name] = Pace(
            own, latency.value, batch, None if few else first.usable, read, since, count, count >= least
        )  # fmt: skip
    return found


def known(view: View) -> bool:
    """Whether the pool has a step-time model."""
    evidence = view.estimate.evidence
    return evidence.get("step_base", 0.0) + evidence.get("step_each", 0.0) > 0


def against(mine: Pace, peers: Iterable[Pace], *, modelled: bool) -> Against | None:
    """A replica against the median of its peers, itself left out. With one peer the model must agree, else nobody could
    say which of the two is slow. None when there is nobody to compare with."""
    others = [one for one in peers if one is not mine]
    if not others:
        return None
    if not modelled:
        others = _similar(mine, others)
        if not others:
            return None
    usual = median([one.own for one in others])
    if modelled and len(others) == 1:
        usual = max(usual, 1.0)
    return Against(mine.own / usual, mine.raw / median([one.raw for one in others]), _first(mine, others))


def _first(mine: Pace, others: list[Pace]) -> float | None:
    """First tokens against those of at least two peers with a like batch."""
    if mine.first is None:
        return None
    firsts = [one.first for one in _similar(mine, others) if one.first is not None]
    usual = median(firsts) if len(firsts) > 1 else 0.0
    return mine.first / usual if usual > 0 else None


def _per_token(scope: Scope) -> tuple[Reading | None, float]:
    """Seconds per token, and how many samples are enough. Where the engine tells no gaps, the mean of whole requests,
    of which fewer are enough."""
    for signal, enough in ((Signal.ITL, LEAST_ITL), (Signal.TPOT, LEAST_TPOT)):
        reading = scope.latency(signal, "mean")
        if reading.usable is not None and reading.value and (reading.count or 0.0) >= LEAST_TPOT:
            return reading, enough
    return None, 0.0


def _batch(scope: Scope, latency: Reading) -> float | None:
    running = scope.get(Signal.RUNNING).usable
    if latency.window and latency.count and latency is scope.latency(Signal.ITL, "mean") and latency.value:
        flowing = latency.count * latency.value / latency.window
        return max(flowing, running or 0.0, 1.0)
    return None if running is None else max(running, 1.0)


def _step(view: View, batch: float) -> float:
    evidence = view.estimate.evidence
    base, each, least = (evidence.get(f"step_{name}", 0.0) for name in ("base", "each", "least"))
    return max(base + each * batch, least * batch)


def _similar(mine: Pace, others: list[Pace]) -> list[Pace]:
    return [one for one in others if abs(one.batch - mine.batch) <= SIMILAR * max(one.batch, mine.batch)]
