"""The page about engines must not promise what the contracts do not."""

from controller.core.facts import Fact
from controller.core.needs import SIGNAL_FACTS, facts_for, way_for
from controller.core.signals import Signal
from sources.contracts import engines
from sources.contracts.describe import markdown
from tests.support.repository import ROOT


def test_the_page_is_the_contracts() -> None:
    text = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    assert text == markdown(), "run: python -m sources.contracts.describe > docs/engines.md"
    assert all(f"\n## {engine}\n" in text for engine in engines())


def test_every_signal_is_made_of_something() -> None:
    assert SIGNAL_FACTS.keys() == set(Signal)
    for signal in Signal:
        assert facts_for(signal), signal
        assert way_for(signal, facts_for(signal)) == SIGNAL_FACTS[signal][0], "with everything there, the best way wins"
        assert way_for(signal, ()) is None


def test_a_queue_time_histogram_alone_is_the_last_resort_for_the_queue_delay() -> None:
    """It is blind to whoever still waits (0.297 s while 43 requests waited)."""
    assert SIGNAL_FACTS[Signal.QUEUE_DELAY][-1] == frozenset({Fact.QUEUE_TIME})
    best = frozenset({Fact.QUEUE_TIME, Fact.WAITING, Fact.ADMITTED})
    assert way_for(Signal.QUEUE_DELAY, best) == best


def test_tpot_has_one_way_only() -> None:
    assert SIGNAL_FACTS[Signal.TPOT] == (frozenset({Fact.TPOT}),)
