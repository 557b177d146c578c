"""Families: the pools that are read by one contract, and what of it they need. Pure.

An engine's contract serves the pools of that engine. Platform contracts (kube-state-metrics, DCGM) serve what an engine
cannot tell, for every pool that names a workload; they know workloads and pods, not models.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.contracts import engines, load
from sources.contracts.contract import Candidate, Contract
from sources.prometheus.assign import Assignment, common_matchers


@dataclass(frozen=True, slots=True)
class Family:
    """One contract and its pools. `facts` is the union of what they need of it."""

    contract: Contract
    pools: tuple[PoolNeeds, ...]
    facts: frozenset[Fact]

    @property
    def platform(self) -> bool:
        return self.contract.scope == "platform"

    def names(self) -> tuple[str, ...]:
        """Every metric name that the needed facts may be read from; of a histogram its ``_count``."""
        wanted: dict[str, None] = {}
        for fact in sorted(self.facts):
            for candidate in self.contract.candidates.get(fact, ()):
                wanted |= dict.fromkeys(_names(candidate))
        return tuple(wanted)

    def blind(self, candidate: Candidate | None = None) -> tuple[str, ...]:
        """Labels of matchers that the candidate's series do not carry."""
        if candidate is not None and candidate.no_model and self.contract.model_label:
            return (self.contract.model_label,)
        return ()


def families(needs: Sequence[PoolNeeds]) -> tuple[Family, ...]:
    """One family per engine, then one per platform contract that has something to add.

    Raises ValueError for an unknown engine."""
    found: list[Family] = []
    contracts: dict[str, Contract] = {pool.engine: load(pool.engine) for pool in needs}
    by_contract: dict[str, list[PoolNeeds]] = {}
    for pool in needs:
        by_contract.setdefault(contracts[pool.engine].engine, []).append(pool)
    for engine, pools in by_contract.items():
        contract = load(engine)
        facts = frozenset().union(*(wanted(pool) for pool in pools))
        found.append(Family(contract, tuple(pools), facts & contract.candidates.keys()))
    for contract in (load(name) for name in engines()):
        if contract.scope == "platform":
            found.extend(_platform(contract, needs, contracts))
    return tuple(found)


def wanted(pool: PoolNeeds) -> frozenset[Fact]:
    """All facts that a pool needs in any grouping."""
    return pool.wanted


def _platform(contract: Contract, needs: Sequence[PoolNeeds], of: Mapping[str, Contract]) -> Iterable[Family]:
    pools = tuple(
        pool
        for pool in needs
        if pool.workload is not None and _left(pool, of[pool.engine]) & contract.candidates.keys()
    )
    if pools:
        facts = frozenset().union(*(_left(pool, of[pool.engine]) for pool in pools))
        yield Family(contract, pools, facts & contract.candidates.keys())


def _left(pool: PoolNeeds, contract: Contract) -> frozenset[Fact]:
    return wanted(pool) - contract.candidates.keys()


def _names(candidate: Candidate) -> Iterable[str]:
    for name in candidate.metrics:
        yield f"{name}_count" if candidate.kind == "histogram" and name == candidate.metric else name
    for part in candidate.plus:
        yield from _names(part)
    yield from candidate.born_with


class ByLabels:
    """Rows of an engine family to pools, through the pools' own matchers.

    What the query fixes to one value for all pools need not come back in every row."""

    def __init__(self, family: Family, blind: tuple[str, ...]) -> None:
        self.matchers = common_matchers(family.pools, blind)
        one = len(family.pools) == 1  # then the query has all its matchers
        tested = {m.label for pool in family.pools for m in pool.matchers if m.op != "="}
        fixed = [m.label for m in self.matchers if one or (m.op == "=" and m.label not in tested)]
        self._assignment = Assignment(family.pools, (*blind, *fixed))
        self.labels = self._assignment.labels

    def pools(self, row: Mapping[str, str]) -> tuple[PoolNeeds, ...]:
        return self._assignment.pools(row)

    def by_name(self, row: Mapping[str, str]) -> Mapping[str, PoolNeeds]:
        """The same pools by their names."""
        return self._assignment.by_name(row)


class ByWorkload:
    """Rows of a platform family to pools, through namespace and workload or pod name.

    A scrape without ``honor_labels`` moves the object's labels to ``exported_*``; these win where they exist."""

    def __init__(self, pools: Sequence[PoolNeeds], candidate: Candidate) -> None:
        self._names = tuple(
            dict.fromkeys(
                name
                for label in candidate.workload_labels
                for name in (label if label.startswith("exported_") else f"exported_{label}", label)
            )
        )
        self._kind = candidate.workload_kind.lower()
        self.labels = ("namespace", "exported_namespace", *self._names)
        self.matchers: tuple[Matcher, ...] = ()  # which of the labels is set only the answer tells
        self._workloads: dict[tuple[str, str], list[tuple[str, PoolNeeds]]] = {}
        for pool in pools:
            if pool.workload is not None and self._kind in ("", pool.workload[1].lower()):
                namespace, kind, name = pool.workload
                self._workloads.setdefault((namespace, name), []).append((kind.lower(), pool))

    @property
    def empty(self) -> bool:
        """No pool has a workload of this kind, so there is nothing to ask."""
        return not self._workloads

    def pools(self, row: Mapping[str, str]) -> tuple[PoolNeeds, ...]:
        namespace = row.get("exported_namespace") or row.get("namespace", "")
        name = self.name(row)
        if self._kind:
            return tuple(pool for _, pool in self._workloads.get((namespace, name), ()))
        # A pod is called after its workload, up to some dash; the longest workload that fits is the one.
        for end in (i for i in range(len(name) - 1, 0, -1) if name[i] == "-"):
            found = self._workloads.get((namespace, name[:end]), ())
            if fitting := tuple(pool for kind, pool in found if _POD.get(kind, _ANY).fullmatch(name, end + 1)):
                return fitting
        return ()

    def name(self, row: Mapping[str, str]) -> str:
        """The workload's or the pod's name, from the first label that has one."""
        return next((value for label in self._names if (value := row.get(label, ""))), "")


# What follows the workload's name and a dash in the names of its pods, so that llama does not claim llama-70b's.
_POD = {
    "deployment": re.compile(r"[a-z0-9]+-[a-z0-9]{5}"),
    "replicaset": re.compile(r"[a-z0-9]{5}"),
    "statefulset": re.compile(r"[0-9]+"),
}
_ANY = re.compile(r".+")
