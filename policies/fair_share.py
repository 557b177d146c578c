"""Fair share: tenant caps that stand before an overload, and max-min under one.

    standing:   cap = max( guarantee, peak · p99 of its own use, what it uses now + m )
                m = min( 0.6 · what is spare, its part of what all will grow by + 0.6 · what is spare beyond that )
    shortfall:  cap = min( standing, max( guarantee, weight · L + unused ) ),    unused = max( 0, weight · L - demand )
                L from  Σ min( demand, max( guarantee, weight · L ) ) = S
                S = max( what the pool carries at rho* less demand without a tenant, demand of tenants - left )

Demand is in replica-equivalents, a cap in tokens/s: one of the former is ``Estimate.unit_tokens`` of the latter. A
standing cap is there when the flood begins: a tenant alone cannot take more at once than most of what is spare, or
twice what it takes on its busiest days. The rest is for the others' fluctuations, and who still grows gets most of it
at the next tick. What the forecast expects of all is spare for nobody alone: where it expects more than is carried, the
caps stand at what is carried before the overload is there. A guarantee above all that the pool carries can not be kept,
and would stand for no limit at all; of it stands what its tenant uses and what is spare.

Under shortfall (``Brief.left``) the water level L divides what is carried (``policies.water``): who asks for less than
its part is not capped below it, and what it leaves goes to the others. Its own cap is higher by as much, because demand
is a mean over a window and the next minute may be above it. Guarantees come first; they are cut, in proportion, only
when those who ask for them are promised more than there is. Demand without a tenant has a part like a tenant of weight
1, and nobody can cap it. No cap is below a small part of the pool, by weight or as one of so many, whichever is more: a
starved tenant would be worse than an overload by as little. Where guarantees are cut, that part is taken off first.

Where a rung below can send work elsewhere (``Brief.below``), caps cut in two steps. First who floods
(``policies.flood``), as if there were none: it is refused rather than all others downgraded. Then the rest, of all,
only as far as it is more than fits below: a smaller answer is better than none. Who floods by a half is cut half of
the way.

Where classes are told apart, a gate refuses those that may be shed first, and caps leave that to it
(``policies.shield``): the level is that of the demand that may not be shed and of what was promised. Who asks for no
more than it may count on is shielded. While nobody is, caps let through ``over`` more than what is carried: they are
then no more than a rough division of what the gate decides by class, and what they refuse too much is lost.

What is measured trims the level (``policies.trim``); what a tenant uses is learned as one number (``policies.use``).
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

from controller.core.doubt import of_demand, unproven
from controller.core.elapsed import elapsed
from controller.core.estimate import READS
from controller.core.model import Ask, Lever, PoolReadings, Proposal, Scope, Target, TargetState
from controller.core.params import Unit, param
from controller.core.ports import Brief, Limits, View
from controller.core.reading import TRUSTED, State
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tenancy import TenantRules
from controller.core.why import Why
from policies.flood import floods
from policies.shield import (
    NOBODY,
    aside,
    broken,
    counted_on,
    floors_of,
    parts_of,
    promised,
    sheddable,
    shielded,
    weights_of,
)
from policies.trim import Aimd, Trim, lateness
from policies.use import UNSEEN, Use
from policies.water import Water, divided

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every tenant.
_SET, _OFFERED, _STANDING, _STEADY = Ask.SET, Signal.OFFERED_RATE, Why.STANDING_CAP, Why.STEADY
HABIT = 300.0  # seconds after which what a tenant takes counts as usual
USED = 0.8  # share of a cap above which it is used
PARTS = ("of_guarantee", "of_spare", "of_least", "of_use", "of_part")  # what decides a standing cap, as evidence
TINY = 1e-6  # replica-equivalents; less is not short but rounded
_tuple = tuple.__new__  # past the one of proposals, which takes twice as long
_UNDOUBTED = TRUSTED | {State.UNSUPPORTED}


@dataclass(slots=True, eq=False)  # read a dozen times for each tenant: from a tuple that takes three times as long
class _Case:
    """What one tick comes down to. Numbers in tokens/s; `short` that relief is wanted, `sure` that the numbers may
    justify relaxing; `water` the level for all, `strict` the one for who `floods`, and how much; `parts` of the supply
    by weight, and `floors` below which nobody is capped; `growth` the factor by which demand is expected to grow, as
    far as there is room, and `unclaimed` what is spare beyond; `doubted` tenants whose own reading is no evidence."""

    demands: Mapping[str, float]
    supply: float
    spare: float
    short: bool
    sure: bool
    water: Water
    strict: Water
    floods: Mapping[str, float]
    parts: Mapping[str, float]
    floors: Mapping[str, float]
    growth: float
    unclaimed: float
    doubted: Set[str]

    def stands(self, guarantee: float, demand: float) -> float:
        """What stands of a guarantee beforehand: all of it, unless it is more than the whole pool. Then what is there
        now, because a limit that nobody can reach limits nothing, and a flood fills the queue before it is seen."""
        return guarantee if guarantee <= self.supply else min(guarantee, demand + self.spare)

    def fair(self, name: str, rules: TenantRules, demand: float) -> tuple[float, float, Water]:
        """The cap of a tenant under a shortfall, how much it floods, and the water that its cap is of."""
        floor, flood = self.floors[name], self.floods.get(name, 0.0)
        fair = self.water.fair(rules, demand, floor)
        if flood > 0.0:
            strict = self.strict.fair(rules, demand, floor)
            part = strict + (1.0 - flood) * max(0.0, demand - strict)
            if part < fair:
                return part, flood, self.strict
        return fair, flood, self.water


class FairShare:
    """Caps of the tenants of one pool."""

    levers = (Lever.TENANT_CAP,)
    reads = READS | {Signal.REJECTED_RATE}

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the fair-share policy."""

        peak: float = param("standing cap, in multiples of the p99 of the tenant's own use", 2.0, ge=1)
        spare: float = param(
            "share of what the pool has spare that one tenant may take until the next tick",
            0.6,
            unit=Unit.RATIO,
            ge=0,
            le=1,
        )
        memory: float = param(
            "time above it in which the learned p99 rises by an e-fold", 3600.0, unit=Unit.DURATION, gt=0
        )
        newcomer: float = param(
            "time until a tenant's own use is believed; before, its weighted part of the pool is its own",
            3600.0,
            unit=Unit.DURATION,
            ge=0,
        )
        least: float = param(
            "share of its weighted part of the pool below which no tenant is capped", 0.05, unit=Unit.RATIO, gt=0, le=1
        )
        utilisation: float = param(
            "share of the pool's capacity that tenants may use (rho*)", 0.95, unit=Unit.RATIO, gt=0, le=1
        )
        trim: float = param("largest trim of the water level, either way", 0.15, unit=Unit.RATIO, ge=0, le=0.5)
        cut: float = param("largest single cut of the trim", 0.05, unit=Unit.RATIO, gt=0, le=0.5)
        grow: float = param("growth of the trim per minute", 0.01, unit=Unit.RATIO, ge=0, le=0.5)
        pause: float = param(
            "least time between two cuts: the window of the measure and its lag", 90.0, unit=Unit.DURATION, gt=0
        )
        gate: Literal["auto", "always", "never"] = param(
            "when a gate refuses sheddable classes by itself, so that caps leave it those that no guarantee covers; "
            "auto: where the pool has an admission lever that acts",
            "auto",
        )
        over: float = param(
            "with such a gate and sheddable classes, while nobody is shielded: what caps let through to it above what "
            "is carried, as a share",
            0.2,
            unit=Unit.RATIO,
            ge=0,
            le=1,
        )
        aside: float = param(
            "what is kept free for the swings of tenants that ask for no more than they may count on, while others are "
            "cut, in standard deviations of what those have in flight",
            1.0,
            ge=0,
            le=5,
        )
        flood: float = param(
            "demand over what is usual, in multiples of the others', from which a tenant is cut before a downgrade "
            "further down the ladder is asked; half way there it begins",
            2.0,
            gt=1,
        )
        delay: float = param(
            "queue delay to hold; 0 takes half of the tightest TTFT or queue time", 0.0, unit=Unit.DURATION, ge=0
        )
        hysteresis: float = param(
            "relative change of a standing cap that is not worth a write", 0.1, unit=Unit.RATIO, ge=0, lt=1
        )

    class State(NamedTuple):
        """`uses` by tenant; `trim` factor on the water level, `cut_at` when it was last cut; `press` factor on it while
        somebody is shielded. Unix seconds."""

        at: float | None = None
        uses: Mapping[str, Use] = {}
        trim: float = 1.0
        cut_at: float | None = None
        press: float = 1.0

    def __init__(self, config: "FairShare.Config") -> None:
        if config.cut > config.trim > 0:
            raise ValueError(f"cut: is above trim ({config.cut:g} > {config.trim:g}); write at most {config.trim:g}")
        self.config = config
        self._aimd = Aimd(config.trim, config.cut, config.grow, config.pause)

    def initial(self) -> "FairShare.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "FairShare.State"
    ) -> tuple[Sequence[Proposal], "FairShare.State"]:
        """SET while demand by tenant, cost and capacity are known; AT_MOST the current cap otherwise."""
        unit = _number(view.estimate.unit_tokens)
        owners = {t.member: (t, owner) for t, owner in view.targets.items()}
        told = {name: d for name, d in brief.balance.by_flow.items() if name in owners and 0.0 <= d < math.inf}
        carried = _number(brief.balance.carried)
        if not unit or not carried or not told or _number(brief.left) is None:
            quiet = [
                Proposal(target, Ask.AT_MOST, owner.accepted, "fair_share", Why.MISSING)
                for target, owner in owners.values()
                if owner.accepted is not None
            ]
            return tuple(quiet), state
        demands = {name: d * unit for name, d in sorted(told.items())}
        told_of = view.pool.tenants
        doubted = frozenset([name for name in demands if name in told_of and _doubted(told_of[name])])
        late = lateness(view.pool, objectives, self.config.delay)
        gone = elapsed(state.at, view.tick.at)
        uses = self._learn(view, demands, doubted, owners, gone, state.uses)
        owed = counted_on(view, demands, self.config.utilisation * carried * unit)
        behind = shielded(demands, owed)
        short = brief.left > TINY
        of_use = short and not behind and _busy(demands, owners) and view.pool.get(Signal.QUEUE_DELAY).trusted
        trim = self._aimd.moved(
            Trim(state.trim, state.cut_at, state.press), view.tick.at, gone, brief.gain, late, short=short, use=of_use,
            pressed=broken(view.pool, behind),
        )  # fmt: skip
        state = self.State(view.tick.at, uses, trim.level, trim.cut_at, trim.press)
        case = self._case(
            view, brief, demands, unit, carried, late=late is None or late > 1, state=state, owed=owed,
            behind=behind, doubted=doubted,
        )  # fmt: skip
        made = [
            self._one(view, target, owner, case, state)
            for target, owner in owners.values()
            if owner.accepted is not None and math.isfinite(owner.accepted)
        ]
        return tuple(made), state

    # --- the level ---------------------------------------------------------------------------------------------------

    def _case(
        self, view: View, brief: Brief, demands: Mapping[str, float], unit: float, carried: float, *, late: bool,
        state: "FairShare.State", owed: Mapping[str, float], behind: Sequence[str], doubted: Set[str],
    ) -> _Case:  # fmt: skip
        total = _number(brief.balance.demand)
        supply = self.config.utilisation * carried * unit
        asked = math.fsum(demands.values())
        other = max(0.0, (total or 0.0) * unit - asked)
        weights = weights_of(view)
        parts, floors = parts_of(weights, supply), floors_of(weights, self.config.least * supply)
        water, strict, flooding = Water(), Water(), dict[str, float]()
        if brief.left > TINY:
            # The pool's own level is trimmed by what is measured. By the model no more is relieved than is left; a
            # shielded tenant that is refused is proof that the model is wrong.
            firm = 1.0 - (sheddable(view, brief) if self._gated(view) else 0.0)
            over = 1.0 + self.config.over if firm < 1.0 and not behind else 1.0
            flows = {name: max(firm * d, min(d, owed[name])) for name, d in demands.items()}
            trims, still = (state.trim, state.press if behind else 1.0), dict(flows)
            fits, below = asked - brief.left * unit, (_number(brief.below) or 0.0) * unit
            spare = min(fits, supply) - promised(view, demands)
            kept = aside(view, demands, owed, behind, spare, self.config.aside)
            fits, room = fits - kept, supply - kept
            if below > TINY * unit:
                # All that is left, and no less for a gate or a model that says more is carried: the rest would go
                # elsewhere before it comes to the gate.
                strict = divided(view, demands, demands, floors, fits, 0.0, fits, trims)
                usual = {name: self._usual(view, name, state, parts[name]) for name in demands}
                flooding = floods(demands, usual, self.config.flood)
                for name, d in demands.items():
                    rules = view.tenants.get(name, NOBODY)
                    fair = strict.fair(rules, d, floors[name])
                    still[name] = min(flows[name], d - flooding[name] * max(0.0, d - fair))
            most, whole = (room + below) * over, (fits + below) * over
            water = divided(view, flows, still, floors, most, other * firm, whole, trims)
        now = max((total or 0.0) * unit, asked)
        coming = min(max(now, (_number(brief.balance.ahead) or 0.0) * unit), max(now, supply))
        free = not late and total is not None
        return _Case(
            demands=demands,
            supply=supply,
            spare=max(0.0, supply - now) if free else 0.0,
            unclaimed=max(0.0, supply - coming) if free else 0.0,
            short=brief.left > TINY,
            sure=view.estimate.trusted and total is not None,
            water=water,
            strict=strict,
            floods=flooding,
            parts=parts,
            floors=floors,
            growth=coming / now if free and now > 0 else 1.0,
            doubted=doubted,
        )

    def _gated(self, view: View) -> bool:
        return self.config.gate == "always" or (self.config.gate == "auto" and Lever.ADMISSION in view.acting)

    # --- one tenant --------------------------------------------------------------------------------------------------

    def _one(self, view: View, target: Target, owner: TargetState, case: _Case, state: "FairShare.State") -> Proposal:
        name, limits = target.member, view.limits[target]
        rules = view.tenants.get(name, NOBODY)
        current = owner.accepted if owner.accepted is not None else limits.max
        demand = case.demands.get(name)
        if demand is None:
            return Proposal(target, Ask.AT_MOST, current, "fair_share", Why.MISSING)
        use = state.uses.get(name, UNSEEN)
        standing = self._standing(name, rules, use, demand, current, case)
        wish, why = standing, _STANDING if standing >= rules.guarantee else Why.GUARANTEE_INFEASIBLE
        evidence = {"demand": demand, "p99": use.p99, "guarantee": rules.guarantee, "spare": case.spare}
        if case.short:
            fair, flood, water = case.fair(name, rules, demand)
            if fair < standing:
                wish, why = fair, Why.FAIR_SHARE
                evidence["weight"] = rules.weight
                if water.cut < 1.0 and wish < rules.guarantee:
                    why = Why.GUARANTEE_INFEASIBLE
            if math.isfinite(water.level):
                evidence |= {"level": water.level, "trim": state.trim}
            if flood > 0.0:
                evidence["floods"] = flood
        if why is _STANDING and standing != current:
            parts = self._parts(name, rules, use, demand, case)
            evidence[PARTS[parts.index(max(parts))]] = max(parts)
        wish = _up(wish, limits) if wish < limits.max else limits.max
        if wish == current and not case.short:
            why = _STEADY
        # Half a picture may tighten under a shortfall; without one it proves nothing.
        doubtful = not case.sure or name in case.doubted
        if doubtful and (wish >= current or not case.short):
            return Proposal(target, Ask.AT_MOST, current, "fair_share", _doubt(view.pool, name), evidence)
        return _tuple(Proposal, (target, _SET, wish, "fair_share", why, evidence))

    def _standing(
        self, name: str, rules: TenantRules, use: Use, demand: float, current: float, case: _Case
    ) -> float:  # fmt: skip
        """The cap without a shortfall."""
        config, parts = self.config, self._parts(name, rules, use, demand, case)
        promised, cap = parts[0], max(parts)
        if abs(cap - current) <= config.hysteresis * current and current >= promised and current >= demand:
            return current
        return cap

    def _parts(
        self, name: str, rules: TenantRules, use: Use, demand: float, case: _Case
    ) -> tuple[float, ...]:  # fmt: skip
        """What a standing cap is the highest of, in the order of ``PARTS``."""
        config, (p99, seen) = self.config, use
        more = min(config.spare * case.spare, demand * (case.growth - 1.0) + config.spare * case.unclaimed)
        newcomer = case.parts[name] if seen < config.newcomer else 0.0
        return case.stands(rules.guarantee, demand), demand + more, case.floors[name], config.peak * p99, newcomer

    def _usual(self, view: View, name: str, state: "FairShare.State", part: float) -> float:
        """What a tenant was promised or usually takes. Who is new takes nothing usually that is beyond its part: its
        first minute may be the flood."""
        rules, use = view.tenants.get(name, NOBODY), state.uses.get(name, UNSEEN)
        own = use.p99 if use.seen >= HABIT else min(use.p99, part)
        return max(rules.guarantee, own)

    # --- what is learned ---------------------------------------------------------------------------------------------

    def _learn(
        self, view: View, demands: Mapping[str, float], doubted: Set[str],
        owners: Mapping[str, tuple[Target, TargetState]], gone: float, before: Mapping[str, Use],
    ) -> dict[str, Use]:  # fmt: skip
        """A use is what a tenant asks for, as far as its cap lets it."""
        uses = {name: use for name, use in before.items() if name in owners}
        for name, demand in demands.items() if view.estimate.trusted else ():
            if name in doubted:
                continue
            cap = owners[name][1].accepted
            now = demand if cap is None or cap >= demand else max(cap, 0.0)
            known = uses.get(name)
            uses[name] = known.followed(now, gone, self.config.memory) if known is not None else Use(now)
        return uses


def _busy(demands: Mapping[str, float], owners: Mapping[str, tuple[Target, TargetState]]) -> bool:
    """Whether somebody uses its cap; one that nobody uses is no reason to raise any."""
    caps = {name: owner.accepted for name, (_, owner) in owners.items() if owner.accepted is not None}
    return any(demand >= USED * caps[name] for name, demand in demands.items() if name in caps)


def _number(value: float | None) -> float | None:
    """The value where it is a quantity: finite, and not below 0."""
    return value if value is not None and 0.0 <= value < math.inf else None


def _up(value: float, limits: Limits) -> float:
    """The next value that the target can take: rounded up, because rounding must not relieve more than is asked for."""
    if limits.quantum > 0:
        value = math.ceil(value / limits.quantum - 1e-9) * limits.quantum
    return value if limits.min <= value <= limits.max else min(max(value, limits.min), limits.max)


def _doubted(tenant: Scope) -> bool:
    return tenant.get(_OFFERED).state not in _UNDOUBTED


def _doubt(pool: PoolReadings, tenant: str) -> Why:
    """Why a tenant's cap may not relax, in the words of the worst reading behind it."""
    scope = pool.tenants.get(tenant)
    return unproven(scope.get(_OFFERED).state) if scope is not None and _doubted(scope) else of_demand(pool)
