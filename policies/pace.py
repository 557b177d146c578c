"""Pace: how slow each replica is at the batch that it has, so that replicas with different batches can be compared.

    n    = max(samples of ITL * mean ITL / seconds of data, running, 1)       sequences while it decoded
    own  = mean ITL / T(n)          T(n) = max(base + each * n, least * n), the step-time model of the pool

Little's law gives the batch from the latencies themselves, so that it is of the same seconds as they are; the gauge is
of one moment, and the larger of the two counts. Before the pool has a model, `own` is the mean ITL itself and only
replicas whose batch is within 35 % of the median's are compared. Times to the first token have no model, so they are
always compared like that. What all replicas share (a model that is wrong in scale, a fleet that is slow as a whole)
cancels out in the comparison with the median.
"""

from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple

from controller.core.model import Scope
from controller.core.ports import View
from controller.core.ranked import middle, middle_of_others
from controller.core.reading import MISSING, Reading
from controller.core.signals import Signal

SIMILAR = 0.35  # share by which batches may differ from the median's and still be compared without a model
LEAST_ITL = 20.0  # gaps between tokens that make a mean
LEAST_TTFT = 20.0  # first tokens that make a mean; their spread is that of prompts
LEAST_TPOT = 5.0  # requests that make one; and gaps that tell how a probe fares
_PER_TOKEN = ((Signal.ITL, LEAST_ITL), (Signal.TPOT, LEAST_TPOT))


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


class Peers:
    """Those that others are compared with, ranked once for all of these."""

    def __init__(self, paces: Iterable[Pace]) -> None:
        self.all = tuple(paces)
        self._own, self._raw = sorted(one.own for one in self.all), sorted(one.raw for one in self.all)

    def middle(self, mine: Pace, *, inside: bool) -> tuple[float, float]:
        """Their medians of `own` and `raw`, without `mine` where it is one of them."""
        if inside:
            return middle_of_others(self._own, mine.own), middle_of_others(self._raw, mine.raw)
        return middle(self._own), middle(self._raw)

    def similar(self, mine: Pace) -> list[Pace]:
        """The others whose batch is like that of `mine`."""
        return [
            one for one in self.all
            if one is not mine and abs(one.batch - mine.batch) <= SIMILAR * max(one.batch, mine.batch)
        ]  # fmt: skip


def paces(view: View) -> dict[str, Pace]:
    """The pace of every replica that told any: usable latencies of at least a few tokens."""
    modelled, step = known(view), _step(view)
    found: dict[str, Pace] = {}
    for name, scope in sorted(view.pool.replicas.items()):
        latency, least = _per_token(scope)
        if latency is None or latency.value is None:
            continue
        batch = _batch(scope, latency)
        if batch is None:
            continue
        own = latency.value / step(batch) if modelled else latency.value
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


def against(mine: Pace, peers: Peers, *, inside: bool, modelled: bool) -> Against | None:
    """A replica against the median of its peers, itself left out where it is `inside`, one of them. With one peer the
    model must agree, else nobody could say which of the two is slow. None when there is nobody to compare with."""
    others = len(peers.all) - inside
    if not others:
        return None
    if modelled:
        own, raw = peers.middle(mine, inside=inside)
        own = max(own, 1.0) if others == 1 else own
    else:
        similar = peers.similar(mine)
        if not similar:
            return None
        own, raw = median([one.own for one in similar]), median([one.raw for one in similar])
    return Against(mine.own / own, mine.raw / raw, _first(mine, peers))


def _first(mine: Pace, peers: Peers) -> float | None:
    """First tokens against those of at least two peers with a like batch."""
    if mine.first is None:
        return None
    firsts = [one.first for one in peers.similar(mine) if one.first is not None]
    usual = median(firsts) if len(firsts) > 1 else 0.0
    return mine.first / usual if usual > 0 else None


def _per_token(scope: Scope) -> tuple[Reading | None, float]:
    """Seconds per token, and how many samples are enough. Where the engine tells no gaps, the mean of whole requests,
    of which fewer are enough."""
    told = scope.latencies
    for signal, enough in _PER_TOKEN:
        reading = told[signal].get("mean", MISSING) if signal in told else MISSING
        if reading.value and (reading.count or 0.0) >= LEAST_TPOT and reading.usable is not None:
            return reading, enough
    return None, 0.0


def _batch(scope: Scope, latency: Reading) -> float | None:
    running = scope.get(Signal.RUNNING).usable
    if latency.window and latency.count and latency is scope.latency(Signal.ITL, "mean") and latency.value:
        flowing = latency.count * latency.value / latency.window
        return max(flowing, running or 0.0, 1.0)
    return None if running is None else max(running, 1.0)


def _step(view: View) -> Callable[[float], float]:
    """Seconds of a step by the model of the pool, by batch."""
    evidence = view.estimate.evidence
    base, each = evidence.get("step_base", 0.0), evidence.get("step_each", 0.0)
    least = evidence.get("step_least", 0.0)
    return lambda batch: max(base + each * batch, least * batch)
