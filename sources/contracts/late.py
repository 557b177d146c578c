"""Facts that an engine writes only when a request ends: they cannot show that a running one makes progress."""

from collections.abc import Mapping

from controller.core.facts import Fact
from sources.contracts import load


def late_facts(engine: str, sources: Mapping[Fact, str]) -> frozenset[Fact]:
    """Of the facts that were read (`sources`: fact -> metric names joined by a comma or a plus), those written at
    finish."""
    candidates = load(engine).candidates
    return frozenset(
        fact
        for fact, names in sources.items()
        if any(c.observed_at == "finish" and c.metric in names for c in candidates.get(fact, ()))
    )
