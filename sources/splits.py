"""Splits: the facts of a pool by the value of a label, beside their division by replica. Tenants and request classes
are two splits of one mechanism. Rows without the label are of no tenant and no class; the pool counts them."""

from typing import NamedTuple

from controller.core.facts import Fact
from controller.core.ports import PoolNeeds
from sources.contracts.contract import Contract

TENANT, CLASS = "tenant", "class"
MEANS = "means"  # of single replicas, whose buckets nobody wants; divided by the replica, not by a label of its own


class Split(NamedTuple):
    """One way to divide a pool: the label whose values are the parts, and the facts that are wanted of each part."""

    kind: str
    label: str
    facts: frozenset[Fact]


def splits(pool: PoolNeeds, contract: Contract) -> tuple[Split, ...]:
    """The splits of a pool that want anything and have a label; tenants last."""
    both = (
        Split(CLASS, pool.class_label, pool.class_facts),
        Split(TENANT, pool.tenant_label or contract.tenant_label, pool.tenant_facts),
    )
    return tuple(split for split in both if split.label and split.facts)
