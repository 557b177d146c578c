"""Pins of several pools that no budget can hold together, in the config and in what a person is about to pin."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from controller.config.budget_checks import members_of
from controller.config.errors import Finding
from controller.config.models import GovernorConfig
from controller.core.model import Lever


def together(config: GovernorConfig, pinned: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Of each budget that these pins of replicas, by pool, and the minima of the other pools exceed: its name, and the
    sum in words."""
    for title, budget in config.budgets.items():
        members = dict.fromkeys(members_of(config, budget))
        asked, parts = 0.0, []
        for name in members:
            pool = config.pools.get(name)
            lever = pool.levers.get(Lever.REPLICAS) if pool is not None else None
            if pool is None or lever is None:
                continue
            count = pinned.get(name, lever.min)
            asked += count * pool.gpus_per_replica
            if count and pool.gpus_per_replica:
                parts.append(
                    f"{name} {count:g} x {pool.gpus_per_replica}{' pinned' if name in pinned else ' at least'}"
                )
        if asked > budget.max and not pinned.keys().isdisjoint(members):
            yield title, f"{asked:g} GPUs ({', '.join(parts)}), and the budget {title} allows {budget.max}"


def pins_together(config: GovernorConfig, now: datetime) -> Iterator[Finding]:
    """What the config pins at the same time, and what a budget would cut; one pin that is too large alone is refused
    elsewhere."""
    pinned = {
        name: lever.pin.value
        for name, pool in config.pools.items()
        if (lever := pool.levers.get(Lever.REPLICAS)) is not None and lever.pin is not None and lever.pin.until > now
    }
    for title, words in together(config, pinned):
        members = members_of(config, config.budgets[title])
        held = [name for name in pinned if name in members]
        yield Finding(
            ("pools", held[-1], "levers", Lever.REPLICAS.value, "pin", "value"),
            f"with the other pools this takes {words}",
            "budgets hold for pins too, so not all of this will stand; lower a pin or raise the budget",
        )
    for name, pair in config.pairs.items():
        if pair.prefill in pinned and pair.decode in pinned and pinned[pair.decode] > 0:
            ratio = pinned[pair.prefill] / pinned[pair.decode]
            if not pair.ratio[0] - 1e-9 <= ratio <= pair.ratio[1] + 1e-9:
                yield Finding(
                    ("pools", pair.decode, "levers", Lever.REPLICAS.value, "pin", "value"),
                    f"with {pinned[pair.prefill]:g} replicas pinned in {pair.prefill} the ratio of the pair {name} is "
                    f"{ratio:.3g}, and {pair.ratio[0]:g} to {pair.ratio[1]:g} is meant",
                    "pins win over the ratio; pin both by it",
                )
