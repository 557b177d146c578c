"""Choose, for each fact, the best candidate whose metrics are exposed, or say why there is none."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from controller.core.facts import Fact
from sources.contracts import engines, load
from sources.contracts.contract import Candidate, Contract

_SUFFIXES = ("_bucket", "_count", "_sum", "_created")


def resolve(contract: Contract, names: Container[str], *, kind: str = "") -> Mapping[Fact, Candidate | str]:
    """The chosen candidate per fact, or the reason why the fact is unsupported.

    `names` are the exposed sample names; of a histogram its base name or ``_bucket`` will do. Candidates that are
    exposed win over those whose series are merely not born yet; otherwise the order of the contract decides. `kind` is
    the workload's kind (Deployment, ...): with it, candidates for other kinds are left out.
    """
    return {fact: _choose(contract, fact, names, kind) for fact in Fact}


def identify(names: Iterable[str]) -> tuple[str, ...]:
    """Engines whose marks appear among `names`, in the order of the contracts' names."""
    exposed = frozenset(spelling for name in names for spelling in (name, base_name(name)))
    return tuple(engine for engine in engines() if any(marked(load(engine), name) for name in exposed))


def base_name(name: str) -> str:
    """The family that a sample name may belong to: ``x_bucket`` and ``x_count`` are x."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


def _choose(contract: Contract, fact: Fact, names: Container[str], kind: str) -> Candidate | str:
    if fact in contract.unsupported:
        return contract.unsupported[fact]
    candidates = [
        candidate for candidate in contract.candidates[fact] if not kind or candidate.workload_kind in ("", kind)
    ]
    if not candidates:
        return f"{contract.title} does not tell it for a {kind}"
    for present in (_exposed, _to_be_born):
        for candidate in candidates:
            if present(candidate, names):
                return _without_absent_parts(candidate, names)
    wanted = ", ".join(dict.fromkeys(candidate.metric for candidate in candidates))
    if not (reason := contract.hints.get(fact, "")):
        return f"not exposed: {wanted}"
    return f"{reason} (not exposed: {wanted})"


def _exposed(candidate: Candidate, names: Container[str]) -> bool:
    return all(
        _has(names, metric, histogram=candidate.kind == "histogram")
        for metric in (candidate.metric, candidate.count_metric, candidate.over.metric if candidate.over else "")
        if metric
    )


def _to_be_born(candidate: Candidate, names: Container[str]) -> bool:
    return any(_has(names, name, histogram=True) for name in candidate.born_with)


def _without_absent_parts(candidate: Candidate, names: Container[str]) -> Candidate:
    kept = tuple(part for part in candidate.plus if _exposed(part, names) or _to_be_born(part, names))
    return candidate if kept == candidate.plus else replace(candidate, plus=kept)


def _has(names: Container[str], metric: str, *, histogram: bool = False) -> bool:
    if metric in names:
        return True
    if histogram:
        return f"{metric}_bucket" in names
    # x_count and x_sum of a histogram that is listed by its base name
    base = base_name(metric)
    return metric.endswith(("_count", "_sum")) and (base in names or f"{base}_bucket" in names)


def marked(contract: Contract, name: str) -> bool:
    """Whether a sample name proves the contract's engine."""
    return any(name.startswith(mark) if mark.endswith((":", "_")) else name == mark for mark in contract.marks)
