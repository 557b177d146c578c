"""How far a measure is from its target, in the logarithm: a factor of two is as far above as below. Pure."""

import math

CLAMP = 1.5  # ln(measure/target) beyond this says no more than "far too slow"


def log_error(measure: float, target: float) -> float:
    """ln(measure / target) of two that are above 0, clamped."""
    return min(max(math.log(measure / target), -CLAMP), CLAMP)
