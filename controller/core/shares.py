"""What tenants and request classes ask for and get, over the control window.

A tenant whose series were not born has asked for nothing, as long as those of others tell the same quantity; a quantity
that no series tells by the label is unsupported, whatever the pool knows of it. What the gateway tells is as good as
the gateway: while it is silent, nothing is known of anybody.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from controller.core.facts import Fact
from controller.core.judge import Judge
from controller.core.model import Scope
from controller.core.observation import Facts
from controller.core.reading import Reading, State, unsupported
from controller.core.signals import Signal
from controller.core.windows import Entry

_RATES: tuple[tuple[Signal, Fact], ...] = (
    (Signal.OFFERED_RATE, Fact.ARRIVED), (Signal.REJECTED_RATE, Fact.REJECTED), (Signal.FINISHED_RATE, Fact.FINISHED),
    (Signal.PROMPT_TOKEN_RATE, Fact.PROMPT_TOKENS), (Signal.GENERATION_TOKEN_RATE, Fact.GENERATION_TOKENS),
)  # fmt: skip
_UNREAD = Reading(State.MISSING, note="nothing was read before")


class _Rate(NamedTuple):
    """One rate of all parts: the state of its fact over `seconds`, or in `blank` why there is none."""

    signal: Signal
    fact: Fact
    state: State
    note: str
    seconds: float
    source: str
    blank: Reading | None


def tenants(j: Judge, names: Collection[str], *, fronted: bool) -> dict[str, Scope]:
    """The readings of each tenant that was seen in the window, and of `names` in any case. `fronted` says that it is
    the gateway that tells them."""
    return _scopes(j, names, lambda entry: entry.tenants, j.facts.tenants, fronted=fronted)


def classes(j: Judge, names: Collection[str], *, fronted: bool) -> dict[str, Scope]:
    """The same of each request class."""
    return _scopes(j, names, lambda entry: entry.classes, j.facts.classes, fronted=fronted)


def _scopes(
    j: Judge, names: Collection[str], pick: Callable[[Entry], Mapping[str, Facts]], now: Mapping[str, Facts], *,
    fronted: bool,
) -> dict[str, Scope]:  # fmt: skip
    if not j.fresh:
        blank = dict.fromkeys((signal for signal, _ in _RATES), _UNREAD)
        return {name: Scope(blank) for name in sorted({*names, *now})}
    sums: dict[str, dict[Fact, float]] = {name: {} for name in names}
    told: set[Fact] = set()
    for entry in j.history.within(j.now, j.window):
        for name, part in pick(entry).items():
            own = sums.get(name)
            if own is None:
                own = sums[name] = {}
            for fact, value in part.counters.items():
                own[fact] = own.get(fact, 0.0) + value
    if not sums:
        return {}
    told.update(*(own.keys() for own in sums.values()))
    rates = [_rate(j, signal, fact, told, fronted=fronted) for signal, fact in _RATES]
    return {name: Scope({rate.signal: _reading(j, rate, sums[name]) for rate in rates}) for name in sorted(sums)}


def _rate(j: Judge, signal: Signal, fact: Fact, told: Collection[Fact], *, fronted: bool) -> _Rate:
    judged = Fact.HELD if fronted else fact  # whatever else it tells, a gateway that fails has failed in this
    state, note = j.windowed(judged)
    blank: Reading | None = None
    if judged in j.facts.failed:
        blank = j.absent(judged)
    elif fact not in told:
        blank = (
            j.absent(fact) if fact in j.facts.unsupported or not told else unsupported("no series tells it by label")
        )
    return _Rate(signal, fact, state, note, j.seconds(judged), j.source(fact), blank)


def _reading(j: Judge, rate: _Rate, own: Mapping[Fact, float]) -> Reading:
    if rate.blank is not None or rate.seconds <= 0:
        return rate.blank or _UNREAD
    count, most = own.get(rate.fact, 0.0), None
    if rate.fact is Fact.ARRIVED and (again := own.get(Fact.RETRIES)) is not None:
        count, most = max(0.0, count - again), count / rate.seconds
    value = count / rate.seconds
    return Reading(
        rate.state, value, None, most, count, j.age_of(rate.fact), rate.seconds,
        rate.source, rate.note,
    )  # fmt: skip
