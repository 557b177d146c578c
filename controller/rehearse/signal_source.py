"""Signals written by hand, as a source: what a policy test gives instead of an engine's own series.

Each signal is turned back into the facts that it is made of, so that the whole loop runs, windows and states included.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.errors import InputError
from controller.core.facts import Fact
from controller.core.observation import Facts, HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.signals import INFO, Signal

Row = Sequence[float | None]

_GAUGES: dict[str, Fact] = {
    Signal.QUEUE_DEPTH: Fact.WAITING, Signal.RUNNING: Fact.RUNNING, Signal.KV_USAGE: Fact.KV_USAGE,
    Signal.QUEUED_TOKENS: Fact.QUEUED_TOKENS, Signal.REMAINING_TOKENS: Fact.REMAINING_TOKENS,
    Signal.GPU_MEMORY: Fact.GPU_MEMORY, Signal.GPU_UTILISATION: Fact.GPU_UTILISATION,
    Signal.PREFIX_HIT_RATE: Fact.PREFIX_HIT_RATIO, Signal.READY_REPLICAS: Fact.READY_REPLICAS,
    "wanted_replicas": Fact.WANTED_REPLICAS, Signal.LORA_LOADED: Fact.LORA_LOADED,
}  # fmt: skip
_RATES: dict[str, Fact] = {
    Signal.OFFERED_RATE: Fact.ARRIVED, Signal.ADMITTED_RATE: Fact.ADMITTED, Signal.FINISHED_RATE: Fact.FINISHED,
    Signal.PROMPT_TOKEN_RATE: Fact.PROMPT_TOKENS, Signal.GENERATION_TOKEN_RATE: Fact.GENERATION_TOKENS,
    Signal.REJECTED_RATE: Fact.REJECTED,
}  # fmt: skip
_EVENTS: dict[str, Fact] = {
    Signal.TIMEOUTS: Fact.TIMEOUTS, Signal.ABORTS: Fact.ABORTED, Signal.PREEMPTIONS: Fact.PREEMPTIONS,
    Signal.OOM_RESTARTS: Fact.OOM_RESTARTS, Signal.CRASH_RESTARTS: Fact.RESTARTS, Signal.XID_ERRORS: Fact.XID_ERRORS,
}  # fmt: skip
_LATENCIES: dict[str, Fact] = {signal: Fact(signal.value) for signal in Signal if INFO[signal].latency}
_COMPUTED: dict[str, str] = {
    Signal.QUEUE_DELAY: "queue_depth, admitted_rate and queue_time",
    Signal.KV_USAGE_MAX: 'kv_usage with a replica label',
    Signal.RETRY_SHARE: "nothing: it needs the engine's own series",
    Signal.STUCK: "running and generation_token_rate",
}  # fmt: skip
KNOWN = (*_GAUGES, *_RATES, *_EVENTS, *_LATENCIES, Signal.ERROR_RATIO)
# Shared out evenly when a pool's value is given and its replicas' are not.
_SHARED = frozenset({Fact.WAITING, Fact.RUNNING, Fact.QUEUED_TOKENS, Fact.REMAINING_TOKENS, Fact.GPU_MEMORY})
# Two percent apart: fine enough that a latency is told from its target, coarse enough for one grid over all ticks.
_GRID = tuple(0.0005 * 1.02**i for i in range(735))


@dataclass(slots=True)
class SignalTable:
    """Values by pool, replica ("" = the pool) and signal name, one value per step."""

    rows: dict[str, dict[str, dict[str, Row]]] = field(default_factory=dict)

    def add(self, name: str, labels: Mapping[str, str], values: Row, pools: Sequence[str], place: str) -> None:
        """Take one series in. Raises InputError naming `place`."""
        if name in _COMPUTED:
            raise InputError(f"{place}: {name} is computed; give {_COMPUTED[name]} instead")
        if name not in KNOWN:
            known = ", ".join(sorted(KNOWN))
            raise InputError(f"{place}: {name!r} is not a signal that a test can give; known are {known}")
        unknown = set(labels) - {"pool", "replica"}
        if unknown:
            raise InputError(f"{place}: signals have the labels pool and replica, not {', '.join(sorted(unknown))}")
        pool = labels.get("pool", pools[0] if len(pools) == 1 else "")
        if pool not in pools:
            raise InputError(f"{place}: there is no pool {pool!r} in the config; its pools are {', '.join(pools)}")
        replica = labels.get("replica", "")
        if replica and name not in (*_GAUGES, *_RATES):
            raise InputError(f"{place}: {name} is given for a pool, not for a replica")
        given = self.rows.setdefault(pool, {}).setdefault(replica, {})
        if name in given:
            raise InputError(f"{place}: {name} is given twice for the same pool and replica; keep one of them")
        _check_values(name, values, place)
        given[name] = values


def _check_values(name: str, values: Row, place: str) -> None:
    known = [value for value in values if value is not None]
    if known and min(known) < 0:
        raise InputError(f"{place}: {name} is never {min(known):g}; write 0 or more")
    if name in set(Signal) and INFO[Signal(name)].unit == "ratio" and known and max(known) > 1:
        raise InputError(f"{place}: {name} is a ratio, and {max(known):g} is above 1; write for example 0.9")


class SignalSource:
    """Implements ``ports.Source`` over a table; `start` unix seconds of the first value, `step` seconds apart."""

    def __init__(self, table: SignalTable, start: float, step: float, targets: Mapping[Fact, Sequence[float]]) -> None:
        self._rows, self._start, self._step = table.rows, start, step
        self._grids = {fact: tuple(sorted({*_GRID, *targets.get(fact, ())})) for fact in _LATENCIES.values()}
        self._since: float | None = None

    def observe(self, at: float, deadline: float) -> Observation:
        """The values of the step that ends at `at`; without any of them, an error, as of a Prometheus that is gone."""
        index, since = round((at - self._start) / self._step), self._since
        pools = {name: self._pool(rows, index, first=since is None) for name, rows in self._rows.items()}
        if not self._any(index):
            return Observation(at, since, error="the test gives no value at this time")
        self._since = at
        return Observation(at, since, pools=pools)

    def close(self) -> None:
        """Nothing is held."""

    def _any(self, index: int) -> bool:
        scopes = (scope for pool in self._rows.values() for scope in pool.values())
        return any(_at(row, index) is not None for scope in scopes for row in scope.values())

    def _pool(self, rows: Mapping[str, Mapping[str, Row]], index: int, *, first: bool) -> PoolFacts:
        now = {name: _at(row, index) for name, row in rows.get("", {}).items()}
        given = {name: value for name, value in now.items() if value is not None}
        gauges = {fact: given[name] for name, fact in _GAUGES.items() if name in given}
        gauges.setdefault(Fact.WANTED_REPLICAS, gauges.get(Fact.READY_REPLICAS, 0.0))
        if Fact.READY_REPLICAS not in gauges and "wanted_replicas" not in given:
            del gauges[Fact.WANTED_REPLICAS]
        replicas = self._replicas(rows, index, gauges, first=first)
        _add_up(gauges, replicas)
        return PoolFacts(
            histograms={} if first else self._histograms(given),
            counters={} if first else self._counters(given),
            gauges=gauges,
            replicas=replicas,
            failed={fact: "the test gives no value at this time" for name in now.keys() - given.keys()
                    if (fact := _fact(name)) is not None},
            targets_up=len(replicas) or None,
        )  # fmt: skip

    def _replicas(
        self, rows: Mapping[str, Mapping[str, Row]], index: int, pool: Mapping[Fact, float], *, first: bool
    ) -> dict[str, ReplicaFacts]:
        named: dict[str, ReplicaFacts] = {}
        for replica, signals in rows.items():
            if not replica:
                continue
            given = {name: value for name, row in signals.items() if (value := _at(row, index)) is not None}
            if given:
                gauges = {fact: given[name] for name, fact in _GAUGES.items() if name in given}
                named[replica] = ReplicaFacts(gauges=gauges, counters={} if first else self._counters(given))
        count = int(pool.get(Fact.READY_REPLICAS, 0))
        if named or any(rows.keys() - {""}) or not count:
            return named
        evenly = {fact: value / count if fact in _SHARED else value for fact, value in pool.items()
                  if fact in _SHARED or fact is Fact.KV_USAGE}  # fmt: skip
        return {f"replica-{i}": ReplicaFacts(gauges=evenly) for i in range(count)}

    def _counters(self, given: Mapping[str, float]) -> dict[Fact, float]:
        counters = {fact: given[name] * self._step for name, fact in _RATES.items() if name in given}
        counters |= {fact: given[name] for name, fact in _EVENTS.items() if name in given}
        if Fact.ARRIVED in counters:
            # Who gives only the offered rate means that it is served.
            counters.setdefault(Fact.ADMITTED, counters[Fact.ARRIVED])
            counters.setdefault(Fact.FINISHED, counters[Fact.ARRIVED])
        ratio = given.get(Signal.ERROR_RATIO)
        if ratio is not None:
            ended = counters.get(Fact.FINISHED, self._step)
            counters[Fact.ERRORS] = ended * ratio
            counters[Fact.FINISHED] = ended * (1 - ratio)
            counters[Fact.RESPONSES] = ended
        return counters

    def _histograms(self, given: Mapping[str, float]) -> dict[Fact, HistogramIncrement]:
        finished = given.get(Signal.FINISHED_RATE, given.get(Signal.OFFERED_RATE, 1.0)) * self._step
        made: dict[Fact, HistogramIncrement] = {}
        for name, fact in _LATENCIES.items():
            value = given.get(name)
            if value is not None and finished > 0:
                edges = self._grids[fact]
                below = tuple(finished if value <= edge else 0.0 for edge in edges)
                made[fact] = HistogramIncrement(edges, below, finished, finished * value)
        return made


def _at(row: Row, index: int) -> float | None:
    return row[index] if 0 <= index < len(row) else None


def _fact(name: str) -> Fact | None:
    return _GAUGES.get(name) or _RATES.get(name) or _EVENTS.get(name) or _LATENCIES.get(name)


def _add_up(gauges: dict[Fact, float], replicas: Mapping[str, Facts]) -> None:
    """Pool values of gauges that are given per replica only."""
    for fact in (*_SHARED, Fact.KV_USAGE):
        values = [replica.gauges[fact] for replica in replicas.values() if fact in replica.gauges]
        if values and fact not in gauges:
            gauges[fact] = math.fsum(values) / (len(values) if fact is Fact.KV_USAGE else 1)
