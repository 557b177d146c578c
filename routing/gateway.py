"""The gateway: laws and a strategy composed into one machine that does no I/O. Its host tells it what happens and when,
and does what it answers.

A request that arrives is, in this order: servable by some replica here or not; too long or not; one retry too many of
its client or not; paid for from its tenant's buckets; sent to a smaller model; admitted by its class; sent at once
while the concurrency cap leaves room, else queued. Each that arrived ends exactly once: finished, gone (its client
left), rejected, dropped from the queue, cancelled at its replica, failed, or redirected to another pool. Events that
come twice, or late, or about an attempt that is over, change nothing.

The host calls `poll` at `next_at`, tells of replicas by `joined`, `drain` and `left`, and does not touch the
`weight`, `draining`, `inflight` and `inflight_tokens` of a replica that joined.
"""

from collections.abc import Callable
from math import inf

from routing.actions import Action
from routing.counts import Counts, Stopwatch
from routing.desk import Desk, where
from routing.knobs import Knobs
from routing.model import Replica, Request
from routing.strategies import Strategy


class Gateway(Desk):
    """One pool's gateway. `clock` (seconds, monotonic) measures decisions where a host lends one; nothing is decided by
    it. Not thread-safe."""

    def __init__(
        self, knobs: Knobs, strategy: Strategy, *, now: float = 0.0, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(knobs, strategy, now)
        self.clock = clock
        self._watch = Stopwatch()

    # What the host asks.

    @property
    def inflight(self) -> int:
        """Requests at replicas."""
        return self._load.inflight

    @property
    def queued(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def cap(self) -> float:
        """The concurrency cap now, requests."""
        return self._cap()

    def counts(self) -> Counts:
        """What happened since the start, as a value that stays as it is."""
        tallies = {key: tally.copy() for key, tally in sorted(self._tallies.items())}
        return Counts(tallies, self._watch.read(), dict(sorted(self._fleet.breaker.opened.items())))

    def tenant_levels(self, now: float) -> dict[str, tuple[float | None, float | None]]:
        """Requests and tokens that each capped tenant may use at once."""
        return self._intake.buckets.levels(now)

    # What happens to requests.

    def arrive(self, request: Request, now: float) -> list[Action]:
        """A request came in. An id that is here already changes nothing."""
        if self.clock is None:
            return self._arrive(request, now)
        began = self.clock()
        actions = self._arrive(request, now)
        self._watch.add(self.clock() - began)
        return actions

    def first_token(self, id: int, now: float, replica: str = "") -> list[Action]:  # noqa: A002
        """The first token left `replica`; empty means wherever the request is now."""
        flight = self._at(id, replica)
        if flight is None or flight.first_token_at is not None:
            return []
        flight.first_token_at = now
        flight.expires = inf
        changed = False
        if self.knobs.breaker.on and flight.prefill is not None:
            name, breaker = flight.prefill.name, self._fleet.breaker
            breaker.first_token(name, flight.sent_at, flight.prefill_tokens, now)
            if flight.prefill is not flight.replica:
                changed = breaker.finished(name, flight.sent_at, None, now)
        if self._intake.armed:
            self._intake.delay.first_token(now - flight.sent_at, flight.prefill_tokens)
        self._load.prefilled(flight)
        self.strategy.first_token(id, now)
        return self._reweighed(now) if changed else []

    def finished(self, id: int, output_tokens: int, now: float, replica: str = "") -> list[Action]:  # noqa: A002
        """Its answer is complete."""
        flight = self._at(id, replica)
        if flight is None:
            return []
        at, first = self._load.release(flight), flight.first_token_at
        self.strategy.finished(id, output_tokens, now)
        self._answers.learn(flight.request, output_tokens)
        self._intake.delay.ended(now - flight.sent_at)
        flight.tally.finished += 1
        self._served(flight, output_tokens, now)
        if self.knobs.breaker.on:
            pace = (now - first) / (output_tokens - 1) if first is not None and output_tokens > 1 else None
            if self._fleet.breaker.finished(at.name, flight.sent_at, pace, now):
                return self._reweighed(now)
        return self._next(now)

    def gone(self, id: int, now: float, output_tokens: int = 0) -> list[Action]:  # noqa: A002
        """Its client went away, with so many tokens in its hand; the host stops whatever works on it."""
        flight = self._flights.get(id)
        if flight is None:
            return []
        flight.tally.gone += 1
        if flight.replica is None:
            self._queue.remove(id)
            flight.tally.queue_seconds += now - flight.queued_at
            self._unserved(flight, now)
        else:
            self._abandon(flight, now)
            self._served(flight, output_tokens, now)
        return self._next(now)

    def failed(self, id: int, now: float, kind: str, replica: str = "") -> list[Action]:  # noqa: A002
        """It failed at `replica` (empty: wherever it is now) by the server's fault; `kind` says how, for the log."""
        flight = self._at(id, replica)
        if flight is None or flight.replica is None:
            return []
        name, sent_at = replica or flight.replica.name, flight.sent_at
        places = where(flight)
        self._load.release(flight)
        self.strategy.finished(id, None, now)
        changed = False
        if self.knobs.breaker.on:
            for other in places:
                if other != name:
                    self._fleet.breaker.dropped(other, sent_at)
            changed = self._fleet.breaker.failed(name, sent_at, now)
        if changed:
            self._fleet.reweigh(now)  # before it is sent again, perhaps to the one that was just taken out
        out = self._again(flight, name, kind, now)
        return out + (self._reopened(now) if changed else self._next(now))

    # What happens to replicas.

    def joined(self, replica: Replica, now: float) -> list[Action]:
        """A replica is ready. The same name again means that it was restarted: what was there is lost."""
        out = self.left(replica.name, now)
        replica.inflight, replica.inflight_tokens = 0, 0.0
        self._fleet.joined(replica, now)
        self.strategy.joined(replica, now)
        return out + self._reopened(now)

    def drain(self, name: str, now: float) -> list[Action]:
        """It shall finish what it has and get nothing more."""
        self._fleet.drain(name, now)
        return self.poll(now)

    def left(self, name: str, now: float) -> list[Action]:
        """It is gone, and all that was there: those requests are tried elsewhere as far as that is allowed."""
        if name not in self.replicas:
            return []
        lost = [flight for flight in self._flights.values() if name in where(flight)]
        for flight in lost:
            self._abandon(flight, now)
        self._fleet.left(name, now)
        self.strategy.left(name, now)
        out = [action for flight in lost for action in self._again(flight, name, "replica left", now)]
        return out + self._reopened(now)

    def report(self, name: str, running: int, waiting: int, kv_usage: float, now: float) -> list[Action]:
        """What its engine tells of itself."""
        replica = self.replicas.get(name)
        if replica is None:
            return []
        replica.running, replica.waiting, replica.kv_usage, replica.reported_at = running, waiting, kv_usage, now
        return self._reopened(now) if len(self._queue) else []

    # What happens by hand.

    def tune(self, knobs: Knobs, now: float) -> list[Action]:
        """Other set-points from now on. Nothing that is here is lost by it; after a ValueError nothing has changed."""
        self._set(knobs, now)
        return self._reopened(now)
