"""What is asked for and can never come about: replicas beyond a bound, ratios that no two sizes have, a breaker that
leaves every replica in. And what is allowed and hardly meant, which `governor check` only tells."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from controller.config.budget_checks import members_of
from controller.config.errors import Finding, Path
from controller.config.gate_hints import left_nothing
from controller.config.models import GovernorConfig, LeverConfig, PairConfig
from controller.config.pin_checks import pins_together
from controller.config.promise_hints import unpromised
from controller.config.sense_checks import doubtful
from controller.core.model import Lever, Mode

_PROBE = 0.05  # factor with which a breaker tries a replica that is out
_MOST = 100_000  # sizes of a decode pool that are tried


def check_reach(config: GovernorConfig) -> Iterator[Finding]:
    """Every wish that its own bounds exclude."""
    for name, pool in config.pools.items():
        for lever, settings in pool.levers.items():
            at: Path = ("pools", name, "levers", lever.value)
            if lever is Lever.REPLICAS:
                yield from _warm(at, settings)
                yield from _pinned(config, name, settings)
            if lever is Lever.BREAKER and _PROBE < settings.min <= settings.max:
                yield Finding(
                    (*at, "min"),
                    f"{settings.min:g} never takes a replica out, and one that hangs keeps that part of its share",
                    "write min: 0, or leave the key out",
                    ((*at, "max"),),
                )
    for name, pair in config.pairs.items():
        yield from _paired(config, name, pair)


def hints(config: GovernorConfig, now: datetime) -> tuple[Finding, ...]:
    """What is no mistake and hardly meant."""
    return (
        *_over(config, now), *pins_together(config, now), *_never_out(config), *_ladders(config), *doubtful(config),
        *left_nothing(config), *unpromised(config), *_one_way(config),
    )  # fmt: skip


def _over(config: GovernorConfig, now: datetime) -> Iterator[Finding]:
    for name, pool in config.pools.items():
        for lever, settings in pool.levers.items():
            if settings.pin is not None and settings.pin.until <= now:
                when = settings.pin.until.astimezone(UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
                at: Path = ("pools", name, "levers", lever.value, "pin")
                yield Finding(at, f"ended at {when} and holds nothing any more", "remove it, or write a later `until`")


def _one_way(config: GovernorConfig) -> Iterator[Finding]:
    """More capacity than is needed costs money; a fleet of which more and more is kept out serves ever less."""
    for name, pool in config.pools.items():
        for lever, settings in pool.levers.items():
            if settings.mode is Mode.PROTECT and lever is not Lever.REPLICAS:
                yield Finding(
                    ("pools", name, "levers", lever.value, "mode"),
                    "goes one way in protect: what it takes in a busy minute nothing gives back while Governor lives",
                    "write auto, or observe to see what it would do; protect is for replicas",
                )


def _never_out(config: GovernorConfig) -> Iterator[Finding]:
    for name, pool in config.pools.items():
        breaker = pool.levers.get(Lever.BREAKER)
        if breaker is not None and 0 < breaker.min <= _PROBE:
            yield Finding(
                ("pools", name, "levers", Lever.BREAKER.value, "min"),
                f"{breaker.min:g} is what a probe gets, so a replica that hangs goes on getting that part of its share",
                "write min: 0, unless you mean it",
            )


def _ladders(config: GovernorConfig) -> Iterator[Finding]:
    for name, pool in config.pools.items():
        order = [lever for lever, settings in pool.levers.items() if settings.mode is not Mode.OFF]
        both = Lever.ADMISSION in order and Lever.DOWNGRADE in order
        if both and order.index(Lever.ADMISSION) < order.index(Lever.DOWNGRADE):
            yield Finding(
                ("pools", name, "levers"),
                "admission stands before downgrade, and what the gate may refuse counts as relieved, so little or "
                "nothing is left to downgrade",
                "write downgrade before admission, unless you mean it",
            )
        caps, sends = (pool.levers.get(one) for one in (Lever.TENANT_CAP, Lever.DOWNGRADE))
        if caps is None or sends is None or Mode.OFF in (caps.mode, sends.mode):
            continue
        own = (caps.policy.kind, sends.policy.kind) == ("fair_share", "downgrade")  # others do not look at each other
        if own and order.index(Lever.DOWNGRADE) < order.index(Lever.TENANT_CAP):
            yield Finding(
                ("pools", name, "levers"),
                "downgrade stands before tenant_cap, so one tenant's flood sends whoever consents to the smaller model "
                "before it is capped",
                "write tenant_cap before downgrade, unless you mean it: caps leave the downgrade what it can take of a "
                "crowd",
            )


def _warm(at: Path, settings: LeverConfig) -> Iterator[Finding]:
    """Parameters called `floors` and `spare` mean in every policy what they mean in capacity."""
    here: Path = (*at, "policy")
    most, uses = settings.max, ((*at, "max"),)
    floors = getattr(settings.policy.settings, "floors", ())
    for index, floor in enumerate(floors if isinstance(floors, (tuple, list)) else ()):
        wanted = getattr(floor, "replicas", None)
        if isinstance(wanted, (int, float)) and wanted > most:
            yield Finding(
                (*here, "floors", index, "replicas"), f"{wanted:g} is above max {most:g}, which holds",
                "lower the floor or raise max", uses,
            )  # fmt: skip
    spare = getattr(settings.policy.settings, "spare", None)
    if isinstance(spare, (int, float)) and spare > most:
        yield Finding(
            (*here, "spare"), f"{spare:g} is above max {most:g}, so that there would be no need beside it",
            "lower spare or raise max", uses,
        )  # fmt: skip


def _pinned(config: GovernorConfig, name: str, settings: LeverConfig) -> Iterator[Finding]:
    if settings.pin is None:
        return
    at: Path = ("pools", name, "levers", Lever.REPLICAS.value, "pin", "value")
    asked = settings.pin.value * config.pools[name].gpus_per_replica
    for title, budget in config.budgets.items():
        if name in members_of(config, budget) and asked > budget.max:
            yield Finding(
                at,
                f"{settings.pin.value:g} replicas take {asked:g} GPUs, and the budget {title} allows {budget.max}",
                "budgets hold for pins too; lower the pin or raise the budget",
                (("budgets", title), ("pools", name, "gpus_per_replica")),
            )


def _paired(config: GovernorConfig, name: str, pair: PairConfig) -> Iterator[Finding]:
    one, other = (
        config.pools[pool].levers.get(Lever.REPLICAS) if pool in config.pools else None
        for pool in (pair.prefill, pair.decode)
    )
    least, most = pair.ratio
    if one is None or other is None or pair.prefill == pair.decode or least > most:
        return  # reported with the pairs
    if one.min > one.max or other.min > other.max:
        return
    step = max(1, int(other.quantum))
    low, high = -int(-max(1.0, other.min) // step) * step, int(other.max)
    # Where the pool may be that large every ratio has a size.
    sizes = range(low, min(high, low + _MOST * step) + 1, step)
    fitting = next((size for size in sizes if _fits(size, one, least, most)), None)
    if fitting is not None:
        yield from _afforded(config, name, pair, _least(fitting, one, least), fitting)
        return
    bounds = tuple(
        ("pools", pool, "levers", Lever.REPLICAS.value, key)
        for pool in (pair.prefill, pair.decode)
        for key in ("min", "max")
    )
    yield Finding(
        ("pairs", name, "ratio"),
        f"no {one.min:g} to {one.max:g} prefill replicas ({pair.prefill}) are {least:g} to {most:g} times "
        f"{other.min:g} to {other.max:g} decode replicas ({pair.decode})",
        "change the bounds of the two pools or the ratio",
        bounds,
    )


def _afforded(config: GovernorConfig, name: str, pair: PairConfig, prefill: int, decode: int) -> Iterator[Finding]:
    """The smallest pair that the bounds and the ratio allow, against each budget that both pools share."""
    asked = sum(
        count * config.pools[pool].gpus_per_replica for pool, count in ((pair.prefill, prefill), (pair.decode, decode))
    )
    for title, budget in config.budgets.items():
        shared = budget.pools == "all" or {pair.prefill, pair.decode} <= set(budget.pools)
        if shared and asked > budget.max:
            yield Finding(
                ("pairs", name, "ratio"),
                f"the smallest pair, {prefill} prefill and {decode} decode replicas, takes {asked} GPUs, and the "
                f"budget {title} allows {budget.max}",
                "raise the budget, lower the minima or change the ratio",
                (("budgets", title), *(("pools", pool) for pool in (pair.prefill, pair.decode))),
            )


def _fits(decode: int, prefill: LeverConfig, least: float, most: float) -> bool:
    """Whether some size of the prefill pool has the ratio to so many decode replicas."""
    return _least(decode, prefill, least) <= min(math.floor(most * decode + 1e-9), prefill.max)


def _least(decode: int, prefill: LeverConfig, least: float) -> int:
    """The smallest prefill pool for so many decode replicas."""
    step = max(1, int(prefill.quantum))
    return -int(-max(math.ceil(least * decode - 1e-9), prefill.min) // step) * step
