"""The values of one tick: snapshot, proposal, plan. Plain frozen data, finite numbers, unix seconds.

Targets are scalars everywhere (replicas of a pool, weight of a replica, tokens/s of a tenant); what belongs together is
tied by a group guard. That keeps one merge, one set of guards and one chart for all levers.

Some of what is made by the ten thousand at each tick are named tuples: they are frozen as dataclasses are, and made in
a third of the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from controller.core.reading import MISSING, USABLE, Reading
from controller.core.signals import Signal
from controller.core.sizes import Sizes
from controller.core.why import Why


class Lever(StrEnum):
    """What can be moved."""

    REPLICAS = "replicas"
    WEIGHT = "weight"
    BREAKER = "breaker"
    TENANT_CAP = "tenant_cap"
    ADMISSION = "admission"
    DOWNGRADE = "downgrade"
    ROUTING = "routing"

    __hash__ = str.__hash__  # that of Enum is written in Python, and tens of thousands of targets are looked up a tick


class Mode(StrEnum):
    """How far a lever may go."""

    OFF = "off"  # no proposal
    OBSERVE = "observe"  # decided and recorded, never sent
    PROTECT = "protect"  # may only tighten or add capacity
    AUTO = "auto"


class Target(NamedTuple):
    """One scalar that an actuator can set. `member` is "" for the pool itself, else whose value it is: of a replica
    (weight, breaker), a tenant (tenant_cap), a set-point of the gate (admission), a receiving pool (downgrade)."""

    pool: str
    lever: Lever
    member: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.pool, self.lever.value, self.member) if part)


class Phase(StrEnum):
    """Where a replica that was asked for is on its way to serving."""

    REQUESTED = "requested"
    PENDING = "pending"  # not scheduled: no node, no quota
    PULLING = "pulling"
    LOADING = "loading"
    WARMING = "warming"


@dataclass(frozen=True, slots=True)
class Pending:
    """Capacity that was asked for and does not serve yet. `since` unix seconds; `eta` unix seconds or None."""

    count: int
    phase: Phase
    since: float
    eta: float | None = None


class Outcome(StrEnum):
    """What became of a decision."""

    DONE = "done"
    DRY_RUN = "dry_run"
    REFUSED = "refused"  # the target said no; repeating will not help
    FAILED = "failed"  # not applied, may be retried
    UNKNOWN = "unknown"  # may or may not have been applied; blocks the target until verified


class Drift(StrEnum):
    """Why a target holds another value than the one last seen or set there."""

    STALE = "stale"  # an older value of ours
    FOREIGN = "foreign"  # somebody else's
    RESTARTED = "restarted"  # the target began anew and forgot


@dataclass(frozen=True, slots=True)
class Pin:
    """A person's override."""

    value: float
    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class TargetState:
    """One target as its owner reports it. `accepted` is the spec as read back; None when it could not be read, with
    the reason in `error`. `ready` is what serves now (replicas only). `assumed` when nothing tells the value and it is
    the configured initial one. `drift` tells why the value is another than the one seen or set last, for as long as
    that is news; a foreign one is yielded to, the others are decided on anew: until `foreign_until`, unix seconds, None
    while that writer stands, as an autoscaler does."""

    accepted: float | None
    ready: float | None = None
    pending: tuple[Pending, ...] = ()
    last_outcome: Outcome | None = None
    last_change: float | None = None  # when the accepted value last changed by our hand, unix seconds
    foreign_writer: str = ""
    pin: Pin | None = None
    error: str = ""
    assumed: bool = False
    drift: Drift | None = None
    foreign_until: float | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """`number` counts from the start of the process, `at` is the slot in unix seconds, `since_last` seconds or None."""

    number: int
    at: float
    since_last: float | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Readings of one pool, replica or tenant. Latency signals are keyed by statistic: p50, p95, p99, mean."""

    signals: Mapping[Signal, Reading] = field(default_factory=dict)
    latencies: Mapping[Signal, Mapping[str, Reading]] = field(default_factory=dict)

    def get(self, signal: Signal) -> Reading:
        return self.signals.get(signal, MISSING)

    def usable(self, signal: Signal) -> float | None:
        """As ``Reading.usable``, None where the signal is not read; in one call, because a large fleet asks 100,000
        times a tick."""
        reading = self.signals.get(signal)
        if reading is None or reading.state not in USABLE:
            return None
        value = reading.value
        return reading.lo if value is None else value

    def latency(self, signal: Signal, stat: str) -> Reading:
        """`stat` is "mean" or "pNN"."""
        told = self.latencies.get(signal)
        return MISSING if told is None else told.get(stat, MISSING)


@dataclass(frozen=True, slots=True)
class PoolReadings(Scope):
    """Readings of a pool, of its replicas, tenants and request classes, and the attainment of each objective by its
    name. `unheard` says that it has a gateway, and that this one can tell neither who comes nor who waits."""

    replicas: Mapping[str, Scope] = field(default_factory=dict)
    tenants: Mapping[str, Scope] = field(default_factory=dict)
    classes: Mapping[str, Scope] = field(default_factory=dict)
    attainment: Mapping[str, Reading] = field(default_factory=dict)
    burn: Mapping[str, Mapping[str, Reading]] = field(default_factory=dict)  # objective -> window -> burn rate
    roles: Mapping[str, str] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  # replica -> what it runs, where that is told
    sizes: Sizes | None = None  # of the prompts that finished in the window, where that is told
    started: Mapping[str, float] = field(default_factory=dict)  # replica -> when it began to serve, unix seconds
    filled_since: float | None = None  # since when data has been unbroken, unix seconds
    partial: str = ""
    unheard: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one decision may look at."""

    tick: Tick
    pools: Mapping[str, PoolReadings] = field(default_factory=dict)
    targets: Mapping[Target, TargetState] = field(default_factory=dict)
    error: str = ""  # set when the source gave nothing at all


class Ask(StrEnum):
    """What a proposal claims. HOLD is for freeze and pin alone."""

    SET = "set"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    HOLD = "hold"


_NO_EVIDENCE: Mapping[str, float] = {}  # one for all, because nobody writes to a Mapping


class Proposal(NamedTuple):
    """What a policy wants of one target. `evidence` holds the numbers behind it, for the explanation."""

    target: Target
    ask: Ask
    value: float
    by: str
    why: Why
    evidence: Mapping[str, float] = _NO_EVIDENCE


class Step(NamedTuple):
    """One change on the way from the current to the final value."""

    by: str
    before: float
    after: float
    why: Why
    detail: str = ""


class Decision(NamedTuple):
    """What becomes of one target this tick. `final` is None when its current value is unknown and nothing is asked.
    `send` says whether an actuator gets it; `mode` why not, where the mode is the reason. `leaving` are the replicas
    that are to go first where the count falls, for a target that can choose."""

    target: Target
    current: float | None
    final: float | None
    why: Why
    steps: tuple[Step, ...] = ()
    evidence: Mapping[str, float] = _NO_EVIDENCE
    send: bool = False
    mode: Mode = Mode.AUTO
    until: float | None = None  # expiry that the target should enforce, unix seconds
    blocked: bool = False  # somebody else's value, or a write of ours of unknown outcome: nothing may move it
    leaving: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.current is not None and self.final is not None and self.final != self.current


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision per target, sorted by target, and one sentence on what the plan is doing."""

    at: float
    decisions: tuple[Decision, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of one decision, with the actuator's own words. `waits` where the actuator keeps writes apart by
    itself and this one came too early: nothing was tried, so nothing says that the target is in trouble and needs air.
    """

    target: Target
    outcome: Outcome
    detail: str = ""
    waits: bool = False

    @property
    def word(self) -> str:
        """The outcome for people and metrics: what waits has not failed."""
        return "waits" if self.waits else self.outcome.value
