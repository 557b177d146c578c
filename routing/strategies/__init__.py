"""Strategies of routing, by name. `make` one, `tune` it while it runs; docs/routing.md says which to use when."""

import difflib
from collections.abc import Mapping
from typing import Any

from routing.parameters import Value, build
from routing.strategies.cost import Cost
from routing.strategies.direct import Direct
from routing.strategies.hashed import BoundedLoad, ConsistentHash
from routing.strategies.hybrid import Hybrid
from routing.strategies.kv_events import KvEvents
from routing.strategies.kv_usage import KvUsage
from routing.strategies.least import LeastLoaded, LeastQueue
from routing.strategies.lora import Lora
from routing.strategies.prefill_decode import PrefillDecode
from routing.strategies.prefix_affinity import PrefixAffinity
from routing.strategies.prefix_tree import PrefixTree
from routing.strategies.rotation import PowerOfTwo, Random, RoundRobin
from routing.strategies.session import Session
from routing.strategies.strategy import Base, Choice, Counters, Strategy

STRATEGIES: Mapping[str, type[Base[Any]]] = {
    "round-robin": RoundRobin,
    "random": Random,
    "power-of-two": PowerOfTwo,
    "least-loaded": LeastLoaded,
    "least-queue": LeastQueue,
    "consistent-hash": ConsistentHash,
    "bounded-load": BoundedLoad,
    "session": Session,
    "prefix-affinity": PrefixAffinity,
    "prefix-tree": PrefixTree,
    "kv-events": KvEvents,
    "kv-usage": KvUsage,
    "cost": Cost,
    "prefill-decode": PrefillDecode,
    "lora": Lora,
    "direct": Direct,
    "hybrid": Hybrid,
}
NAMES = tuple(STRATEGIES)

__all__ = ["NAMES", "STRATEGIES", "Choice", "Counters", "Strategy", "make"]


def make(name: str, parameters: Mapping[str, Value] | None = None) -> Strategy:
    """A new strategy. Raises ValueError as `field: mistake; mend`; an unknown name is a mistake of the field
    `strategy`."""
    if name not in STRATEGIES:
        near = difflib.get_close_matches(name, NAMES, 1)
        mend = f"did you mean {near[0]}?" if near else f"write one of {', '.join(NAMES)}"
        raise ValueError(f"strategy: {name!r} is unknown; {mend}")
    cls = STRATEGIES[name]
    return cls(build(cls.Parameters, parameters or {}))
