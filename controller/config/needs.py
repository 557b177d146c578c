"""What a source must read, derived from what the config promises and may move. Nothing else is fetched."""

import dataclasses

from controller.config.models import GovernorConfig, PoolConfig
from controller.core.facts import Fact
from controller.core.model import Lever, Mode
from controller.core.needs import facts_for
from controller.core.ports import PoolNeeds
from controller.core.signals import INFO, Signal
from controller.core.tally import ENDINGS, LATENCY

# Attainment is a share of offered requests, so each promise needs to know who was offered and who still waits.
_FOR_PROMISES = (
    Signal.OFFERED_RATE, Signal.ADMITTED_RATE, Signal.FINISHED_RATE, Signal.QUEUE_DEPTH, Signal.RUNNING, Signal.ABORTS,
)  # fmt: skip
# What the guards of replicas look at, whatever the policy.
_FOR_REPLICAS = (
    Signal.OFFERED_RATE, Signal.QUEUE_DEPTH, Signal.RUNNING, Signal.KV_USAGE, Signal.READY_REPLICAS, Signal.STUCK,
)  # fmt: skip
# A stranger's policy that does not declare what it reads gets all that a policy may reasonably look at.
_SHOWN = (Signal.GPU_MEMORY, Signal.GPU_UTILISATION, Signal.LORA_LOADED, Signal.TPOT, Signal.E2E)
_UNDECLARED = frozenset(Signal) - frozenset(_SHOWN)
_PER_REPLICA = frozenset({Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.GENERATION_TOKENS})
_PER_TENANT = frozenset({Fact.ARRIVED, Fact.FINISHED, Fact.REJECTED, Fact.PROMPT_TOKENS, Fact.GENERATION_TOKENS})


def pool_needs(config: GovernorConfig) -> tuple[PoolNeeds, ...]:
    """The needs of every pool, in the order of the file."""
    return tuple(_needs(name, pool) for name, pool in config.pools.items())


def _needs(name: str, pool: PoolConfig) -> PoolNeeds:
    signals = {objective.signal for objective in pool.objectives} | set(_FOR_PROMISES) | set(pool.watch)
    for settings in pool.levers.values():
        if settings.mode is not Mode.OFF:
            signals |= getattr(settings.policy.cls, "reads", _UNDECLARED) | _named_by(settings.policy.settings)
    facts: set[Fact] = set()
    replicas = pool.levers.get(Lever.REPLICAS)
    if replicas is not None and replicas.mode is not Mode.OFF:
        signals |= set(_FOR_REPLICAS)
        facts |= {Fact.WANTED_REPLICAS}
    facts.update(*(facts_for(signal) for signal in signals))
    if any(objective.share is not None for objective in pool.objectives):
        facts |= set(ENDINGS)  # a request that was lost was offered, too
    edges: dict[Fact, set[float]] = {}
    for objective in pool.objectives:
        if INFO[objective.signal].latency and objective.share is not None:
            edges.setdefault(Fact(objective.signal.value), set()).add(objective.target)
    labels, workload = pool.labels, pool.workload
    classed = {objective.signal for objective in pool.objectives if objective.klass}
    return PoolNeeds(
        pool=name,
        engine=pool.engine,
        matchers=pool.matchers(),
        facts=frozenset(facts),
        replica_facts=_PER_REPLICA if labels.replica else frozenset(),
        tenant_facts=_PER_TENANT if labels.tenant else frozenset(),
        class_facts=_per_class(classed) if labels.klass else frozenset(),
        replica_label=labels.replica,
        tenant_label=labels.tenant,
        class_label=labels.klass if classed else "",
        role_label=labels.role,
        zone_label=labels.zone,
        workload=(workload.namespace, workload.kind, workload.name) if workload else None,
        edges={fact: tuple(sorted(targets)) for fact, targets in sorted(edges.items())},
    )


def _per_class(signals: set[Signal]) -> frozenset[Fact]:
    """What promises for a class are judged on: their histograms, and who was offered."""
    own = (LATENCY[signal] for signal in signals if signal in LATENCY)
    return frozenset((*ENDINGS, *own)) if signals else frozenset()


def _named_by(settings: object) -> set[Signal]:
    """Signals that a policy's parameters name: values of type Signal, and texts in fields called `signal`."""
    found: set[Signal] = set()
    if settings is None or isinstance(settings, type) or not dataclasses.is_dataclass(settings):
        return found
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Signal):
                found.add(item)
            elif isinstance(item, str) and field.name in ("signal", "signals") and item in set(Signal):
                found.add(Signal(item))
            else:
                found |= _named_by(item)
    return found
