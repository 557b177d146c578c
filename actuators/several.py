"""One value that several processes hold, each in a memory of its own: what is told of them as one target."""

from collections.abc import Mapping

from controller.core.model import Outcome

Told = tuple[Outcome, str]


def together(told: Mapping[str, Told]) -> Told:
    """Done is only what all have taken. What some have taken and others not is unknown until it is read back, unless
    one refused: asking again would not help."""
    outcomes = {outcome for outcome, _ in told.values()}
    details = "; ".join(f"{name}: {detail}" for name, (_, detail) in told.items() if detail)
    if outcomes == {Outcome.DONE}:
        return Outcome.DONE, details
    took = [name for name, (outcome, _) in told.items() if outcome is Outcome.DONE]
    if took:
        details = f"only {', '.join(took)} took it; " + "; ".join(
            f"{name}: {detail}" for name, (outcome, detail) in told.items() if outcome is not Outcome.DONE
        )
    if Outcome.UNKNOWN in outcomes:
        return Outcome.UNKNOWN, details
    if Outcome.REFUSED in outcomes:
        return Outcome.REFUSED, details
    return Outcome.UNKNOWN if took else Outcome.FAILED, details


def seen(told: Mapping[str, Told]) -> Told:
    """What was read back of them, unknown where one cannot be read. One that stays away must not hold up the others for
    ever: it is not done, and they may be told something else."""
    outcome, detail = together(told)
    known = any(one is not Outcome.UNKNOWN for one, _ in told.values())
    return (Outcome.FAILED if known and outcome is not Outcome.DONE else outcome), detail


def as_one(values: Mapping[str, float], wanted: float | None, otherwise: float) -> float:
    """The value of all. Where they differ: one that is not what was wanted, so that it is seen and mended; `otherwise`
    where nothing is known to be wanted."""
    found = set(values.values())
    if len(found) == 1:
        return next(iter(found))
    if wanted is None:
        return otherwise
    return next(value for _, value in sorted(values.items()) if value != wanted)
