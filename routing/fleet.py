"""The replicas behind a gateway: who is in service, at what weight, and how much that is.

    weight = min( the knob's or its own, slow start, breaker )

The least and not the product: a replica that is halved for two reasons is not twice as bad.

A knob may name a zone. Then each zone gets traffic by its weight, 1 where it is not named, however many replicas it has
in service, as where every zone is one address behind the gateway.
"""

from collections import Counter
from collections.abc import Sequence
from math import inf

from routing.actions import Reason
from routing.breaker import Breaker
from routing.capability import Capability
from routing.concurrency import Cap
from routing.flight import Flight
from routing.knobs import Knobs
from routing.model import Replica, Request
from routing.slowstart import SlowStart


class Fleet:
    """`generation` changes whenever a request could find other replicas than before."""

    def __init__(self, knobs: Knobs) -> None:
        self.replicas: dict[str, Replica] = {}
        self.breaker = Breaker(knobs.breaker)
        self.generation = 0
        self.cap = Cap()
        self.prefilling = 0  # replicas in service that compute prompts
        self.next_at = inf
        self._knobs = knobs
        self._slow_start = SlowStart(knobs.slow_start)
        self._own: dict[str, float] = {}  # weights that replicas came with
        self._list: list[Replica] = []
        self._capability = Capability()
        self._looker = Capability()  # looks without counting for a canary's share
        self._weigh(-inf)

    def joined(self, replica: Replica, now: float) -> None:
        """It takes requests from now on. The same name again is the same place with another process in it."""
        self.replicas[replica.name] = replica
        self._own[replica.name] = replica.weight
        self._slow_start.joined(replica.name, now)
        self.breaker.joined(replica, now)
        self._weigh(now)

    def drain(self, name: str, now: float) -> None:
        """It gets nothing more, and finishes what it has."""
        if name in self.replicas:
            self.replicas[name].draining = True
            self._weigh(now)

    def left(self, name: str, now: float) -> None:
        """It is gone."""
        del self.replicas[name], self._own[name]
        self._slow_start.left(name)
        self.breaker.left(name)
        self._weigh(now)

    def tune(self, knobs: Knobs, now: float) -> None:
        """Other weights, slow start, breaker and cap."""
        if knobs.slow_start != self._knobs.slow_start:
            self._slow_start.tune(knobs.slow_start, now)
        if knobs.breaker != self._knobs.breaker:
            self.breaker.tune(knobs.breaker, now)
        self._knobs = knobs
        self._weigh(now)

    def poll(self, now: float) -> bool:
        """What time does to weights. True when they changed."""
        changed = self._slow_start.poll(now)
        changed = self.breaker.poll(now) or changed
        if changed:
            self._weigh(now)
        else:
            self._schedule()
        return changed

    def reweigh(self, now: float) -> None:
        """The breaker moved."""
        self._weigh(now)

    def match(self, flight: Flight, now: float) -> Sequence[Replica]:
        """The replicas that a strategy may choose from for it; empty when none can serve it. A probe that is due goes
        before all, a replica that failed it comes after all others."""
        if flight.generation == self.generation:
            found = flight.matched
        else:
            found = self._capability.match(flight.request, self._list).replicas
            flight.matched, flight.generation = found, self.generation
        if self.breaker.probing:
            found = self._probed(found, flight, now)
        if flight.tried:
            others = [one for one in found if one.name not in flight.tried]
            return others if any(_open(one) and one.ability.role != "prefill" for one in others) else found
        return found

    def _probed(self, found: Sequence[Replica], flight: Flight, now: float) -> Sequence[Replica]:
        """A probe that is due, alone; else all but those that are probed; those too when there is nothing else. One
        that does a part of the work only can be tried beside others alone."""
        probing = self.breaker.probing
        others = [one for one in found if one.name not in probing]
        for one in found:
            open_to_it = _open(one) and one.name not in flight.tried
            if one.name in probing and open_to_it and self.breaker.probe_due(one.name, now):
                if one.ability.role == "both":
                    return (one,)
                others.append(one)
        return others if any(_open(one) and one.ability.role != "prefill" for one in others) else found

    def lacks(self, request: Request) -> Reason | None:
        """Why nobody here can take it, whatever is free: None when somebody could."""
        if not self._list:
            return Reason.NO_CAPACITY
        found = self._looker.match(request, self._list).replicas
        if not found:
            return Reason.NO_MATCH
        if not any(_open(one) and one.ability.role != "prefill" for one in found):
            return Reason.NO_CAPACITY
        return None

    def _weigh(self, now: float) -> None:
        self._list = list(self.replicas.values())
        zones = self._by_zone()
        for name, replica in self.replicas.items():
            base = min(self._knobs.weights.get(name, self._own[name]), zones.get(replica.ability.zone, 1.0))
            replica.weight = min(base, self._slow_start.factor(name, now), self.breaker.factor(name))
        self.cap.set(self._knobs.concurrency, self._list)
        self.prefilling = sum(_open(one) and one.ability.role != "decode" for one in self._list)
        self.generation += 1
        self._schedule()

    def _by_zone(self) -> dict[str, float]:
        """The weight of a replica of each zone, the largest 1; none where no knob names a zone."""
        counts = Counter(one.ability.zone for one in self._list if one.ability.zone and not one.draining)
        weights = self._knobs.weights
        if not any(zone in weights and zone not in self.replicas for zone in counts):
            return {}
        parts = {zone: weights.get(zone, 1.0) / count for zone, count in counts.items()}
        largest = max(parts.values())
        return {zone: part / largest for zone, part in parts.items()} if largest > 0 else parts

    def _schedule(self) -> None:
        self.next_at = min(self._slow_start.next_at, self.breaker.next_at)


def _open(replica: Replica) -> bool:
    """Whether it takes new work."""
    return replica.weight > 0.0 and not replica.draining
