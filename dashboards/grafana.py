"""Just enough of Grafana's dashboard JSON (schema 39, Grafana 10.4 and later) to write panels as data. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]  # JSON has no better type in Python

WIDTH = 24  # columns of Grafana's grid
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and its legend. `style` names an entry of STYLES."""

    expr: str
    legend: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `kind` is a Grafana panel type, `unit` a Grafana unit, `text` the question that the panel answers.
    `steps` are thresholds (from, colour), the first from None; `words` map values to (text, colour)."""

    title: str
    kind: str
    text: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ()
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    minimum: float | None = None
    maximum: float | None = None
    log: bool = False
    stack: bool = False
    hidden: tuple[str, ...] = ("Time", "Value", "__name__", "instance", "job")  # columns of a table
    names: bool = False  # a stat shows the legend instead of the value


@dataclass(frozen=True, slots=True)
class Row:
    """A titled group of panels; a closed one is queried only when it is opened."""

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


# How a series looks beside the measurement it belongs to: what was promised or allowed is dashed, a bound is thin.
STYLES: Mapping[str, Mapping[str, Any]] = {
    "promise": {"custom.lineStyle": {"dash": [10, 6], "fill": "dash"}, "custom.fillOpacity": 0, "custom.lineWidth": 2,
                "color": {"mode": "fixed", "fixedColor": "red"}},
    "limit": {"custom.lineStyle": {"dash": [2, 6], "fill": "dash"}, "custom.fillOpacity": 0,
              "color": {"mode": "fixed", "fixedColor": "text"}},
    "bound": {"custom.lineWidth": 0, "custom.fillOpacity": 0, "custom.showPoints": "never"},
    "step": {"custom.lineInterpolation": "stepAfter"},
    "wanted": {"custom.lineInterpolation": "stepAfter", "custom.lineStyle": {"dash": [6, 4], "fill": "dash"}},
}  # fmt: skip


def dashboard(*, uid: str, title: str, text: str, rows: Iterable[Row], variables: Sequence[Json]) -> Json:
    """The whole document, laid out left to right, top to bottom."""
    panels: list[Json] = []
    top = number = 0
    for row in rows:
        number += 1
        head: Json = {"id": number, "type": "row", "title": row.title, "collapsed": row.closed, "panels": []}
        head["gridPos"] = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        panels.append(head)
        inside, height = _lay_out(row.panels, number, top + 1)
        (head["panels"] if row.closed else panels).extend(inside)
        number += len(inside)
        top += 1 + (0 if row.closed else height)
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["inference", "governor"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(variables)},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def datasource() -> Json:
    """The variable that lets one dashboard serve any Prometheus."""
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def choice(name: str, label: str, query: str) -> Json:
    """A variable with the values that a query finds, several at once, all by default."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "hide": 0,
    }


def _lay_out(panels: Iterable[Panel], number: int, top: int) -> tuple[list[Json], int]:
    out: list[Json] = []
    x = y = line = 0
    for panel in panels:
        if x + panel.width > WIDTH:
            x, y, line = 0, y + line, 0
        number += 1
        where = {"x": x, "y": top + y, "w": panel.width, "h": panel.height}
        out.append(_panel(panel, number, where))
        x, line = x + panel.width, max(line, panel.height)
    return out, y + line


def _panel(panel: Panel, number: int, where: Json) -> Json:
    instant = panel.kind in ("stat", "table")
    body: Json = {
        "id": number,
        "title": panel.title,
        "description": panel.text,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": where,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "instant": instant,
                "range": not instant,
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel.queries)},
        "options": {**_OPTIONS[panel.kind], "textMode": "name"} if panel.names else _OPTIONS[panel.kind],
    }
    if panel.kind == "table":
        hide = dict.fromkeys(panel.hidden, True)
        body["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hide}},
        ]
    return body


def _defaults(panel: Panel) -> Json:
    steps = [{"value": value, "color": colour} for value, colour in panel.steps]
    defaults: Json = {"unit": panel.unit, "mappings": []}
    if panel.minimum is not None:
        defaults["min"] = panel.minimum
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if steps:
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.words:
        options = {value: {"text": text, "color": colour} for value, (text, colour) in panel.words.items()}
        defaults["mappings"] = [{"type": "value", "options": options}]
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "bars" if panel.stack else "line",
            "lineWidth": 1 if panel.stack else 2,
            "fillOpacity": 60 if panel.stack else 0,
            "showPoints": "never",
            "spanNulls": False,  # a hole in the data is shown as a hole
            "scaleDistribution": {"type": "log", "log": 2} if panel.log else {"type": "linear"},
            "stacking": {"mode": "normal" if panel.stack else "none"},
            "thresholdsStyle": {"mode": "line" if steps else "off"},
        }
    return defaults


def _overrides(queries: Sequence[Query]) -> list[Json]:
    return [
        {
            "matcher": {"id": "byFrameRefID", "options": chr(ord("A") + index)},
            "properties": [{"id": name, "value": value} for name, value in STYLES[query.style].items()],
        }
        for index, query in enumerate(queries)
        if query.style
    ]


_OPTIONS: Mapping[str, Json] = {
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "textMode": "auto",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}
