"""The config file as frozen pydantic models: what may be written, its defaults, and one sentence on each key.

Durations are seconds and ratios are 0..1 once loaded. What several keys must agree on is in ``checks``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core.core_schema import ValidationInfo

from controller.config.errors import BadValue
from controller.config.fields import (
    Attainment,
    Label,
    LabelMatch,
    Listen,
    MaybeRate,
    MaybeText,
    Member,
    Moment,
    Name,
    Number,
    Percentile,
    PositiveDuration,
    Share,
    Text,
)
from controller.config.levers import ONE_VERSION, SETPOINTS, SetPoint, with_defaults
from controller.config.plugins import ActuatorChoice, ActuatorPlugin, Plugin, PolicyPlugin, SourcePlugin
from controller.config.units import ByLever, Duration, Size, Whole, Within, Written, duration, format_duration, ratio
from controller.core.model import Lever, Mode
from controller.core.params import Unit
from controller.core.rest import NO_LIMIT
from controller.core.rules import Rate
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import Profile

PROMISES = (Signal.TTFT, Signal.TPOT, Signal.ITL, Signal.E2E, Signal.QUEUE_TIME, Signal.ERROR_RATIO)


class Model(BaseModel):
    """Unknown keys are refused and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ObjectiveConfig(Model):
    """One promise: the part of offered requests that must meet a target."""

    signal: Signal = Field(description="what is promised: " + ", ".join(PROMISES))
    target: Annotated[float, Written("duration or ratio")] = Field(
        description="the limit: a duration for latencies, a ratio for error_ratio",
        json_schema_extra={"type": ["string", "number"]},
    )
    percentile: Percentile | None = Field(None, description="p99 means that 99% of offered requests meet the target")
    attainment: Attainment | None = Field(None, description="the same as a share: 99%")
    statistic: Literal["mean"] | None = Field(
        None, description="mean, for sources that know nothing else; has no error budget"
    )
    klass: MaybeText = Field(
        "", alias="class", description="request class the promise is for, a value of `labels.class`; empty means all"
    )
    window: PositiveDuration | None = Field(
        None, description="time over which the loop judges it; default: the pool's window"
    )
    name: Name | None = Field(
        None, description="name in metrics and reports; default: made of signal, statistic and class"
    )

    @field_validator("signal", mode="before")
    @classmethod
    def _promise(cls, value: object) -> object:
        if isinstance(value, str) and value in set(Signal) - set(PROMISES):
            raise BadValue(f"{value} is not something to promise", "write one of " + ", ".join(PROMISES))
        return value

    @field_validator("target", mode="before")
    @classmethod
    def _target(cls, value: object, info: ValidationInfo) -> float:
        signal = info.data.get("signal")
        if signal is None:  # the signal is wrong and reported; its target cannot be judged
            return 1.0
        target = ratio(value) if signal is Signal.ERROR_RATIO else duration(value)
        if target == 0:
            raise BadValue("a target of zero cannot be met", "write the largest value that is still good")
        if signal is Signal.ERROR_RATIO and target >= 1:
            raise BadValue(f"{value} lets every request fail", "write for example 1%")
        return target

    @property
    def share(self) -> float | None:
        """The part of offered requests that must meet the target, None for a mean."""
        if self.signal is Signal.ERROR_RATIO:
            return 1 - self.target
        return self.percentile if self.percentile is not None else self.attainment

    def default_name(self) -> str:
        """Name made of signal, statistic and class: `ttft_p99`, `ttft_p95_critical`, `error_ratio`."""
        stat = "" if self.signal is Signal.ERROR_RATIO else "mean" if self.share is None else f"p{self.share * 100:g}"
        return "_".join(part for part in (self.signal.value, stat, self.klass) if part)

    def to_objective(self, name: str = "") -> Objective:
        """The core's objective. In a loaded config `name` and `window` are always known."""
        if self.window is None:
            raise ValueError("an objective gets its window from its pool; use PoolConfig.to_objectives")
        chosen = name or self.name or self.default_name()
        return Objective(chosen, self.signal, self.target, self.share, self.window, self.klass)


class LabelsConfig(Model):
    """Which labels of the metrics tell what; empty means that no label does."""

    replica: Label = Field("pod", description="label that tells replicas apart")
    tenant: Label = Field("", description="label that names the tenant")
    klass: Label = Field("", alias="class", description="label that names the request class; objectives may name one")
    role: Label = Field("", description="label that tells prefill from decode")
    zone: Label = Field("", description="label that names the zone, region, cluster or GPU type of a replica")
    version: Label = Field("", description="label that tells what a replica runs, such as `pod_template_hash`")


class GatewayLabelsConfig(Model):
    """Which labels of the gateway's metrics tell what; empty means that no label does."""

    replica: Label = Field("pod", description="label that tells the gateway's own replicas apart")
    tenant: Label = Field("", description="label that names the tenant; the gateway is then asked in place of engines")
    klass: Label = Field("", alias="class", description="label that names the request class; likewise")


class GatewayConfig(Model):
    """The gateway before a pool, where it has metrics of its own. It tells what is offered, refused, tried again and
    waits before the engines, latencies as clients have them, tenants and classes; the engines tell the rest."""

    engine: Text = Field(description="metric contract of the gateway: gaie, envoy_ai_gateway, litellm, ...")
    selector: dict[Label, LabelMatch] = Field(
        {}, description="labels of the gateway's series for this pool: text, or {regex|not|not_regex: text}"
    )
    labels: GatewayLabelsConfig = Field(GatewayLabelsConfig(), description="labels that tell tenants and classes")  # type: ignore[call-arg]


class WorkloadConfig(Model):
    """The Kubernetes object whose replicas serve the pool."""

    namespace: Text = Field(description="its namespace")
    kind: Text = Field("Deployment", description="Deployment, StatefulSet or any kind with a scale subresource")
    name: Text = Field(description="its name")


class ProfileConfig(Model):
    """Step time of one engine: `base + prefill_token·p + sequence·n + kv_token·c + attention·p·(context + p/2)`, and
    at least `host·n` without prefill."""

    base: Duration = Field(description="time of a step that does nothing (a)")
    prefill_token: Duration = Field(description="time per prompt token that is not cached (b)")
    sequence: Duration = Field(description="time per sequence in the batch (c)")
    kv_token: Duration = Field(description="time per token of context that is read (d)")
    attention: Duration = Field(0.0, description="time per prompt token and token of context before it (e)")
    max_num_seqs: Annotated[Whole, Within(ge=1)] = Field(256, description="largest batch of the engine, sequences")
    kv_tokens: Annotated[Whole, Within(ge=1)] | None = Field(None, description="tokens that the KV cache holds")
    host: Duration = Field(0.0, description="time of the host per sequence; no step is shorter")

    def to_profile(self) -> Profile:
        """The core's profile."""
        return Profile(
            self.base,
            self.prefill_token,
            self.sequence,
            self.kv_token,
            self.attention,
            self.max_num_seqs,
            self.kv_tokens,
            self.host,
        )


class CooldownConfig(Model):
    """Time that must pass after a change before the next one in a direction."""

    up: Annotated[Duration, ByLever()] = Field(0.0, description="before the value may rise")
    down: Annotated[Duration, ByLever()] = Field(60.0, description="before the value may fall")


class RateConfig(Model):
    """How much may change in any stretch of time: `amount/time`, absolute or in percent of the current value; `none` is
    no limit."""

    up: Annotated[MaybeRate, ByLever()] = Field(
        Rate(1.0, 60.0, relative=True), description="largest rise; a percentage always allows one quantum"
    )
    down: Annotated[MaybeRate, ByLever()] = Field(Rate(0.1, 60.0, relative=True), description="largest fall")


class PinConfig(Model):
    """A person's override: the value stands until a moment, whatever the policy wants; hard bounds still hold."""

    value: Annotated[Number, Within(ge=0)] = Field(description="the value to hold")
    until: Moment = Field(description="when the pin ends, with time zone: 2026-12-24T18:00:00Z")
    reason: Text = Field(description="why, for whoever reads the decisions")


class PromptConfig(Model):
    """Sizes of prompts. What is longer or shorter stays."""

    min: Annotated[Whole, Within(ge=1)] | None = Field(None, description="tokens that a prompt has at least")
    max: Annotated[Whole, Within(ge=1)] | None = Field(None, description="tokens that a prompt has at most")


def _by_lever(schema: dict[str, Any]) -> None:
    """What each lever has a default of its own for is neither required nor shown with one."""
    own = {
        name for name, field in LeverConfig.model_fields.items() if any(isinstance(m, ByLever) for m in field.metadata)
    }
    schema["required"] = [name for name in schema["required"] if name not in own]
    for name in own:
        schema["properties"][name].pop("default", None)


class LeverConfig(Model):
    """One lever of a pool: the policy that decides, the actuator that acts, and the limits of both. What a lever has a
    default of its own for is in the table above."""

    model_config = ConfigDict(json_schema_extra=_by_lever)

    mode: Mode = Field(
        Mode.OBSERVE, description="off, observe (decide and record only), protect (only tighten or add), auto"
    )
    min: Annotated[Number, Within(ge=0), ByLever()] = Field(description="hard lower bound")
    max: Annotated[Number, Within(ge=0, le=NO_LIMIT), ByLever()] = Field(
        description="hard upper bound; of caps and gates it means no limit"
    )
    quantum: Annotated[Number, Within(gt=0), ByLever()] = Field(1.0, description="step to which values are rounded")
    policy: PolicyPlugin = Field(description="decision law, chosen by `kind`")
    actuator: ActuatorChoice | None = Field(
        None, description="who carries it out: by `kind`, or the name of one of `actuators`; not needed to rehearse"
    )
    receivers: tuple[Name, ...] = Field((), description="downgrade: the pools that may take over requests, best first")
    prompt: PromptConfig | None = Field(
        None, description="downgrade: the sizes of prompts that may go; all where it is not given"
    )
    setpoints: tuple[SetPoint, ...] = Field(
        SETPOINTS,
        description="admission: what of the gate is moved; deadline (0.1 to 1) and priority (rank) have bounds of "
        "their own",
    )
    pin: PinConfig | None = Field(None, description="hold a value by hand for a while")
    cooldown: CooldownConfig = Field(CooldownConfig(), description="rest after a change")  # type: ignore[call-arg]
    rate: RateConfig = Field(RateConfig(), description="speed limits")  # type: ignore[call-arg]
    stabilise: Annotated[Duration, ByLever()] = Field(
        300.0,
        description="the most protective need of this past counts before anything is relaxed; of replicas it fades",
    )
    every: Duration = Field(0.0, description="time between decisions that relax; 0s means every tick")
    settle: Annotated[Duration, ByLever()] = Field(
        0.0,
        description="time until a change shows in the metrics, at least its actuator's; relaxes no further before",
    )
    give_up: PositiveDuration = Field(
        900.0, description="capacity asked for this long ago and still absent is not counted on"
    )
    drain: Duration = Field(
        0.0,
        description="replicas: longest wait for those that go to finish their requests, without new ones, before the "
        "count is lowered; 0s waits for nobody",
    )
    expiry: Annotated[Duration, ByLever()] = Field(
        0.0, description="the target drops a value that is not neutral after this time without renewal; 0s means never"
    )
    fail_static: bool = Field(
        False, description="accept a target that keeps a shedding or degrading value when every Governor is dead"
    )
    group: Annotated[Share, ByLever()] = Field(
        0.2, description="weight, breaker: largest part of the replicas that may be held back at once"
    )
    version_group: Share = Field(
        ONE_VERSION, description="breaker: the same where all of them run one version, as `labels.version` tells"
    )
    by: Literal["replica", "zone"] = Field(
        "replica", description="weight: whether each replica has a weight, or each value of `labels.zone`"
    )


class TenantConfig(Model):
    """What a tenant was promised, and what it agreed to."""

    guarantee: Annotated[Number, Within(ge=0)] = Field(
        0.0, description="tokens/s (prompt and answer) that it gets while it asks for them"
    )
    weight: Annotated[Number, Within(gt=0)] = Field(1.0, description="its share of what is left, against the others'")
    consents: bool = Field(False, description="whether its requests may go to a smaller model")


class ClassConfig(Model):
    """What a class of requests stands for."""

    rank: Annotated[Whole, Within(ge=0)] = Field(0, description="0 is served first")
    sheddable: bool = Field(False, description="whether it may be refused before the promises of others break")
    consents: bool = Field(False, description="whether it may go to a smaller model")


class PoolConfig(Model):
    """Replicas of one model behind one router, with the promises made for them."""

    engine: Text = Field(description="metric contract: vllm, sglang, ...; `governor doctor` lists what each can tell")
    selector: dict[Label, LabelMatch] = Field(
        {}, description="labels of the pool's series: text, or {regex|not|not_regex: text}"
    )
    labels: LabelsConfig = Field(LabelsConfig(), description="labels that tell replicas, tenants, roles, zones")  # type: ignore[call-arg]
    gateway: GatewayConfig | None = Field(None, description="the gateway before the pool, where it has metrics")
    window: PositiveDuration = Field(60.0, description="control window; at least four scrapes")
    objectives: tuple[ObjectiveConfig, ...] = Field((), description="the promises")
    watch: tuple[Signal, ...] = Field((), description="signals to read for metrics and reports alone")
    workload: WorkloadConfig | None = Field(None, description="Kubernetes object, for ready and wanted replicas")
    gpus_per_replica: Annotated[Whole, Within(ge=0)] = Field(1, description="GPUs that one replica takes, for budgets")
    profile: ProfileConfig | None = Field(None, description="step-time coefficients, where they are known")
    max_num_seqs: Annotated[Whole, Within(ge=1)] | None = Field(
        None, description="largest batch of the engine, sequences, if known and not in a profile; else it is learned"
    )
    cold_start: PositiveDuration = Field(
        180.0, description="time from asking for a replica to a warm one, until measured"
    )
    tenants: dict[Member, TenantConfig] = Field({}, description="tenants by the value of `labels.tenant`")
    classes: dict[Member, ClassConfig] = Field({}, description="request classes by the value of `labels.class`")
    levers: dict[Lever, LeverConfig] = Field({}, description="what Governor may move, the first lever first")

    @field_validator("levers", mode="before")
    @classmethod
    def _defaults(cls, value: object) -> object:
        return with_defaults(value) if isinstance(value, Mapping) else value

    @field_validator("objectives", mode="after")
    @classmethod
    def _complete(cls, objectives: tuple[ObjectiveConfig, ...], info: ValidationInfo) -> tuple[ObjectiveConfig, ...]:
        """Fill in windows and names, so that nothing downstream has to know the rules."""
        window = info.data.get("window", 60.0)
        done = []
        for objective in objectives:
            own = objective.window if objective.window is not None else window
            name = objective.name or objective.default_name() + ("" if own == window else f"_{format_duration(own)}")
            done.append(objective.model_copy(update={"window": own, "name": name}))
        return tuple(done)

    @property
    def tenant_label(self) -> str:
        """The label that names the tenant, at the gateway if it is told there."""
        return (self.gateway.labels.tenant if self.gateway is not None else "") or self.labels.tenant

    @property
    def class_label(self) -> str:
        """The label that names the request class, at the gateway if it is told there."""
        return (self.gateway.labels.klass if self.gateway is not None else "") or self.labels.klass

    def to_objectives(self) -> tuple[Objective, ...]:
        """The core's objectives, in the order of the file."""
        return tuple(objective.to_objective() for objective in self.objectives)


class BudgetConfig(Model):
    """A number of GPUs that several pools share."""

    max: Annotated[Whole, Within(ge=1)] = Field(description="GPUs that the pools may take together")
    pools: Literal["all"] | tuple[Name, ...] = Field("all", description="the pools that share it, or all")
    priority: dict[Name, Whole] = Field(
        {}, description="who is served first where it is short: lower numbers; a pool that is not named has 0"
    )

    @field_validator("pools", mode="before")
    @classmethod
    def _pools(cls, value: object) -> object:
        if value != "all" and not isinstance(value, (list, tuple)):
            raise BadValue(f"{value!r} is not a list of pools", "write all, or [name, name]")
        return value


class PairConfig(Model):
    """A prefill pool and a decode pool that serve one model together."""

    prefill: Name = Field(description="the pool that reads prompts")
    decode: Name = Field(description="the pool that writes answers")
    ratio: tuple[Annotated[Number, Within(gt=0)], Annotated[Number, Within(gt=0)]] = Field(
        description="least and most prefill replicas per decode replica: [0.4, 0.6]"
    )


class VariantsConfig(Model):
    """Pools that serve one model behind one router on different GPUs."""

    cost: dict[Name, Annotated[Number, Within(gt=0)]] = Field(
        description="what a replica of each pool costs per hour, in any one unit"
    )


class FleetGuardConfig(Model):
    """Holds everything when one tick would lower much of the fleet, which is far more often a mistake than a wish."""

    share: Share = Field(0.2, description="largest part of pools or GPUs that one tick may lower")
    hold: Duration = Field(300.0, description="time it holds before lowering goes on in steps of that part")
    min_pools: Annotated[Whole, Within(ge=1)] = Field(3, description="fewer lowered pools than this are never held")


class LedgerConfig(Model):
    """The record of what was seen, decided and done."""

    path: Text = Field("/var/lib/governor/ledger", description="directory it is kept in")
    max_size: Annotated[Size, Within(ge=1)] = Field(
        256 * 2**20, description="size of all files together; the oldest are dropped"
    )
    rotate_size: Annotated[Size, Within(ge=1)] = Field(16 * 2**20, description="size at which a new file is begun")


class HttpConfig(Model):
    """Health, metrics and the read-only status API."""

    listen: Listen = Field("127.0.0.1:8080", description="host:port; 0.0.0.0:8080 in a pod")

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])


class ErrorBudgetConfig(Model):
    """Over how long failures may add up."""

    window: PositiveDuration = Field(30 * 86400.0, description="period of the error budget of every objective")


class GovernorConfig(Model):
    """The whole file."""

    version: Literal[1] = Field(description="format of this file: 1")
    interval: Annotated[Duration, Within(ge=1, unit=Unit.DURATION)] = Field(15.0, description="time from tick to tick")
    deadline: PositiveDuration = Field(10.0, description="time for all reading of one tick; shorter than the interval")
    identity: Name = Field(
        "inference-governor",
        description="name under which values are written, such as the field manager in Kubernetes and `by` in Redis",
    )
    source: SourcePlugin = Field(description="where metrics come from, chosen by `kind`")
    actuators: dict[Name, ActuatorPlugin] = Field({}, description="actuators that several levers share, by name")
    pools: dict[Name, PoolConfig] = Field(description="the pools by name", min_length=1)
    budgets: dict[Name, BudgetConfig] = Field({}, description="GPUs that pools share, by a name of yours")
    pairs: dict[Name, PairConfig] = Field({}, description="prefill and decode pools that are sized together")
    variants: dict[Name, VariantsConfig] = Field(
        {}, description="pools of one model, of which the cheapest grows first"
    )
    fleet_guard: FleetGuardConfig = Field(FleetGuardConfig(), description="guard over the whole fleet")  # type: ignore[call-arg]
    ledger: LedgerConfig = Field(LedgerConfig(), description="record of decisions")  # type: ignore[call-arg]
    http: HttpConfig = Field(HttpConfig(), description="HTTP server of the daemon")  # type: ignore[call-arg]
    error_budget: ErrorBudgetConfig = Field(ErrorBudgetConfig(), description="error budgets")  # type: ignore[call-arg]

    def actuator(self, pool: str, lever: Lever) -> Plugin | None:
        """Who carries out what is decided of a lever, with its name where it is shared; None where nobody does."""
        plugin = self.pools[pool].levers[lever].actuator
        if plugin is None or not plugin.name:
            return plugin
        shared = self.actuators.get(plugin.name)
        return None if shared is None else replace(shared, name=plugin.name)
