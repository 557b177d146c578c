"""How quantities of a rehearsal are written, in the terminal and in the HTML report alike."""

from controller.core.model import Decision, Lever
from controller.core.words import number, percent, quantity
from controller.explain import reason
from controller.rehearse.summary import ObjectiveSummary, TargetSummary

OPEN_LOOP = (
    "The past does not answer back. Each decision was taken on what was recorded, under the capacity that really "
    "stood; had Governor acted, the later recording would be another. Read each proposal as one decision in its "
    "situation. Attainment is what the recorded fleet kept, not what the proposals would have kept."
)


def why_changed(decision: Decision) -> str:
    """Why the proposal moved. It may have moved back to where the recording stands, which no chain of steps says."""
    if decision.final == decision.current and not decision.steps:
        return f"as recorded: {reason(decision)}"
    return reason(decision)


def duration(seconds: float) -> str:
    """`250ms`, `15s`, `2m 5s`, `3h 20m`, `2d 4h`: two units at most."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    if seconds < 60:
        return f"{seconds:g}s"
    total = round(seconds)
    for size, unit, lesser, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if total >= size:
            rest = total % size // lesser
            return f"{total // size}{unit}" + (f" {rest}{name}" if rest else "")
    raise AssertionError("unreachable: a minute or more")


def promise(one: ObjectiveSummary) -> str:
    """`ttft p99 ≤ 2 s`, `ttft p99 of critical ≤ 500 ms`."""
    what = " ".join(filter(None, (one.signal, one.stat, one.klass and f"of {one.klass}")))
    return f"{what} ≤ {quantity(one.target, one.unit)}"


def attained(one: ObjectiveSummary) -> str:
    """`98.1 % to 99.2 % of 1,204 requests (promised 99 %)`."""
    if one.lo is None or one.hi is None:
        return "nothing to judge"
    low, high = percent(one.lo), percent(one.hi)
    what = "ticks" if one.share is None else "requests"
    text = low if low == high else f"{low} to {high}"
    return text + f" of {what}" + ("" if one.share is None else f" (promised {percent(one.share)})")


def hours(one: TargetSummary) -> str:
    """`recorded 12.0 h, proposed 9.5 h (-21 %)`; of other levers than replicas their mean, of caps and gates the lowest
    limit, because no limit has no mean."""
    if one.recorded_hours is None or one.proposed_hours is None:
        return "not comparable: the recording holds no value of this target"
    if one.target.lever in (Lever.TENANT_CAP, Lever.ADMISSION):
        return f"lowest limit proposed: {number(one.lowest)}"
    if one.target.lever is not Lever.REPLICAS:
        was, would = (hours / one.known if one.known else 0.0 for hours in (one.recorded_hours, one.proposed_hours))
        return f"mean recorded {number(round(was, 3))}, proposed {number(round(would, 3))}"
    text = f"recorded {one.recorded_hours:,.2f} h, proposed {one.proposed_hours:,.2f} h"
    if one.recorded_hours > 0:
        more = round((one.proposed_hours / one.recorded_hours - 1) * 100)
        text += f" ({more:+d} %)" if more else " (0 %)"
    if one.compared < 0.995:
        text += f", over the {percent(one.compared)} of ticks at which both are known"
    return text


def held(one: TargetSummary) -> str:
    """`stale 12, rate 3`; empty when nothing was held."""
    return ", ".join(f"{why.value} {ticks:,}" for why, ticks in one.held.items())
