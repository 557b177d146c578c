"""Precise cache-aware: the map is what engines say they store and evict, and a weighted score decides, as in llm-d."""

from collections.abc import Sequence
from dataclasses import dataclass

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.blocks import BlockMap
from routing.strategies.prefix import MOST_BLOCKS, PrefixBase, PrefixParameters, sole
from routing.strategies.strategy import OWED, Choice


@dataclass(frozen=True, slots=True)
class KvEventsParameters(PrefixParameters):
    """What counts how much, and how long a hope is held."""

    prefix_weight: float = knob(
        "weight of the cached share of the prompt; more than queue_weight and a hot prefix never leaves its replica",
        1.0,
        ge=0,
    )
    queue_weight: float = knob("weight of requests in flight: 1 for the fewest, 0 for the most", 1.0, ge=0)
    span: float = knob(
        "requests in flight between the fewest and the most that count as a full difference, if there are not more",
        8.0,
        unit="requests",
        gt=0,
    )
    kv_weight: float = knob("weight of free KV memory, as engines told", 0.0, ge=0)
    hope: float = knob(
        "a prompt that was sent counts as stored for so long, until the event comes; 0 = only events count",
        2.0,
        unit="seconds",
        ge=0,
    )


class KvEvents(PrefixBase[KvEventsParameters]):
    """The replica with the highest weighted score of cached share, queue and free memory. The cache is known from
    events, so that evictions are seen; between sending and the event a prompt counts as stored where it was sent.

    The queue counts over weight, and of what a replica at weight w wins by its cache alone it keeps the share w.
    """

    Parameters = KvEventsParameters

    def __init__(self, parameters: KvEventsParameters) -> None:
        super().__init__(parameters)
        # Two generations, so that a hope ends after one to two spans and no single one has to be timed.
        self._hopes, self._older_hopes = BlockMap(MOST_BLOCKS), BlockMap(MOST_BLOCKS)
        self._turned = float("-inf")
        self._stored = self._evicted = 0

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        depths = self.blocks.depths(request.prefix, self.parameters.depth, holes=True)
        self._turn_hopes(now)
        for hopes in (self._hopes, self._older_hopes):
            for name, depth in hopes.depths(request.prefix, self.parameters.depth).items():
                if depth > depths.get(name, 0):
                    depths[name] = depth
        owed = self.owed(replicas)
        if owed is not None:
            return Choice(
                owed.name, why=OWED, hit_tokens=min(depths.get(owed.name, 0) * request.block, request.prompt_tokens)
            )
        prefix_weight = self.parameters.prefix_weight / max(1, min(len(request.prefix), self.parameters.depth))
        queue_weight, kv_weight = self.parameters.queue_weight, self.parameters.kv_weight
        order = self.rotated(replicas)
        queues = [replica.inflight for replica in order]
        most, scale = max(queues), queue_weight / max(self.parameters.span, max(queues) - min(queues))
        loads: Sequence[float] = queues
        if self.lowered:
            loads = [(one.inflight + 1) * self.top / one.weight - 1.0 for one in order]
        scores = [(most - queue) * scale for queue in loads]
        if depths:
            gain = [prefix_weight * depths.get(one.name, 0) for one in order]
            scores = [score + more for score, more in zip(scores, gain, strict=True)]
        if kv_weight:
            scores = [score - kv_weight * one.kv_usage for score, one in zip(scores, order, strict=True)]
        while True:
            place = scores.index(max(scores))
            best = order[place]
            depth = depths.get(best.name, 0)
            if len(order) == 1 or best.weight >= self.top or not sole(best.name, depths) or self.keeps(best):
                hit = min(depth * request.block, request.prompt_tokens)
                return Choice(best.name, why="best score" if depth else "best score, nothing cached", hit_tokens=hit)
            del order[place], scores[place]

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        self._turn_hopes(now)
        if self.parameters.hope:
            for name in (choice.replica, choice.prefill):
                if name:
                    self._hopes.add(name, request.prefix[: self.parameters.depth])

    def stored(self, name: str, blocks: Sequence[int], now: float) -> None:
        self._stored += len(blocks)
        self.blocks.add(name, blocks)

    def evicted(self, name: str, blocks: Sequence[int], now: float) -> None:
        self._evicted += len(blocks)
        self.blocks.remove(name, blocks)

    def joined(self, replica: Replica, now: float) -> None:
        super().joined(replica, now)
        self._hopes.forget(replica.name)
        self._older_hopes.forget(replica.name)

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self._hopes.forget(name)
        self._older_hopes.forget(name)

    def extra(self) -> dict[str, int]:
        return super().extra() | {"blocks_stored": self._stored, "blocks_evicted": self._evicted}

    def _turn_hopes(self, now: float) -> None:
        age = now - self._turned
        if age >= self.parameters.hope:
            self._older_hopes = self._hopes if age < 2.0 * self.parameters.hope else BlockMap(MOST_BLOCKS)
            self._hopes = BlockMap(MOST_BLOCKS)
            self._turned = now
