"""What a fleet is made of: pools, their engines and lives, gateways, the cluster and the Prometheus that watches it.

Plain frozen data, written by a person in a scenario file. Times are seconds; times of day count from the start.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controller.core.params import Unit, param
from routing import strategies
from routing.knobs import Knobs
from routing.parameters import Value
from simulator import library
from simulator.cluster.disturbances import Disturbance
from simulator.engine.spec import Adapters, Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """A time that varies: half of the draws are below the median, nine tenths below p90."""

    kind: Literal["lognormal"] = param("lognormal", "lognormal")
    median: float = param("median", unit=Unit.DURATION, gt=0)
    p90: float = param("ninth decile", unit=Unit.DURATION, gt=0)

    def __post_init__(self) -> None:
        if self.p90 < self.median:
            raise ValueError("p90: is below the median; write a longer time")

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm."""
        return math.log(self.p90 / self.median) / 1.2815515655446004


Time = float | LogNormal


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSpec:
    """How long the stages of a replica's life take. Each is one time, or a distribution."""

    provision: Time = param("until there is a node: made and joined", 0.0, unit=Unit.DURATION, ge=0)
    pull: Time = param("pulling the image", 15.0, unit=Unit.DURATION, ge=0)
    load: Time = param("loading the weights", LogNormal(median=45.0, p90=70.0), unit=Unit.DURATION, ge=0)
    warm: Time = param(
        "compiling, capturing graphs, first requests", LogNormal(median=40.0, p90=55.0), unit=Unit.DURATION, ge=0
    )
    drain_timeout: float = param(
        "how long a replica that is ended may finish its requests", 300.0, unit=Unit.DURATION, ge=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryEngine:
    """An engine whose step times are in the library."""

    kind: Literal["library"] = param("library", "library")
    model: str = param("model, as the library spells it")
    gpu: str = param("GPU, as the library spells it")
    tp: int = param("tensor parallel size", 1, ge=1)
    precision: str = param("precision of the weights; empty = the library's first", "")
    engine: str = param("inference engine", "vllm")

    def __post_init__(self) -> None:
        field = "model"
        try:
            library.named("models", self.model)
            field = "gpu"
            library.named("gpus", self.gpu)
            field = "model"
            library.find(self.model, self.gpu, self.tp, self.precision, self.engine)
        except library.NotInLibrary as error:
            raise ValueError(f"{field}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEngine:
    """An engine whose step time is a + b*prefill tokens + c*sequences + d*KV tokens + e*prefill attention, and
    without prefill at least host*sequences."""

    kind: Literal["profile"] = param("profile", "profile")
    a: float = param("each step", 6.071e-3, unit=Unit.DURATION, gt=0)
    b: float = param("each prefill token, seconds", 15.35e-6, ge=0)
    c: float = param("each sequence, seconds", 13.8e-6, ge=0)
    d: float = param("each KV token, seconds", 41.5e-9, ge=0)
    e: float = param("each prefill token squared, seconds", 1.41e-9, ge=0)
    host: float = param(
        "time of the host per sequence, seconds; no step without prefill is shorter than the sum", 0.0, ge=0
    )
    max_num_seqs: int = param("sequences in one batch", 256, ge=1)
    kv_tokens: int | None = param("tokens that the KV cache holds; none = no limit", 450_000, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Engine arguments. Those that are not given are as in the engine's profile, or vLLM's defaults."""

    max_num_seqs: int | None = param("sequences in one batch", None, ge=1)
    kv_tokens: int | None = param("tokens that the KV cache holds", None, ge=1)
    max_batched_tokens: int = param("tokens of one step, decode and prefill together", 8192, ge=1)
    max_context: int | None = param("longest prompt and answer together, tokens; none: the KV cache", None, ge=2)
    block: int = param("tokens of a KV block", 16, ge=1)
    prefix_cache: bool = param("keep the blocks of ended prompts until their place is needed", True)
    max_wait: float | None = param("longest wait for the first place in a batch", None, unit=Unit.DURATION, gt=0)
    max_queue: int | None = param("requests that may wait; more are refused", None, ge=0)
    isolation: Isolation | None = param("lanes for long and short prompts", None)
    adapters: Adapters | None = param("LoRA; none: every adapter is free", None)
    memory_tokens: int | None = param(
        "prompt tokens being computed at once that activations have memory for; beyond, the process dies of a CUDA "
        "out-of-memory. Prompts of a quarter of this and more are counted; none = never",
        None,
        ge=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec:
    """The gateway in front of a pool: its laws and strategy, and what it knows of the replicas."""

    strategy: str = param("routing strategy", "least-loaded")
    parameters: dict[str, float | str | bool] = param("parameters of the strategy", {})
    knobs: Knobs = param("set-points of admission, queue, breaker and the rest; all off when not given", Knobs())
    report_every: float = param("how often engines tell the gateway of their load", 1.0, unit=Unit.DURATION, ge=0.01)
    report_lag: float = param("how old such a report is when it arrives", 0.0, unit=Unit.DURATION, ge=0)
    delay: float = param("network to a replica, there and back", 0.0, unit=Unit.DURATION, ge=0)
    jitter: float = param("what the network takes longer at times, evenly up to this", 0.0, unit=Unit.DURATION, ge=0)
    hand_over: float = param("moving a KV cache to another replica, whatever its size", 0.005, unit=Unit.DURATION, ge=0)
    transfer: float = param("the same for each token in it, seconds", 5e-6, ge=0)
    transfer_far: float = param("the same into another zone, seconds", 5e-5, ge=0)

    def __post_init__(self) -> None:
        _made("", self.strategy, self.parameters)
        name = self.knobs.strategy or self.strategy
        if self.knobs.affinity != 1.0 and name in strategies.STRATEGIES and not strategies.STRATEGIES[name].leans:
            raise ValueError(f"knobs.affinity: {name} has none that could be lowered; write 1")
        if self.knobs.strategy or self.knobs.parameters:
            _made("knobs.", self.knobs.strategy or self.strategy, self.knobs.parameters)


def _made(place: str, strategy: str, parameters: Mapping[str, Value]) -> None:
    """Makes the strategy, to see that it can be. Raises ValueError as `place and field: mistake; mend`."""
    try:
        strategies.make(strategy, parameters)
    except ValueError as error:
        below = "" if str(error).startswith("strategy: ") else "parameters."
        raise ValueError(f"{place}{below}{error}") from error


# Labels of a target that are no pool's to choose, and what to write in their place.
OWN_LABELS = {
    "job": "remove it; the job is the pool's name",
    "instance": "remove it; each replica has its own",
    "pod": "remove it; each replica has its own",
    "namespace": "write namespace of the pool",
    "zone": "write zones of the pool",
    "version": "write version of the pool",
    "role": "write role of the pool",
    "model_name": "write model_name of the pool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Replicas of one model on one kind of hardware, and their gateway."""

    replicas: int = param("replicas that serve at the start", ge=0, le=10_000)
    engine: LibraryEngine | ProfileEngine = param("what a replica runs", ProfileEngine())
    limits: EngineLimits = param("engine arguments", EngineLimits())
    life: LifeSpec = param("stage times", LifeSpec())
    gateway: GatewaySpec = param("gateway in front of it", GatewaySpec())
    behind: str = param("the pool whose gateway also serves this one; empty = its own gateway", "")
    model_name: str = param("model name in its metrics; empty = the pool's name", "")
    namespace: str = param("its namespace", "default")
    labels: dict[str, str] = param("more labels that Prometheus gives to its targets", {})
    role: Literal["both", "prefill", "decode"] = param("which part of a request it serves", "both")
    zones: tuple[str, ...] = param("zones, taken in turn", ())
    region: str = param("region", "")
    hardware: str = param("hardware, for capability match", "")
    precision: str = param("precision, for capability match", "")
    version: str = param("version of the first rollout", "v1")
    tenants: tuple[str, ...] = param("tenants that it serves; empty = all", ())
    canary: float | None = param("share of the traffic that its version should get", None, unit=Unit.RATIO, ge=0, le=1)
    gpus: int = param("GPUs of one replica", 1, ge=1)
    quota: int | None = param("replicas that find a node at most; none = no limit", None, ge=0, le=10_000)

    def __post_init__(self) -> None:
        for name in self.labels:
            if name in OWN_LABELS:
                raise ValueError(f"labels.{name}: is set by the twin itself; {OWN_LABELS[name]}")
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", str(name)):  # a file may have a number there
                raise ValueError(f"labels.{name}: is no label; use letters, digits and _")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSpec:
    """How the fleet is watched."""

    interval: float = param("scrape interval", 15.0, unit=Unit.DURATION, ge=0.1)
    delay: float = param("until a scrape can be queried", 0.0, unit=Unit.DURATION, ge=0)
    jitter: float = param("what a scrape comes late at times, evenly up to this", 0.0, unit=Unit.DURATION, ge=0)
    missing: float = param("share of scrapes that fail", 0.0, unit=Unit.RATIO, ge=0, lt=1)
    lookback: float = param("how long a sample stands for the present", 300.0, unit=Unit.DURATION, gt=0)

    def __post_init__(self) -> None:
        if self.jitter >= self.interval:
            raise ValueError("jitter: is as long as the interval; write a shorter time")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """A fleet: pools by name, what watches it, and what befalls it."""

    pools: dict[str, PoolSpec] = param("pools by name")
    gpus: int | None = param("GPUs that all pools share; none = no limit", None, ge=0)
    prometheus: PrometheusSpec = param("what watches it", PrometheusSpec())
    disturbances: tuple[Disturbance, ...] = param("what befalls it", ())

    def __post_init__(self) -> None:
        for name, pool in self.pools.items():
            if pool.behind and (pool.behind not in self.pools or self.pools[pool.behind].behind):
                raise ValueError(f"pools.{name}.behind: {pool.behind!r} is no pool with a gateway; name one")
            for number, route in enumerate(pool.gateway.knobs.downgrade):
                if route.pool not in self.pools or route.pool == name:
                    place = f"pools.{name}.gateway.knobs.downgrade.{number}.pool"
                    raise ValueError(f"{place}: {route.pool!r} is no other pool to downgrade to; name one")
        for number, one in enumerate(self.disturbances):
            if one.pool and one.pool not in self.pools:
                known = ", ".join(self.pools)
                raise ValueError(f"disturbances.{number}.pool: there is no pool {one.pool!r}; write one of {known}")
