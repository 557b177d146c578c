"""Recording rules: the costly increments, those of histograms, computed by Prometheus itself every 15 s.

Governor then adds up the recorded increments of its tick, which costs one row per pool and edge instead of one per
replica and edge. Names and reading are here, the rule file is written by ``rulefile``.
"""

from controller.core.facts import Fact, Kind
from sources.contracts.contract import Candidate, Contract
from sources.prometheus.plan import Question
from sources.prometheus.promql import aggregate, selector, tagged

STEP = 15.0
RAW = frozenset({Fact.PROMPT_LENGTHS})  # asked for by few, so that no rule records them for all


def labels(contract: Contract) -> tuple[str, ...]:
    """What the rules keep; pools that select by other labels are read from the raw series."""
    return tuple(label for label in ("namespace", "job", contract.model_label) if label)


def name(contract: Contract, fact: Fact, candidate: Candidate, suffix: str) -> str:
    """The name of the recorded increments of ``<metric>_<suffix>``. Contracts may share a metric, so it says whose."""
    return f"governor:{contract.engine}:{fact}:{candidate.metric}_{suffix}:increase{STEP:g}s"


def recorded(question: Question, back: float) -> str:
    """The query that reads the rules instead of the raw series, or "" when the rules do not hold what is asked."""
    contract = question.family.contract
    kept = set(labels(contract))
    if question.family.platform or question.fact.kind is not Kind.HISTOGRAM or question.fact in RAW:
        return ""
    for part in question.parts:
        if part.candidate.kind != "histogram" or {*part.labels, *(m.label for m in part.place.matchers)} - kept:
            return ""
    # A range includes both its ends; without the millisecond a rule sample on the seam would count twice.
    span = f"[{max(1, round(back * 1000) - 1)}ms]"
    terms: list[str] = []
    for part in question.parts:
        for suffix, by in (("bucket", (*part.labels, "le")), ("sum", part.labels)):
            series = selector(name(contract, question.fact, part.candidate, suffix), part.place.matchers)
            terms.append(tagged(part.tag, aggregate("sum", by, f"sum_over_time({series}{span})")))
    return " or ".join(terms)
