"""Flood: who asks for far more than usual while the others do not. Such a tenant is cut before anybody else is.

    usual    what a tenant was promised, or the p99 of its own use where that is more
    grown    its demand over that
    others   what half of all others, by what is usual of them, have grown to at most; 1 at least
    floods   by  ( grown / others - calm ) / ( flood - calm ),  in [0, 1],    calm = half way from 1 to `flood`

In a crowd all grow alike, and nobody floods. It is a median, so that one flood does not excuse another; it is a part,
so that noise about a threshold moves no cap by much. Demands and what is usual in one unit.
"""

import math
from collections.abc import Mapping, Sequence


def floods(demands: Mapping[str, float], usual: Mapping[str, float], flood: float) -> dict[str, float]:
    """How much each tenant floods, 0 to 1; nobody does who is alone, or of whom nothing is usual."""
    grown = sorted((demand / usual[name], name) for name, demand in demands.items() if usual.get(name, 0.0) > 0)
    found, calm = dict.fromkeys(demands, 0.0), (1.0 + flood) / 2.0
    for much, name in grown:
        others = [(more, usual[other]) for more, other in grown if other != name]
        if others:
            beyond = much / max(1.0, _median(others))
            found[name] = min(max((beyond - calm) / (flood - calm), 0.0), 1.0)
    return found


def _median(weighed: Sequence[tuple[float, float]]) -> float:
    """The smallest number up to which half of the weight lies, of (number, weight) in the order of the numbers."""
    half, seen = math.fsum(weight for _, weight in weighed) / 2.0, 0.0
    for number, weight in weighed:
        seen += weight
        if seen >= half * (1.0 - 1e-9):
            return number
    return weighed[-1][0]
