"""Who asks: tenants, classes of requests, and what all streams of traffic have in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core.params import Unit, param
from simulator.traffic.retry import Retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """A class of requests: how urgent they are, and how long their clients wait."""

    name: str = param("as it stands in `Request.klass`")
    share: float = param("share of the requests, relative to the other classes", 1.0, ge=0)
    priority: int = param("lower is served first", 0)
    deadline: float | None = param("the first token is useless after this", None, unit=Unit.DURATION, gt=0)
    patience: float | None = param(
        "how long a client waits for the first token before it goes away, on average; for ever when not given",
        None,
        unit=Unit.DURATION,
        gt=0,
    )
    patience_cv: float = param("spread of the patience over clients (lognormal); 0 = all alike", 0.0, ge=0, le=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant, or with `count` many small ones, called name-0, name-1 and so on."""

    name: str = param("as it stands in `Request.tenant`")
    share: float = param("share of the requests, relative to the other tenants", 1.0, ge=0)
    count: int = param("how many tenants this entry stands for, together with that share", 1, ge=1, le=100_000)
    zipf: float = param("how uneven they are: the i-th gets a share in proportion to i^-zipf", 0.0, ge=0, le=5)
    classes: Mapping[str, float] = param("shares of the classes, by name, in place of the classes' own", {}, ge=0)
    model: str = param("model it asks for, in place of the stream's", "")
    adapter: str = param("LoRA adapter it asks for, in place of the stream's", "")
    region: str = param("region it calls from, in place of the stream's", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """What all streams have: who asks, and how long they wait."""

    name: str = param("name of the stream; its random numbers depend on it and on the seed")
    start: float = param("when the stream begins", 0.0, unit=Unit.DURATION, ge=0)
    end: float | None = param("when it ends; with the run when not given", None, unit=Unit.DURATION, gt=0)
    tenants: tuple[Tenant, ...] = param(
        "who asks; one tenant without a name when empty. Where a trace names its tenants, these are those that differ"
        " from the rest in class, model, adapter or region, and `share` has no meaning",
        (),
    )
    classes: tuple[Class, ...] = param("the classes of requests; one without a name when empty", ())
    sheddable: float = param(
        "share of the requests, of whatever class, that may be shed first: they come as class `sheddable`, after all"
        " others in priority, with the deadline and patience of their own class",
        0.0,
        unit=Unit.RATIO,
        ge=0,
        le=1,
    )
    max_tokens: int | None = param(
        "longest answer that the client asks for; answers are cut there. By default the longest that can be drawn",
        None,
        ge=1,
    )
    block: int = param("tokens in one block of `Request.prefix`", 64, ge=1, le=4096)
    model: str = param("model asked for", "")
    version: str = param("version asked for", "")
    adapter: str = param("LoRA adapter asked for", "")
    precision: str = param("precision asked for", "")
    hardware: str = param("hardware asked for", "")
    region: str = param("region of the clients", "")
    zone: str = param("zone of the clients", "")
    retry: Retry | None = param("what clients do after a refusal or a failure; they go away when not given", None)

    def __post_init__(self) -> None:
        if self.end is not None and self.end <= self.start:
            raise ValueError("end: is not later than start; write a later time")
        for field, names in (("tenants", [t.name for t in self.tenants]), ("classes", [c.name for c in self.classes])):
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ValueError(f"{field}: {twice!r} is there twice; give each a name of its own")
        known = {entry.name for entry in self.classes}
        for tenant in self.tenants:
            if stranger := next((name for name in tenant.classes if name not in known), None):
                raise ValueError(
                    f"tenants: {tenant.name!r} has a share of class {stranger!r}, which is not one of"
                    f" the classes; write {', '.join(sorted(known)) or 'the classes of the stream first'}"
                )
            if tenant.classes and not any(tenant.classes.values()):
                raise ValueError(f"tenants: all class shares of {tenant.name!r} are 0; raise one")
        for field, entries in (("tenants", self.tenants), ("classes", self.classes)):
            if entries and not any(entry.share for entry in entries):
                raise ValueError(f"{field}: all shares are 0; raise one")
