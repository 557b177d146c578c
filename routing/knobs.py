"""Every set-point of a gateway in one frozen value, swapped as a whole while requests flow. By default all is off.

Nothing here decides; each law's own file says what it makes of its knobs. A value that cannot be is refused when it is
made, as "field: mistake; mend", so that a bad document never replaces a good one. Each field carries its sentence, unit
and bounds as metadata, in the words of `controller.core.params`, for whoever makes a schema or a page of it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from routing.parameters import Value

SECONDS = "duration"
SHARE = "ratio"
RESERVE = 0.5  # of a tenant's bursts, left to higher ranks where nothing else is said


def _said(doc: str, unit: str = "", **bounds: float | None) -> dict[str, Any]:
    """Metadata of a field."""
    return {"doc": doc, **bounds, **({"unit": unit} if unit else {})}


def _knob(
    doc: str, default: Any, *, unit: str = "", ge: float | None = None, gt: float | None = None, le: float | None = None
) -> Any:
    return dataclasses.field(default=default, metadata=_said(doc, unit, ge=ge, gt=gt, le=le))


def _check(group: Any) -> None:
    """Every number within its bounds. None passes: it means off."""
    for one in dataclasses.fields(group):
        value = getattr(group, one.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not isfinite(value):
            raise ValueError(f"{one.name}: is {value}; write a finite number, or leave it out")
        ge, gt, le = (one.metadata.get(bound) for bound in ("ge", "gt", "le"))
        if (ge is not None and value < ge) or (gt is not None and value <= gt) or (le is not None and value > le):
            low = f"above {gt:g}" if gt is not None else f"at least {ge or 0:g}"
            raise ValueError(f"{one.name}: is {value:g}; write a number {low}" + (f", at most {le:g}" if le else ""))


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How much may be at the replicas at once; the lowest limit holds, none is no limit."""

    limit: int | None = _knob("requests at all replicas together", None, ge=0)
    per_slot: float | None = _knob(
        "requests per sequence slot of the replicas in service; 1 is the standing cap", None, gt=0
    )
    per_replica: float | None = _knob(
        "requests per replica in service; holds also where a replica does not tell its slots", None, gt=0
    )
    kv: float | None = _knob(
        "memory that requests may hold on average, per KV token of the replicas in service; 0.9 is a good value",
        None,
        gt=0,
    )

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class Queue:
    """Where requests wait that the concurrency cap holds back. First in, first out, until `fair`."""

    length: int = _knob("requests that may wait; 0 refuses at once what cannot be sent", 1000, ge=0)
    wait: float = _knob("longest wait", 60.0, unit=SECONDS, gt=0)
    fair: bool = _knob("classes by rank with their floors, tenants by tokens served", False)
    hold: bool = _knob("wait also while no replica is in service, as for a cold start", False)
    prompt_price: float = _knob("cost of a prompt token, in the shares of floors and tenants", 1.0, ge=0)
    output_price: float = _knob("cost of an answer token", 2.0, ge=0)

    def __post_init__(self) -> None:
        _check(self)
        if self.prompt_price + self.output_price <= 0:
            raise ValueError("output_price: no token has a price; write 2, and 1 for prompt_price")


@dataclass(frozen=True, slots=True)
class Klass:
    """One class of requests. A ramp starts at `lo`, where nothing is shed, and ends at `hi`, where all is."""

    rank: int | None = _knob("lower is served first; none takes each request's own priority", None)
    floor: float = _knob("least share of the service, by cost, while it waits", 0.0, unit=SHARE, ge=0, le=1)
    wait: float | None = _knob("longest wait in the queue; none takes the queue's", None, unit=SECONDS, gt=0)
    target: float | None = _knob("time to the first token that it was promised", None, unit=SECONDS, gt=0)
    delay_lo: float | None = _knob("start of the ramp on predicted delay, in targets", None, ge=0)
    delay_hi: float | None = _knob("its end", None, ge=0)
    load_lo: float | None = _knob("start of the ramp on requests in flight and ahead of it, in caps", None, ge=0)
    load_hi: float | None = _knob("its end", None, ge=0)
    reserve: float | None = _knob(
        "share of its tenant's bursts that it leaves to higher ranks; none is a half, and 0 for the first rank",
        None,
        unit=SHARE,
        ge=0,
        le=1,
    )

    def __post_init__(self) -> None:
        _check(self)
        for ramp, lo, hi in (("delay", self.delay_lo, self.delay_hi), ("load", self.load_lo, self.load_hi)):
            if (lo is None) != (hi is None):
                raise ValueError(f"{ramp}_lo: stands without its other end; write {ramp}_lo and {ramp}_hi")
            if lo is not None and hi is not None and hi < lo:
                raise ValueError(f"{ramp}_hi: is below {ramp}_lo; write at least {lo:g}")
        if self.floor and self.rank is None:
            raise ValueError("rank: is missing; a floor is the share of a rank")
        if self.delay_lo is not None and self.target is None:
            raise ValueError("target: is missing; delay_lo and delay_hi are multiples of it")


@dataclass(frozen=True, slots=True)
class Admission:
    """What the prediction of delay and deadlines need; the ramps are the classes' own."""

    deadlines: bool = _knob("refuse, drop and cancel what cannot be in time any more", False)
    deadline_factor: float = _knob(
        "share of the time until its deadline in which a request must get its turn; never less than its target",
        1.0,
        ge=0,
        le=1,
    )
    priority: float | None = _knob(
        "the highest rank that comes in while others wait; between two numbers, so much of the next; none is every one",
        None,
        ge=0,
    )
    prefill_rate: float | None = _knob(
        "prompt tokens/s of one replica under load; none leaves prefill out of the predicted delay", None, gt=0
    )

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Caps of one tenant; none is no cap. A request costs its prompt and the answer that is expected of it."""

    requests_per_s: float | None = _knob("requests/s", None, ge=0)
    request_burst: float = _knob("requests that may come at once", 20.0, ge=1)
    tokens_per_s: float | None = _knob("tokens/s, prompt and answer", None, ge=0)
    token_burst: float = _knob(
        "tokens that may come at once, at least; nor does a request above this and token_seconds pass", 32_768.0, ge=1
    )
    token_seconds: float = _knob("so many seconds of the rate may come at once", 4.0, unit=SECONDS, ge=0)
    token_alike: float = _knob(
        "requests up to so many tokens have to find the same level, so that a cap does not choose the small ones",
        16_384.0,
        ge=0,
    )
    weight: float = _knob("its share among tenants in the fair queue", 1.0, gt=0)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def depth(self) -> float:
        """Tokens that may come at once."""
        return max(self.token_burst, self.token_seconds * (self.tokens_per_s or 0.0))

    @property
    def alike(self) -> float:
        """Tokens that have to be there for a request of whatever size; none in a bucket that holds a few requests."""
        return min(self.token_alike, self.depth - self.token_burst)


@dataclass(frozen=True, slots=True)
class Downgrade:
    """A share of the requests goes to the smaller model of `pool`: of tenants and classes that consent."""

    pool: str = _knob("pool of the smaller model", "")
    share: float = _knob("share of those that consent", 0.0, unit=SHARE, ge=0, le=1)
    tenants: frozenset[str] = field(default_factory=frozenset, metadata=_said("tenants that consent; * is everybody"))
    classes: frozenset[str] = field(default_factory=frozenset, metadata=_said("classes that consent; * is every one"))
    longest_prompt: int | None = _knob("tokens; longer prompts stay", None, ge=1)
    shortest_prompt: int | None = _knob("tokens; shorter prompts stay", None, ge=1)

    def __post_init__(self) -> None:
        _check(self)
        if not self.pool:
            raise ValueError("pool: is empty; write the pool of the smaller model")
        if self.longest_prompt is not None and (self.shortest_prompt or 0) > self.longest_prompt:
            raise ValueError(f"shortest_prompt: is above longest_prompt; write at most {self.longest_prompt}")


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a replica is taken out of rotation, and how it comes back."""

    on: bool = _knob("whether there is one", False)
    window: float = _knob("time between two judgements", 5.0, unit=SECONDS, gt=0)
    least: int = _knob("requests that ended in the span judged, for a judgement on errors", 20, ge=1)
    errors: float = _knob("share of errors that opens ...", 0.2, unit=SHARE, gt=0, le=1)
    errors_ratio: float = _knob("... if it is also this many times that of the other replicas", 5.0, ge=1)
    slow_ratio: float = _knob("a request is slow beyond this many times the median of its peers", 3.0, ge=1)
    slow: float = _knob("share of slow requests that makes a slow window ...", 0.5, unit=SHARE, gt=0, le=1)
    slow_windows: int = _knob("... and so many of them in a row open", 3, ge=1)
    stuck: float | None = _knob(
        "time without a sign of life, while requests are there, that opens; none = never", None, unit=SECONDS, gt=0
    )
    ejected: float = _knob(
        "largest share of the replicas out at once; one always may, if there are two", 0.2, unit=SHARE, ge=0, le=1
    )
    open_time: float = _knob("time out of rotation, doubled with each relapse", 10.0, unit=SECONDS, gt=0)
    open_limit: float = _knob("the longest", 300.0, unit=SECONDS, gt=0)
    probes: int = _knob("requests that must end well before the ramp", 5, ge=1)
    ramp_step: float = _knob("time at each of the weights 0.05 and 0.25", 10.0, unit=SECONDS, gt=0)

    def __post_init__(self) -> None:
        _check(self)
        if self.open_limit < self.open_time:
            raise ValueError(f"open_limit: is below open_time; write at least {self.open_time:g}")


@dataclass(frozen=True, slots=True)
class Retries:
    """What is tried again after a failure before the first token, and how many of the clients' own retries get in."""

    attempts: int = _knob("retries of one request at most", 0, ge=0)
    budget: float = _knob("retries per request that arrives", 0.1, unit=SHARE, ge=0, le=1)
    spare: float = _knob("retries that may come at once, and per 10 s however few requests arrive", 10.0, ge=0)
    client_budget: float | None = _knob(
        "the same for retries of clients, that say that they are; none lets all in", None, unit=SHARE, ge=0, le=1
    )

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class Knobs:
    """All set-points of one gateway."""

    concurrency: Concurrency = field(
        default_factory=Concurrency, metadata=_said("how many requests may be at the replicas")
    )
    queue: Queue = field(default_factory=Queue, metadata=_said("where the others wait"))
    classes: Mapping[str, Klass] = field(default_factory=dict, metadata=_said("classes of requests by name"))
    other_classes: Klass = field(default_factory=Klass, metadata=_said("each class that is not named"))
    admission: Admission = field(
        default_factory=Admission, metadata=_said("deadlines, and what the predicted delay needs")
    )
    longest_prompt: int | None = _knob("tokens; longer prompts are refused", None, ge=1)
    tenants: Mapping[str, Tenant] = field(default_factory=dict, metadata=_said("tenants by name"))
    other_tenants: Tenant = field(
        default_factory=Tenant, metadata=_said("each tenant that is not named, with a bucket of its own")
    )
    downgrade: tuple[Downgrade, ...] = field(
        default=(), metadata=_said("what goes to a smaller model; shares for different pools add up")
    )
    breaker: Breaker = field(default_factory=Breaker, metadata=_said("when a replica is taken out of rotation"))
    retries: Retries = field(default_factory=Retries, metadata=_said("what is tried again"))
    weights: Mapping[str, float] = field(
        default_factory=dict,
        metadata=_said("weights of replicas, or of zones, by name; the others keep their own", ge=0),
    )
    slow_start: float = _knob("time in which a new replica comes to its weight; 0 is at once", 0.0, unit=SECONDS, ge=0)
    strategy: str = _knob("routing strategy by name; empty keeps the one that is there", "")
    parameters: Mapping[str, Value] = field(default_factory=dict, metadata=_said("parameters of the strategy"))
    affinity: float = _knob(
        "how much the strategy's affinity counts against load: 1 as its parameters say, 0 load alone", 1.0, ge=0, le=1
    )
    expected_output: float = _knob("tokens of an answer, before any has been seen", 256.0, ge=1)

    def __post_init__(self) -> None:
        _check(self)
        floors = sum(klass.floor for klass in self.classes.values())
        if floors > 1.0 + 1e-9:
            raise ValueError(f"classes: their floors add up to {floors:g}; lower them to 1 together")
        if self.other_classes.floor:
            raise ValueError("other_classes: a floor is for a class that is named; name it under classes")
        for name, weight in self.weights.items():
            if not (isfinite(weight) and weight >= 0.0):
                raise ValueError(f"weights: {name} is {weight}; write a number at least 0")

    def reserve(self, klass: Klass) -> float:
        """The share of a tenant's bursts that a class leaves to those of a higher rank."""
        if klass.reserve is not None:
            return klass.reserve
        ranks = [one.rank for one in self.classes.values() if one.rank is not None]
        return RESERVE if klass.rank is not None and ranks and klass.rank > min(ranks) else 0.0

    @property
    def floors(self) -> dict[int, float]:
        """The floor of each rank: the sum of those of its classes."""
        floors: dict[int, float] = {}
        for klass in self.classes.values():
            if klass.floor and klass.rank is not None:
                floors[klass.rank] = floors.get(klass.rank, 0.0) + klass.floor
        return floors
