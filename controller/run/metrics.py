"""Governor's own metrics: accumulates counters over ticks and renders the exposition.

Gauges are computed from the newest tick at the time of the scrape; nothing is remembered that could go stale. Own
registry: nothing that a library registers by itself gets in, and tests do not see each other.
"""

import platform
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from controller.core.model import Outcome
from controller.run import samples
from controller.run.catalogue import BY_NAME, METRICS, TICK_BUCKETS, Kind
from controller.run.loop import TickResult
from controller.run.settings import Settings

Labels = tuple[str, ...]

_PREFIX = "governor_"
# These exist from the start at 0, so that `increase()` sees the first event.
_ALWAYS = ("ticks_total", "ticks_missed_total", "tick_errors_total", "source_errors_total")
RELOAD_RESULTS = ("done", "invalid")


class _Histogram:
    """Counts per bucket of `TICK_BUCKETS` (the last one is +Inf), and their sum in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(TICK_BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(TICK_BUCKETS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        edges = [*(str(edge) for edge in TICK_BUCKETS), "+Inf"]
        total = 0
        out = []
        for edge, count in zip(edges, self.counts, strict=True):
            total += count
            out.append((edge, float(total)))
        return out


class Metrics(Collector):
    """The exposition of one process. Thread-safe: the tick, housekeeping and HTTP threads meet here."""

    def __init__(self, *, version: str, mode: str, started: float | None = None) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = {name: {(): 0.0} for name in _ALWAYS}
        self._counts["config_reloads_total"] = {(result,): 0.0 for result in RELOAD_RESULTS}
        self._seconds: dict[str, _Histogram] = {}
        self._fixed: dict[tuple[str, Labels], float] = {
            ("build_info", (version, platform.python_version())): 1.0,
            ("run_mode", (mode,)): 1.0,
            ("start_timestamp_seconds", ()): time.time() if started is None else started,
        }
        self._settings: Settings | None = None
        self._result: TickResult | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def configured(self, settings: Settings, *, at: float) -> None:
        """A config came into force. Counters of pools and levers that are no longer in it are dropped; outcomes of the
        others begin at 0."""
        places = {(pool, lever.value) for pool, levers in settings.levers.items() for lever in levers}
        with self._lock:
            for name in ("decisions_total", "steps_total", "outcomes_total"):
                kept = {labels: n for labels, n in self._counts.get(name, {}).items() if labels[:2] in places}
                self._counts[name] = kept
            for place in places:
                for outcome in Outcome:
                    self._counts["outcomes_total"].setdefault((*place, outcome.value), 0.0)
            self._settings = settings
            self._fixed["config_loaded_timestamp_seconds", ()] = at
            self._fixed["config_valid", ()] = 1.0

    def reloaded(self, result: str) -> None:
        """A reload was tried; `result` is one of RELOAD_RESULTS."""
        with self._lock:
            self._add("config_reloads_total", (result,), 1)
            self._fixed["config_valid", ()] = float(result == "done")

    def ticked(self, result: TickResult) -> None:
        """A tick ran to its end."""
        with self._lock:
            for (name, labels), number in samples.counted(result).items():
                self._add(name, labels, number)
            for phase, seconds in result.seconds.items():
                self._seconds.setdefault(phase, _Histogram()).observe(seconds)
            self._result = result

    def missed(self, slots: int) -> None:
        """Slots passed without a tick."""
        with self._lock:
            self._add("ticks_missed_total", (), slots)

    def failed(self) -> None:
        """A tick raised."""
        with self._lock:
            self._add("tick_errors_total", (), 1)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type, in the format that the `Accept` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def _add(self, name: str, labels: Labels, number: float) -> None:
        series = self._counts.setdefault(name, {})
        series[labels] = series.get(labels, 0.0) + number

    def describe(self) -> list[Family]:
        """Nothing: the registry would otherwise collect once at registration to learn the names."""
        return []

    def collect(self) -> Iterator[Family]:
        """Families in the catalogue's order."""
        with self._lock:
            gauges: dict[str, dict[Labels, float]] = {}
            for (name, labels), value in self._fixed.items():
                gauges.setdefault(name, {})[labels] = value
            counts = {name: dict(series) for name, series in self._counts.items()}
            phases = {phase: (one.buckets(), one.sum) for phase, one in self._seconds.items()}
            settings, result = self._settings, self._result
        # Frozen values: the rest needs no lock, so a slow scrape never delays a tick.
        if settings is not None:
            _gather(gauges, samples.of_settings(settings))
            if result is not None:
                _gather(gauges, samples.of_tick(result, settings.pools))
        unknown = {f"{_PREFIX}{name}" for name in (*gauges, *counts)} - BY_NAME.keys()
        if unknown:
            raise LookupError(f"not in the catalogue of metrics: {', '.join(sorted(unknown))}")
        yield from _families(gauges, counts, phases)


def _gather(gauges: dict[str, dict[Labels, float]], found: Iterator[samples.Sample]) -> None:
    for name, labels, value in found:
        gauges.setdefault(name, {})[labels] = value


def _families(
    gauges: Mapping[str, Mapping[Labels, float]],
    counts: Mapping[str, Mapping[Labels, float]],
    phases: Mapping[str, tuple[list[tuple[str, float]], float]],
) -> Iterator[Family]:
    for metric in METRICS:
        short = metric.name.removeprefix(_PREFIX)
        if metric.kind is Kind.HISTOGRAM:
            family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for phase, (buckets, total) in phases.items():
                family.add_metric([phase], buckets, total)
            yield family
            continue
        make = GaugeMetricFamily if metric.kind is Kind.GAUGE else CounterMetricFamily
        plain = make(metric.name, metric.help, labels=metric.labels)
        for labels, value in (gauges if metric.kind is Kind.GAUGE else counts).get(short, {}).items():
            if len(labels) != len(metric.labels):
                raise LookupError(f"{metric.name} takes labels {metric.labels}, not {labels}")
            plain.add_metric(labels, value)
        yield plain
