"""Done-when: each criterion of the proof with what was measured, and whether it is met. Pure.

A criterion whose cases were not run is not met and not failed: it says what is missing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.control import subsets
from benchmarks.control.cases import DIRECT_AT, ERRORS, OUTAGES, TIMES
from benchmarks.control.measures import (
    OUT,
    Get,
    average,
    critical,
    dominating,
    ejections,
    equals,
    everything,
    inside,
    nearest,
    ratio,
    rivals,
    runs,
    shed_share,
    shortfall,
)
from benchmarks.control.planner import Result
from benchmarks.control.plant import ANSWER, PROMPT
from benchmarks.control.stats import mean
from benchmarks.control.task import Outcome
from benchmarks.control.words import percent, points, times
from controller.core.model import Lever
from controller.simulate.jobs import GOVERNOR, NONE, ORACLE, STATIC

CAP = 0.2  # largest part of the replicas that may be out of rotation at once
KEY = ("diurnal", "servegen", "azure")
AFTER = 120.0  # seconds after an outage in which no replica may be given back
Results = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One criterion: its place in the issue, what is asked for, what was measured, and whether that is enough; None
    when it was not measured. `grounds` are the names of texts that say why it is not met."""

    place: str
    asked: str
    measured: str
    met: bool | None
    grounds: tuple[str, ...] = ()


def verdicts(results: Results) -> list[Verdict]:
    """All criteria, in their order."""
    found = [
        *_cheaper(results), *_bounds(results), *_errors(results), *_flood(results), *_breaker(results),
        *_blind(results), *_subsets(results),
    ]  # fmt: skip
    elsewhere = "not part of this bench"
    return [
        *found,
        Verdict("8", "the same ranking on a second plant", f"{elsewhere}: [second-plant.md](second-plant.md)", None),
        Verdict("9", "1,000 pools decided within 1 s", f"{elsewhere}: [performance.md](performance.md)", None),
    ]


# --- 1 ---------------------------------------------------------------------------------------------------------------


def _cheaper(results: Results) -> Iterator[Verdict]:
    for name in KEY:
        asked = f"{name}: at least 5 % fewer GPU-hours than the best peer of equal attainment"
        result = results.get(name)
        if result is None or not rivals(result):
            yield Verdict("1", asked, "was not run", None)
            continue
        alike = equals(result)
        if not alike:
            yield Verdict("1", asked, f"no peer attains as much; {_nearest(result)}", True)
            continue
        pairs = zip(result.runs[GOVERNOR], result.runs[alike[0]], strict=True)
        saved = mean([1 - a.gpu_hours / b.gpu_hours for a, b in pairs if a is not None and b is not None])
        if saved is not None:
            text = f"{percent(saved)} fewer than {alike[0]}"
            yield Verdict("1", asked, text, saved.value >= 0.05 and saved.low > 0, (f"saving:{name}",))
    others = [one for name, one in results.items() if name not in KEY and rivals(one)]
    better = [(one.case, names) for one in others if (names := dominating(one))]
    told = "; ".join(f"{case.title}: {', '.join(names)}" for case, names in better)
    yield Verdict(
        "1", "elsewhere no peer has both higher attainment and fewer GPU-hours",
        (told or f"none in {len(others)} scenarios") if others else "was not run", not better if others else None,
        tuple(f"elsewhere:{case.name}" for case, _ in better),
    )  # fmt: skip


def _nearest(result: Result) -> str:
    name = nearest(result)
    over = ratio(result, name)
    told = "-" if over is None else f"{1 / over.value:.2f}"
    return f"the nearest is {name}, {points(shortfall(result, name))} below, at {told} times Governor's GPU-hours"


# --- 2 ---------------------------------------------------------------------------------------------------------------


def _least(results: Results, name: str, what: str, get: Get, asked: float) -> Verdict:
    result = results.get(name)
    text = f"{name}: {what} at least {asked:.1%}"
    found = None if result is None else average(runs(result), get)
    if found is None:
        return Verdict("2", text, "was not run", None)
    return Verdict("2", text, f"{found:.2%}", found >= asked, (f"attained:{name}",))


def _most(results: Results, name: str, bound: str, asked: float) -> Verdict:
    words = {ORACLE: "the oracle", STATIC: "the cheapest static fleet"}[bound]
    text = f"{name}: at most {asked:g} times the GPU-hours of {words} of equal attainment"
    result = results.get(name)
    if result is None or bound not in result.runs:
        return Verdict("2", text, "was not run", None)
    over = ratio(result, bound)
    if over is None:
        return Verdict("2", text, f"{words} of equal attainment was not found: none attains as much", bound == STATIC)
    return Verdict("2", text, times(over), over.value <= asked, (f"{bound}:{name}",))


def _bounds(results: Results) -> Iterator[Verdict]:
    yield _least(results, "diurnal", "critical", critical, 0.995)
    yield _most(results, "diurnal", ORACLE, 1.10)
    yield _least(results, "servegen", "all offered", everything, 0.99)
    yield _most(results, "servegen", ORACLE, 1.2)
    for name, asked in (("flash-1.9", 0.97), ("flash-3", 0.85)):
        yield _least(results, name, "critical inside the event", inside("flash"), asked)
        yield _shed(results, name)
        yield _most(results, name, STATIC, 0.8)


def _shed(results: Results, name: str) -> Verdict:
    text = f"{name}: shed inside the event at most 1.3 times the arithmetic floor"
    result = results.get(name)
    if result is None:
        return Verdict("2", text, "was not run", None)
    shed = average(runs(result), lambda one: shed_share(one, "flash"))
    floor = average(runs(result), lambda one: one.floor)
    if shed is None or floor is None:
        return Verdict("2", text, "was not run", None)
    return Verdict("2", text, f"{shed:.1%} against {floor:.1%}", shed <= 1.3 * floor, ("shed",))


# --- 3 ---------------------------------------------------------------------------------------------------------------


def _cost(results: Results, name: str, base: str, gets: Sequence[Get]) -> float | None:
    """What a case costs of attainment against its base, where it costs more."""
    if name not in results or base not in results:
        return None
    losses = []
    for get in gets:
        was, now = (average(runs(results[one]), get) for one in (base, name))
        if was is None or now is None:
            return None
        losses.append(was - now)
    return max(losses)


def _errors(results: Results) -> Iterator[Verdict]:
    whole = (critical, everything)
    for base in ("diurnal", "flash-3"):
        text = f"{base}: step times of {ERRORS[0]:g} to {ERRORS[-1]:g} times the truth cost at most 1 point"
        costs = {error: _cost(results, f"{base}-model-{error:g}", f"{base}-model-1", whole) for error in ERRORS}
        yield _costs(text, {f"{TIMES}{error:g}": cost for error, cost in costs.items()}, 0.01)
    wrong = _cost(results, "structure-wrong", "structure-known", whole)
    yield _costs("a model of the wrong structure costs at most 3 points", {"": wrong}, 0.03)
    yield _cold(results)
    found = None if "diurnal" not in results else average(runs(results["diurnal"]), lambda one: one.reversals_per_hour)
    text = "diurnal: at most 5 reversals/h"
    yield Verdict(
        "3", text, "was not run" if found is None else f"{found:.1f}/h", None if found is None else found <= 5
    )


def _cold(results: Results) -> Verdict:
    """Beside it the arithmetic floor of both: a fleet that comes when the crowd is gone again helps nobody."""
    short, long = "flash-3-cold-60", "flash-3-cold-420"
    asked = "a cold start of 420 s in place of 60 s costs at most 3 points inside the flash"
    found = _costs(asked, {"": _cost(results, long, short, (inside("flash"),))}, 0.03)
    floors = [average(runs(results[name]), lambda one: one.floor) for name in (short, long) if name in results]
    if found.met is None or None in floors:
        return found
    told = " to ".join(f"{floor:.1%}" for floor in floors if floor is not None)
    measured = f"{found.measured}; what must be shed whatever is done rises from {told}"
    return replace(found, measured=measured, grounds=("cold",))


def _costs(asked: str, costs: Mapping[str, float | None], most: float) -> Verdict:
    known = {name: cost for name, cost in costs.items() if cost is not None}
    if not known:
        return Verdict("3", asked, "was not run", None)
    worst = max(known, key=lambda name: known[name])
    told = f"{points(known[worst])}{f' at {worst}' if worst else ''}"
    return Verdict("3", asked, told, known[worst] <= most)


# --- 4 ---------------------------------------------------------------------------------------------------------------


def _flood(results: Results) -> Iterator[Verdict]:
    result, calm = results.get("flood"), results.get("flood-calm")
    asked = (
        "tenant flood: victims lose at most 1 point", "the flooder keeps its guarantee",
        "tenant flood: every backlogged tenant gets at least 0.9 of its max-min share, and none is starved",
    )  # fmt: skip
    if result is None or calm is None:
        yield from (Verdict("4", one, "was not run", None) for one in asked)
        return
    promised = dict(result.case.tenants)
    victims = [name for name in promised if name != "flooder"]
    losses = {name: _tenant(calm, name) - _tenant(result, name) for name in victims}
    worst = max(losses, key=lambda name: losses[name])
    yield Verdict("4", asked[0], f"{points(losses[worst])} ({worst})", losses[worst] <= 0.01, ("victims",))
    flood = [one.tenants_in["flood"]["flooder"] for one in runs(result)]
    given = sum(one.offered - one.shed for one in flood) * (PROMPT + ANSWER) / (len(flood) * 600.0)
    text = f"{given:,.0f} tokens/s where {promised['flooder']:,.0f} are guaranteed"
    yield Verdict("4", asked[1], text, given >= promised["flooder"])
    shares = [(part, name or "(none)") for one in runs(result) for name, part in one.fairness.items()]
    starved = {name for one in runs(result) for name, some in one.tenants.items() if some.good == 0}
    part, who = min(shares, default=(1.0, ""))
    told = f"least {part:.2f}{f' ({who})' if who else ''}" + (
        f"; starved: {', '.join(sorted(starved))}" if starved else ""
    )
    yield Verdict("4", asked[2], told, part >= 0.9 and not starved)


def _tenant(result: Result, name: str) -> float:
    some = [one.tenants_in["flood"][name] for one in runs(result) if name in one.tenants_in["flood"]]
    return sum(one.good for one in some) / max(1, sum(one.offered for one in some))


# --- 5 ---------------------------------------------------------------------------------------------------------------


def _breaker(results: Results) -> Iterator[Verdict]:
    slow, over = 1200.0, 1560.0
    for name in ("failing-2", "failing-8"):
        asked = f"{name}: the slow replica is out within 60 s and back within 2 minutes of its recovery"
        if name not in results:
            yield Verdict("5", asked, "was not run", None)
            continue
        delays = [_out_and_back(one, slow, over) for one in runs(results[name])]
        outs = [out for out, _ in delays if out is not None]
        backs = [back for _, back in delays if back is not None]
        if len(outs) < len(delays):
            yield Verdict("5", asked, f"it was not taken out in {len(delays) - len(outs)} of {len(delays)} runs", False)
        else:
            late = f"back after {max(backs):.0f} s" if len(backs) == len(delays) else "not always back"
            fine = max(outs) <= 60 and len(backs) == len(delays) and max(backs) <= 120
            yield Verdict("5", asked, f"out after {max(outs):.0f} s at most, {late}", fine)
    yield _direct(results)
    asked = "half the fleet slow: no more are out than the cap, a fifth rounded down and one at least"
    if "half-slow" in results:
        beyond = [worst for one in runs(results["half-slow"]) if (worst := _over_cap(one)) is not None]
        text = f"{beyond[0][0]} of {beyond[0][1]} at once" if beyond else "never more"
        yield Verdict("5", asked, text, not beyond)
    else:
        yield Verdict("5", asked, "was not run", None)
    asked = "no ejection over the healthy ServeGen day"
    if "servegen" in results:
        count = sum(len(ejections(one)) for one in runs(results["servegen"]))
        yield Verdict("5", asked, f"{count} in {len(runs(results['servegen']))} evenings", count == 0)
    else:
        yield Verdict("5", asked, "was not run", None)


def _direct(results: Results) -> Verdict:
    asked = "failing-direct: the slow replica is out within 8 s at direct scrapes of 1 s, and no other"
    if "failing-direct" not in results:
        return Verdict("5", asked, "was not run", None)
    some = runs(results["failing-direct"])
    outs = [out for one in some if (out := _out_and_back(one, DIRECT_AT, DIRECT_AT + 180.0)[0]) is not None]
    others = sum(len({name for _, name in ejections(one)}) > 1 for one in some)
    if len(outs) < len(some):
        return Verdict("5", asked, f"it was not taken out in {len(some) - len(outs)} of {len(some)} runs", False)
    told = f"out after {max(outs):.1f} s at most, {f'others in {others} runs' if others else 'no other'}"
    return Verdict("5", asked, told, max(outs) <= 8 and not others)


def _out_and_back(one: Outcome, begin: float, end: float) -> tuple[float | None, float | None]:
    """Seconds from the begin of the trouble to the first ejection, and from its end until that replica is whole."""
    gone = ejections(one, begin, end)
    if not gone:
        return None, None
    at, name = gone[0]
    back = [when for when, who, _, after in one.breaks if who == name and when >= end and after >= 1.0]
    return at - begin, back[0] - end if back else None


def _over_cap(one: Outcome) -> tuple[int, int] | None:
    """(replicas out, replicas ready) where most were out beyond the cap; None where it was kept."""
    out: set[str] = set()
    worst: tuple[int, int] | None = None
    rows = [row for some in one.replicas.values() for row in some]
    for at, name, _, after in one.breaks:
        (out.add if after <= OUT else out.discard)(name)
        ready = max([ready for when, _, ready in rows if when <= at][-1:], default=0)
        if len(out) > max(1, math.floor(CAP * ready)) and (worst is None or len(out) > worst[0]):
            worst = len(out), ready
    return worst


# --- 6 ---------------------------------------------------------------------------------------------------------------


def _blind(results: Results) -> Iterator[Verdict]:
    asked = (
        "metrics outage at the onset of a flash: no lever is relaxed in it, nor any replica within two minutes after it"
    )
    if "blind" not in results:
        yield Verdict("6", asked, "was not run", None)
        return
    some = runs(results["blind"])
    begin, end = OUTAGES[0][0], OUTAGES[-1][1] + AFTER
    relaxed = [
        lever
        for one in some
        for at, lever, _, _ in one.relaxed
        if any(gone <= at < back for gone, back in OUTAGES) or (lever == Lever.REPLICAS and begin <= at < end)
    ]
    which = f" ({', '.join(sorted(set(relaxed)))})" if relaxed else ""
    told = f"{len(relaxed)} orders in {len(some)} runs{which}"
    late = sum(_falls(one, begin, end) for one in some)
    yield Verdict("6", asked, f"{told}; {late} replicas left on an order from before" if late else told, not relaxed)


def _falls(one: Outcome, begin: float, end: float) -> int:
    """How often fewer replicas are paid for: they leave when they are drained, so some time after the order."""
    count = 0
    for rows in one.replicas.values():
        before = 0
        for at, paid, _ in rows:
            count += begin <= at < end and paid < before
            before = paid
    return count


# --- 7 ---------------------------------------------------------------------------------------------------------------


def _subsets(results: Results) -> Iterator[Verdict]:
    asked = ("every set of levers beats no controller on the flash", "adding a lever costs at most 0.5 point")
    found = next((one for one in results.values() if one.subsets), None)
    if found is None:
        yield from (Verdict("7", one, "was not run", None) for one in asked)
        return
    nobody = runs(found, NONE)
    worse = [
        ", ".join(sorted(levers)) for levers, some in found.subsets.items() if min(subsets.gains(nobody, some)) <= 0
    ]
    text = f"no better with {'; '.join(worse)}" if worse else f"all {len(found.subsets)} do"
    yield Verdict("7", asked[0], text, not worse)
    costs = subsets.costs(found.subsets)
    if not costs:
        yield Verdict("7", asked[1], "there is one set alone", None)
        return
    again = {levers: (*found.subsets[levers], *some) for levers, some in found.more.items() if some}
    anew = {step: cost for step, cost in subsets.costs(again).items() if costs[step] > subsets.MOST}
    judged = costs | anew
    worst = max(judged, key=lambda step: judged[step])

    def told(step: subsets.Step) -> str:
        text = f"{points(judged[step])}, {step}"
        if step not in anew:
            return text
        return f"{text} (over {len(again[step.less])} seeds; {points(costs[step])} over the first {len(found.seeds)})"

    text = "; ".join([f"at most {told(worst)}", *(told(step) for step in anew if step != worst)])
    yield Verdict("7", asked[1], text, judged[worst] <= subsets.MOST, ("adding",))
