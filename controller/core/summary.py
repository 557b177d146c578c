"""One sentence on what a plan is doing, why and until when."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from controller.core.model import Decision, Lever, Target, TargetState
from controller.core.movable import moves
from controller.core.telling import alike, because, until
from controller.core.why import SENTENCE, Why
from controller.core.words import clock, number

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every target.
_UNAVAILABLE, _DRAINING, _FOREIGN = Why.CAPACITY_UNAVAILABLE, Why.DRAINING, Why.FOREIGN_WRITER
_ADMISSION = Lever.ADMISSION
_SHOWN = 3  # groups of changes, and pools that are short, that are told; the rest is counted
_WORTH = 0.05  # replica-equivalents, below which nobody is short


class Shortage(NamedTuple):
    """A pool whose demand is more than what serves: by how many replica-equivalents, what each lever takes of that, and
    until when: unix seconds, None when nothing is on its way."""

    pool: str
    short: float
    taken: tuple[tuple[Lever, float], ...] = ()
    until: float | None = None


def sentence(
    decisions: Sequence[Decision], short: Sequence[Shortage] = (), wrong: Sequence[str] = (), *,
    holding: bool, stranded: Sequence[str] = (), states: Mapping[Target, TargetState] | None = None,
) -> str:  # fmt: skip
    """For example "raises llama/replicas 2 → 4 because the load offered now needs it; llama is short of 1.5 replicas
    until about 14:03 UTC, of which tenant_cap takes 1.2". Members of one lever that move the same way for the same
    reason are told together: "lowers 3 of llama/weight to 0.4 ... 0.8 because ...". What is not sent "would" be
    done. `wrong` is what is told as it is; `stranded` what is to be told of replicas that nobody gives requests back.
    `states` are the targets as they were read, which know who else writes them."""
    stepped = [one for one in decisions if one.steps]  # who moves, or waits, has steps that say why; most do neither
    parts = [*_changes(stepped), *_draining(stepped), *_absent(stepped)]
    parts += _foreign(decisions, states) if states else []
    parts += _shortages(short)
    parts += wrong[:_SHOWN]
    if len(wrong) > _SHOWN:
        parts.append(f"and {len(wrong) - _SHOWN} more of that kind")
    parts += stranded[:_SHOWN]
    if holding:
        parts.append(f"holds: {SENTENCE[Why.FLEET_GUARD]}")
    return "; ".join(parts) if parts else "keeps everything as it is"


def _changes(decisions: Sequence[Decision]) -> list[str]:
    """The first groups of changes, and how many changes are in none of them."""
    groups: dict[tuple[tuple[str, Lever, bool], Why], list[Decision]] = {}
    begun, rest = set[tuple[str, Lever, bool]](), 0
    for decision in decisions:
        if not decision.changed:
            continue
        up = (decision.final or 0.0) > (decision.current or 0.0)
        about = (decision.target.pool, decision.target.lever, up)
        if len(groups) == _SHOWN and about not in begun:
            rest += 1  # whatever the cause
            continue
        key = about, _cause(decision, up)
        if key in groups or len(groups) < _SHOWN:
            groups.setdefault(key, []).append(decision)
            begun.add(about)
        else:
            rest += 1
    parts = [_group(moved, up, why) for ((_, _, up), why), moved in groups.items()]
    if rest:
        parts.append(f"and {rest} more changes" if rest > 1 else "and 1 more change")
    return parts


def _cause(decision: Decision, up: bool) -> Why:
    """The reason of what moved it most of the way, less what was taken back afterwards; where another pool was to be
    raised instead, that."""
    if decision.why is Why.NEXT_BEST:
        return decision.why
    ways: list[tuple[Why, float]] = []
    start, sign = decision.current or 0.0, 1.0 if up else -1.0
    for step in decision.steps:
        # The way back from the other side to where it is moved nothing.
        way = max(0.0, sign * (step.after - start)) - max(0.0, sign * (step.before - start))
        if way > 0:
            ways.append((step.why, way))
        while way < 0 and ways:
            why, last = ways.pop()
            way += last
            if way > 0:
                ways.append((why, way))
    # Of two that moved it as far the later one did, for the first may have been told to stay.
    return max(reversed(ways), key=lambda one: one[1])[0] if ways else decision.why


def _absent(decisions: Sequence[Decision]) -> list[str]:
    """Which pools wait in vain, for what, and until when no more is asked for."""
    told = [
        f"{one.target} gets no more than {number(one.final)}: {step.detail}"
        for one in decisions for step in one.steps if step.why is _UNAVAILABLE and step.detail
    ]  # fmt: skip
    more = [f"and {len(told) - _SHOWN} more pools get no more"] if len(told) > _SHOWN else []
    return told[:_SHOWN] + more


def _draining(decisions: Sequence[Decision]) -> list[str]:
    """Which pools wait for the replicas that go."""
    told = [
        f"{'keeps' if moves(one) else 'would keep'} {one.target} at {number(one.final)} because {because(one)}: "
        f"{one.steps[-1].detail}"
        for one in decisions if one.why is _DRAINING and not one.changed and one.steps[-1].detail
    ]  # fmt: skip
    more = [f"and {len(told) - _SHOWN} more pools wait for theirs"] if len(told) > _SHOWN else []
    return told[:_SHOWN] + more


def _foreign(decisions: Sequence[Decision], states: Mapping[Target, TargetState]) -> list[str]:
    """Which targets are left to somebody else, and until when."""
    told = []
    for one in decisions:
        state = states.get(one.target) if one.blocked and one.why is _FOREIGN else None
        if state is not None:
            when = "" if state.foreign_until is None else f" until {clock(state.foreign_until)} UTC"
            told.append(f"leaves {one.target} to {state.foreign_writer}{when}")
    more = [f"and {len(told) - _SHOWN} more targets to others"] if len(told) > _SHOWN else []
    return told[:_SHOWN] + more


def _group(moved: Sequence[Decision], up: bool, why: Why) -> str:
    first = moved[0]
    verb = ("raises" if up else "lowers") if moves(first) else ("would raise" if up else "would lower")
    when = until(moved)
    cause = f"because {alike(moved, why)}{when and f', {when}'}"
    if len(moved) == 1:
        return f"{verb} {first.target} {number(first.current)} → {number(first.final)} {cause}"
    if first.target.lever is _ADMISSION:  # set-points are of several units, and have no range together
        ways = [f"{one.target.member} {number(one.current)} → {number(one.final)}" for one in moved]
        return f"{verb} {first.target.pool}/{first.target.lever} {', '.join(ways)} {cause}"
    finals = sorted(decision.final or 0.0 for decision in moved)
    to = number(finals[0]) if finals[0] == finals[-1] else f"{number(finals[0])} ... {number(finals[-1])}"
    return f"{verb} {len(moved)} of {first.target.pool}/{first.target.lever} to {to} {cause}"


def _shortages(short: Sequence[Shortage]) -> list[str]:
    """The pools that lack most, the worst first."""
    known = sorted((one for one in short if one.short >= _WORTH), key=lambda one: (-one.short, one.pool))
    parts = [_shortage(one) for one in known[:_SHOWN]]
    if len(known) > _SHOWN:
        parts.append(f"and {len(known) - _SHOWN} more pools are short")
    return parts


def _shortage(one: Shortage) -> str:
    when = "with nothing on its way"
    if one.until is not None:
        when = f"until about {datetime.fromtimestamp(one.until, UTC):%H:%M} UTC"
    taken = [(lever, amount) for lever, amount in one.taken if amount >= _WORTH]
    relief = ", of which " + " and ".join(f"{lever} takes {amount:.1f}" for lever, amount in taken) if taken else ""
    return f"{one.pool} is short of {one.short:.1f} replicas {when}{relief}"
