"""How much time counts as passed since the last look."""

GAP = 120.0  # seconds; of a longer silence nobody knows what happened in it, so it is no time to move or to learn in


def elapsed(before: float | None, now: float) -> float:
    """Seconds from `before` to `now`, at most GAP; 0 where nobody looked before."""
    return min(max(now - before, 0.0), GAP) if before is not None else 0.0
