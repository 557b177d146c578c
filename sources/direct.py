"""Direct scrapes of replicas, for levers that must move faster than Prometheus scrapes.

Governor then reads each replica's own /metrics page at each tick and forms the increments itself. Replicas are listed;
what comes and goes is better left to Prometheus.
"""

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from urllib.parse import urlsplit

import requests

from controller.core.address import place
from controller.core.errors import InputError
from controller.core.observation import Observation
from controller.core.params import Unit, param
from controller.core.ports import PoolNeeds
from sources import address, crew
from sources.body import read_body
from sources.bounded import BoundedAdapter
from sources.exposition import parse
from sources.frames import Layout, Sample, labels
from sources.increments import Increments
from sources.reasons import reason

_JOB = "direct"
_LARGEST = 50_000_000  # bytes of one page


@dataclass(frozen=True, slots=True)
class DirectConfig:
    """Which pages to read."""

    replicas: dict[str, list[str]] = param("metrics pages of each pool's replicas: {pool: [http://host:8000/metrics]}")
    timeout: float = param("time for one page", 1.0, unit=Unit.DURATION, gt=0)
    concurrency: int = param("pages that are read at once", 16, ge=1, le=256)

    def __post_init__(self) -> None:
        for pages in self.replicas.values():
            for page in pages:
                address.check("replicas", page)


@dataclass(frozen=True, slots=True)
class _Page:
    """One replica's page, and the labels that a scrape by Prometheus would have given to its series."""

    url: str
    target: Mapping[str, str]
    defaults: Mapping[str, str]


class DirectSource:
    """Implements ``ports.Source``. A replica that does not answer is down, as for Prometheus; only when none answers is
    the observation an error. Increments are formed between the ticks."""

    Config: ClassVar[type[DirectConfig]] = DirectConfig

    def __init__(self, config: DirectConfig, needs: Sequence[PoolNeeds]) -> None:
        self._timeout = config.timeout
        self._pages = [_page(need, url) for need in needs for url in config.replicas.get(need.pool, ())]
        if unknown := sorted(config.replicas.keys() - {need.pool for need in needs}):
            raise InputError(f"replicas: {', '.join(unknown)}: no such pool")
        self._increments = Increments(needs)
        self._layout = Layout()
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, BoundedAdapter())
        self._concurrency = config.concurrency

    def observe(self, at: float, deadline: float) -> Observation:
        """See ``Source``."""
        until = time.monotonic() + deadline
        jobs = [partial(self._scrape, page, until) for page in self._pages]
        futures = crew.start(jobs, self._concurrency, "direct")
        wait(futures, timeout=max(0.0, until - time.monotonic()))
        samples: list[Sample] = []
        problems: list[str] = []
        for future, page in zip(futures, self._pages, strict=True):
            found, problem = _outcome(future, page)
            if problem:
                problems.append(problem)
            samples.append(Sample("up", labels(page.target.items()), 0.0 if problem else 1.0))
            samples += found
        if self._increments.newest is not None and at <= self._increments.newest:
            return Observation(
                at, self._increments.base, error=f"the tick of {at:.3f} is not later than the one before"
            )
        if len(problems) == len(self._pages):
            # Not fed on: what is counted meanwhile then comes with the next answer, as after an outage of Prometheus.
            why = problems[0] if problems else "no replicas are listed"
            return Observation(at, self._increments.base, error=f"no replica answered: {why}")
        odd = [(name, pairs) for name, pairs, value in samples if not math.isfinite(value)]
        self._increments.feed(self._layout.frame(at, samples), odd, stamps={})  # they are of now
        return self._increments.take(at)

    def close(self) -> None:
        self._session.close()

    def _scrape(self, page: _Page, until: float) -> list[Sample]:
        budget = min(self._timeout, until - time.monotonic())
        if budget <= 0:
            raise TimeoutError("no time was left to ask")
        until = time.monotonic() + budget
        with self._session.get(page.url, timeout=budget, stream=True, allow_redirects=False) as response:
            if response.status_code != 200:
                raise ConnectionError(f"answered {response.status_code}")
            text = read_body(response, until, _LARGEST).decode("utf-8", "replace")
        wanted = self._increments.names
        return [
            Sample(name, labels({**page.defaults, **dict(pairs), **page.target}.items()), value)
            for name, pairs, value in parse(text).samples
            if name in wanted
        ]


def _page(need: PoolNeeds, url: str) -> _Page:
    instance = urlsplit(url).netloc
    # The listing says which pool a replica is of, so labels that only its selector knows are taken from there.
    selected = {m.label: m.value for m in need.matchers if m.op == "="}
    target = {"job": selected.pop("job", _JOB), "instance": selected.pop("instance", instance)}
    return _Page(url, target, {need.replica_label: instance, **selected})


def _outcome(future: "Future[list[Sample]]", page: _Page) -> tuple[list[Sample], str]:
    """(samples, problem) of one page."""
    if not future.done():
        future.cancel()
        return [], f"{place(page.url)}: no answer before the deadline of the tick"
    error = future.exception()
    if error is None:
        return future.result(), ""
    if isinstance(error, (requests.RequestException, TimeoutError, OverflowError, ConnectionError, InputError)):
        return [], f"{place(page.url)}: {reason(error)}"
    raise error
