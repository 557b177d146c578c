"""How many requests a busy threshold lets in. Pure.

A frontend sends nothing to a worker whose load is above a threshold, and refuses a request when that is so of all of
them. It knows no requests, only KV blocks and tokens, and only of those that went through itself. So of n requests in
flight per replica, k frontends have n/k each, and with b the weight of one request the threshold is

    (n/k - 1/2) * b          b = blocks of a request / KV blocks of a worker, or its tokens

half a request below n/k of them, so that the one that makes it n/k is the last: load must be *above* the threshold.
"""

import math
from dataclasses import dataclass

from actuators.dynamo.config import DynamoPool
from controller.core.rest import NO_LIMIT

FULL = 1.0  # the loosest share of the KV cache that Dynamo takes; one that was set can be removed no more
TOKENS = 2.0**53  # a number of tokens that nobody reaches
FIELDS = {"decode_blocks": "active_decode_blocks_threshold", "prefill_tokens": "active_prefill_tokens_threshold"}


@dataclass(frozen=True, slots=True)
class Card:
    """What a frontend tells of a model: KV blocks of a worker, and tokens of a block."""

    blocks: float
    block: float


def weight(pool: DynamoPool, card: Card | None) -> float:
    """What a request adds to the load of a worker. Raises ValueError where nothing tells."""
    if pool.by == "prefill_tokens":
        return pool.tokens_per_request
    if card is None or card.blocks <= 0 or card.block <= 0:
        raise ValueError(f"tells no KV blocks of {pool.model}; write by: prefill_tokens, or see that workers tell them")
    return max(1.0, math.ceil(pool.tokens_per_request / card.block - 1e-9)) / card.blocks


def threshold(pool: DynamoPool, card: Card | None, frontends: int, requests: float) -> float:
    """The threshold of one frontend for so many requests in flight per replica."""
    load = max(0.0, requests / frontends - 0.5) * weight(pool, card)
    return float(round(min(load, TOKENS))) if pool.by == "prefill_tokens" else min(round(load, 9), FULL)


def requests(pool: DynamoPool, card: Card | None, frontends: int, found: float | None, expected: float | None) -> float:
    """The way back. What was asked for, where its threshold is this one; else what lets in as many."""
    if expected is not None and found is not None:
        wanted = threshold(pool, card, frontends, expected)
        if math.isclose(wanted, found, rel_tol=1e-9, abs_tol=1e-9):
            return expected
    if found is None or found >= (TOKENS if pool.by == "prefill_tokens" else FULL):
        return NO_LIMIT
    return float(max(1, math.floor((found / weight(pool, card) + 0.5) * frontends + 1e-6)))
