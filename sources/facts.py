"""Recordings of facts: imported columns are kept as series that name their fact, so that one file format, one reader
and one arithmetic serve raw metrics and tables alike.

A counter fact becomes ``fact:<name>_total``, a gauge ``fact:<name>``, and a mean with its count the two counters
``fact:<name>_sum`` and ``fact:<name>_count``.
"""

from collections.abc import Mapping

from controller.core.facts import Fact, Kind
from sources.contracts.contract import Candidate, Contract

_MEANS = frozenset({Fact.KV_USAGE, Fact.PREFIX_HIT_RATIO, Fact.GPU_UTILISATION, Fact.SATURATION})


def series_name(fact: Fact, part: str = "") -> str:
    """The series of a fact; `part` is "sum" or "count" for a latency."""
    if fact.kind is Kind.HISTOGRAM:
        return f"fact:{fact.value}_{part}"
    return f"fact:{fact.value}_total" if fact.kind is Kind.COUNTER else f"fact:{fact.value}"


def contract(origin: Mapping[str, str]) -> Contract:
    """The contract that reads a recording of facts. `origin` maps each fact in it to what it was read from."""
    kept = [fact for fact in Fact if fact.value in origin]
    return Contract(
        engine="facts",
        title="recorded facts",
        model_label="",
        marks=("fact:",),
        candidates={fact: (_candidate(fact),) for fact in kept},
        unsupported={fact: "not in this recording" for fact in Fact if fact not in kept},
        hints={},
    )


def _candidate(fact: Fact) -> Candidate:
    if fact.kind is Kind.HISTOGRAM:
        return Candidate(series_name(fact, "sum"), "mean", count_metric=series_name(fact, "count"))
    combine = "mean" if fact in _MEANS else "sum"
    return Candidate(series_name(fact), fact.kind.value, within=combine, across=combine)
