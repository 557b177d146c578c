"""Resolve every signal against one scrape."""

from collections.abc import Mapping
from itertools import groupby

from controller.core.errors import InputError
from controller.core.facts import Fact
from controller.core.needs import SIGNAL_FACTS, way_for
from controller.core.signals import Signal
from sources.contracts import Candidate, Contract, load
from sources.contracts.resolve import identify, resolve
from sources.diagnosis.lint import lint, lint_engine
from sources.diagnosis.model import Diagnosis, Histogram, Row
from sources.diagnosis.values import matches
from sources.exposition import Exposition, parse


def diagnose_exposition(text: str, engine: str | None = None) -> Diagnosis:
    """What Governor would read from this scrape, and what is wrong with it.

    Without `engine` the contract that explains most of the text is taken. Raises ExpositionError when the text is no
    exposition, InputError when `engine` is unknown.
    """
    page = parse(text)
    names = page.names
    seen = identify(names)
    try:
        contract = load(engine) if engine else _best(seen, page)
    except ValueError as why:
        raise InputError(f"engine: {why}") from None
    if contract is None:
        rows = tuple(Row(signal, {}, "no engine that Governor knows exposes these metrics") for signal in Signal)
        return Diagnosis("", "unknown", (), rows, findings=lint_engine(None, seen, names))
    chosen = _with_platform(resolve(contract, names), seen, names)
    histograms = tuple(_histograms(chosen, page))
    return Diagnosis(
        engine=contract.engine,
        title=contract.title,
        also=tuple(name for name in seen if name != contract.engine),
        rows=tuple(_row(signal, chosen) for signal in Signal),
        histograms=histograms,
        findings=(*lint_engine(contract, seen, names), *lint(contract, chosen, page, histograms)),
    )


def _best(seen: tuple[str, ...], page: Exposition) -> Contract | None:
    """Engines before gateways before platforms, and the one that resolves most facts."""
    contracts = [load(name) for name in seen]
    order = ("engine", "gateway", "platform")

    def rank(contract: Contract) -> tuple[int, int]:
        found = resolve(contract, page.names).values()
        return order.index(contract.scope), -sum(isinstance(choice, Candidate) for choice in found)

    return min(contracts, key=rank, default=None)


def _with_platform(
    chosen: Mapping[Fact, Candidate | str], seen: tuple[str, ...], names: frozenset[str]
) -> Mapping[Fact, Candidate | str]:
    """Facts that the engine leaves to kube-state-metrics or DCGM, where these are in the same text."""
    merged = dict(chosen)
    for name in seen:
        if load(name).scope == "platform":
            for fact, choice in resolve(load(name), names).items():
                if isinstance(choice, Candidate) and not isinstance(merged[fact], Candidate):
                    merged[fact] = choice
    return merged


def _row(signal: Signal, chosen: Mapping[Fact, Candidate | str]) -> Row:
    available = {fact: choice for fact, choice in chosen.items() if isinstance(choice, Candidate)}
    if way := way_for(signal, available.keys()):
        return Row(signal, {fact: available[fact] for fact in sorted(way)})
    # the last of the nearest ways is the one that asks least of an engine, so its lack says most
    nearest = min(reversed(SIGNAL_FACTS[signal]), key=lambda way: len(way - available.keys()))
    reasons: dict[str, list[str]] = {}
    for fact in sorted(nearest - available.keys()):
        reasons.setdefault(str(chosen[fact]), []).append(fact.value)
    if len(reasons) == 1:
        return Row(signal, {}, next(iter(reasons)))
    return Row(signal, {}, "; ".join(f"{', '.join(facts)}: {reason}" for reason, facts in reasons.items()))


def _histograms(chosen: Mapping[Fact, Candidate | str], page: Exposition) -> list[Histogram]:
    found: list[Histogram] = []
    for fact, choice in chosen.items():
        if not isinstance(choice, Candidate) or choice.kind != "histogram":
            continue
        buckets = sorted(
            (float(dict(sample.labels)["le"]), sample.value)
            for sample in page.samples
            if sample.name == f"{choice.metric}_bucket" and "le" in dict(sample.labels) and matches(choice, sample)
        )
        totals = [(edge, sum(value for _, value in group)) for edge, group in groupby(buckets, key=lambda b: b[0])]
        if not totals:
            continue
        finite = [(edge, value) for edge, value in totals if edge != float("inf")]
        count = totals[-1][1]
        above = 1 - finite[-1][1] / count if count and finite else None
        edges = tuple(edge * choice.scale for edge, _ in finite)
        found.append(Histogram(fact, choice.metric, edges, count, above))
    return found
