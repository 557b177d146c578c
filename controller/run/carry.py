"""Carry: what of the memory of laws and guards still has a place under another config, after a reload or a restart."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from controller.core.decide import DecideState
from controller.core.ports import Policy
from controller.core.rules import FleetRules

Policies = Mapping[str, Policy[Any]]


def carried(
    state: DecideState, before: Policies, now: Policies, rules: FleetRules, pools: Collection[str]
) -> DecideState:
    """The memory of a loop with the policies `before`, for one with those of `now` and these rules. `pools` are those
    that are the same fleet in both. A policy whose kind or parameters changed starts anew: its state would mean
    something else."""
    levers = {(pool.pool, lever.lever) for pool in rules.pools for lever in pool.levers}
    same = {
        key for key, policy in now.items()
        if key in before and key.rpartition("/")[0] in pools and type(before[key]) is type(policy)
        and getattr(before[key], "config", None) == getattr(policy, "config", None)
    }  # fmt: skip
    return replace(
        state,
        policies={key: one for key, one in state.policies.items() if key in same},
        guards={target: one for target, one in state.guards.items() if (target.pool, target.lever) in levers},
        hindsight={pool: one for pool, one in state.hindsight.items() if pool in pools},
    )
