"""What a diagnosis says: one row per signal, the histograms with their edges, and findings."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from controller.core.facts import Fact
from controller.core.signals import Signal
from sources.contracts.contract import Candidate


class Level(StrEnum):
    """How much a finding matters."""

    ERROR = "error"  # a signal would be wrong or missing
    WARNING = "warning"  # a signal is right but may mislead
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know: about which metric or engine, and what to do."""

    level: Level
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One signal: the candidates that it is made of, by fact, or `why` it is unsupported."""

    signal: Signal
    facts: Mapping[Fact, Candidate]
    why: str = ""

    @property
    def supported(self) -> bool:
        return bool(self.facts)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metric names behind the signal."""
        return tuple(dict.fromkeys(part.metric for c in self.facts.values() for part in c.parts))


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram that a signal resolves to. `edges` are its finite bounds in seconds; `count` its samples so far,
    `above` the share of them beyond the last edge (None without samples)."""

    fact: Fact
    metric: str
    edges: tuple[float, ...]
    count: float
    above: float | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole report. `engine` is the contract that was used ("" when none fits), `also` others seen in the text."""

    engine: str
    title: str
    also: tuple[str, ...]
    rows: tuple[Row, ...]
    histograms: tuple[Histogram, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something is wrong, as opposed to merely missing."""
        return any(finding.level is Level.ERROR for finding in self.findings)

    def render(self) -> str:
        """Plain text for a terminal."""
        from sources.diagnosis.render import render

        return render(self)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data; the keys are stable."""
        from sources.diagnosis.render import to_json

        return to_json(self)
