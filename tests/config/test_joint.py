"""What is written of pools that are sized together is what the plan is held to."""

from controller.config import loads
from controller.config.terms import fleet_rules
from controller.core.rules import Budget, Pair, Variants
from tests.support.written import pool, written

LEVER = "replicas: {min: 1, max: 8, policy: {kind: capacity}}"
BASE = written(*(pool(name, levers=[LEVER]) for name in ("read", "write", "big", "small")))


def test_pairs_variants_and_ranks_reach_the_rules() -> None:
    rules = fleet_rules(
        loads(
            BASE + "pairs: {llama: {prefill: read, decode: write, ratio: [0.5, 1]}}\n"
            "variants: {qwen: {cost: {big: 4, small: 1.5}}}\n"
            "budgets: {gpus: {max: 16, priority: {small: 1}}}\n",
            "joint.yaml",
        )
    )

    assert rules.pairs == (Pair("llama", "read", "write", 0.5, 1.0),)
    assert rules.variants == (Variants("qwen", {"big": 4.0, "small": 1.5}),)
    assert rules.budgets == (Budget("gpus", 16.0, frozenset({"read", "write", "big", "small"}), {"small": 1}),)


def test_without_them_nothing_is_sized_together() -> None:
    rules = fleet_rules(loads(BASE, "joint.yaml"))

    assert (rules.pairs, rules.variants) == ((), ())
