"""Precise cache-aware: the map is what engines say they store and evict, and a weighted score decides, as in llm-d."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.prefix import PrefixBase, PrefixParameters, sole
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
        "a prompt that was sent counts as stored until the event comes, at most so long after its first token; "
        "0 = only events count",
        2.0,
        unit="seconds",
        ge=0,
    )


@dataclass(slots=True)
class _Hope:
    """Blocks that a request will bring to a replica; `left` of them no event has told of yet."""

    until: float
    name: str
    blocks: Sequence[int]
    left: int


class KvEvents(PrefixBase[KvEventsParameters]):
    """The replica with the highest weighted score of cached share, queue and free memory. The cache is known from
    events, so that evictions are seen; between sending and the event a prompt counts as stored where it was sent.

    The queue counts over weight, and of what a replica at weight w wins by its cache alone it keeps the share w.
    """

    Parameters = KvEventsParameters
    leans = True

    def __init__(self, parameters: KvEventsParameters) -> None:
        super().__init__(parameters)
        self._hoped: dict[str, dict[int, _Hope]] = {}  # replica -> block -> what it was sent for
        self._sent: dict[int, list[_Hope]] = {}  # of requests without a first token; they may queue for long
        self._hopes: deque[_Hope] = deque()  # of the others, by time
        self._stored = self._evicted = self._disappointed = 0

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        if self._hopes and self._hopes[0].until <= now:
            self._give_up(now)
        depths = self.depths(request)
        owed = self.owed(replicas)
        if owed is not None:
            return Choice(
                owed.name, why=OWED, hit_tokens=min(depths.get(owed.name, 0) * request.block, request.prompt_tokens)
            )
        prefix_weight = (
            self.affinity * self.parameters.prefix_weight / max(1, min(len(request.prefix), self.parameters.depth))
        )
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
        if not self.parameters.hope:
            return
        prefix = request.prefix[: self.parameters.depth]
        for name in (choice.replica, choice.prefill):
            new = self.blocks.missing(name, prefix) if name else ()
            if new:
                hope = _Hope(inf, name, new, len(new))
                self._sent.setdefault(request.id, []).append(hope)
                self._hoped.setdefault(name, {}).update(dict.fromkeys(new, hope))
                self.blocks.add(name, prefix)

    def first_token(self, request_id: int, now: float) -> None:
        """All of the prompt is computed; its events are on their way."""
        for hope in self._sent.pop(request_id, ()):
            hope.until = now + self.parameters.hope
            self._hopes.append(hope)

    def finished(self, request_id: int, output_tokens: int | None, now: float) -> None:
        self.first_token(request_id, now)

    def stored(self, name: str, blocks: Sequence[int], now: float) -> None:
        self._stored += len(blocks)
        self.blocks.add(name, blocks)
        self._settled(name, blocks)

    def evicted(self, name: str, blocks: Sequence[int], now: float) -> None:
        self._evicted += len(blocks)
        self.blocks.remove(name, blocks)
        self._settled(name, blocks)

    def joined(self, replica: Replica, now: float) -> None:
        super().joined(replica, now)
        self._hoped.pop(replica.name, None)

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self._hoped.pop(name, None)

    def _settled(self, name: str, blocks: Sequence[int]) -> None:
        """Of these blocks the engine has told."""
        hoped = self._hoped.get(name)
        if hoped:
            for block in blocks:
                hope = hoped.pop(block, None)
                if hope is not None:
                    hope.left -= 1

    def _give_up(self, now: float) -> None:
        """Blocks that no event has told of are not there."""
        while self._hopes and self._hopes[0].until <= now:
            hope = self._hopes.popleft()
            hoped = self._hoped.get(hope.name)
            if hope.left and hoped:
                gone = [block for block in hope.blocks if hoped.get(block) is hope]
                for block in gone:
                    del hoped[block]
                self.blocks.remove(hope.name, gone)
                self._disappointed += len(gone)

    def extra(self) -> dict[str, int]:
        return super().extra() | {
            "blocks_stored": self._stored,
            "blocks_evicted": self._evicted,
            "blocks_never_stored": self._disappointed,
        }
