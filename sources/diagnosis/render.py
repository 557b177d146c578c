"""The diagnosis as text for a terminal and as JSON."""

from collections.abc import Iterator
from typing import Any

from controller.core.signals import INFO
from sources.contracts.contract import Candidate
from sources.diagnosis.model import Diagnosis, Row


def render(diagnosis: Diagnosis) -> str:
    """Plain text, ending in a newline."""
    return "\n".join(_lines(diagnosis)) + "\n"


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The same as plain data; the keys are stable."""
    return {
        "engine": diagnosis.engine,
        "title": diagnosis.title,
        "also": list(diagnosis.also),
        "signals": {row.signal.value: _row(row) for row in diagnosis.rows},
        "histograms": [
            {
                "fact": histogram.fact.value, "metric": histogram.metric, "edges": list(histogram.edges),
                "count": histogram.count, "above_last_edge": histogram.above,
            }
            for histogram in diagnosis.histograms
        ],
        "findings": [
            {"level": finding.level.value, "subject": finding.subject, "text": finding.text}
            for finding in diagnosis.findings
        ],
        "failed": diagnosis.failed,
    }  # fmt: skip


def selector(candidate: Candidate) -> str:
    """The metric with its label filter, as PromQL writes it."""
    where = ",".join(f'{m.label}{m.op}"{m.value}"' for m in candidate.where)
    return f"{candidate.metric}{{{where}}}" if where else candidate.metric


def expression(candidate: Candidate) -> str:
    """How the fact is read, in one line."""
    text = selector(candidate)
    if candidate.kind == "mean":
        text = f"{text} / {candidate.count_metric}"
    if candidate.over is not None:
        text = f"{text} / {selector(candidate.over)}"
    if candidate.scale != 1:
        text = f"{text} * {candidate.scale:g}"
    return " + ".join([text, *(expression(part) for part in candidate.plus)])


def _row(row: Row) -> dict[str, Any]:
    unit = INFO[row.signal].unit
    if not row.supported:
        return {"status": "unsupported", "unit": unit, "why": row.why}
    facts = {
        fact.value: {
            "metric": candidate.metric, "kind": candidate.kind, "expression": expression(candidate),
            "scale": candidate.scale, "observed_at": candidate.observed_at, "note": candidate.note,
        }
        for fact, candidate in row.facts.items()
    }  # fmt: skip
    return {"status": "resolved", "unit": unit, "metrics": list(row.metrics), "facts": facts}


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    also = f" (also seen: {', '.join(diagnosis.also)})" if diagnosis.also else ""
    yield f"engine: {diagnosis.title}{also}"
    yield ""
    width = max(len(row.signal.value) for row in diagnosis.rows)
    noted: set[str] = set()
    for row in (row for row in diagnosis.rows if row.supported):
        for number, (fact, candidate) in enumerate(row.facts.items()):
            lead = row.signal.value if number == 0 else ""
            what = "" if fact.value == row.signal.value else f"{fact.value}: "
            note = f"  ({candidate.note})" if candidate.note and candidate.note not in noted else ""
            noted.add(candidate.note)
            yield f"  {lead:<{width}}  {what}{expression(candidate)}{note}"
    missing = [row for row in diagnosis.rows if not row.supported]
    if missing:
        yield ""
        yield "unsupported"
        for row in missing:
            yield f"  {row.signal.value:<{width}}  {row.why}"
    if diagnosis.histograms:
        yield ""
        yield "bucket edges, seconds"
        for histogram in diagnosis.histograms:
            edges = " ".join(f"{edge:g}" for edge in histogram.edges)
            yield f"  {histogram.fact.value:<{width}}  {edges}"
    if diagnosis.findings:
        yield ""
        yield "findings"
        for finding in diagnosis.findings:
            yield f"  {finding.level.value + ':':<9}{finding.subject}: {finding.text}"
