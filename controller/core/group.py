"""Groups: what the members of one lever share. Of weights and breakers: enough replicas stay in rotation.

A replica counts as out below half of its factor. However bad all look, no more than the cap is taken out at once, and
never the last one: what is bad everywhere is overload, and taking replicas out makes it worse. The cap is that of the
fleet that is left: where it shrinks below what is out already, the best of those is let back on its ramp. A person may
take out more than the cap, but not the last one.

A bad rollout is one cause, of however many replicas: where a label tells what each runs, those of one version may all
be out while they are no more than a share of the fleet of their own. Nobody else is then.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from controller.core.model import Decision, Lever, Mode, Step, Target
from controller.core.relief import OUT
from controller.core.rules import PER_REPLICA, LeverRules
from controller.core.why import Why

RAMP = 0.25  # factor from which a replica is on its way back, and no longer out
NOBODY: Mapping[str, str] = {}
_SOME = 1e-9  # the least factor that is one


def most_out(members: int, share: float) -> int:
    """How many members may be out: the share, rounded down, one at least where there are two, never all."""
    if members < 2:
        return 0
    return min(members - 1, max(1, math.floor(share * members + 1e-9)))


def of_one_version(
    out: Iterable[str], members: Collection[str], versions: Mapping[str, str], most: int
) -> frozenset[str]:
    """Of those that are out, the ones of the version that most of them run; only of versions of at most `most` members
    and not all. Empty where nobody tells versions."""
    if not versions:
        return frozenset()
    many = Counter(versions.get(name, "") for name in members)
    found: dict[str, list[str]] = {}
    for name in out:
        version = versions.get(name, "")
        if version and many[version] <= min(most, len(members) - 1):
            found.setdefault(version, []).append(name)
    return frozenset(max(sorted(found.items()), key=lambda one: len(one[1]))[1]) if found else frozenset()


def keep_in(
    decisions: dict[Target, Decision], rules: LeverRules, staying: float | None = None,
    versions: Mapping[str, str] = NOBODY,
) -> dict[Target, Decision]:  # fmt: skip
    """The decisions on one lever of one pool, with no more members out than may be. Those that are out already count
    first; of the others the lowest wish is granted first. `staying` is how many replicas there will be after this tick,
    where that is fewer than are seen: who leaves is known to nobody yet. `versions` is what each replica runs, where
    that is told."""
    if rules.lever not in PER_REPLICA or rules.mode is Mode.OFF:
        return decisions
    members = len(decisions) if staying is None else min(len(decisions), max(1, math.floor(staying)))
    room = most_out(members, rules.group)
    out = [d for d in decisions.values() if d.final is not None and d.final < OUT and d.why is not Why.LEAVES]
    if len(out) <= room:
        return decisions
    names, most = {t.member for t in decisions}, math.floor(rules.version_group * members + 1e-9)
    one = of_one_version([d.target.member for d in out], names, versions, most)
    if most and not versions:  # nobody tells them now: who was out is not let back for that
        one = frozenset([d.target.member for d in out if _was_out(d)][:most])
    free = one if len(one) > room else frozenset()
    detail = f"at most {room} of {members} out" if not free else f"{len(free)} of one version out, and nobody else"
    others = {t: d for t, d in decisions.items() if t.member not in free}
    left = room if not free else 0
    ranked = sorted([d for d in out if d.target in others], key=lambda d: (not _was_out(d), d.final or 0.0, d.target))
    held = {d.target for d in ranked[left:] if not _was_out(d)}
    kept = {t: _in_rotation(d, detail) if t in held else d for t, d in others.items()}
    if rules.lever is Lever.BREAKER:
        kept = _back(kept, rules, left, detail, last=not room)
    return {t: kept.get(t, d) for t, d in decisions.items()}


def one_in(decisions: dict[Target, Decision], rules: LeverRules) -> dict[Target, Decision]:
    """The decisions with one member in rotation at least, whatever a mode or a person says: a pool without any serves
    nobody. Weights may all be low, but not all nothing. Those that a person holds are left alone unless all of them are
    held at nothing."""
    if rules.lever not in PER_REPLICA or rules.mode is Mode.OFF:
        return decisions
    values = []
    for one in decisions.values():
        value = one.current if one.blocked else one.final
        if value is not None and value >= OUT:
            return decisions  # nearly always the first
        if value is not None:
            values.append(value)
    mine = [d for d in decisions.values() if d.final is not None and not d.blocked]
    free = [d for d in mine if d.why is not Why.PIN]
    least = OUT if free and rules.lever is Lever.BREAKER else _SOME
    if not mine or any(value >= least for value in values):
        return decisions
    best = _best(free or mine)[0]
    return {t: _raised(d, 1.0, "the last one in rotation") if d is best else d for t, d in decisions.items()}


def _back(
    decisions: dict[Target, Decision], rules: LeverRules, room: int, detail: str, *, last: bool
) -> dict[Target, Decision]:
    """Of those that are out and were before, as many as are beyond the cap on their ramp, the best first; in full where
    it is the `last` that there is."""
    quantum = rules.limits.quantum
    ramp = math.ceil(RAMP / quantum - 1e-9) * quantum if quantum > 0 else RAMP
    out = [d for d in decisions.values() if d.final is not None and d.final < RAMP and d.why is not Why.PIN]
    mine = _best([d for d in out if not d.blocked])
    back = {d.target for d in mine[: max(0, len(out) - room)]}
    value = 1.0 if last else ramp
    return {t: _raised(d, value, detail) if t in back else d for t, d in decisions.items()}


def _best(decisions: Iterable[Decision]) -> list[Decision]:
    """Those that come back first: by what is wished for them, then by what they have."""
    return sorted(decisions, key=lambda d: (-(d.final or 0.0), -(d.current or 0.0), d.target))


def _raised(decision: Decision, value: float, detail: str) -> Decision:
    step = Step("group", decision.final or 0.0, value, Why.EJECTION_CAP, detail)
    return decision._replace(final=value, why=step.why, steps=(*decision.steps, step))


def _was_out(decision: Decision) -> bool:
    """A replica that is out, or that a person takes out."""
    return decision.why is Why.PIN or (decision.current is not None and decision.current < OUT)


def _in_rotation(decision: Decision, detail: str) -> Decision:
    current = decision.current if decision.current is not None else 1.0
    if decision.final == current or decision.blocked:
        return decision
    step = Step("group", decision.final or 0.0, current, Why.EJECTION_CAP, detail)
    return decision._replace(final=current, why=step.why, steps=(*decision.steps, step))
