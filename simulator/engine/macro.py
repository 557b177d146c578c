"""The closed form of decode steps: each lasts `slope` seconds more than the one before, for contexts grow by one token.

k steps last k*first + slope*k*(k-1)/2 seconds. Times are unix seconds, `start` that of the first step.
"""

from math import sqrt


def end_of(start: float, first: float, slope: float, steps: int) -> float:
    """When the last of so many steps ends."""
    return start + steps * first + slope * (steps * (steps - 1) // 2)


def ended_by(start: float, first: float, slope: float, steps: int, now: float) -> int:
    """How many of the steps have ended by `now`: the root of the quadratic, then exactly as `end_of` has it."""
    elapsed = now - start
    if elapsed < first:
        return 0
    linear = first - slope / 2
    done = min(steps, int(2 * elapsed / (linear + sqrt(linear * linear + 2 * slope * elapsed))))
    while done < steps and end_of(start, first, slope, done + 1) <= now:
        done += 1
    while done > 0 and end_of(start, first, slope, done) > now:
        done -= 1
    return done
