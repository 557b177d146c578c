"""One replica at run time: its life, and while its process serves, an engine, an HTTP layer and a metrics page."""

from simulator.agenda import Wake
from simulator.cluster.life import Life
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from simulator.job import Job
from simulator.watch.exposition import Exposition, Http
from simulator.watch.page import Labels, Page


class Server:
    """A replica of a pool; `number` counts them in the order of their making. `target` are the labels that Prometheus
    gives to it; `answers` is whether its HTTP server does, `broken` whether it answers 500 to all that is new.
    `pending` are the jobs that it has or that are on the way to it; `heavy` those of them whose prompts may not fit the
    memory for activations and have no first token yet; `cost` is its deletion cost."""

    __slots__ = (
        "_exposition", "answers", "broken", "cost", "engine", "engine_wake", "heavy", "http", "life", "life_wake",
        "name", "number", "pending", "pool", "slow", "spec", "target", "version", "zone",
    )  # fmt: skip

    def __init__(
        self, name: str, pool: str, number: int, version: str, zone: str, *, life: Life, spec: EngineSpec,
        target: Labels, model_name: str,
    ) -> None:  # fmt: skip
        self.name, self.pool, self.number, self.version, self.zone = name, pool, number, version, zone
        self.life, self.spec, self.target = life, spec, target
        self.engine: Engine | None = None
        self.engine_wake: Wake
        self.life_wake: Wake
        self.http = Http()
        self.pending, self.cost = 0, 0
        self.heavy: dict[int, Job] = {}
        self.slow = 1.0
        self.answers, self.broken = True, False
        self._exposition = Exposition(model_name, target)

    def start(self, now: float) -> Engine:
        """Its process serves from now on, with all counters at zero."""
        self.engine = Engine(self.spec, now)
        self.engine.slow = self.slow
        self.http = Http()
        self.answers, self.broken = True, False
        return self.engine

    def stop(self, now: float) -> list[Job]:
        """Its process ends; the jobs that ended before unseen, and those that are lost with it."""
        if self.engine is None:
            return []
        lost = self.engine.fail(now)
        self.engine = None
        self.heavy.clear()
        return lost

    def page(self) -> Page | None:
        """What a scrape brings home, as of the engine's last advance; None while nothing answers."""
        engine, started_at = self.engine, self.life.started_at
        if engine is None or started_at is None or not self.answers:
            return None
        return self._exposition.page(engine.counts, engine.load, self.http, started_at)
