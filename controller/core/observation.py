"""Observation: what a source saw since the previous one. Exact increments and gauges, no windows, no quantiles.

Every source (Prometheus, a recording, a direct scrape, the simulator) gives the same type, so windows, quantiles and
states are computed in one place, ``measure``. Rules that every source keeps when it forms increments of a counter
between `t0` and `t1`, per original series, before summing:

* value fell: the process restarted, the new value is the increment;
* series absent at `t0` while its target was up at `t0`: it was born in between, the new value is the increment;
* series absent at `t0` and its target unknown or down at `t0`: no increment (we cannot know how old the count is);
* series absent at `t1`: no increment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.core.facts import Fact


class HistogramIncrement(NamedTuple):
    """New samples of a histogram. `edges` are the finite upper bounds in the fact's unit, ascending; `cumulative[i]` is
    the number of new samples <= edges[i]; `count` all of them; `sum` their sum. A source that only knows a mean has no
    edges."""

    edges: tuple[float, ...]
    cumulative: tuple[float, ...]
    count: float  # type: ignore[assignment]  # not the method of tuples
    sum: float


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one pool, replica, tenant or request class. A fact that is not in a mapping was not there to be
    read."""

    histograms: Mapping[Fact, HistogramIncrement] = field(default_factory=dict)
    counters: Mapping[Fact, float] = field(default_factory=dict)
    gauges: Mapping[Fact, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaFacts(Facts):
    """The facts of one replica (pod)."""

    up: bool = True  # its newest scrape succeeded
    age: float = 0.0  # seconds since its newest sample
    started_at: float | None = None  # when it began to serve, unix seconds, where known
    role: str = ""  # prefill | decode | both, where a label says so
    zone: str = ""
    version: str = ""  # what it runs, where a label says so: a rollout's, a canary's


@dataclass(frozen=True, slots=True)
class PoolFacts(Facts):
    """The facts of one pool. Pool counters and histograms are sums over replicas. `sources` names the metric behind
    each fact; `late` those facts that move only when a request ends; `unsupported` the reason for each fact that the
    engine cannot give; `partial` a warning that the
    backend gave (Thanos, Mimir), `failed` the facts whose query failed this time, with the reason, and `class_failed`
    those that could be read for the pool but not by class. A series without the class label is of no class.

    Of a pool that is read at its engines and at its gateway (``join``): `fronted` are the facts that the gateway tells,
    `since` tells of facts that could not be read for a while from when on they were counted, unix seconds.
    `front_age` the seconds since its newest sample (a source tells it of a gateway without replicas of its own), and
    `doubted` the facts that are known in part, with the reason."""

    replicas: Mapping[str, ReplicaFacts] = field(default_factory=dict)
    tenants: Mapping[str, Facts] = field(default_factory=dict)
    classes: Mapping[str, Facts] = field(default_factory=dict)
    sources: Mapping[Fact, str] = field(default_factory=dict)
    late: frozenset[Fact] = frozenset()
    unsupported: Mapping[Fact, str] = field(default_factory=dict)
    partial: str = ""
    failed: Mapping[Fact, str] = field(default_factory=dict)
    class_failed: Mapping[Fact, str] = field(default_factory=dict)
    doubted: Mapping[Fact, str] = field(default_factory=dict)
    since: Mapping[Fact, float] = field(default_factory=dict)
    fronted: frozenset[Fact] = frozenset()
    front_age: float | None = None
    targets_up: int | None = None  # targets of the pool whose last scrape succeeded; None = unknown
    targets_down: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything a source saw between `since` and `at` (unix seconds). `since` is None on the first one: then counters
    and histograms carry no increments. `error` is set, and `pools` empty, when nothing could be read.

    `stamped` says that ages are those of the samples themselves, so that increments after an outage can be dated. A
    source that cannot tell leaves it out, and what is counted after a gap is then not taken for that of a shorter time.
    """

    at: float
    since: float | None
    pools: Mapping[str, PoolFacts] = field(default_factory=dict)
    error: str = ""
    stamped: bool = False
