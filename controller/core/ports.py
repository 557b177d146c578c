"""Ports: what the loop asks of the world, and what it offers to a policy. Types only.

Third parties depend on this module, ``model``, ``reading``, ``observation``, ``facts``, ``params`` and ``slo``; these
are the stable surface for plug-ins.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

from controller.core.facts import Fact
from controller.core.model import Applied, Decision, Lever, PoolReadings, Proposal, Target, TargetState, Tick
from controller.core.observation import Observation
from controller.core.slo import Objective
from controller.core.tenancy import ClassRules, TenantRules
from controller.core.worse import Worse

S = TypeVar("S")


# --- sources -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label matcher: `op` is =, !=, =~ or !~ (regular expressions are anchored, as in PromQL)."""

    label: str
    op: str
    value: str


@dataclass(frozen=True, slots=True)
class PoolNeeds:
    """What a source must read for one pool, derived from its objectives and levers.

    `facts` are wanted for the pool, `replica_facts` also per replica, of `replica_means` (histograms) the count and the
    sum per replica, `tenant_facts` also per value of `tenant_label` and `class_facts` per value of `class_label`.
    `workload` is (namespace, kind, name) for kube-state-metrics, None when no lever names one. `fronts` is the pool
    that these series are the gateway of, "" for the pool itself.
    """

    pool: str
    engine: str
    matchers: tuple[Matcher, ...]
    facts: frozenset[Fact]
    replica_facts: frozenset[Fact] = frozenset()
    tenant_facts: frozenset[Fact] = frozenset()
    class_facts: frozenset[Fact] = frozenset()
    replica_label: str = "pod"
    tenant_label: str = ""
    class_label: str = ""
    role_label: str = ""
    zone_label: str = ""
    version_label: str = ""
    workload: tuple[str, str, str] | None = None
    edges: Mapping[Fact, tuple[float, ...]] = field(default_factory=dict)  # targets of objectives, seconds
    replica_means: frozenset[Fact] = frozenset()
    fronts: str = ""

    @property
    def wanted(self) -> frozenset[Fact]:
        """Every fact that is wanted of the pool or of any part of it."""
        return self.facts.union(self.replica_facts, self.replica_means, self.tenant_facts, self.class_facts)


class Source(Protocol):
    """The eyes. Never raises for a failing backend: it says so in the observation."""

    def observe(self, at: float, deadline: float) -> Observation:
        """Read everything for the slot `at` (unix seconds), spending at most `deadline` seconds of real time."""

    def close(self) -> None: ...


# --- policies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard bounds and quantum of a target, in its unit."""

    min: float
    max: float
    quantum: float = 1.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What has been learned of a pool. Replica-equivalents: one warm replica at its operating point is 1.

    `demand` now and `forecast` at `horizon` seconds, an upper quantile over its `point`, are None while they cannot be
    known. `unit_rate` is what one
    replica serves at its operating point, requests/s, `unit_tokens` the same in tokens/s (prompt and answer),
    `unit_sequences` how many requests it then holds. `flows` and `classes` are the demand of each tenant and of each
    request class, where they are told apart; `fitting` is the share of it with prompts of a size that may be
    downgraded, None while that cannot be known. `trusted` says whether the numbers may justify lowering.
    """

    offered: float | None = None  # requests/s, unique, net of retries
    demand: float | None = None
    forecast: float | None = None
    point: float | None = None
    level: float | None = None  # demand now without its noise
    noise: float = 0.0  # the usual relative step of demand from one reading to the next: burstiness, and few requests
    backlog: float = 0.0  # replica-equivalents that drain the queue in the drain time
    unit_rate: float | None = None
    hit_rate: float | None = None
    kappa: float = 1.0
    horizon: float = 0.0  # seconds until a replica asked for now is warm
    margin: float = 0.0  # extra share of capacity that the burning error budget asks for
    burning: bool = False
    passing: float = 0.0  # seconds of queue delay below which those that wait are between two steps of an engine
    cache_told: bool = False  # whether this pool ever told its KV usage: if so, its absence is no zero
    trusted: bool = False
    evidence: Mapping[str, float] = field(default_factory=dict)
    unit_tokens: float | None = None
    unit_sequences: float | None = None
    flows: Mapping[str, float] = field(default_factory=dict)
    classes: Mapping[str, float] = field(default_factory=dict)
    fitting: float | None = 1.0
    versions: Mapping[str, float] = field(default_factory=dict)  # unit_rate by version, where several are known
    worse: Worse | None = None  # the version that is worse than the rest of the pool, where one is
    also_worse: tuple[Worse, ...] = ()  # others that fail, too, less than that one
    unproven: bool = False  # whether what most replicas run came after another version, which could do what it can not


@dataclass(frozen=True, slots=True)
class Balance:
    """Supply and demand of a pool in replica-equivalents. `demand` is all that is offered, at the cost that it has in
    this pool, whatever relief is given: so it does not fall when a lever helps. `carried` is what serves now at its
    operating point (ejected and cold replicas are not in it), `arriving` what was asked for and is on its way, `ahead`
    the demand at the horizon. `by_flow` and `by_class` are the parts of tenants and request classes, where told;
    `room` how much more each receiving pool could take now, and `exchange` what one replica-equivalent of this pool's
    work costs there, by receiving pool; `fitting` the share of any of it with prompts of a size that may be sent
    there, None where that is not known."""

    demand: float
    carried: float
    arriving: float = 0.0
    ahead: float = 0.0
    by_flow: Mapping[str, float] = field(default_factory=dict)
    by_class: Mapping[str, float] = field(default_factory=dict)
    room: Mapping[str, float] = field(default_factory=dict)
    exchange: Mapping[str, float] = field(default_factory=dict)
    fitting: float | None = 1.0


@dataclass(slots=True)  # a frozen one takes four times as long to make, and each lever of each pool has one a tick
class Brief:
    """What relief is still wanted when this policy is asked: `left` replica-equivalents, 0 while the pool carries its
    demand or higher rungs of the ladder relieve it of the rest; `until` unix seconds, when capacity asked for now would
    be warm. `gain` in [0.25, 1] multiplies a correction that is kept beside the value, such as capacity's trim; below 1
    after this lever was seen to swing by itself. Feed-forward and protection do not look at it, and releases need not:
    a guard slows them. `short` is the whole shortage, before any rung relieved it. `below` is told to tenant caps: what
    of `left` a downgrade further down can send elsewhere, so that caps need not refuse it."""

    balance: Balance
    left: float
    until: float | None = None
    gain: float = 1.0
    short: float = 0.0
    below: float = 0.0


def at_once(_current: float, _goal: float) -> float:
    """The time that a raise takes where nothing limits its pace."""
    return 0.0


@dataclass(slots=True)  # as ``Brief``
class View:
    """All that a policy may look at: its pool, its targets (sorted), what was learned, the limits, what tenants and
    request classes were promised, and which levers of the pool act (are not off, and more than observe). `away` are
    replicas that are not among the targets for a while, because they drain: who comes back from there is not new.
    `climb` gives the seconds that a raise from one value to another takes within the limits on its pace, inf where
    they let none through."""

    tick: Tick
    pool: PoolReadings
    targets: Mapping[Target, TargetState]
    limits: Mapping[Target, Limits]
    estimate: Estimate
    tenants: Mapping[str, TenantRules] = field(default_factory=dict)
    classes: Mapping[str, ClassRules] = field(default_factory=dict)
    acting: frozenset[Lever] = frozenset()
    away: frozenset[str] = frozenset()
    climb: Callable[[float, float], float] = at_once


class Policy(Protocol[S]):
    """A decision law. Pure. The constructor takes the plug-in's ``Config``; state is a frozen dataclass, or
    a named tuple, that goes to the ledger.

    Class attributes: ``Config``, ``State``, ``levers`` (the levers it can drive), and ``reads`` (the signals it
    looks at beside those that its parameters, the objectives and the guards name; without it everything is fetched).
    `absolute = True` where what it asks is the whole need and no step from the current value; without it, what is on
    its way in its pool may be its own, and a downgrade is not counted on for more than it sends. A law of downgrades
    may have `beyond(acting)`: what it sends beyond the room of a pool of which these levers act, as a share of what
    that carries (``controller.core.beyond``).
    """

    def initial(self) -> S: ...

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: S
    ) -> tuple[Sequence[Proposal], S]: ...


# --- actuators ---------------------------------------------------------------------------------------------------


class Ack(StrEnum):
    """How a target tells that a value is in force."""

    NONE = "none"  # it cannot be asked
    ANSWER = "answer"  # it says yes to the write, and cannot be asked later
    VALUE = "value"  # the value can be read back
    VERSION = "version"  # it tells the version of the configuration that it runs


class Reach(StrEnum):
    """Where one write takes effect."""

    PROCESS = "process"  # in the one process that was told; others have their own value
    FLEET = "fleet"  # in every process of the target


@dataclass(frozen=True, slots=True)
class Capability:
    """What an actuator can do with one lever.

    Values lie within `low` and `high`, in steps of `quantum` (0: any), in `unit`. `settle` is the time in seconds until
    a change can show; `hot` whether it takes effect without a restart or a lost request; `atomic` whether the values of
    one batch come into force together or not at all; `persistent` whether a value outlives a restart of the target;
    `expiry` whether the target itself drops a value after its time, whoever is still alive; `cas` whether a write
    carries the version that was read, so that a stale one loses. `note` says in a sentence what is really moved. Of
    weights, `zones` says whether a member may be a group of replicas, such as a region, or each is one endpoint; of
    admission, `setpoints` those that it has, None for whatever yours has; of replicas, `chooses` whether
    those that a decision names as `leaving` are the ones that go; of a downgrade, `sizes` whether it can pick by the
    size of the prompt.
    """

    unit: str
    low: float = 0.0
    high: float = math.inf
    quantum: float = 1.0
    settle: float = 0.0
    hot: bool = True
    atomic: bool = False
    persistent: bool = True
    expiry: bool = False
    cas: bool = False
    reach: Reach = Reach.FLEET
    ack: Ack = Ack.VALUE
    note: str = ""
    zones: bool = True
    setpoints: tuple[str, ...] | None = None
    chooses: bool = False
    sizes: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should know before it hurts: `level` is error, warning or info, `subject` what it is
    about, `text` the sentence with the mend."""

    level: str
    subject: str
    text: str


class Actuator(Protocol):
    """The hands. Values are absolute and writes idempotent. Raises ``ActuatorError`` from ``read`` alone; ``apply``
    answers with outcomes.

    The constructor takes the plug-in's ``Config`` and a ``Binding``. It opens no connection: that is for the first
    ``read``. Class attribute: ``Config``. Class method: ``describe(config: Config | None) -> Mapping[Lever,
    Capability]``, what it can do as configured, or at most when there is no config. Optional method: ``diagnose(now:
    float) -> Sequence[Finding]``, what is wrong with reachability, rights and other writers; it must not write.
    Optional class attribute: ``place``, the names of the settings that say where values go; `pools.model` is the model
    of the pool in `pools`. Where those of a new config are the old ones, what was sent is still in force; without it
    that takes all settings. What was found at one place before the first write is not put back at another.
    """

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]: ...

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]: ...

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        """Ask what became of writes whose outcome is unknown; must not write."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Binding:
    """What assembly tells an actuator about its place: the targets it owns, and who we are. `scopes` are pools with
    levers whose members are replicas; of these it owns all, as they come and go. An actuator that several levers share
    has the targets and scopes of all of them. `dry` where nothing is ever applied: one that tells its targets more than
    what it is given to apply, such as where replicas are, must not. `consents` is for an actuator with the class
    attribute `asks_consent`, which picks requests itself: pool, "tenants" or "classes", and those that consent."""

    targets: tuple[Target, ...]
    identity: str = "inference-governor"
    scopes: tuple[tuple[str, Lever], ...] = ()
    dry: bool = False
    consents: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @property
    def levers(self) -> tuple[Lever, ...]:
        """The levers that it moves, in the order of the enum."""
        return tuple(sorted({t.lever for t in self.targets} | {s[1] for s in self.scopes}, key=list(Lever).index))

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that it serves, sorted."""
        return tuple(sorted({t.pool for t in self.targets} | {s[0] for s in self.scopes}))

    def owns(self, target: Target) -> bool:
        """Whether a target is one of its own."""
        return target in self.targets or (target.pool, target.lever) in self.scopes


class ActuatorError(Exception):
    """A target could not be read. The message names the target, the cause and the mend."""


# --- ledger ------------------------------------------------------------------------------------------------------


class LedgerFull(Exception):
    """The ledger cannot be written; the loop then holds relaxing moves."""
