"""Recording rules: the costly increments, those of histograms, computed by Prometheus itself every 15 s.

The file in ``manifests/prometheus`` is written by this module (``python -m sources.prometheus.rules``). Governor then
adds up the recorded increments of its tick, which costs one row per pool and edge instead of one per replica and edge.
"""

import sys
from collections.abc import Iterator

import yaml

from controller.core.facts import Fact, Kind
from sources.contracts import engines, load
from sources.contracts.contract import Candidate, Contract
from sources.prometheus.plan import Question
from sources.prometheus.promql import Reader, aggregate, offset, selector, tagged

STEP = 15.0
# A rule, too, must not read closer to now than a scrape lasts: see the `delay` of the source.
DELAY = 2.0


def labels(contract: Contract) -> tuple[str, ...]:
    """What the rules keep; pools that select by other labels are read from the raw series."""
    return tuple(label for label in ("namespace", "job", contract.model_label) if label)


def name(fact: Fact, candidate: Candidate, suffix: str) -> str:
    return f"governor:{fact}:{candidate.metric.replace(':', '_')}_{suffix}:increase{STEP:g}s"


def recorded(question: Question, back: float) -> str:
    """The query that reads the rules instead of the raw series, or "" when the rules do not hold what is asked."""
    kept = labels(question.family.contract)
    if question.family.platform or question.fact.kind is not Kind.HISTOGRAM:
        return ""
    if any(set(part.labels) - set(kept) or part.candidate.kind != "histogram" for part in question.parts):
        return ""
    if any(m.label not in kept for part in question.parts for m in part.place.matchers):
        return ""
    # A range includes both its ends; without the millisecond a rule sample on the seam would count twice.
    span = f"[{max(1, round(back * 1000) - 1)}ms]"
    terms: list[str] = []
    for part in question.parts:
        for suffix, by in (("bucket", (*part.labels, "le")), ("sum", part.labels)):
            series = selector(name(question.fact, part.candidate, suffix), part.place.matchers)
            terms.append(tagged(part.tag, aggregate("sum", by, f"sum_over_time({series}{span})")))
    return " or ".join(terms)


def document() -> str:
    """The rule file."""
    groups = [
        {"name": f"inference-governor-{engine}", "interval": f"{STEP:g}s", "rules": rules}
        for engine in engines()
        if (rules := list(_rules(load(engine))))
    ]
    head = "# Written by `python -m sources.prometheus.rules`. Load it and set `recording_rules: true` on the source.\n"
    return head + str(yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000))


def _rules(contract: Contract) -> Iterator[dict[str, str]]:
    if contract.scope == "platform":
        return
    reader = Reader(labels(contract), (), offset(STEP + DELAY), "up", offset(DELAY))
    for fact, candidates in contract.candidates.items():
        better: list[str] = []
        for candidate in candidates:
            if candidate.kind == "histogram":
                older = better[0] if len(better) == 1 else f"({' or '.join(better)})" if better else ""
                yield {"record": name(fact, candidate, "bucket"), "expr": reader.buckets(candidate, older)}
                yield {"record": name(fact, candidate, "sum"), "expr": reader.total(candidate, older)}
            better.append(f"{candidate.metric}_count" if candidate.kind == "histogram" else candidate.metric)


if __name__ == "__main__":
    sys.stdout.write(document())
