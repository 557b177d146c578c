"""docs/second-plant.md: what both plants said, whether they agree, and where not. Every number is of results.json."""

import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from benchmarks.second_plant import cases, ranking
from benchmarks.second_plant.cases import Case
from benchmarks.second_plant.ranking import Measure
from benchmarks.second_plant.run import DYNAMO, TWIN, Outcome
from controller.core.step_model import Profile

NAMES: Mapping[str, str] = {
    cases.GOVERNOR: "Governor",
    **{cases.hpa(target): f"HPA at {target:g} in flight" for target in cases.HPAS},
    cases.NONE: f"nobody ({cases.START} replicas)",
    cases.STATIC: f"static ({cases.PEAK} replicas)",
}
WIDTH = 118
PLANTS: Mapping[str, str] = {DYNAMO: "Dynamo", TWIN: "twin"}


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a mock worker that was measured, and what the fit says of it: seconds."""

    prefill: float
    sequences: float
    kv: float
    seconds: float
    fitted: float


@dataclass(frozen=True, slots=True)
class Results:
    """All that the page is made of. `date` is the day of the real runs, `cores` of the machine, `version` Dynamo's;
    `error` the mean relative error of the fit."""

    date: str
    version: str
    cores: int
    profile: Profile
    error: float
    steps: Sequence[Step]
    outcomes: Sequence[Outcome]


def text(results: Results) -> str:
    """The whole page."""
    blocks = (_head(results), *_cases(results), _verdict(results), _differ(results))
    return "\n\n".join(_wrapped(part) for block in blocks for part in block.strip("\n").split("\n\n")) + "\n"


def _wrapped(part: str) -> str:
    """Prose and lists in lines of one length; tables, headings and comments as they are."""
    if part.startswith(("|", "#", "<!--")):
        return part
    if not part.startswith("- "):
        return textwrap.fill(" ".join(part.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
    items = (" ".join(one.split()) for one in part.removeprefix("- ").split("\n- "))
    return "\n".join(
        textwrap.fill(f"- {one}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for one in items
    )


def _head(results: Results) -> str:
    real = [one for one in results.outcomes if one.plant == DYNAMO]
    seeds = sorted({one.seed for one in real})
    return f"""# A second plant

<!-- Made by `python -m benchmarks.second_plant`; edit the words in benchmarks/second_plant/page.py. -->

Governor and its peers are compared on the fleet twin, which we wrote. Here the same policies drive a plant that we did
not write, in real time: the frontend of NVIDIA Dynamo {results.version} with its mock workers, as processes on the
loopback of one machine. `python -m benchmarks.second_plant` installs it (PyPI, pinned hashes, into `build/`), measures,
and writes this page from `benchmarks/second_plant/results.json`; `--page` writes the page alone.

What is compared is not the numbers but the order: does the twin put policies in the order in which Dynamo puts them?

| | Dynamo | twin |
| --- | --- | --- |
| replica | one `dynamo.mocker` process, {cases.SEATS} seats, {cases.KV_TOKENS:,} KV tokens, \
`--speedup-ratio {cases.SPEED}` | the same seats and cache, step times fitted to the mocker |
| router | Dynamo's own, `least-loaded` | `least-loaded` |
| metrics | pages of frontend and workers at each tick, contract `dynamo` | pages of engines and gateway, each second |
| new replica | its process is let in after {cases.COLD_START:g} s | {cases.COLD_START:g} s |
| ended replica | SIGTERM; it finishes what it has begun | drains |
| time | real | virtual |
| requests | open loop, {_and(f"seed {seed}" for seed in seeds)} | the same requests at the same times |

Prompts have {cases.PROMPT} tokens and answers {cases.ANSWER} in the mean, lognormal. A request is good when its first
token came within {cases.TTFT:g} s and the others at {cases.TPOT * 1000:.0f} ms each in the mean, as the client saw
it; what the machine delayed is late as well. All requests that are offered count, but for the first {cases.WARM_UP:g}
s and the last {cases.COOL_DOWN:g} s. Controllers join after {cases.FIRST:g} s, when the fleet serves. Replica-seconds
run from asking until the process is gone. There is no gate in front of either plant, and clients wait for ever: it is
about replicas alone.

Times are those of the control bench divided by nine, so that a run takes minutes: a tick each {cases.INTERVAL:g} s, a
cold start of {cases.COLD_START:g} s, Governor's limits and the HPA's stabilisation alike. What Governor has as
constants (how it learns, in what time a queue is to be drained) is not divided, so that it is slower here than it is at
full scale, and this page says nothing about how good it is. It is told the fitted step times."""


_HEADS = (
    "", "attained, Dynamo", "attained, twin", "replica-seconds, Dynamo", "twin", "most replicas", "p95 TTFT",
    "ticks skipped",
)  # fmt: skip


def _cases(results: Results) -> Iterator[str]:
    for case in cases.CASES:
        told = f"{case.rate:g} requests/s; {case.about}. {case.seconds:g} s."
        rows = [f"| {' | '.join(_HEADS)} |", "| --- |" + " --- |" * (len(_HEADS) - 1)]
        rows += [_row(results, case, contender) for contender in cases.contenders()]
        yield "\n".join([f"## {case.name.capitalize()}\n\n{told}\n", *rows])


def _row(results: Results, case: Case, contender: str) -> str:
    some = [one for one in results.outcomes if (one.case, one.contender) == (case.name, contender)]
    real, twin = ([one for one in some if one.plant == plant] for plant in (DYNAMO, TWIN))
    cells = (
        NAMES[contender],
        *(_span([one.attained for one in runs], lambda value: f"{value:.1%}") for runs in (real, twin)),
        *(_span([one.replica_seconds for one in runs], lambda value: f"{value:,.0f}") for runs in (real, twin)),
        f"{max(one.most for one in real)}, {max(one.most for one in twin)}",
        f"{fmean(one.ttft for one in real):.1f} s, {fmean(one.ttft for one in twin):.1f} s",
        str(sum(one.skipped for one in real)),
    )
    return f"| {' | '.join(cells)} |"


def _span(values: Sequence[float], word: Callable[[float], str]) -> str:
    """The mean, and the extremes where they differ."""
    if word(min(values)) == word(max(values)):
        return word(values[0])
    return f"{word(fmean(values))} ({word(min(values))} to {word(max(values))})"


# --- the order -------------------------------------------------------------------------------------------------------


def _verdict(results: Results) -> str:
    lines: list[str] = []
    swapped: list[tuple[Case, Measure, ranking.Pair]] = []
    one_sided: list[tuple[Case, Measure, ranking.Pair]] = []
    agreed = all_of_them = 0
    for case in cases.CASES:
        for measure in Measure:
            real, twin = (_means(results, plant, case, measure) for plant in (DYNAMO, TWIN))
            pairs = ranking.pairs(real, twin, measure)
            swapped += [(case, measure, pair) for pair in pairs if pair.swapped]
            one_sided += [(case, measure, pair) for pair in pairs if not (pair.swapped or pair.agreed)]
            agreed += sum(pair.agreed for pair in pairs)
            all_of_them += len(pairs)
            for plant, values in ((DYNAMO, real), (TWIN, twin)):
                lines.append(f"| {case.name} | {measure} | {PLANTS[plant]} | {_ordered(values, measure)} |")
    head = "## Is the order the same?\n\n"
    table = "| scenario | by | plant | best first |\n| --- | --- | --- | --- |\n" + "\n".join(lines)
    close = (
        f"Of two contenders whose means differ by less than {ranking.CLOSE[Measure.ATTAINED] * 100:g} points, or by "
        f"less than {ranking.CLOSE[Measure.COST]:.0%} of their replica-seconds, neither is ahead (≈). By that rule the "
        f"plants say the same of {agreed} of {all_of_them} pairs, and the opposite of {len(swapped)}."
    )
    answer = "**Not everywhere.**" if swapped else "**Yes.** No two contenders are in opposite orders."
    blocks = [f"{head}{answer} {close}"]
    if swapped:
        blocks += ["Opposite are:", "\n".join(f"- {_numbers(results, *one)}" for one in swapped)]
    if one_sided:
        blocks += [
            "One plant puts in an order what the other leaves open:",
            "\n".join(f"- {_numbers(results, *one)}" for one in one_sided),
        ]
    return "\n\n".join([*blocks, table])


def _ordered(values: Mapping[str, float], measure: Measure) -> str:
    """Names, the best first, with what stands between each and the next."""
    names = ranking.order(values, measure)
    words = NAMES[names[0]]
    for before, name in itertools.pairwise(names):
        words += f" {'>' if ranking.ahead(values, before, name, measure) else '≈'} {NAMES[name]}"
    return words


def _numbers(results: Results, case: Case, measure: Measure, pair: ranking.Pair) -> str:
    def told(plant: str) -> str:
        values = _means(results, plant, case, measure)
        one, other = (
            f"{values[name]:.1%}" if measure is Measure.ATTAINED else f"{values[name]:,.0f}"
            for name in (pair.first, pair.second)
        )
        return f"{one} and {other} on {'Dynamo' if plant == DYNAMO else 'the twin'}"

    names = f"{NAMES[pair.first]} and {NAMES[pair.second]}"
    return f"{case.name}, {measure}: {names} have {told(DYNAMO)}, {told(TWIN)}."


def _means(results: Results, plant: str, case: Case, measure: Measure) -> dict[str, float]:
    return {
        contender: ranking.mean(results.outcomes, plant, case.name, contender, measure)
        for contender in cases.contenders()
    }


# --- what differs ----------------------------------------------------------------------------------------------------


def _differ(results: Results) -> str:
    real = [one for one in results.outcomes if one.plant == DYNAMO]
    cold = [one.cold_start for one in real if one.cold_start is not None]
    lags = [one.lag for one in real if one.lag is not None]
    loads = [one.load for one in real if one.load is not None]
    failed = sum(one.missed.get("failed", 0) for one in real)
    profile = results.profile
    rows = "\n".join(
        f"| {one.prefill:g} | {one.sequences:g} | {one.kv:g} | {_ms(one.seconds)} | {_ms(one.fitted)} |"
        for one in results.steps
    )
    return f"""## What differs between the plants

- **Step times.** The mocker's law is of the second degree in the share of its cache that is used, with a constant for
  each prefill; the twin's is linear: {profile.a * 1000:.1f} ms a step, {profile.b * 1e6:.0f} µs a prefill token,
  {profile.c * 1000:.2f} ms a sequence, {profile.d * 1e6:.1f} µs a KV token. The fit is off by {results.error:.1%} in
  the mean; the table below has every step. Governor is told the fit on both plants.
- **Metrics.** Dynamo tells latencies at its frontend in buckets that double, and its time between tokens is a histogram
  of single chunks, prefills of others in between included. Prompts are counted by the frontend when their first token
  comes. The workers tell running, waiting and the cache under vLLM's names.
- **The machine.** {results.cores} cores, shared with other work: a load of {min(loads):.1f} to {max(loads):.1f}. All
  contenders in both scenarios of a seed ran at the same time, so that they shared it alike. The client sent the 99th
  percentile of its requests {max(lags) * 1000:.0f} ms late at worst. Answers that did not come whole: {failed}.
- **Ends.** A mock worker that gets SIGTERM leaves the store of addresses and finishes; a request that the frontend
  sends to it in that moment fails. The twin's gateway knows at once.
- **Cold start.** A new replica served {median(cold):.1f} s after it was asked for (median of the runs), on the twin
  {cases.COLD_START:g} s.

| prefill tokens | sequences | KV tokens | measured | fitted |
| --- | --- | --- | --- | --- |
{rows}

## What it found

- The contract `dynamo` added what the frontend has in flight to what the workers run when both were scraped, as it
  tells one to. Governor then saw batches of twice their size, took the engine for faster than it is, and asked for
  replicas too late: in the flash it kept far fewer promises than on the twin. What a frontend counts is now read only
  where no worker tells (`tests/recording/test_increments.py`, `tests/prometheus/test_frontend.py`), and the runs above
  were made after that.
- A fleet and a controller that begin in the same second: prompts are counted when their first token comes, answers when
  they end, so that for a few windows prompts look longer than they are and Governor asks for too much. Here
  controllers join later, on both plants.

Measured on {results.date}."""


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _and(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
