"""What is wrong with a scrape, or will mislead whoever reads it."""

import difflib
import re
from collections.abc import Iterator, Mapping

from controller.core.facts import Fact
from sources.contracts import engines, load
from sources.contracts.contract import Candidate, Contract
from sources.contracts.resolve import base_name, marked
from sources.diagnosis.model import Finding, Histogram, Level
from sources.diagnosis.values import gauge_values
from sources.exposition import Exposition

RATIOS = (Fact.KV_USAGE, Fact.PREFIX_HIT_RATIO, Fact.GPU_UTILISATION)
# A first edge at or above this, or a last one below that, hides what objectives usually ask for (seconds).
USUAL_TARGETS = {
    Fact.TTFT: (0.1, 60.0), Fact.TPOT: (0.02, 1.0), Fact.ITL: (0.02, 1.0), Fact.E2E: (1.0, 120.0),
    Fact.QUEUE_TIME: (0.25, 60.0),
}  # fmt: skip
# Labels that repeat a quantity or split it into parts.
CAREFUL = {
    "pid": "several API server processes repeat each gauge",
    "tp_rank": "ranks may repeat each gauge",
    "priority": "the series with an empty priority is the total of the others",
}


def lint_engine(contract: Contract | None, seen: tuple[str, ...], names: frozenset[str]) -> tuple[Finding, ...]:
    """Whether the engine's metrics are there at all."""
    if contract is None:
        near = _near(names)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; there are {', '.join(engines())}"
        return (Finding(Level.ERROR, "engine", f"no metric of a known engine is exposed here{hint}"),)
    if contract.engine not in seen:
        others = f"; it looks like {', '.join(seen)}" if seen else ""
        needs = f" (needs {contract.flags})" if contract.flags else ""
        return (Finding(Level.ERROR, contract.engine, f"no metric of {contract.title} is exposed here{needs}{others}"),)
    return ()


def lint(
    contract: Contract, chosen: Mapping[Fact, Candidate | str], page: Exposition, histograms: tuple[Histogram, ...]
) -> tuple[Finding, ...]:
    """Findings on names, values and buckets, worst first."""
    found = [
        *_ratios(chosen, page),
        *_names(contract, page.names),
        *_generations(contract, page.names),
        *_buckets(histograms),
        *_labels(contract, page),
        *(Finding(Level.INFO, name, text) for name, text in contract.aka.items() if _exposed(name, page.names)),
    ]
    return tuple(sorted(found, key=lambda finding: list(Level).index(finding.level)))


def _ratios(chosen: Mapping[Fact, Candidate | str], page: Exposition) -> Iterator[Finding]:
    for fact in RATIOS:
        choice = chosen[fact]
        if not isinstance(choice, Candidate):
            continue
        if (high := max((value for _, value in gauge_values(choice, page)), default=0.0)) > 1.5:
            text = f"reads {high:g} where a ratio from 0 to 1 is expected: is it a percentage?"
            yield Finding(Level.ERROR, choice.metric, text)
        if choice.ignore_below == 0 and any(s.name == choice.metric and s.value < 0 for s in page.samples):
            yield Finding(Level.INFO, choice.metric, "reads below zero, which means that it is switched off")


def _names(contract: Contract, names: frozenset[str]) -> Iterator[Finding]:
    """Names under the engine's own prefix that no released version has."""
    for name in sorted(names):
        base = base_name(name)
        if right := contract.never.get(name) or contract.never.get(base):
            yield Finding(Level.ERROR, name, f"exists in no version of {contract.title}; the right name is {right}")
        elif contract.known and name.startswith(contract.marks[0]) and not _known(contract, name) and base == name:
            near = difflib.get_close_matches(name, sorted(contract.known), n=1, cutoff=0.75)
            hint = f"did you mean {near[0]}? " if near else ""
            text = f"exists in no release from {contract.releases}; {hint}Or the engine is newer than its contract"
            yield Finding(Level.WARNING, name, text)


def _known(contract: Contract, name: str) -> bool:
    return any(spelling.removesuffix("_total") in contract.known for spelling in (name, base_name(name))) or (
        name in contract.known or base_name(name) in contract.known
    )


def _generations(contract: Contract, names: frozenset[str]) -> Iterator[Finding]:
    for group in contract.generations:
        present = [name for name in group if _exposed(name, names)]
        if len(present) > 1:
            text = f"the same quantity is exposed as {' and as '.join(present)}: the first is read; a sum doubles it"
            yield Finding(Level.WARNING, present[0], text)


def _exposed(name: str, names: frozenset[str]) -> bool:
    if name.endswith("_"):
        return any(exposed.startswith(name) for exposed in names)
    return name in names or f"{name}_bucket" in names


def _buckets(histograms: tuple[Histogram, ...]) -> Iterator[Finding]:
    for histogram in histograms:
        if histogram.fact not in USUAL_TARGETS:
            continue  # of sizes, of which nobody promises one
        positive = [edge for edge in histogram.edges if edge > 0]
        if not positive:
            yield Finding(Level.WARNING, histogram.metric, "has no finite bucket: only its mean can be read")
            continue
        first, last = positive[0], positive[-1]
        high, low = USUAL_TARGETS[histogram.fact]
        if histogram.above is not None and histogram.above > 0.01:
            text = f"{histogram.above:.0%} of {histogram.count:g} samples lie above the last edge of {last:g} s"
            yield Finding(Level.WARNING, histogram.metric, f"{text}: high quantiles have a lower bound only")
        elif last < low:
            text = f"the last edge is {last:g} s: what is slower cannot be told apart"
            yield Finding(Level.WARNING, histogram.metric, text)
        if first >= high:
            text = f"the first edge is {first:g} s: no quantile reads below it, and no target below it can be measured"
            yield Finding(Level.WARNING, histogram.metric, text)


def _labels(contract: Contract, page: Exposition) -> Iterator[Finding]:
    own = [sample for sample in page.samples if marked(contract, sample.name)]
    for label, text in CAREFUL.items():
        values = {dict(sample.labels).get(label, "") for sample in own}
        if len(values - {""}) > 1:
            yield Finding(Level.INFO, label, f"{text}; Governor counts it once")
    if not contract.model_label:
        return
    models = {dict(sample.labels).get(contract.model_label, "") for sample in own} - {""}
    if models == {"undefined"}:
        text = f'reads "undefined": select the pool by another label than {contract.model_label}'
        yield Finding(Level.WARNING, contract.model_label, text)
    elif own and not models:
        text = f"no sample carries it: select the pool by another label than {contract.model_label}"
        yield Finding(Level.WARNING, contract.model_label, text)
    elif len(models) > 1:
        text = f"{len(models)} models are exposed here ({', '.join(sorted(models))}): a pool must name one"
        yield Finding(Level.INFO, contract.model_label, text)


def _near(names: frozenset[str]) -> tuple[str, ...]:
    """Metrics of known engines that an exposed name resembles when spelt loosely."""
    loose = {re.sub(r"\W", "_", base_name(name)): name for name in names}
    ours = {
        re.sub(r"\W", "_", metric): metric
        for engine in engines()
        for candidates in load(engine).candidates.values()
        for candidate in candidates
        for metric in candidate.metrics
    }
    close = (difflib.get_close_matches(name, sorted(ours), n=1, cutoff=0.8) for name in sorted(loose)[:500])
    return tuple(dict.fromkeys(ours[found] for match in close for found in match))[:3]
