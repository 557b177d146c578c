"""How long a replica takes from being asked for to serving, as measured. Pure."""

import math

from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import TargetState


def horizon(spec: EstimatorSpec, state: EstimatorState) -> float:
    """Seconds until a replica asked for now is warm: the 90 % quantile of what was seen, but never the single
    longest of few; the prior before there are three."""
    if len(state.lags) < 3:
        return spec.cold_start + spec.lead
    ranked = sorted(state.lags)
    return ranked[min(len(ranked) - 2, math.ceil(0.9 * len(ranked)) - 1)] + spec.lead


def watch(
    spec: EstimatorSpec, target: TargetState | None, replicas: float | None, now: float, state: EstimatorState
) -> EstimatorState:
    """Time from a raised spec to that many replicas serving."""
    if target is None or target.accepted is None or replicas is None:
        return state
    asked, lags = state.asked, state.lags
    if not asked and target.accepted == state.accepted:
        return state  # nothing is awaited
    if state.accepted is not None and target.accepted > state.accepted:
        asked = (*asked, (target.accepted, now))
    elif state.accepted is not None and target.accepted < state.accepted:
        asked = tuple((count, since) for count, since in asked if count <= target.accepted)
    # What came after it was given up says how long a quota lasted, not how long a start takes.
    asked = tuple((count, since) for count, since in asked if now - since < spec.give_up)
    come = [(count, since) for count, since in asked if replicas >= count]
    lags = (*lags, *(now - since for _, since in come))[-20:]
    asked = tuple(a for a in asked if a not in come)
    if (target.accepted, asked, lags) == (state.accepted, state.asked, state.lags):
        return state
    return state._replace(accepted=target.accepted, asked=asked, lags=lags)
