"""What befalls a fleet: crashes, stragglers, hangs, errors, reclaimed nodes, rollouts, failures of what is around it.

Plain frozen data. `at` counts seconds from the start. Victims are told by their place among the replicas that serve
then, oldest first: one of them, or a share of them from the first on, rounded up.
"""

import math
from dataclasses import dataclass
from typing import Literal

from controller.core.params import Unit, param


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """Which replicas of which pool."""

    at: float = param("when", unit=Unit.DURATION, ge=0)
    pool: str = param("whose replicas")
    replica: int = param("place among those that serve, oldest first", 0, ge=0)
    share: float | None = param("share of them instead of one", None, unit=Unit.RATIO, gt=0, le=1)

    def places(self, serving: int) -> range:
        """The places of the victims among `serving` replicas; empty when there is none."""
        if self.share is not None:
            return range(math.ceil(self.share * serving - 1e-9))
        return range(self.replica, self.replica + 1) if self.replica < serving else range(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(Victims):
    """The process ends, and all its requests with it. Kubernetes starts it again, later each time."""

    kind: Literal["crash"] = param("crash", "crash")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory(Victims):
    """The kernel kills the container for its memory. (A CUDA out-of-memory is a crash to Kubernetes.)"""

    kind: Literal["oom"] = param("oom", "oom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Victims):
    """Steps take longer for a while."""

    kind: Literal["straggler"] = param("straggler", "straggler")
    duration: float | None = param("how long; none = to the end", None, unit=Unit.DURATION, gt=0)
    factor: float = param("step time, times", 3.0, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang(Victims):
    """The engine core stops for a while."""

    kind: Literal["hang"] = param("hang", "hang")
    duration: float = param("how long", 60.0, unit=Unit.DURATION, gt=0)
    answers: bool = param("vLLM's HTTP server still answers, and its metrics stand still; else scrapes fail", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors(Victims):
    """The HTTP server answers new requests with 500 at once, for a while; those that it has go on. With so little to
    do it looks like the best place for the next one."""

    kind: Literal["errors"] = param("errors", "errors")
    duration: float = param("how long", 60.0, unit=Unit.DURATION, gt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim(Victims):
    """The cloud takes the node back. The replica drains from the notice on and is killed when it ends."""

    kind: Literal["reclaim"] = param("reclaim", "reclaim")
    notice: float = param("time from notice to end", 30.0, unit=Unit.DURATION, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A new version replaces the old one, replica by replica, one more than wanted at a time."""

    kind: Literal["rollout"] = param("rollout", "rollout")
    at: float = param("when", unit=Unit.DURATION, ge=0)
    pool: str = param("whose replicas")
    version: str = param("name of the new version")
    factor: float = param("its step time, times that of the pool's profile", 1.0, gt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowNetwork:
    """The way between gateway and replicas takes longer for a while."""

    kind: Literal["slow_network"] = param("slow_network", "slow_network")
    at: float = param("when", unit=Unit.DURATION, ge=0)
    pool: str = param("which pool's; empty = all", "")
    duration: float = param("how long", 60.0, unit=Unit.DURATION, gt=0)
    delay: float = param("longer by, there and back", 0.0, unit=Unit.DURATION, ge=0)
    jitter: float = param("longer at times, evenly up to this", 0.0, unit=Unit.DURATION, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOutage:
    """Scrapes fail for a while: those of one pool, or Prometheus is gone altogether and answers nothing."""

    kind: Literal["metrics_outage"] = param("metrics_outage", "metrics_outage")
    at: float = param("when", unit=Unit.DURATION, ge=0)
    pool: str = param("whose targets; empty = Prometheus itself", "")
    duration: float = param("how long", 300.0, unit=Unit.DURATION, gt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """No more replicas (of a pool) or GPUs (of all pools) find a node for a while. Those that run stay."""

    kind: Literal["quota"] = param("quota", "quota")
    at: float = param("when", unit=Unit.DURATION, ge=0)
    pool: str = param("whose replicas; empty = the GPUs of all pools", "")
    limit: int = param("replicas, or GPUs", ge=0)
    duration: float | None = param("how long; none = to the end", None, unit=Unit.DURATION, gt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFailure:
    """Images cannot be pulled for a while; each replica tries again, later each time."""

    kind: Literal["pull_failure"] = param("pull_failure", "pull_failure")
    at: float = param("when", unit=Unit.DURATION, ge=0)
    pool: str = param("whose replicas; empty = all", "")
    duration: float = param("how long", 300.0, unit=Unit.DURATION, gt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """Processes that have loaded for the first time or again end at once, for a while, as with a bad argument or broken
    weights. Those that serve go on."""

    kind: Literal["start_failure"] = param("start_failure", "start_failure")
    at: float = param("when", unit=Unit.DURATION, ge=0)
    pool: str = param("whose replicas; empty = all", "")
    duration: float | None = param("how long; none = to the end", None, unit=Unit.DURATION, gt=0)


Disturbance = (
    Crash
    | OutOfMemory
    | Straggler
    | Hang
    | Errors
    | Reclaim
    | Rollout
    | SlowNetwork
    | MetricsOutage
    | Quota
    | PullFailure
    | StartFailure
)
