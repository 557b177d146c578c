"""What a source must read, derived from what the config promises and may move. Nothing else is fetched."""

import dataclasses
from collections.abc import Collection, Set

from controller.config.fields import matchers
from controller.config.models import GatewayConfig, GovernorConfig, PoolConfig
from controller.core.estimate import READS
from controller.core.facts import Fact
from controller.core.join import READ
from controller.core.model import Lever, Mode
from controller.core.needs import facts_for
from controller.core.ports import PoolNeeds
from controller.core.rules import PER_REPLICA
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
# What levers on single replicas look at; of histograms the mean, for the buckets of each replica would be most of all
# rows of a fleet.
_SINGLE = frozenset(
    {
        Fact.FINISHED, Fact.RESPONSES, Fact.ERRORS, Fact.REJECTED, Fact.TIMEOUTS, Fact.ARRIVED, Fact.ADMITTED,
        Fact.PROMPT_TOKENS, Fact.PREFIX_HITS, Fact.PREFIX_QUERIES, Fact.PREEMPTIONS, Fact.RESTARTS, Fact.OOM_RESTARTS,
        Fact.XID_ERRORS,
    }
)  # fmt: skip
_SINGLE_MEANS = frozenset({Fact.TTFT, Fact.ITL, Fact.TPOT})
_PER_TENANT = frozenset(
    {Fact.ARRIVED, Fact.RETRIES, Fact.FINISHED, Fact.REJECTED, Fact.PROMPT_TOKENS, Fact.GENERATION_TOKENS}
)
_PER_CLASS = _PER_TENANT
_BY_CLASS = frozenset({Lever.TENANT_CAP, Lever.ADMISSION, Lever.DOWNGRADE})
_AT_GATEWAYS = frozenset({Fact.ARRIVED, Fact.RETRIES, Fact.REJECTED, Fact.ERRORS, Fact.WAITING, Fact.HELD})
_NONE: frozenset[Fact] = frozenset()
_NO_SIGNALS: frozenset[Signal] = frozenset()


def pool_needs(config: GovernorConfig) -> tuple[PoolNeeds, ...]:
    """The needs of every pool, in the order of the file, each followed by those of its gateway, if it has one."""
    found: list[PoolNeeds] = []
    received = _receivers(config)
    for name, pool in config.pools.items():
        own = _needs(name, pool, READS if name in received else _NO_SIGNALS)
        found.append(own)
        if pool.gateway is not None:
            found.append(_gateway(name, pool, pool.gateway, own))
    return tuple(found)


def gateway_of(pool: str) -> str:
    """The name under which a source tells the facts of a pool's gateway. No pool can be called that."""
    return f"{pool}@gateway"


def _receivers(config: GovernorConfig) -> frozenset[str]:
    """Pools that others send work to: how much more they can take must be known, also where nothing moves them."""
    levers = (pool.levers.get(Lever.DOWNGRADE) for pool in config.pools.values())
    return frozenset(name for one in levers if one is not None and one.mode is not Mode.OFF for name in one.receivers)


def _needs(name: str, pool: PoolConfig, more: Set[Signal]) -> PoolNeeds:
    signals = {objective.signal for objective in pool.objectives} | set(_FOR_PROMISES) | set(pool.watch) | more
    levers = {lever for lever, settings in pool.levers.items() if settings.mode is not Mode.OFF}
    for lever in levers:
        policy = pool.levers[lever].policy
        signals |= getattr(policy.cls, "reads", _UNDECLARED) | _named_by(policy.settings)
    facts: set[Fact] = set()
    if Lever.REPLICAS in levers:
        signals |= set(_FOR_REPLICAS)
        facts |= {Fact.WANTED_REPLICAS}
    if Lever.DOWNGRADE in levers and pool.levers[Lever.DOWNGRADE].prompt is not None:
        facts |= {Fact.PROMPT_LENGTHS}
    facts.update(*(facts_for(signal) for signal in signals))
    if any(objective.share is not None for objective in pool.objectives):
        facts |= set(ENDINGS)  # a request that was lost was offered, too
    edges: dict[Fact, set[float]] = {}
    for objective in pool.objectives:
        if INFO[objective.signal].latency and objective.share is not None:
            edges.setdefault(Fact(objective.signal.value), set()).add(objective.target)
    labels, workload = pool.labels, pool.workload
    single = bool(labels.replica) and (bool(labels.version) or not PER_REPLICA.isdisjoint(levers))
    class_facts = _per_class(pool, levers) if pool.class_label else frozenset()
    front = pool.gateway.labels if pool.gateway is not None else None
    here = front is None or not front.klass
    return PoolNeeds(
        pool=name,
        engine=pool.engine,
        matchers=matchers(pool.selector),
        facts=frozenset(facts),
        replica_facts=(_PER_REPLICA | _SINGLE if single else _PER_REPLICA) if labels.replica else frozenset(),
        replica_means=_SINGLE_MEANS if single else frozenset(),
        tenant_facts=_PER_TENANT if labels.tenant and (front is None or not front.tenant) else frozenset(),
        class_facts=class_facts if here else frozenset(),
        replica_label=labels.replica,
        tenant_label=labels.tenant,
        class_label=labels.klass if class_facts and here else "",
        role_label=labels.role,
        zone_label=labels.zone,
        version_label=labels.version,
        workload=(workload.namespace, workload.kind, workload.name) if workload else None,
        edges={fact: tuple(sorted(targets)) for fact, targets in sorted(edges.items())},
    )


def _gateway(name: str, pool: PoolConfig, gateway: GatewayConfig, engines: PoolNeeds) -> PoolNeeds:
    """What is read at the gateway: of all that the pool needs, what is known better there."""
    labels = gateway.labels
    levers = {lever for lever, settings in pool.levers.items() if settings.mode is not Mode.OFF}
    class_facts = _per_class(pool, levers) if labels.klass else frozenset()
    return PoolNeeds(
        pool=gateway_of(name),
        engine=gateway.engine,
        matchers=matchers(gateway.selector),
        facts=(engines.facts & READ) | _AT_GATEWAYS,
        tenant_facts=_PER_TENANT if labels.tenant else frozenset(),
        class_facts=class_facts,
        replica_label=labels.replica,
        tenant_label=labels.tenant,
        class_label=labels.klass if class_facts else "",
        edges={fact: targets for fact, targets in engines.edges.items() if fact in READ},
        fronts=name,
    )


def _per_class(pool: PoolConfig, levers: Collection[Lever]) -> frozenset[Fact]:
    """What promises for a class are judged on, their histograms and who was offered; and what it asks for, where
    classes are told from each other or a lever could treat them differently."""
    signals = {objective.signal for objective in pool.objectives if objective.klass}
    own = frozenset((*ENDINGS, *(LATENCY[signal] for signal in signals if signal in LATENCY))) if signals else _NONE
    return own | _PER_CLASS if pool.classes or not _BY_CLASS.isdisjoint(levers) else own


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
