"""Plan: one question per fact for all pools of a family, however many pools there are. Pure.

A question is made of parts, one for each candidate that exists and each of its `plus`; every row says from which part
it came, so that candidates with different scales or bucket edges may answer together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.core.facts import Fact, Kind
from controller.core.ports import PoolNeeds
from sources.contracts.contract import Candidate
from sources.prometheus.discovery import Found, alive
from sources.prometheus.family import ByLabels, ByWorkload, Family
from sources.prometheus.promql import TARGET, Reader, offset, selector
from sources.splits import CLASS, MEANS, TENANT, splits


@dataclass(frozen=True, slots=True)
class Part:
    """One candidate, where its rows belong and by what it is grouped. `tag` is "candidate.plus", or "" for the only
    part of a question. `older` selects better candidates of the same
    targets; `by_target` says that only the target tells the pool."""

    tag: str
    candidate: Candidate
    place: ByLabels | ByWorkload
    labels: tuple[str, ...]
    by_target: bool = False
    older: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One fact of one family, by replica or, if `split` names a kind, by the label of that split; the means of single
    replicas are a split, too. A fact that is wanted in several ways is asked once for each, for their product would be
    a row for each pair; the pool's own value comes from the one that is `whole`."""

    family: Family
    fact: Fact
    parts: tuple[Part, ...]
    split: str = ""
    whole: bool = True

    @property
    def key(self) -> tuple[str, Fact, str]:
        return self.family.contract.engine, self.fact, self.split

    def promql(self, back: float | None, up: str) -> str:
        """The query. `back` is the seconds since the previous observation, None for gauges only."""
        return " or ".join(_expression(part, self.fact, back, up) for part in self.parts)

    def grid(self) -> str:
        """How many series have each edge of this histogram; empty when none of its parts has edges."""
        return " or ".join(
            Reader(part.labels, part.place.matchers).grid(part.tag, part.candidate)
            for part in self.parts
            if part.candidate.kind == "histogram"
        )


def questions(family: Family, found: Found) -> tuple[Question, ...]:
    """What to ask for a family at each tick."""
    asked: list[Question] = []
    for fact in sorted(family.facts):
        per_replica = fact.kind is Kind.GAUGE or any(fact in pool.replica_facts for pool in family.pools)
        kinds = [kind for kind in (CLASS, TENANT) if split_labels(family, fact, kind)]
        for number, kind in enumerate(["", *kinds] if per_replica or not kinds else kinds):
            parts = _parts(family, fact, found, per_replica and not kind, kind)
            if len(parts) == 1:
                parts = (replace(parts[0], tag=""),)
            if parts:
                asked.append(Question(family, fact, parts, kind, whole=number == 0))
        if not per_replica and any(fact in pool.replica_means for pool in family.pools):
            parts = tuple(map(_mean, _parts(family, fact, found, True, "")))
            if parts:
                asked.append(Question(family, fact, parts, MEANS, whole=False))
    return tuple(asked)


def _mean(part: Part) -> Part:
    """The same without buckets."""
    one = part.candidate
    if one.kind == "mean":
        return part
    bare = replace(one, kind="mean", metric=f"{one.metric}_sum", count_metric=f"{one.metric}_count")
    return replace(part, candidate=bare)


def sightings(family: Family, found: Found) -> str:
    """The query for the targets of a family: one row per target, its value the time of its newest sample."""
    names = alive(family, found)
    if family.platform or not names:
        return ""
    blind = () if found.named else (family.contract.model_label,)
    place = ByLabels(family, blind)
    own = {
        label
        for pool in family.pools
        for label in (pool.replica_label, role(pool, family), pool.zone_label, pool.version_label)
    }
    labels = dict.fromkeys((*place.labels, *TARGET, *sorted(own - {""})))
    stamps = " or ".join(f"timestamp({selector(name, place.matchers)})" for name in names)
    return f"max by ({','.join(labels)}) ({stamps})"


def role(pool: PoolNeeds, family: Family) -> str:
    """The label that tells prefill from decode."""
    return pool.role_label or family.contract.role_label


def split_labels(family: Family, fact: Fact, kind: str) -> Mapping[str, str]:
    """By pool, the label that divides this fact in a split of this kind; without the pools that do not want it."""
    return {
        pool.pool: split.label
        for pool in family.pools
        for split in splits(pool, family.contract)
        if split.kind == kind and fact in split.facts
    }


def _parts(family: Family, fact: Fact, found: Found, per_replica: bool, kind: str) -> tuple[Part, ...]:
    candidates = list(enumerate(family.contract.candidates[fact]))
    exposed = [(i, c) for i, c in candidates if found.has(c)]
    # Series may be born with their first event: ask for the best one even before it exists, or its birth is missed.
    chosen = exposed or (candidates if family.platform else candidates[:1])
    parts: list[Part] = []
    for position, (i, candidate) in enumerate(chosen):
        older = "" if family.platform else presence([c for _, c in chosen[:position]])
        for j, part in enumerate(candidate.parts):
            place = _place(family, part if part.workload_labels else candidate)
            if place is not None:
                parts.append(_part(family, f"{i}.{j}", part, place, older, fact, per_replica, kind))
    return tuple(parts)


def _part(
    family: Family,
    tag: str,
    candidate: Candidate,
    place: ByLabels | ByWorkload,
    older: str,
    fact: Fact,
    per_replica: bool,
    kind: str,
) -> Part:
    labels = list(place.labels)
    model = family.contract.model_label
    by_model = any(m.label == model for pool in family.pools for m in pool.matchers)
    by_target = not family.platform and candidate.no_model and by_model
    if by_target:
        labels += TARGET
    summed = candidate.kind in ("histogram", "mean") or candidate.within == candidate.across == "sum"
    if not family.platform and (per_replica or not summed):
        labels += [*(pool.replica_label for pool in family.pools), "instance"]
    labels += split_labels(family, fact, kind).values()
    return Part(tag, candidate, place, tuple(dict.fromkeys(label for label in labels if label)), by_target, older)


def _place(family: Family, candidate: Candidate) -> ByLabels | ByWorkload | None:
    if not family.platform:
        return ByLabels(family, family.blind(candidate))
    place = ByWorkload(family.pools, candidate)
    return None if place.empty else place


def presence(better: Sequence[Candidate]) -> str:
    """A selector of the targets that expose any of these candidates; "" for none."""
    names = [f"{c.metric}_count" if c.kind == "histogram" else c.metric for c in better]
    return names[0] if len(names) == 1 else f"({' or '.join(names)})" if names else ""


def _expression(part: Part, fact: Fact, back: float | None, up: str) -> str:
    reader = Reader(part.labels, part.place.matchers, offset(back) if back is not None else "", up)
    if fact.kind is Kind.GAUGE:
        return reader.gauge(part.tag, part.candidate, part.older)
    if part.candidate.kind == "histogram":
        return reader.histogram(part.tag, part.candidate, part.older)
    if part.candidate.kind == "mean":
        return reader.mean(part.tag, part.candidate, part.older)
    return reader.counter(part.tag, part.candidate, part.older)
