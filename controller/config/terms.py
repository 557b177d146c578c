"""Terms: the config as the core has it: rules of the fleet, what meter and estimators must know, pins."""

from collections.abc import Mapping

from controller.config.levers import AFFINITY
from controller.config.models import FleetGuardConfig, GovernorConfig, LeverConfig, PoolConfig
from controller.config.needs import gateway_of
from controller.config.plugins import Plugin
from controller.config.zero_checks import wakes
from controller.core.learned import EstimatorSpec
from controller.core.meter import GatewaySpec, PoolSpec
from controller.core.model import Lever, Mode, Pin, Target
from controller.core.ports import Limits
from controller.core.rules import (
    PER_REPLICA,
    Budget,
    FleetGuard,
    FleetRules,
    LeverRules,
    Pair,
    PoolRules,
    Variants,
)  # fmt: skip
from controller.core.setpoints import OWN
from controller.core.sizes import Band
from controller.core.tenancy import ClassRules, TenantRules


def pool_specs(config: GovernorConfig) -> tuple[PoolSpec, ...]:
    """What the meter must know. A sample older than two control windows says nothing about now."""
    return tuple(
        PoolSpec(
            name,
            pool.window,
            pool.to_objectives(),
            stale_after=max(2 * config.interval, pool.window),
            class_label=pool.class_label,
            gateway=_gateway_spec(name, pool),
            singles=bool(pool.labels.version)
            or any(lever in pool.levers and pool.levers[lever].mode is not Mode.OFF for lever in PER_REPLICA),
            tenants=tuple(sorted(pool.tenants)),
            classes=tuple(sorted(pool.classes)),
        )
        for name, pool in config.pools.items()
    )


def _gateway_spec(name: str, pool: PoolConfig) -> GatewaySpec | None:
    if pool.gateway is None:
        return None
    labels = pool.gateway.labels
    return GatewaySpec(gateway_of(name), tenants=bool(labels.tenant), classes=bool(labels.klass))


def estimator_specs(config: GovernorConfig) -> tuple[EstimatorSpec, ...]:
    """What the estimators must know. A decision is late by a tick and by half of the window it looks at."""
    return tuple(
        EstimatorSpec(
            name,
            pool.to_objectives(),
            pool.profile.to_profile() if pool.profile is not None else None,
            cold_start=pool.cold_start,
            budget_period=config.error_budget.window,
            give_up=max((lever.give_up for lever in pool.levers.values()), default=900.0),
            lead=config.interval + pool.window / 2,
            band=_band(pool),
            max_num_seqs=pool.max_num_seqs,
        )
        for name, pool in config.pools.items()
    )


def _band(pool: PoolConfig) -> Band | None:
    """The prompts that may be downgraded, None where their size does not matter."""
    lever = pool.levers.get(Lever.DOWNGRADE)
    if lever is None or lever.prompt is None:
        return None
    return Band(
        float(lever.prompt.min or 0),
        None if lever.prompt.max is None else float(lever.prompt.max),
        frozenset(name for name, one in pool.tenants.items() if one.consents) if pool.tenants else None,
        frozenset(name for name, one in pool.classes.items() if one.consents) if pool.classes else None,
    )


def fleet_rules(config: GovernorConfig) -> FleetRules:
    """The config's limits in core terms."""
    pools = tuple(_pool_rules(config, name, pool) for name, pool in config.pools.items())
    every = frozenset(config.pools)
    budgets = tuple(
        Budget(name, float(b.max), every if b.pools == "all" else frozenset(b.pools), dict(b.priority))
        for name, b in config.budgets.items()
    )
    pairs = tuple(Pair(name, p.prefill, p.decode, *p.ratio) for name, p in config.pairs.items())
    variants = tuple(Variants(name, dict(v.cost)) for name, v in config.variants.items())
    return FleetRules(pools, budgets, _guard(config.fleet_guard), pairs, variants)


def _guard(guard: FleetGuardConfig) -> FleetGuard:
    return FleetGuard(share=guard.share, hold=guard.hold, min_pools=guard.min_pools)


def pins(config: GovernorConfig) -> Mapping[Target, Pin]:
    """Pins written into the config."""
    return {
        Target(name, lever): Pin(float(settings.pin.value), settings.pin.until.timestamp(), settings.pin.reason)
        for name, pool in config.pools.items()
        for lever, settings in pool.levers.items()
        if settings.pin is not None
    }


def _pool_rules(config: GovernorConfig, name: str, pool: PoolConfig) -> PoolRules:
    levers = tuple(
        _lever_rules(name, lever, settings, pool, config.actuator(name, lever))
        for lever, settings in pool.levers.items()
    )
    return PoolRules(
        pool=name,
        objectives=pool.to_objectives(),
        levers=levers,
        targets=tuple(Target(name, rules.lever, member) for rules in levers for member in rules.members),
        weight=float(pool.gpus_per_replica),
        window=pool.window,
        tenants={name: TenantRules(t.guarantee, t.weight, t.consents) for name, t in pool.tenants.items()},
        classes={name: ClassRules(c.rank, c.sheddable, c.consents) for name, c in pool.classes.items()},
    )


def members(lever: Lever, settings: LeverConfig, pool: PoolConfig) -> tuple[str, ...]:
    """The members of a lever that are known beforehand; none where they are the replicas that are seen."""
    if lever in PER_REPLICA:
        return ()
    if lever is Lever.TENANT_CAP:
        return tuple(sorted(pool.tenants))
    if lever is Lever.ADMISSION:
        return settings.setpoints
    if lever is Lever.ROUTING:
        return (AFFINITY,)
    return settings.receivers if lever is Lever.DOWNGRADE else ("",)


def _lever_rules(
    name: str, lever: Lever, settings: LeverConfig, pool: PoolConfig, plugin: Plugin | None
) -> LeverRules:  # fmt: skip
    return LeverRules(
        lever=lever,
        policy=settings.policy.kind,
        actuator=(settings.actuator.name or settings.actuator.kind) if settings.actuator else "",
        mode=settings.mode,
        limits=Limits(float(settings.min), float(settings.max), float(settings.quantum)),
        cooldown_up=settings.cooldown.up,
        cooldown_down=settings.cooldown.down,
        rate_up=settings.rate.up,
        rate_down=settings.rate.down,
        stabilise=settings.stabilise,
        every=settings.every,
        settle=max(settings.settle, _slowness(lever, plugin)),
        give_up=settings.give_up,
        by=settings.by,
        members=members(lever, settings, pool),
        expiry=settings.expiry,
        group=settings.group,
        version_group=settings.version_group if lever is Lever.BREAKER and pool.labels.version else 0.0,
        unwoken=lever is Lever.REPLICAS and settings.min < 1 and not wakes(pool),
        own=OWN if lever is Lever.ADMISSION else {},
        drain=settings.drain,
        workload=_deployment(name, pool, plugin) if settings.drain else "",
    )


def _deployment(name: str, pool: PoolConfig, plugin: Plugin | None) -> str:
    """The Deployment whose pods go when the count falls; "" where nothing says."""
    if plugin is not None and hasattr(plugin.settings, "workload_kind"):
        own = plugin.settings
        return str(getattr(own, "name", "") or name) if own.workload_kind == "Deployment" else ""
    return pool.workload.name if pool.workload is not None and pool.workload.kind == "Deployment" else ""


def _slowness(lever: Lever, plugin: Plugin | None) -> float:
    """Seconds until a value can show in the target, by the actuator's own word: nothing shows in metrics before."""
    can = plugin.cls.describe(plugin.settings).get(lever) if plugin is not None else None
    return can.settle if can is not None else 0.0
