"""The laws before the queue, in order: longest prompt, clients' retries, tenant buckets, downgrade, class admission.

The first that says no is the answer. What a tenant paid for a request that a later law refuses is given back; for one
that goes to a smaller model it stays paid, because it is served.
"""

from dataclasses import dataclass
from math import inf

from routing.actions import Reason, Redirect, Reject
from routing.admission import Delay, kept_out, shed
from routing.buckets import Buckets, Refusal
from routing.downgrade import pool_for
from routing.flight import Flight
from routing.knobs import Klass, Knobs
from routing.retries import RetryBudget, retry_after
from routing.thinning import Thinner

SOON = 5.0  # seconds to come again in, where nothing is known of when there will be room


@dataclass(slots=True)
class Standing:
    """What a newcomer finds. Requests in flight, in the queue, there at its rank or a higher one, and at its own; the
    concurrency cap, and whether it is reached; the floor of its rank; seconds from a place to its first token."""

    inflight: int
    queued: int
    ahead: int
    alike: int
    cap: float
    full: bool
    floor: float
    prefill: float


class Intake:
    """`armed` when any law is on; the gateway asks nothing while it is not."""

    def __init__(self, knobs: Knobs, now: float) -> None:
        self.delay = Delay(None)
        self.buckets = Buckets()
        self.armed = False
        self._knobs = Knobs()
        self._capped = self._predicts = self._ranked = False
        self._reserves: dict[str, float] = {}  # by class, and of each that is not named
        self._reserve = 0.0
        self._shedding = Thinner("shed")
        self._downgrading = Thinner("downgrade")
        self._retries = RetryBudget(knobs.retries.client_budget or 0.0, knobs.retries.spare, now)

    def tune(self, knobs: Knobs, now: float) -> None:
        """Other set-points from now on; levels, debts and what was learned stay."""
        self._knobs = knobs
        self.delay.rate = knobs.admission.prefill_rate
        self.buckets.tune(knobs.tenants, knobs.other_tenants, now)
        self._retries.tune(knobs.retries.client_budget or 0.0, knobs.retries.spare)
        self._reserves = {name: knobs.reserve(klass) for name, klass in knobs.classes.items()}
        self._reserve = knobs.reserve(knobs.other_classes)
        classes = (*knobs.classes.values(), knobs.other_classes)
        tenants = (*knobs.tenants.values(), knobs.other_tenants)
        self._capped = any(one.requests_per_s is not None or one.tokens_per_s is not None for one in tenants)
        self._predicts = knobs.admission.deadlines or any(_ramps(klass) for klass in classes)
        self._ranked = knobs.admission.priority is not None
        others = knobs.longest_prompt is not None or knobs.retries.client_budget is not None or knobs.downgrade
        self.armed = bool(self._capped or self._predicts or self._ranked or others)

    def refusal(self, flight: Flight, there: Standing, now: float) -> Reject | Redirect | None:
        """Why it does not come in here; None when it does."""
        knobs, request = self._knobs, flight.request
        if knobs.longest_prompt is not None and request.prompt_tokens > knobs.longest_prompt:
            return Reject(request.id, Reason.PROMPT_TOO_LONG)
        if knobs.retries.client_budget is not None:
            if request.attempt == 0:
                self._retries.arrived()
            elif not self._retries.take(now):
                return self._later(
                    flight, Reason.CLIENT_RETRIES, self.drained(there.inflight + there.queued, there.cap)
                )
        if self._capped:
            caps = knobs.tenants.get(request.tenant, knobs.other_tenants)
            reserve = self._reserves.get(request.klass, self._reserve)
            paid = self.buckets.take(request.tenant, caps, request.prompt_tokens, flight.expected, now, reserve)
            if isinstance(paid, Refusal):
                return self._later(flight, paid.reason, paid.wait)
            flight.debit = paid
        if knobs.downgrade and (pool := pool_for(request, knobs.downgrade, self._downgrading)):
            return Redirect(request.id, pool)
        if not (self._predicts or self._ranked):
            return None
        law, delay = knobs.admission, self._delay(there) if self._predicts else 0.0
        due = flight.due(law.deadline_factor) if law.deadlines else None
        late = due is not None and now + delay >= due
        if not late:
            load = (there.inflight + there.ahead) / there.cap if 0.0 < there.cap < inf else 0.0
            if there.floor and there.full:
                # A floor is worth nothing to a class of which nobody gets as far as the queue: one may always wait
                # there, and more by the delay that they have on their floor, whatever the load.
                if not there.alike:
                    return None
                load = 0.0 if flight.klass.delay_lo is not None else load
            share = shed(flight.klass, delay, load)
            if law.priority is not None and (there.full or there.queued):
                share = max(share, kept_out(flight.rank, law.priority))
            if not self._shedding.take((request.klass, request.tenant), share):
                return None
        self.refund(flight, now)
        reason = Reason.DEADLINE if late else Reason.SHED
        return self._later(flight, reason, self.drained(there.inflight + there.queued, there.cap))

    def _delay(self, there: Standing) -> float:
        place = self.delay.place(there.inflight + there.ahead, there.cap)
        if there.floor and place > 0.0:
            place = min(place, self.delay.place(there.alike + there.cap, there.cap) / there.floor)
        return place + there.prefill

    def refund(self, flight: Flight, now: float) -> None:
        """It was not served after all."""
        if flight.debit is not None:
            self.buckets.undo(flight.debit, now)
            flight.debit = None

    def served(self, flight: Flight, output_tokens: int, now: float) -> None:
        """It was served, with so many tokens of answer."""
        if flight.debit is not None:
            self.buckets.served(flight.debit, output_tokens, now)
            flight.debit = None

    def drained(self, before: float, cap: float) -> float:
        """Seconds until `before` requests have had their turn, as far as that is known."""
        return self.delay.place(before, cap) or SOON

    @staticmethod
    def _later(flight: Flight, reason: Reason, seconds: float | None) -> Reject:
        return Reject(flight.request.id, reason, None if seconds is None else retry_after(seconds, flight.request.id))


def _ramps(klass: Klass) -> bool:
    return klass.delay_lo is not None or klass.load_lo is not None
