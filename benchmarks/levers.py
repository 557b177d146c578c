"""A made-up fleet with all levers in every pool, as the loop sees it after measuring: config, readings, and targets
that take what the plan sends. What deciding costs is measured on it, and the invariants are tested on it.
"""

import json
import math
import platform
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any

from controller.config import GovernorConfig, loads
from controller.config.terms import estimator_specs, fleet_rules
from controller.core.decide import DecideState, decide
from controller.core.learned import EstimatorState
from controller.core.members import seen
from controller.core.model import Lever, Plan, PoolReadings, Scope, Snapshot, Target, TargetState, Tick
from controller.core.reading import Reading, ok
from controller.core.rest import AT_REST
from controller.core.signals import Signal
from controller.run.apart import learn
from controller.run.laws import policies
from controller.run.memory import settle

START = 1_767_571_200.0
INTERVAL = 15.0
SMALL = "small"
_PROMPT, _ANSWER, _RATE = 1500.0, 250.0, 6.0  # tokens, tokens, requests/s that one replica serves well


@dataclass(frozen=True, slots=True)
class Size:
    """How large a fleet is; all pools but the last may send work to the last one."""

    pools: int = 2
    replicas: int = 8
    tenants: int = 20

    def pool(self, number: int) -> str:
        return SMALL if number == self.pools - 1 else f"model-{number:04d}"


def config(size: Size) -> GovernorConfig:
    """All six levers in auto, each with its own law, in every pool but the one that receives."""
    tenants = {
        f"tenant-{n:02d}": {"guarantee": 200, "weight": 1 + n % 3, "consents": n % 2 == 0} for n in range(size.tenants)
    }
    classes = {"chat": {"rank": 0, "consents": True}, "batch": {"rank": 1, "sheddable": True, "consents": True}}
    own: dict[str, Any] = {
        "weight": {"mode": "auto", "policy": {"kind": "weights"}},
        "breaker": {"mode": "auto", "policy": {"kind": "breaker"}},
        "downgrade": {"mode": "auto", "policy": {"kind": "downgrade"}, "receivers": [SMALL]},
        "admission": {"mode": "auto", "policy": {"kind": "gate"}},
        "tenant_cap": {"mode": "auto", "policy": {"kind": "fair_share"}},
    }
    replicas: dict[str, Any] = {"replicas": {"mode": "auto", "min": 1, "max": 64, "policy": {"kind": "capacity"}}}
    base: dict[str, Any] = {
        "engine": "vllm",
        "objectives": [
            {"signal": "ttft", "percentile": "p99", "target": "2s"},
            {"signal": "itl", "percentile": "p95", "target": "60ms"},
        ],
    }
    pools: dict[str, Any] = {}
    for number in range(size.pools):
        name = size.pool(number)
        pools[name] = {**base, "selector": {"model_name": name}, "levers": dict(replicas)}
        if name != SMALL:
            labels = {"tenant": "tenant", "class": "class"}
            pools[name] |= {"labels": labels, "tenants": tenants, "classes": classes, "levers": {**own, **replicas}}
    body = {"version": 1, "source": {"kind": "prometheus", "url": "http://unused:9090"}, "pools": pools}
    return loads(json.dumps(body), "levers.yaml")


class Fleet:
    """Readings that move with the time, seeded, and targets that take what is sent. `busy` is demand per replica at the
    start, of what a replica serves well."""

    def __init__(self, size: Size, made: GovernorConfig, *, seed: int = 1, busy: float = 0.8) -> None:
        self.size, self._random = size, random.Random(seed)
        self._rules = fleet_rules(made)
        self._values: dict[Target, float] = {}
        self._members: tuple[Target, ...] = ()
        self._load = {size.pool(n): busy * size.replicas * _RATE for n in range(size.pools)}
        self._load[SMALL] = min(busy, 0.3) * size.replicas * _RATE  # somebody has room
        self.number = 0

    def snapshot(self) -> Snapshot:
        """The next tick."""
        at = START + self.number * INTERVAL
        pools = {name: self._readings(name, at) for name in self.pools}
        self._members = seen(self._rules, pools, self._members)
        fixed = [target for pool in self._rules.pools for target in pool.targets]
        targets = {target: self._state(target) for target in (*fixed, *self._members)}
        made = Snapshot(Tick(self.number, at, INTERVAL if self.number else None), pools, targets)
        self.number += 1
        return made

    @property
    def pools(self) -> list[str]:
        """Their names, sorted."""
        return sorted(self._load)

    def take(self, plan: Plan) -> None:
        """The targets take what was sent."""
        self._values.update({d.target: d.final for d in plan.decisions if d.send and d.final is not None})

    def _state(self, target: Target) -> TargetState:
        value = self._values.get(target, AT_REST.get(target.lever, float(self.size.replicas)))
        return TargetState(value, value if target.lever is Lever.REPLICAS else None)

    def _readings(self, pool: str, at: float) -> PoolReadings:
        chance = self._random
        self._load[pool] *= math.exp(chance.gauss(0.0, 0.05))
        load = self._load[pool]
        count = int(self._values.get(Target(pool, Lever.REPLICAS), self.size.replicas))
        each = load / count
        batch = min(64.0, 12.0 * each / _RATE)
        waiting = max(0.0, each - 1.1 * _RATE) * count * 5
        replicas = {f"{pool}-{n}": self._replica(batch, each) for n in range(count)}
        shares = [chance.random() for _ in range(self.size.tenants)]
        tenants = {
            f"tenant-{n:02d}": _asks(load * share / math.fsum(shares)) for n, share in enumerate(shares)
        }  # fmt: skip
        signals = {
            Signal.OFFERED_RATE: ok(load, count=load * 60), Signal.FINISHED_RATE: ok(load, count=load * 60),
            Signal.ADMITTED_RATE: ok(load), Signal.QUEUE_DEPTH: ok(waiting), Signal.RUNNING: ok(batch * count),
            Signal.QUEUE_DELAY: ok(waiting / load), Signal.KV_USAGE: ok(min(1.0, batch / 80)), Signal.STUCK: ok(0.0),
            Signal.PROMPT_TOKEN_RATE: ok(load * _PROMPT), Signal.GENERATION_TOKEN_RATE: ok(load * _ANSWER),
            Signal.PREFIX_HIT_RATE: ok(0.3), Signal.ERROR_RATIO: ok(0.0, count=load * 60),
        }  # fmt: skip
        latencies = {
            Signal.ITL: {"mean": ok(0.02 + 0.0004 * batch), "p95": ok(0.05)},
            Signal.TTFT: {"mean": ok(0.3), "p99": ok(0.5 + waiting / load)},
        }
        classes = {"chat": _asks(0.7 * load), "batch": _asks(0.3 * load)} if pool != SMALL else {}
        return PoolReadings(
            signals, latencies, replicas, tenants if pool != SMALL else {}, classes, filled_since=START - 3600.0
        )

    def _replica(self, batch: float, each: float) -> Scope:
        pace = (0.02 + 0.0004 * batch) * math.exp(self._random.gauss(0.0, 0.05))
        signals = {
            Signal.RUNNING: ok(batch), Signal.QUEUE_DEPTH: ok(0.0), Signal.KV_USAGE: ok(batch / 80),
            Signal.STUCK: ok(0.0), Signal.FINISHED_RATE: ok(each, count=each * 60),
            Signal.ERROR_RATIO: ok(0.0, count=each * 60),
        }  # fmt: skip
        return Scope(signals, {Signal.ITL: {"mean": ok(pace)}, Signal.TTFT: {"mean": ok(0.3)}})


def _asks(rate: float) -> Scope:
    readings: Mapping[Signal, Reading] = {
        Signal.OFFERED_RATE: ok(rate, count=rate * 60), Signal.FINISHED_RATE: ok(rate, count=rate * 60),
        Signal.PROMPT_TOKEN_RATE: ok(rate * _PROMPT), Signal.GENERATION_TOKEN_RATE: ok(rate * _ANSWER),
    }  # fmt: skip
    return Scope(readings)


class Controller:
    """The pure part of the loop over such a fleet."""

    def __init__(self, made: GovernorConfig) -> None:
        self.rules, self.laws = fleet_rules(made), policies(made)
        self.specs = {spec.pool: spec for spec in estimator_specs(made)}
        self.state, self.learned = DecideState(), dict[str, EstimatorState]()

    def plan(self, snapshot: Snapshot) -> Plan:
        """Learn and decide once."""
        estimates, self.learned, failed = learn(self.specs, snapshot, self.learned)
        for error in failed.values():
            raise error
        made, self.state = decide(snapshot, estimates, self.rules, self.laws, self.state)
        return made


@dataclass(frozen=True, slots=True)
class Deciding:
    """What one tick of a fleet cost: how many targets, and CPU seconds of learning and deciding."""

    size: Size
    targets: int
    seconds: float


SIZES = (Size(100, 8, 20), Size(1000, 8, 20))
SEEDS = 5
BOUND = 1.0  # seconds, of a thousand pools


def measure(sizes: Sequence[Size] = SIZES, *, seeds: int = SEEDS, ticks: int = 3, warm: int = 3) -> Iterator[Deciding]:
    """Each size: the median over seeds of the median tick."""
    settle()
    for size in sizes:
        made = config(size)
        found = [list(_ticks(size, made, seed, warm, ticks)) for seed in range(1, seeds + 1)]
        yield Deciding(size, found[0][-1][0], median(median(gone for _, gone in ticks_) for ticks_ in found))


def _ticks(size: Size, made: GovernorConfig, seed: int, warm: int, ticks: int) -> Iterator[tuple[int, float]]:
    fleet, controller = Fleet(size, made, seed=seed), Controller(made)
    for number in range(warm + ticks):
        snapshot = fleet.snapshot()
        begin = time.process_time()
        plan = controller.plan(snapshot)
        gone = time.process_time() - begin
        fleet.take(plan)
        if number >= warm:
            yield len(plan.decisions), gone


def line(one: Deciding) -> str:
    """For the terminal."""
    return (
        f"deciding with all levers, {one.size.pools:,} pools x {one.size.replicas} replicas x {one.size.tenants} "
        f"tenants: {one.targets:,} targets, {one.seconds:.2f} s"
    )


HEADING = "## Deciding with all levers\n"
_SECTION = """
Learning and deciding of one tick, as CPU time: six levers in every pool, each with its own law, {replicas} replicas and
{tenants} tenants a pool, under a load that moves. Medians over {seeds} seeds, {when}, Python {python}. The bound is
{bound:g} s for a thousand pools. `make bench ARGS="--only levers"` measures it anew.

| pools | targets | seconds |
| --- | --- | --- |
"""


def section(rows: Sequence[Deciding]) -> str:
    """Its part of docs/performance.md, ending in an empty line."""
    when, size = datetime.now(UTC).strftime("%Y-%m-%d"), rows[0].size
    head = _SECTION.format(
        replicas=size.replicas,
        tenants=size.tenants,
        seeds=SEEDS,
        when=when,
        python=platform.python_version(),
        bound=BOUND,
    )
    missed = {one: " **(missed)**" if one.seconds > BOUND * one.size.pools / 1000 else "" for one in rows}
    lines = [f"| {one.size.pools:,} | {one.targets:,} | {one.seconds:.2f}{missed[one]} |\n" for one in rows]
    return "".join([HEADING, head, *lines, "\n"])


def broken(readings: PoolReadings, state: Reading) -> PoolReadings:
    """The same pool with every reading of it in another state."""
    signals = dict.fromkeys(readings.signals, state)
    scopes = {name: Scope(dict.fromkeys(one.signals, state)) for name, one in readings.replicas.items()}
    tenants = {name: Scope(dict.fromkeys(one.signals, state)) for name, one in readings.tenants.items()}
    classes = {name: Scope(dict.fromkeys(one.signals, state)) for name, one in readings.classes.items()}
    return replace(
        readings, signals=signals, latencies={}, replicas=scopes, tenants=tenants, classes=classes, filled_since=None
    )
