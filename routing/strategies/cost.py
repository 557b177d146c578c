"""Cost-aware: where will this request delay, and be delayed, the least? In seconds of a replica's time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from routing.lengths import Length, Lengths
from routing.model import Replica, Request
from routing.parameters import Value, knob
from routing.strategies.ledger import NOTHING, Entry, Ledger
from routing.strategies.prefix import PrefixBase, PrefixParameters
from routing.strategies.strategy import Choice


@dataclass(frozen=True, slots=True)
class CostParameters(PrefixParameters):
    """Prices, the memory that may be promised, and when estimates are no longer believed."""

    prefill_cost: float = knob("time of a replica for a prompt token that is not cached", 2e-5, unit="seconds", ge=0)
    decode_cost: float = knob(
        "time of a replica for a token of answer, its part of the steps", 1e-4, unit="seconds", ge=0
    )
    memory: float = knob(
        "share of a replica's KV memory that may be promised to open requests; a hard limit", 0.95, gt=0, le=1
    )
    reserve: float = knob("memory is promised for an answer as long as this quantile of its kind", 0.8, gt=0, le=0.99)
    distrust: float = knob(
        "factor by which estimates of answers are typically off, above which they are not used; back below 0.8 of it",
        3.0,
        unit="times",
        gt=1,
    )
    half_life: float = knob("answers after which an observation of length counts half", 200.0, unit="answers", ge=1)
    prior: float = knob("answer expected before any was seen", 256.0, unit="tokens", ge=1)


P = TypeVar("P", bound=CostParameters)


class CostBase(PrefixBase[P]):
    """Prices a request at each replica, and keeps the books that this takes. Affinity is the part of the cached prompt
    that counts as saved."""

    leans = True

    def __init__(self, parameters: P) -> None:
        super().__init__(parameters)
        self.ledger = Ledger(parameters.prefill_cost, parameters.decode_cost)
        self.lengths = Lengths(parameters.half_life, parameters.prior)
        self.trusts = True
        self._said: dict[int, float] = {}
        self._full = self._distrusted = 0

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        super().sent(request, choice, now)
        length = self.lengths.expect(request, self.parameters.reserve)
        self._said[request.id] = length.expected
        fresh = max(0, request.prompt_tokens - choice.hit_tokens)
        longest = round(length.high) if self.trusts else 0
        where = choice.prefill or choice.replica
        self.ledger.open(Entry(request, where, choice.replica, fresh, round(length.expected), longest))

    def first_token(self, request_id: int, now: float) -> None:
        self.ledger.prefilled(request_id)

    def finished(self, request_id: int, output_tokens: int | None, now: float) -> None:
        entry, said = self.ledger.close(request_id), self._said.pop(request_id, None)
        if entry is None or said is None or output_tokens is None:
            return
        self.lengths.observe(entry.request, output_tokens, said)
        error = self.lengths.error
        if self.trusts and error > self.parameters.distrust and self.lengths.observations >= 20:
            self.trusts, self._distrusted = False, self._distrusted + 1
        elif error < 0.8 * self.parameters.distrust:
            self.trusts = True

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self.ledger.forget(name)

    def joined(self, replica: Replica, now: float) -> None:
        super().joined(replica, now)
        self.ledger.forget(replica.name)

    def tune(self, parameters: Mapping[str, Value]) -> None:
        super().tune(parameters)
        self.ledger.reprice(self.parameters.prefill_cost, self.parameters.decode_cost)
        self.lengths.half_life, self.lengths.prior = self.parameters.half_life, self.parameters.prior

    def extra(self) -> dict[str, int]:
        return super().extra() | {"memory_refused": self._full, "estimates_distrusted": self._distrusted}

    def cheapest(
        self, request: Request, length: Length, replicas: Sequence[Replica], depths: Mapping[str, int]
    ) -> Choice:
        """The replica with memory for it where it costs least. One with nothing open takes anything: what does not fit
        there fits nowhere, and must not wait for ever. What the engine told of its memory counts where that is more
        than was promised. While estimates are not believed, the queue is the cost."""
        prefill, decode, share = self.parameters.prefill_cost, self.parameters.decode_cost, self.parameters.memory
        at, prompt, trusts, lowered = self.ledger.at, request.prompt_tokens, self.trusts, self.lowered
        need = prompt + (length.high if trusts else 0.0)
        own, saved = prefill * prompt + decode * length.expected, self.affinity * prefill * request.block
        best, least = "", inf
        for one in replicas:
            name = one.name
            pending = at.get(name, NOTHING)
            if pending.requests and one.kv_tokens is not None:
                room = share * one.kv_tokens - need
                if pending.kv > room or one.kv_usage * one.kv_tokens > room:
                    continue
            if trusts:
                cost = own + pending.work
                if name in depths:
                    cost -= saved * depths[name]
            else:
                cost = one.inflight + 1.0
            if lowered:
                cost /= one.weight
            if cost < least:
                best, least = name, cost
        hit = min(depths.get(best, 0) * request.block, prompt)
        return Choice(
            best, why="lowest cost" if trusts else "shortest queue: estimates are not believed", hit_tokens=hit
        )

    def refused(self, request: Request, length: Length) -> Choice:
        """Nobody has the memory now."""
        self._full += 1
        need = round(request.prompt_tokens + length.high)
        return Choice("", why=f"no replica has KV memory for {need} tokens now")


class Cost(CostBase[CostParameters]):
    """The replica where the work that is open, the uncached part of the prompt and the expected answer add up to the
    least time for its weight, among those whose KV memory is not yet promised away.

    Answers are estimated from history and by regression on prompt length. While the estimates are typically off by
    more than a factor of `distrust`, the shortest queue decides; memory is then held against prompts and what engines
    told, no longer against answers.
    """

    Parameters = CostParameters

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        length = self.lengths.expect(request, self.parameters.reserve)
        depths, owed = self.depths(request), self.owed(replicas)
        choice = self.cheapest(request, length, [owed] if owed else self.rotated(replicas), depths)
        return choice if choice.replica else self.refused(request, length)
