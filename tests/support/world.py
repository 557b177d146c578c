"""Observations by hand: one pool, tick by tick, with what the test wants to say about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.facts import Fact
from controller.core.meter import Meter, PoolSpec
from controller.core.model import PoolReadings
from controller.core.observation import Facts, HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.slo import Objective

EDGES = (0.3, 0.5, 1.0, 2.5, 5.0, 10.0)
POOL = "llm"


def hist(*samples: float, edges: tuple[float, ...] = EDGES) -> HistogramIncrement:
    """The increment that these samples (seconds) make."""
    cumulative = tuple(float(sum(s <= edge for s in samples)) for edge in edges)
    return HistogramIncrement(edges, cumulative, float(len(samples)), float(sum(samples)))


@dataclass
class Watch:
    """A meter and a clock."""

    objectives: tuple[Objective, ...] = ()
    window: float = 60.0
    interval: float = 15.0
    at: float = 1_000_000.0
    class_label: str = ""
    meter: Meter = field(init=False)
    since: float | None = None

    def __post_init__(self) -> None:
        self.meter = Meter([PoolSpec(POOL, self.window, self.objectives, 60.0, self.class_label)])

    def see(
        self,
        *,
        histograms: Mapping[Fact, HistogramIncrement] | None = None,
        counters: Mapping[Fact, float] | None = None,
        running: float | None = 0.0,
        waiting: float | None = 0.0,
        age: float = 1.0,
        replicas: Mapping[str, ReplicaFacts] | None = None,
        failed: Mapping[Fact, str] | None = None,
        unsupported: Mapping[Fact, str] | None = None,
        classes: Mapping[str, Facts] | None = None,
        class_failed: Mapping[Fact, str] | None = None,
        sources: Mapping[Fact, str] | None = None,
        targets_down: int = 0,
        partial: str = "",
        after: float | None = None,
    ) -> PoolReadings:
        """One tick later: what was seen, and the readings it gives."""
        self.at += self.interval if after is None else after
        gauges = {f: v for f, v in ((Fact.RUNNING, running), (Fact.WAITING, waiting)) if v is not None}
        facts = PoolFacts(
            histograms=histograms or {},
            counters={Fact.FINISHED: 0.0} if counters is None else counters,
            gauges=gauges,
            replicas={"pod-0": ReplicaFacts(gauges=gauges, age=age)} if replicas is None else replicas,
            failed=failed or {},
            unsupported=unsupported or {},
            classes=classes or {},
            class_failed=class_failed or {},
            sources=sources or {},
            targets_down=targets_down,
            partial=partial,
        )
        observation = Observation(self.at, self.since, {POOL: facts})
        self.since = self.at
        return self.meter.update(observation)[POOL]

    def fail(self, error: str = "connection refused") -> PoolReadings:
        """A tick at which nothing could be read."""
        self.at += self.interval
        return self.meter.update(Observation(self.at, self.since, error=error))[POOL]

    def fill(self, ticks: int = 5, **seen: object) -> PoolReadings:
        """Enough equal ticks to fill the window."""
        for _ in range(ticks - 1):
            self.see(**seen)  # type: ignore[arg-type]
        return self.see(**seen)  # type: ignore[arg-type]
