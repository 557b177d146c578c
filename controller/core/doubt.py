"""Why a reading is no evidence, in the words of the catalogue: the one way from a state to a reason."""

from collections.abc import Mapping

from controller.core.model import PoolReadings
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.why import Why

# A wait that is censored is told in full when its work ends: until then the window lacks it.
_WHY: Mapping[State, Why] = {
    State.STALE: Why.STALE, State.PARTIAL: Why.PARTIAL, State.UNDERFILLED: Why.UNDERFILLED,
    State.CENSORED: Why.UNDERFILLED, State.UNSUPPORTED: Why.UNSUPPORTED,
}  # fmt: skip


def unproven(state: State) -> Why:
    """Why a reading in this state, which is none to trust, proves nothing."""
    return _WHY.get(state, Why.MISSING)


def of_demand(pool: PoolReadings) -> Why:
    """Why an estimate of demand cannot be trusted, by the first reading behind it that cannot. Where all can, not
    enough has been seen yet."""
    for signal in (Signal.OFFERED_RATE, Signal.QUEUE_DEPTH):
        reading = pool.get(signal)
        if not reading.trusted:
            return unproven(reading.state)
    return Why.UNDERFILLED
