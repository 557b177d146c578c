"""Class admission: what is late in any case is refused on arrival, low classes first.

Predicted delay to the first token of a request with `ahead` others before it in the queue:

    d = max(0, ahead + in flight + 1 - cap) · residence / cap            until it gets a place
      + max( prompt tokens not yet prefilled / (rate · replicas), wait )  until its own prefill begins
      + own prompt / rate                                                its own prefill

with the measured means of `residence` at a replica and of the `wait` there until the own prefill. That one sees what
slots do not, as a full KV memory; it counts only while somebody there waits for a first token, so that a gateway
that refuses all for its sake finds out when it is over. Each class sheds on two ramps, and the larger counts:

    p = clamp( (d / target - delay_lo) / (delay_hi - delay_lo), 0, 1 )
    p = clamp( (u - load_lo) / (load_hi - load_lo), 0, 1 ),   u = (in flight + ahead) / cap

Low classes get low ramps: they give way while the delay of the high ones is still good. The share is taken without
chance (`thinning`). A deadline that d oversteps is refused at once: served late it costs as much and is worth nothing.

A `priority` keeps low ranks out while somebody has to wait, whatever the ramps say:

    p = clamp( rank - priority, 0, 1 )

A place that is free is nobody else's, and goes to whoever comes.
"""

from routing.knobs import Klass

GAIN = 0.02
FAST = 0.1
LEAST = 20  # ends before the mean is believed


class Delay:
    """What is known of how long things take, seconds."""

    __slots__ = ("_firsts", "_seen", "rate", "residence", "wait")

    def __init__(self, rate: float | None) -> None:
        self.rate = rate  # prompt tokens/s of one replica; None leaves prefill out
        self.residence = 0.0  # mean time at a replica
        self.wait = 0.0  # mean time there until the own prefill begins
        self._seen = 0
        self._firsts = 0

    def ended(self, seconds: float) -> None:
        """One more was served to its end."""
        self._seen += 1
        self.residence += max(GAIN, 1.0 / self._seen) * (seconds - self.residence)

    def first_token(self, seconds: float, own_tokens: float) -> None:
        """One more got its first token, so long after it was sent."""
        self._firsts += 1
        own = own_tokens / self.rate if self.rate is not None else 0.0
        self.wait += max(FAST, 1.0 / self._firsts) * (max(0.0, seconds - own) - self.wait)

    def place(self, before: float, cap: float) -> float:
        """Seconds until there is a place, with `before` requests in flight or ahead in the queue."""
        over = before + 1.0 - cap
        if over <= 0.0 or self._seen < LEAST:
            return 0.0
        return over * self.residence / max(cap, 1.0)

    def prefill(self, before_tokens: float, own_tokens: float, replicas: int) -> float:
        """Seconds from a place to the first token."""
        wait = self.wait if before_tokens > 0.0 and self._firsts >= LEAST else 0.0
        if self.rate is None:
            return wait
        return max(wait, before_tokens / (self.rate * max(replicas, 1))) + own_tokens / self.rate


def shed(klass: Klass, delay: float, load: float) -> float:
    """The share of this class to refuse, 0..1."""
    share = 0.0
    if klass.delay_lo is not None and klass.delay_hi is not None and klass.target is not None:
        share = ramp(delay / klass.target, klass.delay_lo, klass.delay_hi)
    if klass.load_lo is not None and klass.load_hi is not None:
        share = max(share, ramp(load, klass.load_lo, klass.load_hi))
    return share


def kept_out(rank: int, priority: float) -> float:
    """The share of a rank to refuse, 0..1."""
    return min(max(rank - priority, 0.0), 1.0)


def ramp(value: float, lo: float, hi: float) -> float:
    """0 up to lo, 1 from hi on, straight between; a step where they are the same."""
    if value <= lo:
        return 0.0
    return 1.0 if value >= hi else (value - lo) / (hi - lo)
