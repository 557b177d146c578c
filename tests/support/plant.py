"""A small plant: one engine type, cold start, a queue. Source and actuator in virtual time, for closed-loop tests.

Every replica decodes up to `slots` sequences at one token per step of a + c*n seconds; requests wait first come first
served. It is deliberately not the fleet twin: no KV cache, no prefill, no router. What it must get right is dead time:
a replica that was asked for serves only after `cold_start` seconds, and load that waits shows up later as latency.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.facts import Fact
from controller.core.model import Applied, Decision, Outcome, Pending, Phase, Target, TargetState
from controller.core.observation import HistogramIncrement, Observation, PoolFacts, ReplicaFacts

EDGES = (0.1, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
ITL_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
DT = 1.0


@dataclass(slots=True)
class Request:
    arrived: float
    tokens_left: float


@dataclass(slots=True)
class Replica:
    ready_at: float
    busy: int = 0  # sequences in the last step, before the finished ones left
    running: list[Request] = field(default_factory=list)


@dataclass(slots=True)
class Counts:
    """What was counted since the last observation."""

    ttft: list[float] = field(default_factory=list)
    itl: list[tuple[float, float]] = field(default_factory=list)  # (seconds, tokens)
    finished: int = 0
    tokens: float = 0.0


class Plant:
    """One pool. `rate(t)` are requests per second offered at t seconds since the start."""

    def __init__(
        self,
        rate: Callable[[float], float],
        *,
        replicas: int = 2,
        cold_start: float = 120.0,
        slots: int = 64,
        a: float = 0.010,
        c: float = 0.0003,
        output: int = 100,
        prompt: int = 200,
        seed: int = 1,
        start: float = 1_000_000.0,
        pool: str = "llm",
    ) -> None:
        self.rate, self.cold_start, self.slots, self.a, self.c = rate, cold_start, slots, a, c
        self.output, self.prompt, self.pool = output, prompt, pool
        self.random = random.Random(seed)
        self.start = self.now = start
        self.replicas = [Replica(start) for _ in range(replicas)]
        self.queue: deque[Request] = deque()
        self.counts = Counts()
        self.since: float | None = None
        self.writes: list[tuple[float, float]] = []
        self.blind: Callable[[float], bool] = lambda _: False  # metrics outage
        self.all_ttft: list[tuple[float, float]] = []  # (arrival, ttft) of everybody, the truth
        self.replica_seconds = 0.0

    # --- the world ---------------------------------------------------------------------------------------------

    def ready(self) -> list[Replica]:
        return [r for r in self.replicas if r.ready_at <= self.now]

    def advance(self, until: float) -> None:
        """Let virtual time pass."""
        while self.now < until - 1e-9:
            self._step()
            self.now += DT

    def _step(self) -> None:
        expected = self.rate(self.now - self.start) * DT
        arrivals = int(expected) + (self.random.random() < expected % 1)
        self.queue.extend(Request(self.now, self.output) for _ in range(arrivals))
        self.replica_seconds += len(self.replicas) * DT
        while self.queue and any(len(r.running) < self.slots for r in self.ready()):
            self._admit(min(self.ready(), key=lambda r: len(r.running)))
        for replica in self.ready():
            self._decode(replica)

    def _admit(self, replica: Replica) -> None:
        request = self.queue.popleft()
        replica.running.append(request)
        ttft = self.now - request.arrived + self._step_time(replica)
        self.counts.ttft.append(ttft)
        self.all_ttft.append((request.arrived, ttft))

    def _decode(self, replica: Replica) -> None:
        replica.busy = len(replica.running)
        if not replica.running:
            return
        step = self._step_time(replica)
        tokens = DT / step
        for request in replica.running:
            request.tokens_left -= tokens
        self.counts.itl.append((step, tokens * len(replica.running)))
        self.counts.tokens += tokens * len(replica.running)
        done = [r for r in replica.running if r.tokens_left <= 0]
        self.counts.finished += len(done)
        replica.running = [r for r in replica.running if r.tokens_left > 0]

    def _step_time(self, replica: Replica) -> float:
        return self.a + self.c * len(replica.running)

    # --- the source --------------------------------------------------------------------------------------------

    def observe(self, at: float, deadline: float) -> Observation:
        self.advance(at)
        if self.blind(at - self.start):
            # As the Prometheus source does: what is counted meanwhile comes with the next answer.
            return Observation(at, self.since, error="metrics outage")
        counts, since = self.counts, self.since
        self.counts, self.since = Counts(), at
        ready = self.ready()
        replicas = {
            f"pod-{i}": ReplicaFacts(
                counters={Fact.GENERATION_TOKENS: counts.tokens / len(ready)},
                gauges={
                    Fact.RUNNING: float(r.busy),
                    Fact.WAITING: len(self.queue) / len(ready),
                    Fact.KV_USAGE: r.busy / (2 * self.slots),
                },
            )
            for i, r in enumerate(ready)
        }
        running = sum(r.busy for r in ready)
        facts = PoolFacts(
            histograms={
                Fact.TTFT: _histogram([(t, 1.0) for t in counts.ttft], EDGES),
                Fact.ITL: _histogram(counts.itl, ITL_EDGES),
            },
            counters={
                Fact.FINISHED: float(counts.finished),
                Fact.GENERATION_TOKENS: counts.tokens,
                Fact.PROMPT_TOKENS: float(self.prompt * len(counts.ttft)),
                Fact.ADMITTED: float(len(counts.ttft)),
            },
            gauges={
                Fact.RUNNING: float(running),
                Fact.WAITING: float(len(self.queue)),
                Fact.KV_USAGE: running / (2 * self.slots * max(1, len(ready))),
            },
            replicas=replicas,
            unsupported={Fact.ARRIVED: "engines do not count arrivals", Fact.RETRIES: "not counted"},
        )
        return Observation(at, since, {self.pool: facts})

    # --- the actuator ------------------------------------------------------------------------------------------

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        cold = [r for r in self.replicas if r.ready_at > self.now]
        pending = tuple(Pending(1, Phase.LOADING, r.ready_at - self.cold_start, r.ready_at) for r in cold)
        return {t: TargetState(float(len(self.replicas)), float(len(self.ready())), pending) for t in targets}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        for decision in decisions:
            assert decision.final is not None
            self.writes.append((now, decision.final))
            self._scale(int(decision.final))
        return [Applied(d.target, Outcome.DONE) for d in decisions]

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return [Applied(d.target, Outcome.DONE) for d in decisions]

    def close(self) -> None:
        pass

    def _scale(self, wanted: int) -> None:
        while len(self.replicas) < wanted:
            self.replicas.append(Replica(self.now + self.cold_start))
        while len(self.replicas) > wanted:
            # Cold ones go first; what runs on a removed one goes back to the queue (drains are the gateway's business).
            victim = max(self.replicas, key=lambda r: r.ready_at)
            self.queue.extendleft(victim.running)
            self.replicas.remove(victim)


def _histogram(samples: Sequence[tuple[float, float]], edges: Sequence[float]) -> HistogramIncrement:
    cumulative = tuple(sum(n for value, n in samples if value <= edge) for edge in edges)
    return HistogramIncrement(
        tuple(edges), cumulative, sum(n for _, n in samples), sum(value * n for value, n in samples)
    )
