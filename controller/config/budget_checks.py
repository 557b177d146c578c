"""Budgets of GPUs that their pools can never keep to, or never make use of."""

from collections.abc import Iterator, Mapping

from controller.config.errors import Finding, Path
from controller.config.models import BudgetConfig, GovernorConfig, LeverConfig
from controller.config.report import nearest
from controller.core.model import Lever


def check_budgets(config: GovernorConfig) -> Iterator[Finding]:
    """Every contradiction between a budget and its pools."""
    for name, budget in config.budgets.items():
        at: Path = ("budgets", name)
        members = members_of(config, budget)
        if not members:
            yield Finding((*at, "pools"), "names no pool, and holds nothing", "write all, or [name, name]")
        for index, member in enumerate(members):
            if member not in config.pools:
                yield Finding(
                    (*at, "pools", index),
                    f"there is no pool {member!r}",
                    nearest(member, config.pools),
                    (("pools", member),),
                )
            elif member in members[:index]:
                yield Finding((*at, "pools", index), f"{member!r} is listed twice", "remove one")
        sized = _sized(config, members)
        least = sum(int(lever.min) * config.pools[member].gpus_per_replica for member, lever in sized.items())
        if least > budget.max:
            parts = ", ".join(
                f"{one} {int(lever.min)} x {config.pools[one].gpus_per_replica}" for one, lever in sized.items()
            )
            yield Finding(
                (*at, "max"),
                f"the minima need {least} GPUs ({parts}), the budget is {budget.max}",
                "lower the minima or raise the budget",
            )
        else:
            for member, lever in sized.items():
                yield from _fits(config, name, member, lever)


def members_of(config: GovernorConfig, budget: BudgetConfig) -> tuple[str, ...]:
    """The pools that share a budget, as written."""
    return tuple(config.pools) if budget.pools == "all" else budget.pools


def _sized(config: GovernorConfig, members: tuple[str, ...]) -> Mapping[str, LeverConfig]:
    found = (
        (one, config.pools[one].levers.get(Lever.REPLICAS)) for one in dict.fromkeys(members) if one in config.pools
    )
    return {one: lever for one, lever in found if lever is not None}


def _fits(config: GovernorConfig, title: str, name: str, lever: LeverConfig) -> Iterator[Finding]:
    """What a pool asks for by itself. Parameters called `floors` and `spare` mean in every policy what they mean in
    capacity."""
    each, most = config.pools[name].gpus_per_replica, config.budgets[title].max
    at: Path = ("pools", name, "levers", Lever.REPLICAS.value)
    uses: tuple[Path, ...] = (("budgets", title), ("pools", name, "gpus_per_replica"))
    if each > most:
        yield Finding(
            ("budgets", title, "max"), f"{most} GPUs hold no replica of {name}, which takes {each}",
            f"write at least {each}, or leave {name} out of it", (("pools", name, "gpus_per_replica"), at),
        )  # fmt: skip
        return
    floors = getattr(lever.policy.settings, "floors", ())
    wishes: list[tuple[Path, object]] = [(("policy", "spare"), getattr(lever.policy.settings, "spare", None))]
    for index, floor in enumerate(floors if isinstance(floors, (tuple, list)) else ()):
        wishes.append((("policy", "floors", index, "replicas"), getattr(floor, "replicas", None)))
    for key, wanted in wishes:
        if isinstance(wanted, (int, float)) and each * wanted > most and wanted <= lever.max:  # else told with max
            yield Finding(
                (*at, *key),
                f"{wanted:g} replicas take {each * wanted:g} GPUs, and the budget {title} allows {most}",
                "lower it or raise the budget",
                uses,
            )
