"""Downgrade: a share of the requests that consent goes to a smaller model, and comes back when capacity is warm.

    consenting  = min( Σ demand of tenants that consent, Σ demand of classes that consent ) · fitting    replica-equiv.
    need        = left / consenting                                                            share, 0..1
    up          share += min( need - share, ramp, Σ room of the receivers / (exchange · consenting) )
    down        share  = max( need, min( left + margin · carried, demand - (rho* - margin) · carried ) / consenting )
                once that has been below the share for `hold`

A request goes only where its tenant and its class both agreed. Who of a tenant is of which class is not known, so the
demand that consents is at most either sum; where a pool has tenants alone or classes alone, that one counts, and what
is not told apart agrees to nothing. Where only prompts of some sizes may go, `fitting` is their share of it. With
nobody's consent no receiver gets anything.

Receiving pools are filled in the order of what this pool's work costs there (``Balance.exchange``), the cheapest first,
each up to its room, and given back in the reverse order. Room is what is still free there, and `over` more where a gate
there refuses by class (``controller.core.beyond``); what was sent in the last `settle` is not in its readings yet and
is taken off. Need is absolute and falls as capacity serves, so the share comes back by itself; margin and hold keep it
from flapping at the edge. While the error budget burns, `on_burn` is sent at least; that may be more than is left. The
same law shifts requests to another pool or region of the same model, where the exchange is 1.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from controller.core.doubt import of_demand
from controller.core.estimate import READS
from controller.core.model import Ask, Lever, Proposal, Target
from controller.core.params import Unit, param
from controller.core.ports import Balance, Brief, View
from controller.core.slo import Objective
from controller.core.tenancy import ClassRules, TenantRules
from controller.core.why import Why

TINY = 1e-6  # replica-equivalents; less is not short but rounded
ALIKE = 0.2  # exchanges that differ by less than this, in ln, cost the same: their order is by name


class _Receiver(NamedTuple):
    """One receiving pool: its share now, and the largest that fits its room."""

    target: Target
    current: float
    most: float
    quantum: float


class Downgrade:
    """Shares for the receiving pools of one pool."""

    levers = (Lever.DOWNGRADE,)
    reads = READS
    absolute = True

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the downgrade policy."""

        ramp: float = param("largest rise of all shares together per tick", 0.1, unit=Unit.RATIO, gt=0, le=1)
        utilisation: float = param(
            "share of the pool's capacity above which work is wanted elsewhere (rho*)",
            0.95,
            unit=Unit.RATIO,
            gt=0,
            le=1,
        )
        margin: float = param(
            "how much further capacity must reach before a share comes back", 0.05, unit=Unit.RATIO, ge=0, lt=1
        )
        hold: float = param("how long it must do so", 60.0, unit=Unit.DURATION, ge=0)
        settle: float = param(
            "time until what was sent shows in the readings of its receiver", 60.0, unit=Unit.DURATION, ge=0
        )
        over: float = param(
            "what is sent to a receiver beyond its room while its gate has something to refuse first, as a share of "
            "what it carries",
            0.3,
            unit=Unit.RATIO,
            ge=0,
            le=1,
        )
        gate: Literal["auto", "always", "never"] = param(
            "when a gate before a receiver refuses its sheddable classes by itself; auto: where that pool has an "
            "admission lever that acts",
            "auto",
        )
        on_burn: float = param(
            "least share while the error budget burns too fast; 0 is off", 0.0, unit=Unit.RATIO, ge=0, le=1
        )

    class State(NamedTuple):
        """`shares` as last read back; `rises` of them: (unix seconds, receiver, share); `enough_since` when it began
        that less would do, unix seconds."""

        shares: Mapping[str, float] = {}
        rises: tuple[tuple[float, str, float], ...] = ()
        enough_since: float | None = None

    def __init__(self, config: "Downgrade.Config") -> None:
        if config.margin >= config.utilisation:
            raise ValueError(
                f"margin: is not below utilisation ({config.margin:g} >= {config.utilisation:g}); write 0.05"
            )
        self.config = config

    def initial(self) -> "Downgrade.State":
        return self.State()

    def beyond(self, acting: Collection[Lever]) -> float:
        """What is sent beyond the room of a receiver of which these levers act, as a share of what it carries."""
        gated = self.config.gate == "always" or (self.config.gate == "auto" and Lever.ADMISSION in acting)
        return self.config.over if gated else 0.0

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Downgrade.State"
    ) -> tuple[Sequence[Proposal], "Downgrade.State"]:
        """SET while the need is known; AT_LEAST the current share where it is not."""
        shares = {
            t.member: o.accepted
            for t, o in sorted(view.targets.items())
            if o.accepted is not None and math.isfinite(o.accepted)
        }
        targets = {t.member: t for t in sorted(view.targets) if t.member in shares}
        state = self._seen(view.tick.at, shares, state)
        if not _anybody(view.tenants, view.classes):
            none = (Proposal(t, Ask.SET, view.limits[t].min, "downgrade", Why.NO_CONSENT) for t in targets.values())
            return tuple(none), self.State(state.shares, state.rises)
        balance, total = brief.balance, math.fsum(shares.values())
        agreed = consenting(view.tenants, view.classes, balance)
        wish, least = self._wish(view, brief, agreed, total)
        if wish is None or least is None:
            why = Why.MISSING if agreed is None else Why.NO_CONSENT
            keep = (Proposal(t, Ask.AT_LEAST, shares[n], "downgrade", why) for n, t in targets.items())
            return tuple(keep), self.State(state.shares, state.rises)
        receivers = self._receivers(view, balance, agreed or 0.0, shares, targets, state)
        evidence = {"left": brief.left, "consenting": agreed or 0.0, "need": wish}
        quantum = max((r.quantum for r in receivers), default=0.0)
        if wish > total + quantum * 1e-6:
            burns = view.estimate.burning and wish > brief.left / max(agreed or 0.0, TINY)
            made = self._raised(receivers, wish - total, Why.BUDGET_BURN if burns else Why.SHORTFALL, evidence)
            return made, self.State(state.shares, state.rises)
        if least >= total - quantum * 1e-6:
            steady = (Proposal(r.target, Ask.SET, r.current, "downgrade", Why.STEADY, evidence) for r in receivers)
            return tuple(steady), self.State(state.shares, state.rises)
        if not view.estimate.trusted:
            why = of_demand(view.pool)
            keep = (Proposal(r.target, Ask.AT_LEAST, r.current, "downgrade", why, evidence) for r in receivers)
            return tuple(keep), self.State(state.shares, state.rises)
        since = state.enough_since if state.enough_since is not None else view.tick.at
        state = self.State(state.shares, state.rises, since)
        if view.tick.at - since < self.config.hold - 1e-6:
            held = (Proposal(r.target, Ask.SET, r.current, "downgrade", Why.SHORTFALL, evidence) for r in receivers)
            return tuple(held), state
        return _lowered(receivers, total - least, evidence), state

    def _wish(self, view: View, brief: Brief, agreed: float | None, total: float) -> tuple[float | None, float | None]:
        """(the share that is needed, the share that must stay); None when unknown."""
        config, balance, left = self.config, brief.balance, brief.left
        numbers = (balance.demand, balance.carried, left)
        if agreed is None or not all(math.isfinite(n) and n >= 0 for n in numbers):
            return None, None
        burn = config.on_burn if view.estimate.burning else 0.0
        edge = max(0.0, balance.demand - (config.utilisation - config.margin) * balance.carried)
        # What caps above hold back is let in again by them, last: there is no edge here to flap at.
        above = max(0.0, brief.short - left) if math.isfinite(brief.short) else 0.0
        stay = max(left, min(left + max(0.0, config.margin * balance.carried - above), edge))
        if agreed <= TINY:  # of nothing no share relieves; it neither helps to raise nor to lower
            return (None, None) if left > TINY else (0.0, total if stay > TINY else 0.0)
        need = max(min(1.0, left / agreed) if left > TINY else 0.0, burn)
        return need, max(need, min(1.0, stay / agreed) if stay > TINY else 0.0)

    def _receivers(
        self, view: View, balance: Balance, agreed: float, shares: Mapping[str, float],
        targets: Mapping[str, Target], state: "Downgrade.State",
    ) -> list[_Receiver]:  # fmt: skip
        """Cheapest first; those of unknown cost get no more than they have, and come last."""
        found: list[tuple[int, str, _Receiver]] = []
        for name, target in targets.items():
            exchange, room = balance.exchange.get(name, math.nan), balance.room.get(name, math.nan)
            limits, current = view.limits[target], shares[name]
            most, rank = current, 2**31
            if math.isfinite(exchange) and exchange > 0:
                rank = round(math.log(exchange) / ALIKE)
                if math.isfinite(room) and room > 0 and agreed > TINY:
                    fresh = math.fsum(rise for _, receiver, rise in state.rises if receiver == name)
                    free = room / (exchange * agreed) - fresh
                    most = max(current, min(current + free, limits.max, 1.0))
            found.append((rank, name, _Receiver(target, current, most, limits.quantum)))
        return [receiver for _, _, receiver in sorted(found, key=lambda f: f[:2])]

    def _raised(
        self, receivers: Sequence[_Receiver], wanted: float, why: Why, evidence: Mapping[str, float]
    ) -> tuple[Proposal, ...]:
        """More to the first that has room, and then to the next; nobody gets less."""
        ramp, made = self.config.ramp, []
        for r in receivers:
            more = max(0.0, min(_up(wanted, r.quantum), _down(ramp, r.quantum), _down(r.most - r.current, r.quantum)))
            wanted, ramp = wanted - more, ramp - more
            full = more <= 0 and wanted > TINY and ramp > TINY
            told = {**evidence, "ramp": self.config.ramp} if wanted > TINY >= ramp else evidence
            made.append(Proposal(r.target, Ask.SET, r.current + more, "downgrade", Why.NO_ROOM if full else why, told))
        return tuple(made)

    def _seen(self, now: float, shares: Mapping[str, float], state: "Downgrade.State") -> "Downgrade.State":
        """What rose since the last tick, as read back: what a person or a guard did counts as it came out."""
        fresh = tuple(r for r in state.rises if now - r[0] < self.config.settle - 1e-6)
        risen = tuple(
            (now, name, share - state.shares[name])
            for name, share in shares.items()
            if name in state.shares and share > state.shares[name]
        )
        return self.State(dict(shares), (*fresh, *risen), state.enough_since)


def consenting(tenants: Mapping[str, TenantRules], classes: Mapping[str, ClassRules], balance: Balance) -> float | None:
    """Demand whose tenant and class both agreed, replica-equivalents: no more than either part, and of that what has
    prompts of a size that may go. None when a part that must be known is not told or absurd."""
    parts = []
    for rules, told in ((tenants, balance.by_flow), (classes, balance.by_class)):
        if not rules:
            continue
        agreed = [told[name] for name, one in rules.items() if one.consents and name in told]
        if not told or not all(0.0 <= part < math.inf for part in agreed):
            return None
        parts.append(math.fsum(agreed))
    agreed_to, fits = min(parts, default=None), balance.fitting
    if agreed_to is None or fits is None or not (math.isfinite(fits) and fits >= 0):
        return None
    return agreed_to * fits


def _anybody(tenants: Mapping[str, TenantRules], classes: Mapping[str, ClassRules]) -> bool:
    """Whether there is any request that may go."""
    tenant = not tenants or any(one.consents for one in tenants.values())
    klass = not classes or any(one.consents for one in classes.values())
    return bool(tenants or classes) and tenant and klass


def _lowered(receivers: Sequence[_Receiver], surplus: float, evidence: Mapping[str, float]) -> tuple[Proposal, ...]:
    """Back from the dearest first."""
    made = []
    for r in reversed(receivers):
        less = max(0.0, min(_down(surplus, r.quantum), r.current))
        surplus -= less
        made.append(Proposal(r.target, Ask.SET, r.current - less, "downgrade", Why.CARRIED, evidence))
    return tuple(reversed(made))


def _up(value: float, quantum: float) -> float:
    return math.ceil(value / quantum - 1e-6) * quantum if quantum > 0 else value


def _down(value: float, quantum: float) -> float:
    return math.floor(value / quantum + 1e-6) * quantum if quantum > 0 else value
