"""The Prometheus source: exact increments and gauges of a fleet, by a fixed number of queries per tick."""

from sources.prometheus.source import PrometheusSource

__all__ = ["PrometheusSource"]
