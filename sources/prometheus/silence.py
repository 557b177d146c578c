"""Silence: replicas that are up and told a gauge a moment ago, but do not now.

Their age says so only once it is beyond what a missed scrape explains, and a metric that vanished alone never ages.
Until then a queue would seem shorter by what they hold.
"""

from collections.abc import Collection, Mapping

from controller.core.facts import Fact
from sources.prometheus.assemble import Values
from sources.prometheus.discovery import ALIVE
from sources.prometheus.pools import Seats
from sources.prometheus.targets import LOOKBACK
from sources.sentences import listed


class Silence:
    """Remembers who told which gauge when. Not thread-safe."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, Fact], dict[str, float]] = {}

    def of(self, pool: str, got: Mapping[Fact, Collection[Values]], seats: Seats, at: float) -> set[str]:
        """What is missing in the answers `got` at `at` for a pool whose endpoints are `seats`, in sentences. A replica
        that has said nothing for as long as a series is believed is expected to say nothing more."""
        sentences: set[str] = set()
        for fact in ALIVE:
            answers = [of for of in got.get(fact, ()) if of.whole and not of.problem]
            if not answers:
                continue
            told = self._told.setdefault((pool, fact), {})
            for of in answers:
                told.update(dict.fromkeys(of.numbers, at))
            if any(of.gap for of in answers):
                continue  # it is told already who gave no number
            silent = [name for name, then in told.items() if then < at]
            missing: list[str] = []
            for name in silent:
                if not _is_up(seats, name) or at - told[name] > LOOKBACK:
                    del told[name]
                else:
                    missing.append(name)
            if missing:
                metrics = " + ".join(dict.fromkeys(metric for of in answers for metric in of.metrics))
                sentences.add(f"{metrics}: nothing from {listed(missing)}, which told it before")
        return sentences


def _is_up(seats: Seats, replica: str) -> bool:
    return replica in seats and all(target.up is not False for _, target in seats[replica])
