"""Merging proposals for one target: pure, independent of their order, idempotent under duplicates.

HOLD beats all (freeze and pin). Otherwise the largest SET in the protective direction, then the lowest AT_MOST, then
the highest AT_LEAST. When a floor stands above a ceiling the protective one wins: for capacity the floor.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from controller.core.model import Ask, Proposal
from controller.core.why import Why

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every target.
_SET = Ask.SET
_tuple = tuple.__new__  # past the one of named tuples, which would make the same one in twice the time


class Merged(NamedTuple):
    """What the policies want together, who decided it and on what evidence."""

    value: float | None
    by: str
    why: Why
    evidence: Mapping[str, float]


def merge(proposals: Sequence[Proposal], current: float | None, *, relax_down: bool) -> Merged:
    """`current` stands where nobody sets a value. `relax_down`: lowering is relaxing (capacity), so a tie between SETs
    goes to the higher one; for a shed it is the other way round."""
    if len(proposals) == 1:
        return alone(proposals[0], current)
    ranked = sorted(proposals, key=lambda p: (p.value, p.by, p.why, p.ask, sorted(p.evidence.items())))
    holds = [p for p in ranked if p.ask == Ask.HOLD]
    if holds:
        return _from(holds[0])
    protective = ranked if relax_down else ranked[::-1]
    sets = [p for p in protective if p.ask == _SET]
    floors = [p for p in ranked if p.ask == Ask.AT_LEAST]
    ceilings = [p for p in ranked if p.ask == Ask.AT_MOST]
    winner = _from(sets[-1]) if sets else Merged(current, "", Why.STEADY, {})
    first, second = (ceilings[:1], floors[-1:]) if relax_down else (floors[-1:], ceilings[:1])
    for bound in (*first, *second):
        if winner.value is None or (
            bound.value > winner.value if bound.ask == Ask.AT_LEAST else bound.value < winner.value
        ):
            winner = _from(bound)
    if not sets and proposals and winner.why == Why.STEADY:
        # A bound that changes nothing still says why nothing changes.
        quiet = (floors[-1:] or ceilings[:1])[0]
        return Merged(winner.value, quiet.by, quiet.why, quiet.evidence)
    return winner


def alone(proposal: Proposal, current: float | None) -> Merged:
    """What comes of one proposal. A bound that changes nothing still says why nothing changes."""
    _, ask, value, by, why, evidence = proposal
    if (
        current is not None
        and ask is not _SET
        and ((ask is Ask.AT_LEAST and value < current) or (ask is Ask.AT_MOST and value > current))
    ):
        value = current
    return _tuple(Merged, (value, by, why, dict(evidence)))


def _from(proposal: Proposal) -> Merged:
    # A copy: the ledger tells what changed since the last tick, and a law may use one and the same mapping for both.
    return Merged(proposal.value, proposal.by, proposal.why, dict(proposal.evidence))
