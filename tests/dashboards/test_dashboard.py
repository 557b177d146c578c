"""The dashboard: equal to its code, true to the catalogue, and every query answered by a real Prometheus that scrapes a
real Governor face."""

import json
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from controller.run.catalogue import METRICS, SERIES
from controller.run.http import Server
from controller.run.metrics import Metrics
from controller.run.status import Board
from dashboards.build import FILE, ROWS, build, text
from dashboards.grafana import WIDTH
from tests.support.prometheus import needs_prometheus, prometheus
from tests.support.promql import names
from tests.support.rich_tick import SETTINGS, rich_tick

PANELS = [panel for row in ROWS for panel in row.panels]
QUERIES = [(panel.title, query.expr) for panel in PANELS for query in panel.queries]
VARIABLE = re.compile(r"label_values\((?P<metric>\w+), (?P<label>\w+)\)")


class Scraped(Metrics):
    """Ticks at every scrape, so that counters move between two of them, and counts the scrapes."""

    def __init__(self) -> None:
        super().__init__(version="1.2", mode="dry_run")
        self.scrapes = threading.Semaphore(0)
        self._number = 0

    def render(self, accept: str = "") -> tuple[bytes, str]:
        self._number += 1
        self.ticked(rich_tick(self._number, time.time()))
        self.missed(1)
        self.failed()
        self.reloaded("done")
        self.scrapes.release()
        return super().render(accept)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped Governor a few times."""
    metrics = Scraped()
    metrics.configured(SETTINGS, at=time.time())
    problems: list[str] = []
    server = Server("127.0.0.1:0", Board(version="1.2", mode="dry_run", at=0, monotonic=0), metrics, problems.append)
    server.start()
    host, port = server.address
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "anything", "static_configs": [{"targets": [f"{host}:{port}"]}]}],
    }
    with prometheus(tmp_path_factory.mktemp("dashboard") / "data", json.dumps(config)) as address:
        for _ in range(4):  # a scrape is stored before the next one begins
            assert metrics.scrapes.acquire(timeout=30), "Prometheus does not scrape"
        yield address
    server.close()
    assert problems == []


def ask(address: str, expr: str) -> list[Mapping[str, Any]]:
    expr = expr.replace("$pool", ".*").replace("$__rate_interval", "30s")
    assert "$" not in expr, "a Grafana variable that this test does not know"
    with urllib.request.urlopen(
        f"{address}/api/v1/query?{urllib.parse.urlencode({'query': expr})}", timeout=10
    ) as answer:
        found: list[Mapping[str, Any]] = json.load(answer)["data"]["result"]
    return found


@needs_prometheus
@pytest.mark.parametrize(("title", "expr"), QUERIES, ids=[f"{title}: {expr}"[:80] for title, expr in QUERIES])
def test_a_panel_that_stays_empty(address: str, title: str, expr: str) -> None:
    found = ask(address, expr)
    assert found, f"{title}: no data for {expr}"
    assert all(one["value"][1] not in ("NaN", "+Inf", "-Inf") for one in found), f"{title}: not a number"


@needs_prometheus
def test_a_variable_without_choices(address: str) -> None:
    for variable in build()["templating"]["list"]:
        if variable["type"] == "query":
            match = VARIABLE.fullmatch(variable["definition"])
            assert match
            assert all(match["label"] in one["metric"] for one in ask(address, match["metric"]))


@needs_prometheus
def test_a_metric_of_the_catalogue_that_is_never_exported(address: str) -> None:
    """Seen by Prometheus, types included: the catalogue promises nothing that a tick full of events does not show."""
    for metric in METRICS:
        for name in metric.series:
            assert ask(address, name), name
    with urllib.request.urlopen(f"{address}/api/v1/metadata", timeout=10) as answer:
        types = {name: entries[0]["type"] for name, entries in json.load(answer)["data"].items()}
    for metric in METRICS:
        family = metric.name.removesuffix("_total")
        assert types.get(metric.name, types.get(family)) == metric.kind


def test_the_file_is_older_than_its_code() -> None:
    assert FILE.read_text() == text(), "run: python -m dashboards.build"


@pytest.mark.parametrize(("title", "expr"), QUERIES, ids=[f"{title}: {expr}"[:80] for title, expr in QUERIES])
def test_a_panel_of_a_metric_that_was_renamed(title: str, expr: str) -> None:
    ours = {name for name in names(expr) if name.startswith("governor_")}
    assert ours, title
    assert ours <= SERIES


def test_panels_that_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    body = build()
    flat = [p for panel in body["panels"] for p in (panel, *panel.get("panels", ()))]
    assert len({panel["id"] for panel in flat}) == len(flat)
    for panel in flat:
        where = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(where["x"], where["x"] + where["w"])
            for y in range(where["y"], where["y"] + where["h"])
        }
        assert all(x < WIDTH for x, _ in cells)
        assert not cells & taken, panel["title"]
        taken |= cells


def test_a_panel_that_nobody_can_read() -> None:
    """Every panel answers a question in words; every line has a legend, every latency a unit."""
    for panel in PANELS:
        assert panel.text.endswith("."), panel.title
        if panel.kind == "timeseries":
            assert all(query.legend for query in panel.queries), panel.title
        if 'signal=~"ttft' in panel.queries[0].expr:
            assert panel.unit == "s"


def test_two_panels_of_one_title() -> None:
    titles = [panel.title for panel in PANELS]
    assert len(titles) == len(set(titles))
