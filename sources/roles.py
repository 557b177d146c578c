"""Roles: which metric names a candidate is read from, and what each series is to it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from controller.core.facts import Fact
from controller.core.ports import PoolNeeds
from sources.contracts.contract import Candidate, Contract
from sources.frames import SeriesKey


class Use(NamedTuple):
    """A role that a metric name plays: a part of a candidate of a fact, and what it is to it."""

    fact: Fact
    rank: int
    part: int
    candidate: Candidate
    role: str  # value | bucket | count | sum | over


def sample_names(contract: Contract) -> frozenset[str]:
    """Every sample name that any fact of a contract can be read from, partners and targets' health included."""
    names = {"up", "process_start_time_seconds"}
    for candidates in contract.candidates.values():
        for candidate in candidates:
            names.update(spelling for spelling, _ in announcing(candidate))
            for piece in candidate.parts:
                names.update(name for name, _ in roles(piece))
                names.update({piece.only_with.metric} if piece.only_with else ())
    return frozenset(names)


def announcing(candidate: Candidate) -> list[tuple[str, str]]:
    """Sample names that show a name in `born_with` to be there: itself, or the count of a histogram of that name."""
    return [(f"{name}{suffix}", name) for name in candidate.born_with for suffix in ("", "_count")]


def roles(piece: Candidate) -> list[tuple[str, str]]:
    """The sample names of one part, each with its role."""
    if piece.kind == "histogram":
        return [
            (f"{piece.metric}_bucket", "bucket"),
            (f"{piece.metric}_count", "count"),
            (f"{piece.metric}_sum", "sum"),
        ]
    if piece.kind == "mean":
        return [(piece.metric, "sum"), (piece.count_metric, "count")]
    return [(piece.metric, "value"), *([(piece.over.metric, "over")] if piece.over else [])]


def slot_of(use: Use, labels: dict[str, str]) -> float | str | None:
    """The upper edge of a bucket in the unit of the fact, or else the role; None for an edge that cannot be read.
    "10" and "10.0" are one edge, whichever client library wrote it."""
    if use.role != "bucket":
        return use.role
    try:
        edge = float(labels.get("le", ""))
    except ValueError:
        return None
    return None if math.isnan(edge) else edge * use.candidate.scale


def member_of(use: Use, name: str, labels: dict[str, str], replica: str) -> SeriesKey:
    """What all series of one counter or one histogram of one process have in common."""
    candidate = use.candidate
    if candidate.kind in ("counter", "histogram") and candidate.within == "max":
        return (candidate.metric, (("", replica),))
    if use.role != "value":
        name = candidate.metric
    gone = {"le", *candidate.duplicates}
    return (name, tuple(pair for pair in labels.items() if pair[0] not in gone))


def best(candidates: Sequence[Candidate], names: set[str], need: PoolNeeds) -> int | None:
    """The rank of the candidate to read where `names` are exposed; None when there is none."""
    kind = need.workload[1].lower() if need.workload else ""
    fitting = [(rank, c) for rank, c in enumerate(candidates) if c.workload_kind.lower() in ("", kind)]
    for rank, candidate in fitting:
        needed = {name for name, role in roles(candidate) if role != "sum" or candidate.kind == "mean"}
        if candidate.kind == "histogram":
            needed = {f"{candidate.metric}_bucket"}
        if needed <= names:
            return rank
    for rank, candidate in fitting:
        if names.intersection(candidate.born_with):
            return rank
    # Better part of a sum than nothing of it: the rest is zero, or served by a layer that is not scraped.
    return next((rank for rank, c in fitting if any({name for name, _ in roles(p)} <= names for p in c.plus)), None)
