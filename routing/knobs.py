"""Every set-point of a gateway in one frozen value, swapped as a whole while requests flow. By default all is off.

Nothing here decides; each law's own file says what it makes of its knobs. A value that cannot be is refused when it is
made, as "field: mistake; mend", so that a bad document never replaces a good one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from routing.parameters import Value


def _check(name: str, value: float | None, low: float, high: float = inf, above: bool = False) -> None:
    """None passes: it means off."""
    if value is None:
        return
    if not isfinite(value):
        raise ValueError(f"{name}: is {value}; write a finite number, or leave it out")
    if value < low or value > high or (above and value == low):
        bound = f"above {low:g}" if above else f"at least {low:g}"
        raise ValueError(
            f"{name}: is {value:g}; write a number {bound}" + (f", at most {high:g}" if high < inf else "")
        )


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many requests may be at the replicas at once; the lower of the two holds, None is no limit."""

    limit: int | None = None  # requests, over all replicas
    per_slot: float | None = None  # requests per sequence slot of the replicas in service; 1 is the standing cap

    def __post_init__(self) -> None:
        _check("concurrency.limit", self.limit, 0)
        _check("concurrency.per_slot", self.per_slot, 0.0, above=True)


@dataclass(frozen=True, slots=True)
class Queue:
    """Where requests wait that the concurrency cap holds back. First in, first out, until `fair`."""

    length: int = 1000  # requests; 0 refuses at once what cannot be sent
    wait: float = 60.0  # seconds, the longest
    fair: bool = False  # classes by rank with their floors, tenants by tokens served
    hold: bool = False  # wait also while no replica is in service, as for a cold start
    prompt_price: float = 1.0  # cost of a prompt token in the shares of floors and tenants
    output_price: float = 2.0  # cost of an answer token

    def __post_init__(self) -> None:
        _check("queue.length", self.length, 0)
        _check("queue.wait", self.wait, 0.0, above=True)
        _check("queue.prompt_price", self.prompt_price, 0.0)
        _check("queue.output_price", self.output_price, 0.0)
        if self.prompt_price + self.output_price <= 0:
            raise ValueError("queue.output_price: no token has a price; write 2, and 1 for prompt_price")


@dataclass(frozen=True, slots=True)
class Klass:
    """One class of requests. The ramps start at `lo`, where nothing is shed, and end at `hi`, where all is. Those of
    delay are in multiples of `target` on the predicted delay, those of load in multiples of the concurrency cap on what
    is in flight and queued."""

    rank: int | None = None  # lower is served first; None takes each request's own priority
    floor: float = 0.0  # the least share of the service, by cost, that it gets while it waits
    wait: float | None = None  # seconds, the longest in the queue; None takes the queue's
    target: float | None = None  # seconds to the first token
    delay_lo: float | None = None
    delay_hi: float | None = None
    load_lo: float | None = None
    load_hi: float | None = None

    def __post_init__(self) -> None:
        _check("classes.floor", self.floor, 0.0, 1.0)
        _check("classes.wait", self.wait, 0.0, above=True)
        _check("classes.target", self.target, 0.0, above=True)
        for ramp, lo, hi in (("delay", self.delay_lo, self.delay_hi), ("load", self.load_lo, self.load_hi)):
            if (lo is None) != (hi is None):
                raise ValueError(f"classes.{ramp}_lo: stands without its other end; write {ramp}_lo and {ramp}_hi")
            _check(f"classes.{ramp}_lo", lo, 0.0)
            if lo is not None:
                _check(f"classes.{ramp}_hi", hi, lo)
        if self.floor and self.rank is None:
            raise ValueError("classes.rank: is missing; a floor is the share of a rank")
        if self.delay_lo is not None and self.target is None:
            raise ValueError("classes.target: is missing; delay_lo and delay_hi are multiples of it")


@dataclass(frozen=True, slots=True)
class Admission:
    """What the prediction of delay and deadlines need; the ramps are the classes' own."""

    deadlines: bool = False  # refuse, drop and cancel what cannot be in time any more
    prefill_rate: float | None = None  # prompt tokens/s of one replica under load; None leaves prefill out of the delay

    def __post_init__(self) -> None:
        _check("admission.prefill_rate", self.prefill_rate, 0.0, above=True)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Caps of one tenant; None is no cap. A request costs its prompt and the answer that is expected of it."""

    requests_per_s: float | None = None
    request_burst: float = 20.0  # requests
    tokens_per_s: float | None = None
    token_burst: float = 32_768.0  # tokens; nothing larger passes
    weight: float = 1.0  # its share among tenants in the fair queue

    def __post_init__(self) -> None:
        _check("tenants.requests_per_s", self.requests_per_s, 0.0)
        _check("tenants.request_burst", self.request_burst, 1.0)
        _check("tenants.tokens_per_s", self.tokens_per_s, 0.0)
        _check("tenants.token_burst", self.token_burst, 1.0)
        _check("tenants.weight", self.weight, 0.0, above=True)


@dataclass(frozen=True, slots=True)
class Downgrade:
    """A share of the requests goes to the smaller model of `pool`. Only tenants and classes that consent: empty sets
    are nobody, "*" is everybody."""

    pool: str
    share: float = 0.0
    tenants: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    longest_prompt: int | None = None  # tokens; longer ones stay

    def __post_init__(self) -> None:
        if not self.pool:
            raise ValueError("downgrade.pool: is empty; write the pool of the smaller model")
        _check("downgrade.share", self.share, 0.0, 1.0)
        _check("downgrade.longest_prompt", self.longest_prompt, 1)


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a replica is taken out of rotation, and how it comes back. Off until `on`."""

    on: bool = False
    window: float = 5.0  # seconds between two judgements
    least: int = 20  # requests that ended in the span judged, for a judgement on errors
    errors: float = 0.2  # share of errors that opens ...
    errors_ratio: float = 5.0  # ... if it is also this many times the fleet's
    slow_ratio: float = 3.0  # a request is slow beyond this many times the fleet's median
    slow: float = 0.5  # share of slow requests that makes a slow window ...
    slow_windows: int = 3  # ... and so many of them in a row open
    stuck: float | None = None  # seconds without a sign of life while requests are there; None never
    ejected: float = 0.2  # largest share of the replicas out at once; one always may, if there are two
    open_time: float = 10.0  # seconds, doubled with each relapse
    open_limit: float = 300.0  # seconds, the longest
    probes: int = 5  # requests that must succeed before the ramp
    ramp_step: float = 10.0  # seconds at each of the weights 0.05, 0.25

    def __post_init__(self) -> None:
        _check("breaker.window", self.window, 0.0, above=True)
        _check("breaker.least", self.least, 1)
        _check("breaker.errors", self.errors, 0.0, 1.0, above=True)
        _check("breaker.errors_ratio", self.errors_ratio, 1.0)
        _check("breaker.slow_ratio", self.slow_ratio, 1.0)
        _check("breaker.slow", self.slow, 0.0, 1.0, above=True)
        _check("breaker.slow_windows", self.slow_windows, 1)
        _check("breaker.stuck", self.stuck, 0.0, above=True)
        _check("breaker.ejected", self.ejected, 0.0, 1.0)
        _check("breaker.open_time", self.open_time, 0.0, above=True)
        _check("breaker.open_limit", self.open_limit, self.open_time)
        _check("breaker.probes", self.probes, 1)
        _check("breaker.ramp_step", self.ramp_step, 0.0, above=True)


@dataclass(frozen=True, slots=True)
class Retries:
    """What is tried again after a failure before the first token, and how many of the clients' own retries get in."""

    attempts: int = 0  # at most, after the first
    budget: float = 0.1  # retries per request that arrives
    spare: float = 10.0  # retries that may come at once, and per 10 s where few requests arrive
    client_budget: float | None = None  # the same for retries of clients, that say that they are; None lets all in

    def __post_init__(self) -> None:
        _check("retries.attempts", self.attempts, 0)
        _check("retries.budget", self.budget, 0.0, 1.0)
        _check("retries.spare", self.spare, 0.0)
        _check("retries.client_budget", self.client_budget, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Knobs:
    """All set-points of one gateway."""

    concurrency: Concurrency = field(default_factory=Concurrency)
    queue: Queue = field(default_factory=Queue)
    classes: Mapping[str, Klass] = field(default_factory=dict)
    other_classes: Klass = field(default_factory=Klass)  # for each class that is not named
    admission: Admission = field(default_factory=Admission)
    longest_prompt: int | None = None  # tokens
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    other_tenants: Tenant = field(default_factory=Tenant)  # for each tenant that is not named, one bucket each
    downgrade: tuple[Downgrade, ...] = ()  # the first that fits
    breaker: Breaker = field(default_factory=Breaker)
    retries: Retries = field(default_factory=Retries)
    weights: Mapping[str, float] = field(default_factory=dict)  # of replicas; those not named keep their own
    slow_start: float = 0.0  # seconds in which a new replica comes to its full weight; 0 is at once
    strategy: str = ""  # by name; empty keeps the one that is there
    parameters: Mapping[str, Value] = field(default_factory=dict)  # of the strategy
    expected_output: float = 256.0  # tokens, of an answer before any has been seen

    def __post_init__(self) -> None:
        floors = sum(klass.floor for klass in self.classes.values())
        if floors > 1.0 + 1e-9:
            raise ValueError(f"classes: their floors add up to {floors:g}; lower them to 1 together")
        if self.other_classes.floor:
            raise ValueError("other_classes.floor: is for any number of classes; name the class that it is for")
        _check("longest_prompt", self.longest_prompt, 1)
        for name, weight in self.weights.items():
            _check(f"weights.{name}", weight, 0.0)
        _check("slow_start", self.slow_start, 0.0)
        _check("expected_output", self.expected_output, 1.0)

    @property
    def floors(self) -> dict[int, float]:
        """The floor of each rank: the sum of those of its classes."""
        floors: dict[int, float] = {}
        for klass in self.classes.values():
            if klass.floor and klass.rank is not None:
                floors[klass.rank] = floors.get(klass.rank, 0.0) + klass.floor
        return floors
