"""Prefill/decode aware: compute the prompt where the answer is made, or on another replica and move its KV memory?"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from routing.model import Replica, Request
from routing.parameters import Value, knob
from routing.strategies.ledger import NOTHING, Entry, Ledger
from routing.strategies.prefix import PrefixBase, PrefixParameters
from routing.strategies.strategy import Choice


@dataclass(frozen=True, slots=True)
class PrefillDecodeParameters(PrefixParameters):
    """Prices of computing and of moving."""

    prefill_cost: float = knob("time of a replica for a prompt token that is not cached", 2e-5, unit="seconds", ge=0)
    disturbance: float = knob(
        "how much a second counts for which a local prefill holds up one request that is being answered there",
        0.1,
        ge=0,
    )
    local_below: int = knob("uncached prompt tokens up to which the prefill is always local", 256, unit="tokens", ge=0)
    decode_prefills: bool = knob("whether replicas of role decode can compute prompts", True)
    kv_bytes: float = knob("KV memory of one token", 131072.0, unit="bytes", ge=0)
    bandwidth_zone: float = knob("between replicas of one zone", 25e9, unit="bytes/s", gt=0)
    bandwidth_far: float = knob(
        "between zones, and where a zone is unknown on one side only", 2.5e9, unit="bytes/s", gt=0
    )
    latency: float = knob("of handing over, whatever the size", 0.005, unit="seconds", ge=0)
    away: float = knob(
        "a replica outside the request's zone counts as so many times as loaded", 1.5, unit="times", ge=1
    )


class PrefillDecode(PrefixBase[PrefillDecodeParameters]):
    """Two plans are priced, and the cheaper one is taken. Local: the replica where waiting for the prefills ahead, the
    uncached part of the prompt, and the delay to those it answers add up to the least. Remote: the least loaded
    decode replica, and for it the prefill replica where waiting, computing and moving the KV memory take the least
    time, which is one in the same zone unless those are busy. Loads and times count over weight."""

    Parameters = PrefillDecodeParameters
    splits = True

    def __init__(self, parameters: PrefillDecodeParameters) -> None:
        super().__init__(parameters)
        self.ledger = Ledger(parameters.prefill_cost, memory=False)
        self._local = self._remote = self._far = 0

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        order, owed = self.rotated(replicas), self.owed(replicas)
        if owed is not None:  # it has no rivals of its own kind then
            kind = owed.ability.role == "prefill"
            order = [one for one in order if one is owed or (one.ability.role == "prefill") is not kind]
        depths = self.depths(request)
        local, local_cost, decoder, prefillers = self._plans(request, order, depths)
        if decoder is None:
            return Choice("", why="no replica decodes")
        local_hit = min(depths.get(local, 0) * request.block, request.prompt_tokens)
        few = request.prompt_tokens - local_hit <= self.parameters.local_below
        if local and (few or not prefillers):
            self._local += 1
            why = "local: little to prefill" if prefillers else "local: no prefill replica"
            return Choice(local, why=why, hit_tokens=local_hit)
        if not prefillers:
            return Choice("", why="no replica does prefill")
        prefiller, remote_cost, hit, far = self._remote_plan(request, decoder, prefillers, depths)
        if local and local_cost <= remote_cost:
            self._local += 1
            return Choice(local, why="local: cheaper than moving", hit_tokens=local_hit)
        self._remote += 1
        self._far += far
        return Choice(decoder.name, prefiller, "remote: from another zone" if far else "remote: same zone", hit)

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        super().sent(request, choice, now)
        fresh = max(0, request.prompt_tokens - choice.hit_tokens)
        self.ledger.open(Entry(request, choice.prefill or choice.replica, choice.replica, fresh, 0, 0))

    def first_token(self, request_id: int, now: float) -> None:
        self.ledger.prefilled(request_id)

    def finished(self, request_id: int, output_tokens: int | None, now: float) -> None:
        self.ledger.close(request_id)

    def joined(self, replica: Replica, now: float) -> None:
        super().joined(replica, now)
        self.ledger.forget(replica.name)

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self.ledger.forget(name)

    def tune(self, parameters: Mapping[str, Value]) -> None:
        super().tune(parameters)
        self.ledger.reprice(self.parameters.prefill_cost)

    def extra(self) -> dict[str, int]:
        return super().extra() | {"local": self._local, "remote": self._remote, "remote_far": self._far}

    def _plans(
        self, request: Request, replicas: list[Replica], depths: dict[str, int]
    ) -> tuple[str, float, Replica | None, list[Replica]]:
        """The replica for a local prefill and its cost in seconds, no name when none can; the decode replica for a
        remote one, by load; and the prefill replicas."""
        price, zone, at, block = self.parameters.prefill_cost, request.zone, self.ledger.at, request.block
        disturbance, prompt, away = price * self.parameters.disturbance, request.prompt_tokens, self.parameters.away
        anywhere, lowered = self.parameters.decode_prefills, self.lowered
        local, least, lightest = "", inf, inf
        decoder: Replica | None = None
        prefillers: list[Replica] = []
        for one in replicas:
            ability, name, inflight = one.ability, one.name, one.inflight
            if ability.role == "prefill":
                prefillers.append(one)
                continue
            fresh = prompt - block * depths[name] if name in depths else prompt
            cost = fresh * (price + disturbance * inflight)
            if name in at:
                cost += at[name].work
            load = inflight + 1.0
            if zone and ability.zone != zone:
                cost *= away
                load *= away
            if lowered:
                cost /= one.weight
                load /= one.weight
            if load < lightest:
                decoder, lightest = one, load
            if cost < least and (anywhere or ability.role == "both"):
                local, least = name, cost
        return local, least, decoder, prefillers

    def _remote_plan(
        self, request: Request, decoder: Replica, replicas: list[Replica], depths: dict[str, int]
    ) -> tuple[str, float, int, bool]:
        """Replica, cost in seconds, prompt tokens cached there, and whether it is in another zone."""
        price, at, zone = self.parameters.prefill_cost, self.ledger.at, decoder.ability.zone
        # What the decode replica has of the prompt need not be moved.
        moved = request.prompt_tokens - min(depths.get(decoder.name, 0) * request.block, request.prompt_tokens)
        near = self.parameters.latency + moved * self.parameters.kv_bytes / self.parameters.bandwidth_zone
        far = self.parameters.latency + moved * self.parameters.kv_bytes / self.parameters.bandwidth_far
        best, least, found, crosses = "", inf, 0, False
        for one in replicas:
            hit = min(depths[one.name] * request.block, request.prompt_tokens) if one.name in depths else 0
            away = one.ability.zone != zone
            work = (at.get(one.name, NOTHING).work + price * (request.prompt_tokens - hit)) / one.weight
            cost = work + (far if away else near)
            if cost < least:
                best, least, found, crosses = one.name, cost, hit, away
        return best, least, found, crosses
