"""Life of one replica: from request to end, as a pod of Kubernetes goes through it. A pure state machine.

    requested ▸ provisioning ▸ pulling ▸ loading ▸ warming ▸ ready ▸ draining ▸ gone
                                            ▲                 │ crash
                                            └──── backoff ◀───┘

It moves only when told (`advance`, `crash`, `end`, ...) and says in `until` when it wants to be asked again.
"""

import math
import random
from enum import StrEnum

from controller.core.model import Phase
from simulator.spec import LifeSpec, LogNormal, Time

_BACKOFF = 10.0  # seconds; kubelet doubles it with each restart
_LONGEST_BACKOFF = 300.0
_FORGIVEN_AFTER = 600.0  # seconds of running after which a crash counts as the first one


class Stage(StrEnum):
    """Where a replica is in its life."""

    REQUESTED = "requested"  # no node has room for it
    PROVISIONING = "provisioning"  # a node is being made
    PULLING = "pulling"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    BACKOFF = "backoff"  # its container ended and is not started yet
    DRAINING = "draining"
    GONE = "gone"


_NEXT = {
    Stage.PROVISIONING: Stage.PULLING,
    Stage.PULLING: Stage.LOADING,
    Stage.LOADING: Stage.WARMING,
    Stage.WARMING: Stage.READY,
    Stage.BACKOFF: Stage.LOADING,
    Stage.DRAINING: Stage.GONE,
}
# What Kubernetes can tell. The node of an unscheduled pod may be on its way or not; with the port closed, loading and
# warming look the same; a crashed container is loading again.
_PHASES = {
    Stage.REQUESTED: Phase.PENDING,
    Stage.PROVISIONING: Phase.PENDING,
    Stage.PULLING: Phase.PULLING,
    Stage.LOADING: Phase.LOADING,
    Stage.WARMING: Phase.LOADING,
    Stage.BACKOFF: Phase.LOADING,
}
ON_NODE = frozenset(Stage) - {Stage.REQUESTED, Stage.GONE}


def draw(time: Time, rng: random.Random) -> float:
    """One time of a stage, seconds. A fixed time takes no chance, so that others' draws do not shift."""
    if isinstance(time, LogNormal):
        return math.exp(rng.normalvariate(math.log(time.median), time.sigma))
    return float(time)


class Life:
    """`since` is when the stage began, `until` when it ends by itself (inf: it does not), unix seconds. `reason` is how
    the container ended last, as Kubernetes spells it, "" if it never did."""

    __slots__ = (
        "_rng", "_spec", "_streak", "created", "pull_failures", "ready_since", "reason", "restarts",
        "since", "stage", "started_at", "unready_since", "until",
    )  # fmt: skip

    def __init__(self, spec: LifeSpec, rng: random.Random, now: float) -> None:
        self._spec = spec
        self._rng = rng
        self.stage = Stage.REQUESTED
        self.created = self.since = self.unready_since = now
        self.until = math.inf
        self.restarts = 0
        self.reason = ""
        self.pull_failures = 0
        self.started_at: float | None = None  # of the process
        self.ready_since: float | None = None
        self._streak = 0  # crashes without a long enough run in between

    @property
    def phase(self) -> Phase | None:
        """What Kubernetes tells of a replica that is on its way; None for one that serves or ends."""
        return _PHASES.get(self.stage)

    def place(self, now: float) -> None:
        """There is room for it: a node is asked for."""
        self._enter(Stage.PROVISIONING, now, draw(self._spec.provision, self._rng))

    def settle(self, now: float) -> None:
        """It serves already, as those do that were there before the twin began."""
        self.started_at = now
        self._enter(Stage.READY, now, math.inf)

    def advance(self, now: float, *, pull_fails: bool = False) -> bool:
        """Go on to the next stage if its time has come; whether it has. To be repeated, as a stage may take no time."""
        if self.until > now:
            return False
        begun, spec = self.until, self._spec
        if self.stage is Stage.PULLING and pull_fails:
            self.pull_failures += 1
            self.until = begun + _backoff(self.pull_failures)
            return True
        stage = _NEXT[self.stage]
        if stage is Stage.PULLING:
            self._enter(stage, begun, draw(spec.pull, self._rng))
        elif stage is Stage.LOADING:
            self.restarts += self.stage is Stage.BACKOFF
            self.started_at = begun
            self._enter(stage, begun, draw(spec.load, self._rng))
        elif stage is Stage.WARMING:
            self._enter(stage, begun, draw(spec.warm, self._rng))
        else:
            self._enter(stage, begun, math.inf)
        return True

    def crash(self, now: float, reason: str) -> bool:
        """The process ends, with the reason that Kubernetes gives; False when there is none. A draining replica is not
        started again."""
        if self.stage not in (Stage.LOADING, Stage.WARMING, Stage.READY, Stage.DRAINING):
            return False
        self.reason = reason
        if self.stage is Stage.DRAINING:
            self._enter(Stage.GONE, now, math.inf)
            return True
        if self.started_at is not None and now - self.started_at >= _FORGIVEN_AFTER:
            self._streak = 0
        self._streak += 1
        if self.stage is Stage.READY:
            self.unready_since = now
        self.started_at = None
        # The first restart comes at once.
        self._enter(Stage.BACKOFF, now, _backoff(self._streak - 1) if self._streak > 1 else 0.0)
        return True

    def end(self, now: float, grace: float) -> None:
        """It is deleted: one that serves may finish its requests for `grace` seconds, any other goes at once."""
        if self.stage is Stage.READY and grace > 0:
            self._enter(Stage.DRAINING, now, grace)
        elif self.stage is Stage.DRAINING:
            self.until = min(self.until, now + grace)
        elif self.stage is not Stage.GONE:
            self._enter(Stage.GONE, now, math.inf)

    def drained(self, now: float) -> None:
        """Its last request has ended."""
        if self.stage is Stage.DRAINING:
            self._enter(Stage.GONE, now, math.inf)

    def _enter(self, stage: Stage, now: float, lasts: float) -> None:
        self.stage, self.since, self.until = stage, now, now + lasts
        if stage is Stage.READY:
            self.ready_since = now
        elif stage is not Stage.DRAINING:
            self.ready_since = None


def _backoff(failures: int) -> float:
    return min(_LONGEST_BACKOFF, _BACKOFF * 2.0 ** (failures - 1))
