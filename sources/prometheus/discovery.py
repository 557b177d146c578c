"""Discovery: which of the names that a family may read exist now, for which pools, scraped by which jobs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.facts import Fact
from controller.core.ports import Matcher
from sources.contracts.contract import Candidate
from sources.prometheus.assign import Assignment, common_matchers
from sources.prometheus.family import Family
from sources.prometheus.promql import literal, one_of, selector
from sources.prometheus.transport import Row

# What tells that a replica is there and when it was scraped; looked for even when no objective names it.
ALIVE = (Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE)


@dataclass(frozen=True, slots=True)
class Found:
    """What exists of a family. `by_pool` holds the names of each pool that has any; `named` the names whose series
    carry the model label; `jobs` who scrapes them."""

    names: frozenset[str] = frozenset()
    by_pool: Mapping[str, frozenset[str]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()

    def has(self, candidate: Candidate) -> bool:
        """Whether the candidate's own series exist (of a histogram its ``_count`` was looked for)."""
        return (f"{candidate.metric}_count" if candidate.kind == "histogram" else candidate.metric) in self.names

    def up(self) -> str:
        """The selector of the health of these targets."""
        return selector("up", one_of("job", self.jobs))

    def joined(self, other: "Found") -> "Found":
        """Both findings."""
        pools = self.by_pool.keys() | other.by_pool.keys()
        none: frozenset[str] = frozenset()
        return Found(
            self.names | other.names,
            {pool: self.by_pool.get(pool, none) | other.by_pool.get(pool, none) for pool in pools},
            self.named | other.named,
            self.jobs | other.jobs,
        )


def unborn(family: Family, found: Found) -> tuple[str, ...]:
    """Names that some pool does not expose while it exposes others. Most are of other versions and cost nothing to look
    for again; a few are born with their first event, and must not wait for the next full look."""
    if family.platform:
        return ()
    return tuple(name for name in wanted_names(family) if any(name not in of for of in found.by_pool.values()))


def question(family: Family, wanted: Sequence[str] = ()) -> str:
    """The query whose rows `read` understands. One row per name, job and pool, for `wanted` names (all by default)."""
    names = "|".join(literal(name) for name in wanted or wanted_names(family))
    matchers: tuple[Matcher, ...] = (Matcher("__name__", "=~", names),)
    labels: tuple[str, ...] = ("__name__", "job")
    if not family.platform:
        matchers += common_matchers(family.pools, (family.contract.model_label,))
        labels += Assignment(family.pools).labels
    return f"count by ({','.join(dict.fromkeys(labels))}) ({selector('', matchers)})"


def read(family: Family, rows: Iterable[Row]) -> Found:
    """What the rows of `question` say."""
    model = family.contract.model_label
    with_model, without_model = Assignment(family.pools), Assignment(family.pools, (model,))
    names: set[str] = set()
    named: set[str] = set()
    jobs: set[str] = set()
    by_pool: dict[str, set[str]] = {}
    for row, _ in rows:
        name = row.get("__name__", "")
        carries = bool(model) and bool(row.get(model))
        pools = () if family.platform else (with_model if carries or not model else without_model).pools(row)
        for pool in pools:
            by_pool.setdefault(pool.pool, set()).add(name)
        if pools or family.platform:
            names.add(name)
            jobs.add(row.get("job", ""))
            if carries:
                named.add(name)
    return Found(
        frozenset(names), {pool: frozenset(of) for pool, of in by_pool.items()}, frozenset(named), frozenset(jobs)
    )


def alive(family: Family, found: Found) -> tuple[str, ...]:
    """Names of series that every replica has, best first: one generation of the running gauge, else anything."""
    usable = found.named or found.names
    for fact in ALIVE:
        names = tuple(c.metric for c in family.contract.candidates.get(fact, ()) if c.metric in usable)
        if names:
            return names
    return tuple(sorted(usable))[:1]


def wanted_names(family: Family) -> tuple[str, ...]:
    """Every name that is looked for. Empty for an engine that exposes nothing."""
    if family.platform:
        return family.names()
    own = family.names()
    more = [c.metric for fact in ALIVE for c in family.contract.candidates.get(fact, ())]
    return tuple(dict.fromkeys((*own, *more)))
