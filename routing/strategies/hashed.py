"""Strategies by hash: the same key goes to the same replica, with no memory of any key."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from routing.hashing import mix, text_hash, unit
from routing.model import Replica, Request
from routing.parameters import Value, knob
from routing.strategies.ring import Ring
from routing.strategies.strategy import CROWDED, Base, Choice

KEYS = ("prefix", "session", "tenant", "adapter")


@dataclass(frozen=True, slots=True)
class ConsistentHashParameters:
    """What is hashed, and how evenly."""

    by: str = knob("what makes the key; a request without it is keyed by its id, so by chance", "session", choices=KEYS)
    blocks: int = knob("with by: prefix, how many leading blocks make the key", 4, unit="blocks", ge=1)
    points: int = knob("places of each replica on the ring", 100, unit="points", ge=1, le=1000)


@dataclass(frozen=True, slots=True)
class BoundedLoadParameters(ConsistentHashParameters):
    """What is hashed, how evenly, and how much more than its share a replica may get."""

    by: str = knob("what makes the key; a request without it is keyed by its id, so by chance", "prefix", choices=KEYS)
    bound: float = knob(
        "most requests in flight at a replica over its fair share, which is by weight", 1.25, unit="times", gt=1, le=100
    )


P = TypeVar("P", bound=ConsistentHashParameters)


class _Hashed(Base[P]):
    """The ring, kept in step with what is picked from."""

    leans = True

    def __init__(self, parameters: P) -> None:
        super().__init__(parameters)
        self._ring = Ring(parameters.points)

    def joined(self, replica: Replica, now: float) -> None:
        self._ring.add(replica.name)

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self._ring.remove(name)

    def tune(self, parameters: Mapping[str, Value]) -> None:
        super().tune(parameters)
        self._ring.resize(self.parameters.points)

    def order(self, key: int, replicas: list[Replica]) -> Iterator[Replica]:
        """The replicas as the key would have them, first those that keep the key. A replica at weight w keeps the share
        w of its keys, always the same ones, so that lowering it moves no key that it still serves."""
        ring, open_ = self._ring, {replica.name: replica for replica in replicas}
        top = self.top
        for replica in replicas:
            if replica.name not in ring:
                ring.add(replica.name)
        passed = []
        for name in ring.walk(key):
            one = open_.get(name)
            if one is None:
                continue
            if one.weight >= top or unit(mix(key ^ text_hash(name))) < one.weight / top:
                yield one
            else:
                passed.append(one)
        yield from passed


class ConsistentHash(_Hashed[ConsistentHashParameters]):
    """The replica that the key's hash points to, whatever its load; with less affinity the next on the ring that is
    not crowded."""

    Parameters = ConsistentHashParameters

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        key = key_of(request, self.parameters.by, self.parameters.blocks)
        why = f"hash of {self.parameters.by}"
        for replica in self.order(key, replicas):
            if not self.crowded(replica, replicas):
                return Choice(replica.name, why=why)
            why = f"next on the ring: {CROWDED}"
        raise AssertionError("the least loaded is never crowded")


class BoundedLoad(_Hashed[BoundedLoadParameters]):
    """The replica that the key's hash points to, or the next on the ring that has less than `bound` times its fair
    share of the requests in flight."""

    Parameters = BoundedLoadParameters

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        key = key_of(request, self.parameters.by, self.parameters.blocks)
        weights = sum([replica.weight for replica in replicas])
        each = self.parameters.bound * (sum([replica.inflight for replica in replicas]) + 1) / weights
        why = f"hash of {self.parameters.by}"
        for replica in self.order(key, replicas):
            if replica.inflight >= math.ceil(each * replica.weight):
                why = "next on the ring: over its bound"
            elif self.crowded(replica, replicas):
                why = f"next on the ring: {CROWDED}"
            else:
                return Choice(replica.name, why=why)
        if self.affinity < 1.0:  # by weights that differ, the least loaded may be over its bound
            return Choice(self.least_loaded(replicas).name, why=CROWDED)
        raise AssertionError("the bounds add up to more than is in flight")


def key_of(request: Request, by: str, blocks: int) -> int:
    """The key of a request: 64 bits."""
    if by == "prefix":
        return request.prefix[min(blocks, len(request.prefix)) - 1] if request.prefix else mix(request.id)
    text = {"session": request.session, "tenant": request.tenant, "adapter": request.adapter}[by]
    return text_hash(text) if text else mix(request.id)
