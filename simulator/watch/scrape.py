"""Scrapes: what Prometheus holds of the fleet. Book-keeping; the fleet says when a target is scraped and with what.

Each target is scraped at its own phase of the interval. A scrape that fails leaves ``up`` 0 and makes the target's
series stale at once; a target that is no longer discovered takes its series and its ``up`` with it.
"""

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from simulator.spec import PrometheusSpec
from simulator.watch.page import Labels, Page, SeriesKey, Values

_UP: Values = np.ones(1)
_DOWN: Values = np.zeros(1)


class _Scrape(NamedTuple):
    at: float
    up: bool
    page: Page | None


@dataclass(slots=True)
class _Target:
    """One target: its identity, the draws that are its own, and its scrapes, newest last."""

    up: tuple[SeriesKey]
    phase: float
    chance: random.Random
    turn: int
    scrapes: deque[_Scrape] = field(default_factory=deque)
    gone_at: float = math.inf


class Prometheus:
    """Targets by name. `down` while Prometheus itself is."""

    def __init__(self, spec: PrometheusSpec, seed: int) -> None:
        self._spec = spec
        self._seed = seed
        self._targets: dict[str, _Target] = {}
        self.down = False

    def discover(self, name: str, identity: Labels, now: float) -> float:
        """A new target; returns when it is scraped first. A name that was there before is the same target again."""
        chance = random.Random(f"{self._seed}/scrape/{name}")
        phase = chance.random() * self._spec.interval
        turn = math.ceil((now - phase) / self._spec.interval)
        target = self._targets[name] = _Target((("up", identity),), phase, chance, turn)
        return self._due(target)

    def forget(self, name: str, now: float) -> None:
        """The target is no longer discovered."""
        if (target := self._targets.get(name)) is not None:
            target.gone_at = min(target.gone_at, now)

    def fails(self, name: str) -> bool:
        """Whether chance makes this scrape fail."""
        target = self._targets.get(name)
        return target is not None and self._spec.missing > 0 and target.chance.random() < self._spec.missing

    def scraped(self, name: str, page: Page | None, now: float) -> float:
        """The target was scraped, with no page if that failed; returns when it is scraped next, inf when never."""
        target = self._targets.get(name)
        if target is None or target.gone_at <= now:
            return math.inf
        if not self.down:
            target.scrapes.append(_Scrape(now, page is not None, page))
            self._trim(target, now)
        target.turn += 1
        return self._due(target)

    def pages(self, at: float) -> Iterator[Page]:
        """What an instant query at `at` sees. Raises ConnectionError while Prometheus is down."""
        if self.down:
            raise ConnectionError("Prometheus does not answer")
        seen = at - self._spec.delay
        for name in list(self._targets):
            target = self._targets[name]
            if target.gone_at <= seen:
                del self._targets[name]
                continue
            newest = next((s for s in reversed(target.scrapes) if s.at <= seen), None)
            if newest is None or seen - newest.at >= self._spec.lookback:
                continue
            yield Page(target.up, _UP if newest.up else _DOWN, newest.at)
            if newest.page is not None:
                yield newest.page._replace(at=newest.at)

    def _due(self, target: _Target) -> float:
        late = target.chance.random() * self._spec.jitter if self._spec.jitter else 0.0
        return target.turn * self._spec.interval + target.phase + late

    def _trim(self, target: _Target, now: float) -> None:
        """Keep what a query that looks back by the delay can still see."""
        scrapes = target.scrapes
        while len(scrapes) > 1 and scrapes[1].at <= now - self._spec.delay:
            scrapes.popleft()
