"""The text of docs/benchmarks.md, from the results alone. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.control import contenders, subsets
from benchmarks.control.cases import Case, cases
from benchmarks.control.criteria import Verdict, verdicts
from benchmarks.control.grounds import GROUNDS, LOOKED, NOBODY
from benchmarks.control.measures import (
    average,
    critical,
    difference,
    equals,
    everything,
    hours,
    inside,
    ratio,
    rivals,
    runs,
    shed_share,
)  # fmt: skip
from benchmarks.control.planner import Result
from benchmarks.control.stats import mean
from benchmarks.control.task import SEARCHED
from benchmarks.control.words import number, share, signed, times
from controller.simulate.jobs import GOVERNOR, NONE, ORACLE
from controller.simulate.words import contender

PLOTS = ("diurnal", "servegen", "azure", "flash-1.9", "flash-3")
HEAD = """\
# Benchmarks

<!-- Made by `make bench-control`; edit benchmarks/control/ and run it again. -->

Governor, the autoscalers that people use, and two bounds, on the same simulated fleets with the same requests. Every
number on this page is from runs of the [fleet twin](twin.md), whose engines are checked against real ones on
[fidelity.md](fidelity.md). No number is from a real cluster.
"""
METHOD = """
## How it was measured

* **The fleet.** Replicas of a 70B-class model on four GPUs with 32 sequences at once, prompts of 8,000 and answers of
  500 tokens on average, about 0.83 requests a second each; cold starts of three minutes (lognormal), scrapes every
  15 s that can be queried 5 s later. Promised are 5 s to the first token and 120 ms a token. Where a scenario differs
  it says so. Replicas are few and requests large, so that a bench of thousands of runs is done in two hours.
* **The gate.** All contenders have the same data plane: no more requests in flight than the batches hold, a fair
  queue, deadlines, and a class that is shed first from nine tenths of the cap on. 30 % of the requests are of that
  class, the others are *critical*. One scenario is run without the gate to show what it does.
* **What they see.** Engines and gateway are scraped for all: behind a cap, what waits and what is refused is seen at
  the gateway alone.
* **Governor** has one config for all scenarios, `benchmarks/control/governor.yaml`. Pool names, GPUs, promises, the
  prior of the cold start, the largest batch of an engine (some peers are told that, too) and what tenants were promised
  come from the scenario.
* **Equal attainment.** A peer is tuned in each scenario on training seeds: of the values of its one tuned parameter
  with which it attains at least as much as Governor on those seeds, critical and in all, the cheapest; where none does,
  the one that comes nearest. Scored are other seeds. *Static* is the smallest constant fleet, and *oracle* the cheapest
  schedule that a clairvoyant finds, that attain at least as much as Governor with each seed, critical and in all. On
  the seeds that are scored a peer attains as much when it is within 0.2 points of Governor, critical and in all. The
  oracle is the best of one family and no bound on all: schedules that follow what will be needed, times one margin, and
  the static fleet where that is cheaper. What lets a little be shed at some peaks can be cheaper than all of them, as
  in Azure's. Bounds are searched where a criterion asks for them; scenarios without peers are about Governor alone.
* **What is counted.** As on [simulating.md](simulating.md): attainment is over all that was offered; a retry is no new
  request; replicas are paid for from their node to their end. Differences are paired by seed, with 95 % intervals
  (Student's t); bold where the interval leaves out 0. A negative difference in GPU-hours means that Governor is
  cheaper, a positive one in attainment that it attains more.
* **The floor of shedding** is what was needed beyond the replicas that were ready at the onset, until a replica that
  was asked for in that very second serves. It is arithmetic, and nobody reaches it: a crowd that rises over two minutes
  cannot be told from noise in its first one, scrapes come every 15 s and 5 s late, and a new replica gets its share
  slowly for a minute. `python -m benchmarks.control.onset` shows how much is whose: what is shed by a Governor that is
  told the size of the crowd beforehand and asks for it in the second of the onset, or some time later.
* **Sets of levers.** Single seeds differ by more than one more lever may cost, and six levers make 186 steps from a set
  to the next larger one, so the dearest of them is dear by chance alone. What costs too much on the seeds that are
  scored is run on 15 more, and judged by all 20. The others are not run again, so a step that was lucky on the first
  five stays unseen.
"""
COLUMNS = (
    "contender", "critical %", "all %", "GPU-hours", "Governor less it, GPU-hours", "critical, points", "reversals/h",
    "peak", "tuned",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """All that the page is made of: results in the order of the page; cases that are left out, and why; how many cases
    and seeds a whole bench has."""

    results: Sequence[Result]
    absent: Sequence[tuple[Case, str]]
    seeds: int
    whole: int
    training: int
    everyone: bool = True  # whether all contenders were run

    @property
    def partial(self) -> bool:
        return (
            len(self.results) + sum(1 for case, _ in self.absent if case.absent) < self.whole
            or self.seeds < 5
            or not self.everyone
        )


def text(bench: Bench, plots: Mapping[str, str] | None = None) -> str:
    """The page; `plots` are names of files by case, relative to it."""
    by_name = {one.case.name: one for one in bench.results}
    parts = [HEAD, *_state(bench), *_verdicts(verdicts(by_name)), METHOD, *_peers()]
    parts.append("\n## Scenarios\n")
    varied = [one for one in bench.results if one.case.baseline and one.case.baseline != one.case.name]
    for one in bench.results:
        if one not in varied or rivals(one):
            parts += _scenario(one, (plots or {}).get(one.case.name, ""))
    parts += [*_axes(by_name, varied), *_subsets(bench.results), *_cost(bench)]
    return "".join(parts)


def _state(bench: Bench) -> Iterator[str]:
    yield (
        f"\n{len(bench.results)} scenarios, {bench.seeds} {'seed' if bench.seeds == 1 else 'seeds'} each, peers tuned "
        f"on {bench.training} others.\n"
    )
    if bench.partial:
        yield (
            f"\n**This page is of a part of the bench:** the whole has {bench.whole} scenarios, five seeds and all "
            "contenders. What was not run is said as such.\n"
        )
    if bench.absent:
        yield "\nLeft out:\n\n"
        yield from (f"* {case.title}: {why}\n" for case, why in bench.absent)


def _verdicts(found: Sequence[Verdict]) -> Iterator[str]:
    yield "\n## What was asked for, and what came of it\n\n| | asked | measured | |\n| --- | --- | --- | --- |\n"
    for one in found:
        mark = "not measured" if one.met is None else "met" if one.met else "**not met**"
        yield f"| {one.place} | {one.asked} | {one.measured} | {mark} |\n"
    yield from _grounds([one for one in found if one.met is False])


def _grounds(missed: Sequence[Verdict]) -> Iterator[str]:
    """Why each that is not met is not; those that have the same ground share a line."""
    if not missed:
        return
    yield f"\n### Why\n\nWhat was found by looking into runs on training seeds, {LOOKED}:\n\n"
    whose: dict[str, list[str]] = {}
    for one in missed:
        for name in one.grounds or ("",):
            whose.setdefault(name, []).append(_title(one, name))
    for name, titles in whose.items():
        yield f"* **{'; '.join(titles)}.** {GROUNDS.get(name, NOBODY)}\n"


def _title(one: Verdict, ground: str) -> str:
    """The criterion in a few words: of those that many scenarios share, the scenario."""
    part = ground.partition(":")
    if part[0] == "elsewhere":
        return next(case.title for case in cases() if case.name == part[2])
    return f"{one.place}, {one.asked}"


def _peers() -> Iterator[str]:
    yield "\n## The peers, and what of them is emulated\n\n"
    for one in contenders.peers():
        grid = ", ".join(f"{value:g}" for value in one.grid)
        yield f"* **{one.name}**, `{one.tuned}` of {grid}. {one.about}\n"


def _scenario(result: Result, plot: str) -> Iterator[str]:
    case = result.case
    yield f"\n### {case.title}\n\n{case.about}\n\n"
    events = [event["name"] for event in case.scenario["events"]]
    columns = [*COLUMNS[:3], *(f"in {name}, critical %" for name in events), *COLUMNS[3:]]
    yield f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n"
    for name in result.runs:
        yield _row(result, name, events)
    yield from _notes(result, events)
    for event in events if rivals(result) and case.tenants else ():
        yield from _by_tenant(result, event)
    if plot:
        yield f"\n![{case.title}: load, replicas and attainment over time]({plot}-time.svg)\n"
        yield f"\n![{case.title}: GPU-hours over critical requests missed]({plot}-cost.svg)\n"


def _row(result: Result, name: str, events: Sequence[str]) -> str:
    some = runs(result, name)
    if not some:
        return f"| {contender(name)} | none attains as much |{' |' * (len(COLUMNS) + len(events) - 2)}\n"
    own = name == GOVERNOR
    found = len(some) if len(some) == len(result.seeds) else f"{len(some)} of {len(result.seeds)} seeds"
    title = contender(name) + ("" if found == len(some) else f" ({found})")
    cells = [
        f"**{title}**" if own else title,
        share(average(some, critical)),
        share(average(some, everything)),
        *(share(average(some, inside(event))) for event in events),
        number(average(some, hours), 2),
        "" if own else signed(difference(result, name, hours)),
        "" if own else signed(difference(result, name, critical), 100),
        number(average(some, lambda one: one.reversals_per_hour)),
        number(average(some, lambda one: float(one.peak)), 0),
        f"{result.tuned[name]:g}" if name in result.tuned else "",
    ]
    return f"| {' | '.join(cells)} |\n"


def _notes(result: Result, events: Sequence[str]) -> Iterator[str]:
    own = runs(result)
    told = []
    if alike := equals(result):
        over = ratio(result, alike[0])
        if over is not None:
            told.append(
                f"Governor used {times(over)} times the GPU-hours of {alike[0]}, the cheapest peer that attains as "
                "much."
            )
    elif rivals(result):
        told.append("No peer attains as much as Governor.")
    if ORACLE in result.runs and (over := ratio(result, ORACLE)) is not None:
        told.append(f"It used {times(over)} times those of the oracle of equal attainment.")
    floor = average(own, lambda one: one.floor)
    if floor is not None:
        event = result.case.floor
        shed = average(own, lambda one: shed_share(one, event))
        told.append(f"Shed in {event}: {share(shed)} % with Governor; the arithmetic floor is {share(floor)} %.")
    for event in events:
        times_ = [one.events[event].recovered for one in own]
        if any(one is None for one in times_):
            told.append(f"After {event}, Governor had not recovered before the end in {times_.count(None)} of "
                        f"{len(times_)} runs.")  # fmt: skip
    least = min((part for one in own for part in one.fairness.values()), default=None)
    if least is not None:
        told.append(f"The least share of a tenant of its max-min share was {least:.2f}.")
    hit = average(own, lambda one: one.hit_rate)
    if hit and hit > 0.02:
        told.append(f"Hit rate {hit:.0%}.")
    if told:
        yield "\n" + " ".join(told) + "\n"


def _by_tenant(result: Result, event: str) -> Iterator[str]:
    """Whose requests those are that are attained: who sends most is most of any share of all."""
    names = list(result.case.tenants)
    yield f"\nAttained inside {event}, by tenant, %. Without caps the gate's fair queue divides what waits, and sheds "
    yield "what may be shed, whoever sends it. With them each has its own; who floods is most of what is refused.\n\n"
    yield f"| contender | {' | '.join(names)} |\n|{' --- |' * (len(names) + 1)}\n"
    for name, found in result.runs.items():
        inside_ = [one.tenants_in.get(event, {}) for one in found if one is not None]
        told = [[some[who].attained for some in inside_ if who in some] for who in names]
        yield f"| {contender(name)} | {' | '.join(share(fmean(some) if some else None) for some in told)} |\n"


def _axes(results: Mapping[str, Result], varied: Sequence[Result]) -> Iterator[str]:
    shown = [one for one in varied if not rivals(one)]
    if not shown:
        return
    yield (
        "\n## One thing varied at a time\n\nGovernor alone, against the case that is varied.\n\n"
        "| case | critical % | all % | in event, critical % | GPU-hours | critical, points | GPU-hours |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    for one in shown:
        own, base = runs(one), results.get(one.case.baseline)
        event = next((event["name"] for event in one.case.scenario["events"]), "")
        gaps = ["", ""]
        if base is not None and base.seeds == one.seeds and base.case.name != one.case.name:
            pairs = list(zip(own, runs(base), strict=False))
            gaps = [
                signed(mean([critical(a) - critical(b) for a, b in pairs]), 100),
                signed(mean([hours(a) - hours(b) for a, b in pairs])),
            ]
        cells = [
            one.case.title, share(average(own, critical)), share(average(own, everything)),
            share(average(own, inside(event))), number(average(own, hours), 2), *gaps,
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |\n"


def _subsets(results: Sequence[Result]) -> Iterator[str]:
    for one in results:
        if one.subsets:
            yield (
                f"\n## Sets of levers on {one.case.title}\n\nCritical requests that were answered in time, by consent "
                "also with a smaller model.\n\n| levers | in flash, critical % | critical % | of that smaller model | "
                "GPU-hours |\n| --- | --- | --- | --- | --- |\n"
            )
            rows = [
                ("none", runs(one, NONE)),
                *((", ".join(levers), some) for levers, some in one.subsets.items()),
            ]
            for name, some in rows:
                cells = [
                    name, share(average(some, subsets.inside)), share(average(some, subsets.whole)),
                    share(average(some, lambda it: it.critical.degraded / max(1, it.critical.offered))),
                    number(average(some, hours), 2),
                ]  # fmt: skip
                yield f"| {' | '.join(cells)} |\n"


def _cost(bench: Bench) -> Iterator[str]:
    total = sum(one.cpu for one in bench.results)
    yield (
        f"\n## What it took\n\n{total:,.0f} core-seconds of simulation in all; by scenario:\n\n"
        "| scenario | core-seconds | runs of Governor | of peers | searches |\n| --- | --- | --- | --- | --- |\n"
    )
    for one in sorted(bench.results, key=lambda result: -result.cpu):
        searches = sum(len(one.runs.get(name, ())) for name in SEARCHED)
        peers = sum(len(some) for name, some in one.runs.items() if name in one.tuned)
        yield f"| {one.case.title} | {one.cpu:,.0f} | {len(one.runs[GOVERNOR])} | {peers} | {searches} |\n"
