"""What happens inside a gateway: how a request comes in, waits, goes out and ends. `routing.gateway` is its outside.

The one place where laws, strategy and accounts meet. Each step leaves all of them settled: whoever leaves
`_flights` has left queue and replica, and has been paid, refunded and counted.
"""

from math import inf

from routing.actions import Action, Cancel, Drop, Fail, Reason, Reject, Send
from routing.answers import Answers
from routing.counts import Tally
from routing.expiry import Expiry
from routing.fairqueue import Entry, FairQueue
from routing.fleet import Fleet
from routing.flight import Flight
from routing.intake import Intake, Standing
from routing.knobs import Knobs
from routing.load import Load
from routing.model import Replica, Request
from routing.retries import RetryBudget, retry_after
from routing.strategies import STRATEGIES, Strategy, make

STREAMS = 10_000  # of class and tenant, that are counted apart
OTHERS = "(others)"  # the tenant that stands for all later ones


class Desk:
    """State and transitions. Methods that return actions tell what the host is to do, in that order."""

    def __init__(self, knobs: Knobs, strategy: Strategy, now: float) -> None:
        self.knobs = Knobs()
        self.strategy = strategy
        self._chosen = ""  # its name, where the knobs chose it
        self._flights: dict[int, Flight] = {}
        self._load = Load()
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._expiry = Expiry(self._flights)
        self._fleet = Fleet(self.knobs)
        self._queue: FairQueue[Flight] = FairQueue()
        self._answers = Answers(self.knobs.expected_output)
        self._intake = Intake(knobs, now)
        self._retries = RetryBudget(knobs.retries.budget, knobs.retries.spare, now)
        self._set(knobs, now)

    @property
    def replicas(self) -> dict[str, Replica]:
        """By name, as they joined."""
        return self._fleet.replicas

    @property
    def next_at(self) -> float:
        """When `poll` is due, unix seconds; infinite when nothing waits for time."""
        return min(self._expiry.next_at(), self._fleet.next_at)

    def poll(self, now: float) -> list[Action]:
        """What is due by now."""
        out: list[Action] = []
        while (flight := self._expiry.due(now)) is not None:
            out.append(self._expire(flight, now))
        if self._fleet.next_at <= now and self._fleet.poll(now):
            self._queue.bring_back()
        return out + self._dispatch(now)

    def _set(self, knobs: Knobs, now: float) -> None:
        chosen = STRATEGIES.get(knobs.strategy)
        if knobs.affinity != 1.0 and not (self.strategy if chosen is None else chosen).leans:
            raise ValueError(f"affinity: {knobs.strategy or 'the strategy'} has none that could be lowered; write 1")
        if knobs.strategy and knobs.strategy != self._chosen:
            self.strategy, self._chosen = make(knobs.strategy, knobs.parameters), knobs.strategy
            for replica in self.replicas.values():
                self.strategy.joined(replica, now)
        elif knobs.parameters != self.knobs.parameters:
            self.strategy.tune(knobs.parameters)
        self.strategy.lean(knobs.affinity)
        self.knobs = knobs
        self._fleet.tune(knobs, now)
        self._intake.tune(knobs, now)
        self._queue.tune(fair=knobs.queue.fair, floors=knobs.floors)
        self._retries.tune(knobs.retries.budget, knobs.retries.spare)
        self._answers.prior = knobs.expected_output

    # How a request comes in.

    def _arrive(self, request: Request, now: float) -> list[Action]:
        if request.id in self._flights:
            return []
        out = self.poll(now) if self.next_at <= now else []
        tally = self._tally(request)
        tally.arrived += 1
        klass = self.knobs.classes.get(request.klass, self.knobs.other_classes)
        flight = Flight(request, now, klass, tally, self._answers.expected(request))
        self._retries.arrived()
        if self._intake.armed:
            if not self.knobs.queue.hold and self._fleet.lacks(request) is Reason.NO_MATCH:
                tally.rejected[Reason.NO_MATCH] += 1
                out.append(Reject(request.id, Reason.NO_MATCH))
                return out
            refusal = self._intake.refusal(flight, self._standing(flight), now)
            if isinstance(refusal, Reject):
                tally.rejected[refusal.reason] += 1
            elif refusal is not None:
                tally.redirected += 1
            if refusal is not None:
                out.append(refusal)
                return out
        self._flights[request.id] = flight
        if not self._queue.waiting and not self._full():
            sent = self._send(flight, now)
            if sent is not None:
                out.append(sent)
                return out
        out += self._wait(flight, now)
        return out + self._dispatch(now)

    def _tally(self, request: Request) -> Tally:
        tally = self._tallies.get((request.klass, request.tenant))
        if tally is None:
            tenant = request.tenant if len(self._tallies) < STREAMS else OTHERS
            tally = self._tallies.setdefault((request.klass, tenant), Tally())
        return tally

    def _wait(self, flight: Flight, now: float) -> list[Action]:
        """Into the queue, if it may; else it is turned away, or another who makes room."""
        knobs, request = self.knobs.queue, flight.request
        lacking = None if knobs.hold else self._fleet.lacks(request)
        if lacking is not None:
            return [self._turned_away(flight, lacking, now)]
        out: list[Action] = []
        if len(self._queue) >= knobs.length:
            victim = self._queue.victim(flight.rank, request.tenant, knobs.length) if knobs.length else None
            if victim is None:
                return [self._turned_away(flight, Reason.QUEUE_FULL, now)]
            out.append(self._turned_away(victim.item, Reason.QUEUE_FULL, now))
        caps = self.knobs.tenants.get(request.tenant, self.knobs.other_tenants)
        cost = knobs.prompt_price * request.prompt_tokens + knobs.output_price * flight.expected
        flight.entry = Entry(request.id, flight, flight.rank, request.tenant, caps.weight, cost)
        flight.queued_at = now
        flight.tally.queued += 1
        self._queue.push(flight.entry)
        until = now + (flight.klass.wait or knobs.wait)
        due = flight.due(self.knobs.admission.deadline_factor) if self.knobs.admission.deadlines else None
        if due is not None:
            until = min(until, due)
        self._expiry.set(flight, until)
        return out

    # How a request goes out.

    def _send(self, flight: Flight, now: float) -> Send | None:
        """To the replica that the strategy picks; None when there is none for it now."""
        request = flight.request
        found = self._fleet.match(flight, now)
        if not found:
            return None
        choice = self.strategy.pick(request, found, now)
        replica = self.replicas.get(choice.replica)
        if replica is None:
            return None
        prefill = self.replicas[choice.prefill] if choice.prefill else replica
        self._load.place(flight, replica, prefill, float(max(0, request.prompt_tokens - choice.hit_tokens)), now)
        tally = flight.tally
        tally.sent += 1
        tally.prompt_tokens += request.prompt_tokens
        tally.hit_tokens += choice.hit_tokens
        self.strategy.sent(request, choice, now)
        if self.knobs.breaker.on:
            self._fleet.breaker.sent(replica.name, now)
            if prefill is not replica:
                self._fleet.breaker.sent(prefill.name, now)
        flight.expires = inf
        if self.knobs.admission.deadlines and request.deadline is not None:
            self._expiry.set(flight, request.deadline)
        return Send(request.id, replica.name, choice.prefill, flight.attempt)

    def _dispatch(self, now: float) -> list[Action]:
        """From the queue, in its order, while the cap leaves room."""
        out: list[Action] = []
        queue, law = self._queue, self.knobs.admission
        while not self._full() and (entry := queue.head()) is not None:
            flight = entry.item
            due = flight.due(law.deadline_factor) if law.deadlines else None
            if due is not None and now + self._to_first_token(flight) >= due:
                queue.remove(entry.id)
                out.append(self._turned_away(flight, Reason.LATE, now))
                continue
            sent = self._send(flight, now)
            if sent is not None:
                queue.take(entry)
                flight.tally.queue_seconds += now - flight.queued_at
                out.append(sent)
            elif self._load.inflight and self._fleet.lacks(flight.request) is None:
                break  # the strategy waits for room somewhere; whatever ends next makes some
            else:
                queue.set_aside(entry)
        return out

    def _again(self, flight: Flight, name: str, kind: str, now: float) -> list[Action]:
        """After a failure at `name`: another replica, in the place that it held; the queue; or the end."""
        if name not in flight.tried:
            flight.tried += (name,)
        late = self.knobs.admission.deadlines and flight.request.deadline is not None and now >= flight.request.deadline
        allowed = flight.first_token_at is None and flight.attempt < self.knobs.retries.attempts and not late
        if not allowed or not self._retries.take(now):
            flight.tally.failed += 1
            self._served(flight, 0, now)
            return [Fail(flight.request.id, kind, retry_after(self._drained(), flight.request.id))]
        flight.attempt += 1
        flight.tally.retried += 1
        if not self._full() and (sent := self._send(flight, now)) is not None:
            return [sent]
        return self._wait(flight, now)

    def _next(self, now: float) -> list[Action]:
        """After room was made: whoever is due to leave, then whoever is due to be sent."""
        if self.next_at <= now:
            return self.poll(now)
        return self._dispatch(now) if self._queue.waiting else []

    def _reweighed(self, now: float) -> list[Action]:
        """After the breaker moved."""
        self._fleet.reweigh(now)
        return self._reopened(now)

    def _reopened(self, now: float) -> list[Action]:
        """After replicas or rules changed: those for whom there was nobody may have somebody now."""
        self._queue.bring_back()
        return self.poll(now)

    # How a request ends.

    def _at(self, id: int, replica: str) -> Flight | None:  # noqa: A002
        """The request if it is at a replica, and at that one if it is named; else the news is old."""
        flight = self._flights.get(id)
        if flight is None or flight.replica is None:
            return None
        if replica and replica != flight.replica.name and (flight.prefill is None or replica != flight.prefill.name):
            return None
        return flight

    def _abandon(self, flight: Flight, now: float) -> Replica:
        """Off its replica by nobody's fault."""
        if self.knobs.breaker.on:
            for name in where(flight):
                self._fleet.breaker.dropped(name, flight.sent_at)
        self.strategy.finished(flight.request.id, None, now)
        return self._load.release(flight)

    def _served(self, flight: Flight, output_tokens: int, now: float) -> None:
        """It is over, and used its part: accounts that were opened with an estimate are settled."""
        flight.tally.output_tokens += output_tokens
        self._intake.served(flight, output_tokens, now)
        if flight.entry is not None:
            self._queue.settle(flight.entry, self.knobs.queue.output_price * (output_tokens - flight.expected))
        del self._flights[flight.request.id]

    def _unserved(self, flight: Flight, now: float) -> None:
        """It is over, and used nothing."""
        flight.expires = inf
        self._intake.refund(flight, now)
        del self._flights[flight.request.id]

    def _turned_away(self, flight: Flight, reason: Reason, now: float) -> Reject | Drop:
        """No service for it; a drop if it had been let in before."""
        id_, fresh = flight.request.id, flight.entry is None and not flight.attempt
        if self._queue.remove(id_) is not None:
            flight.tally.queue_seconds += now - flight.queued_at
        self._unserved(flight, now)
        seconds = None if reason is Reason.NO_MATCH else retry_after(self._drained(), id_)
        (flight.tally.rejected if fresh else flight.tally.dropped)[reason] += 1
        return Reject(id_, reason, seconds) if fresh else Drop(id_, reason, seconds)

    def _expire(self, flight: Flight, now: float) -> Action:
        """Its time is over: in the queue, or at a replica that has not begun to answer by its deadline."""
        law = self.knobs.admission
        due = flight.due(law.deadline_factor) if law.deadlines else None
        late = due is not None and now >= due
        if flight.replica is None:
            return self._turned_away(flight, Reason.LATE if late else Reason.WAITED, now)
        flight.tally.cancelled[Reason.LATE] += 1
        replica = self._abandon(flight, now)
        self._served(flight, 0, now)
        return Cancel(flight.request.id, replica.name, Reason.LATE)

    # Measures.

    def _full(self) -> bool:
        return self._fleet.cap.full(self._load.inflight, self._load.tokens)

    def _cap(self) -> float:
        return self._fleet.cap.value(self._load.inflight, self._load.tokens)

    def _standing(self, flight: Flight) -> Standing:
        inflight, queue, rank = self._load.inflight, self._queue, flight.rank
        return Standing(
            inflight, queue.waiting, queue.ahead(rank), queue.waiting_at(rank), self._cap(), self._full(),
            queue.floor(rank), self._to_first_token(flight),
        )  # fmt: skip

    def _to_first_token(self, flight: Flight) -> float:
        """Seconds from its place to its first token."""
        return self._intake.delay.prefill(
            self._load.prefill_tokens, flight.request.prompt_tokens, self._fleet.prefilling
        )

    def _drained(self) -> float:
        return self._intake.drained(self._load.inflight + self._queue.waiting, self._cap())


def where(flight: Flight) -> tuple[str, ...]:
    """The replicas that work on it."""
    if flight.replica is None:
        return ()
    if flight.prefill is None or flight.prefill is flight.replica:
        return (flight.replica.name,)
    return flight.replica.name, flight.prefill.name
