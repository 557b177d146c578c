"""What is remembered of one router process: who was in at first, what its workers were, whether it began anew."""

import math
from collections.abc import Mapping
from dataclasses import replace

from actuators.router.makes import Router
from actuators.router.workers import Worker
from actuators.web import NoAnswer, Web

_REGISTERING = 60.0  # seconds after a restart in which its own workers may still come in one by one


class Process:
    """One router. A restart forgets all that it was told and takes its workers from its flags again. sglang-router
    shows it by the ids of its workers, all of them new; vllm-router by counters that fall, on its metrics page. Where
    neither tells, workers that are the first ones again, all together, are a restart."""

    def __init__(self, router: Router, web: Web, metrics: str = "") -> None:
        self.router, self._web, self._metrics = router, web, metrics
        self.known: dict[str, Worker] = {}  # as last seen, also of those that are out now
        self.missed: set[str] = set()  # where a command of ours did not come through
        self._first: frozenset[str] | None = None
        self._last: dict[str, Worker] = {}
        self._count: float | None = None
        self._began: float | None = None

    def look(self, now: float) -> Mapping[str, Worker]:
        """Its workers by host:port. Raises NoAnswer or Garbled."""
        found, count = self.router.look(), self._counted()
        if self._first is None:
            self._first = frozenset(found)
        elif self._is_new(found, count):
            self._began = now
        self._last, self._count = dict(found), count
        self.known.update(found)
        return found

    def began(self, now: float) -> bool:
        """Whether it began anew a moment ago, so that what changes is its own doing."""
        return self._began is not None and now - self._began < _REGISTERING

    def moved(self, place: str, worker: Worker | None) -> None:
        """By our hand; None where it was taken out."""
        self.missed.discard(place)
        if worker is None:
            self._last.pop(place, None)
        else:
            self._last[place] = replace(worker, id="")  # it has a new one

    def _is_new(self, found: Mapping[str, Worker], count: float | None) -> bool:
        before = {one.id for one in self._last.values() if one.id}
        if before:
            return bool(found) and not before & {one.id for one in found.values()}
        if count is not None and self._count is not None and max(count, self._count) > 0:
            return count < self._count
        return frozenset(found) == self._first and frozenset(found) != frozenset(self._last)

    def _counted(self) -> float | None:
        """All counters of the metrics page together; None where there is no page."""
        if not self._metrics:
            return None
        try:
            answer = self._web.ask("GET", self._metrics)
        except NoAnswer:
            return None
        return _total(answer.body.decode(errors="replace")) if answer.status == 200 else None


def _total(page: str) -> float:
    """The sum of every sample of every counter."""
    lines = [line.strip() for line in page.splitlines()]
    counters = {line.split()[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" counter")}
    values = []
    for line in lines:
        name, value = line.partition("{")[0].partition(" ")[0], line.rpartition(" ")[2]
        if name in counters:
            try:
                values.append(float(value))
            except ValueError:
                continue
    return math.fsum(value for value in values if math.isfinite(value))
