"""Contradictions of pools that are sized together: pairs, variants, and who comes first in a budget."""

from collections.abc import Iterator

from controller.config.budget_checks import members_of
from controller.config.errors import Finding, Path
from controller.config.models import GovernorConfig
from controller.config.report import nearest
from controller.core.model import Lever


def check_joint(config: GovernorConfig) -> Iterator[Finding]:
    """Every contradiction between these keys and the pools."""
    yield from _priorities(config)
    yield from _pairs(config)
    yield from _variants(config)


def _priorities(config: GovernorConfig) -> Iterator[Finding]:
    for name, budget in config.budgets.items():
        members = members_of(config, budget)
        for pool in budget.priority:
            if pool not in members:
                yield Finding(
                    ("budgets", name, "priority", pool),
                    f"pool {pool!r} does not share this budget",
                    nearest(pool, members),
                    (("budgets", name, "pools"),),
                )


def _pairs(config: GovernorConfig) -> Iterator[Finding]:
    taken: dict[str, str] = {}
    for name, pair in config.pairs.items():
        at: Path = ("pairs", name)
        for key, pool in (("prefill", pair.prefill), ("decode", pair.decode)):
            yield from _sized(config, (*at, key), pool)
            first = taken.setdefault(pool, name)
            if first != name:
                yield Finding(
                    (*at, key),
                    f"{pool!r} is in the pair {first} too",
                    "a pool is half of one pair",
                    (("pairs", first),),
                )
        if pair.prefill == pair.decode:
            yield Finding(
                (*at, "decode"),
                f"{pair.decode!r} is the prefill pool",
                "name the pool that decodes",
                ((*at, "prefill"),),
            )
        if pair.ratio[0] > pair.ratio[1]:
            yield Finding(
                (*at, "ratio"), f"{pair.ratio[0]:g} is above {pair.ratio[1]:g}", "write the least first: [least, most]"
            )


def _variants(config: GovernorConfig) -> Iterator[Finding]:
    taken: dict[str, str] = {}
    halves = {pool for pair in config.pairs.values() for pool in (pair.prefill, pair.decode)}
    for name, group in config.variants.items():
        at: Path = ("variants", name, "cost")
        if len(group.cost) < 2:
            yield Finding(at, "one pool alone has no cheaper variant", "name at least two pools")
        for pool in group.cost:
            yield from _sized(config, (*at, pool), pool)
            first = taken.setdefault(pool, name)
            if first != name:
                yield Finding(
                    (*at, pool), f"is a variant in {first} too", "a pool serves one model", (("variants", first),)
                )
            if pool in halves:
                yield Finding(
                    (*at, pool), "is half of a pair, and its size follows the other half", "remove it", (("pairs",),)
                )


def _sized(config: GovernorConfig, at: Path, name: str) -> Iterator[Finding]:
    """Whether there is such a pool, with replicas to move."""
    pool = config.pools.get(name)
    if pool is None:
        yield Finding(at, f"there is no pool {name!r}", nearest(name, config.pools), (("pools", name),))
    elif Lever.REPLICAS not in pool.levers:
        yield Finding(
            at,
            f"pool {name} has no lever replicas, so nothing sizes it",
            f"add levers: {{replicas: ...}} to pool {name}",
            (("pools", name, "levers"),),
        )
