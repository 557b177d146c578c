"""`governor init`: a commented starter config from what is really exposed, so that the first edit is a target and not a
search for metric names.

What a scene shows (one pasted scrape, or a Prometheus) is asked for by three questions only: which metric names there
are, which label values a metric has, and which bucket edges. The contracts say the rest.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import requests

from controller import registry
from controller.config import loads
from controller.config.units import format_duration
from controller.core.address import without_credentials
from controller.core.errors import InputError
from controller.core.facts import Fact, Kind
from controller.core.needs import way_for
from controller.core.signals import Signal

_WISHES = ((Signal.TTFT, "p99", 2.0), (Signal.TPOT, "p95", 0.05), (Signal.ITL, "p95", 0.05), (Signal.E2E, "p95", 30.0))
_SHOW_GROUPS = (Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.FINISHED, Fact.GENERATION_TOKENS, Fact.TTFT)
_NO_MODEL = ("unknown_model", "unknown", "none", "None")  # what some servers count requests under that named none
_PLACEHOLDER = "http://prometheus:9090"


@dataclass(frozen=True, slots=True)
class Group:
    """Series of one model at one place: the labels that tell it apart, and its replicas where they can be counted."""

    labels: Mapping[str, str]
    replicas: int | None = None


class Scene(Protocol):
    """What is exposed."""

    names: Collection[str]

    def groups(self, metric: str, labels: Sequence[str]) -> Sequence[Group]:
        """The distinct values of `labels` among the series of `metric`, sorted."""

    def edges(self, metric: str) -> Sequence[float]:
        """The finite bucket edges of a histogram, ascending."""

    def places(self, metrics: Collection[str]) -> frozenset[str]:
        """Who exposes any of these metrics now; what one scrape shows comes from one place."""

    def last_seen(self, metrics: Collection[str]) -> float | None:
        """Seconds since any of these metrics was exposed, None when it cannot be known."""


def from_exposition(text: str) -> str:
    """A starter from the /metrics page of one replica. Raises InputError when no known engine wrote it."""
    return _starter(_Scrape(registry.tool("exposition")(text)), _PLACEHOLDER, "the scrape")


def from_prometheus(url: str, timeout: float = 10.0) -> str:
    """A starter from a Prometheus that scrapes the fleet; `timeout` seconds per query. Raises InputError."""
    try:
        registry.source("prometheus").Config(url=url)
    except ValueError as error:
        raise InputError(f"init: --prometheus: {error}") from error
    return _starter(_Prometheus(url.rstrip("/"), timeout), url, url)


class _Scrape:
    def __init__(self, exposition: Any) -> None:
        self.names: Collection[str] = exposition.names
        self._samples = [(sample.name, dict(sample.labels)) for sample in exposition.samples]

    def groups(self, metric: str, labels: Sequence[str]) -> Sequence[Group]:
        # A scrape does not know its namespace or job: those labels are put on by Prometheus.
        found = {tuple((k, own[k]) for k in labels if own.get(k)) for name, own in self._samples if name == metric}
        return tuple(Group(dict(pairs)) for pairs in sorted(found)) or (Group({}),)

    def edges(self, metric: str) -> Sequence[float]:
        return _finite(own["le"] for name, own in self._samples if name == f"{metric}_bucket" and "le" in own)

    def places(self, metrics: Collection[str]) -> frozenset[str]:
        return frozenset({""})

    def last_seen(self, metrics: Collection[str]) -> float | None:
        return None


class _Prometheus:
    """A few plain queries; the source has its own, better client, which this room may not import."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        self.names: Collection[str] = self._get("label/__name__/values", {})

    def groups(self, metric: str, labels: Sequence[str]) -> Sequence[Group]:
        by = ", ".join(labels)
        rows = self._query(f"count by ({by}) (count by ({by}, instance) ({metric}))")
        found = [Group({k: v for k, v in row["metric"].items() if v}, int(float(row["value"][1]))) for row in rows]
        return sorted(found, key=lambda group: sorted(group.labels.items()))

    def edges(self, metric: str) -> Sequence[float]:
        return _finite(row["metric"].get("le", "+Inf") for row in self._query(f"group by (le) ({metric}_bucket)"))

    def places(self, metrics: Collection[str]) -> frozenset[str]:
        rows = self._query(f"group by (job, instance) ({_any_of(metrics)})") if metrics else []
        return frozenset(f"{row['metric'].get('job', '')}/{row['metric'].get('instance', '')}" for row in rows)

    def last_seen(self, metrics: Collection[str]) -> float | None:
        # Steps as far apart as Prometheus looks back, so that no sample falls between two.
        last = (f"(time() - max(max_over_time(timestamp({name})[1d:5m])))" for name in sorted(metrics)[:8])
        rows = self._query(" or ".join(last)) if metrics else []
        return float(rows[0]["value"][1]) if rows else None

    def _query(self, query: str) -> list[dict[str, Any]]:
        return list(self._get("query", {"query": query})["result"])

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        try:
            answer = requests.get(f"{self._url}/api/v1/{path}", params=parameters, timeout=(3.0, self._timeout))
            body = answer.json()
            if answer.ok and body["status"] == "success":
                return body["data"]
            why = f"HTTP {answer.status_code}: {body.get('error', body)}"
        except requests.JSONDecodeError as error:
            raise InputError(
                f"init: {self._url} answered with something that is not JSON; give the address of the Prometheus API, "
                "without /graph or /api/v1"
            ) from error
        except requests.RequestException as error:
            raise InputError(
                f"init: {self._url} cannot be asked: {_reason(error)}; check the address and the network"
            ) from error
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"init: {self._url} does not answer like a Prometheus; check the address") from error
        raise InputError(f"init: {self._url} refused {path}: {why}")


def _starter(scene: Scene, url: str, where: str) -> str:
    known = _engines(scene.names)
    engines = _apart(scene, known)
    if known and not engines:
        ago = min((seen for _, facts in known if (seen := scene.last_seen(_metrics(facts))) is not None), default=None)
        when = "longer than a day ago" if ago is None else f"{format_duration(round(ago / 60) * 60)} ago"
        raise InputError(
            f"init: the metrics of {', '.join(contract.title for contract, _ in known)} in {where} were last seen "
            f"{when}; look whether the targets are up and still scraped"
        )
    if not engines:
        raise InputError(
            f"init: no metric in {where} belongs to a known engine ({', '.join(registry.engines())}); "
            "give the /metrics page of the engine itself, and look whether its metrics are switched on"
        )
    taken: set[str] = set()
    pools = [
        _pool(contract, scene, facts, group, taken)
        for contract, facts in engines
        for group in _groups(contract, scene, facts)
    ]
    text = "\n".join([_HEAD.format(where=where, url=json.dumps(url)), *pools]) + _FOOT
    loads(text, "the starter")  # what is handed out must load
    return text


def _engines(names: Collection[str]) -> list[tuple[Any, Mapping[Fact, Any]]]:
    """Contracts that are exposed, with the candidate (or the reason against it) of each fact. Gateways count only
    where no engine shows itself: two pools over the same requests would count them twice."""
    contracts = [registry.tool("contract")(name) for name in registry.tool("identify-engines")(names)]
    for scope in ("engine", "gateway"):
        chosen = [contract for contract in contracts if contract.scope == scope]
        if chosen:
            return [(contract, registry.tool("resolve-contract")(contract, names)) for contract in chosen]
    return []


def _apart(scene: Scene, engines: Sequence[tuple[Any, Mapping[Fact, Any]]]) -> list[tuple[Any, Mapping[Fact, Any]]]:
    """Those that are exposed now, each by places of its own. A Dynamo worker shows its engine's metrics beside its own,
    and two pools over the same replicas would both move them; the contract that tells more latencies is kept."""
    chosen: list[tuple[Any, Mapping[Fact, Any]]] = []
    taken: frozenset[str] = frozenset()
    for contract, facts in sorted(engines, key=lambda one: _tells(one[1]), reverse=True):
        places = scene.places(_metrics(facts))
        if places and not places & taken:
            chosen.append((contract, facts))
            taken |= places
    return sorted(chosen, key=lambda one: one[0].engine)


def _tells(facts: Mapping[Fact, Any]) -> tuple[int, int]:
    told = {fact for fact, candidate in facts.items() if not isinstance(candidate, str)}
    return len(told & {Fact(signal.value) for signal, _, _ in _WISHES}), len(told)


def _metrics(facts: Mapping[Fact, Any]) -> frozenset[str]:
    """Sample names behind the facts."""
    told = [candidate for candidate in facts.values() if not isinstance(candidate, str)]
    return frozenset(f"{one.metric}_count" if one.kind == "histogram" else one.metric for one in told)


def _groups(contract: Any, scene: Scene, facts: Mapping[Fact, Any]) -> Sequence[Group]:
    labels = [label for label in ("namespace", contract.model_label) if label]
    for fact in _SHOW_GROUPS:
        candidate = facts[fact]
        if isinstance(candidate, str) or candidate.no_model:
            continue
        metric = f"{candidate.metric}_count" if fact.kind is Kind.HISTOGRAM else candidate.metric
        found = scene.groups(metric, labels if contract.model_label else [*labels, "job"])
        named = [group for group in found if group.labels.get(contract.model_label) not in _NO_MODEL]
        if found:
            return named or found
    return (Group({}),)


def _pool(contract: Any, scene: Scene, facts: Mapping[Fact, Any], group: Group, taken: set[str]) -> str:
    name = _unique(group.labels.get(contract.model_label) or group.labels.get("job") or contract.engine, taken)
    selector = ", ".join(f"{label}: {json.dumps(value)}" for label, value in group.labels.items())
    lines = [f"  {name}:", f"    engine: {contract.engine}", f"    selector: {{{selector}}}"]
    if not selector:
        lines[-1] += "    # everything of this engine; add labels, such as namespace or job, to tell pools apart"
    supported = {fact for fact, candidate in facts.items() if not isinstance(candidate, str)}
    lines.append(
        "    objectives:" if (promises := list(_objectives(scene, facts, supported))) else "    objectives: []"
    )
    lines.extend(promises)
    lines.extend(_not_told(facts))
    lines.extend(["    levers:", "      replicas:", "        mode: observe    # decides and records; moves nothing"])
    most = max(4, 2 * group.replicas) if group.replicas else 4
    seen = f"{group.replicas} seen now" if group.replicas else "look how many your GPUs allow"
    lines.extend(["        min: 1", f"        max: {most}           # {seen}", f"        policy: {_policy(supported)}"])
    return "\n".join(lines)


def _objectives(scene: Scene, facts: Mapping[Fact, Any], supported: set[Fact]) -> Iterator[str]:
    done: set[Signal] = set()
    for signal, percentile, wish in _WISHES:
        fact = Fact(signal.value)
        if fact not in supported or (signal is Signal.ITL and Signal.TPOT in done) or (signal is Signal.E2E and done):
            continue
        done.add(signal)
        candidate = facts[fact]
        if candidate.kind == "mean":
            yield f"      - {{signal: {signal}, statistic: mean, target: {format_duration(wish)}}}"
            continue
        scaled = [edge * candidate.scale for edge in scene.edges(candidate.metric) if edge > 0]
        target = min(scaled, key=lambda edge: abs(math.log(edge / wish)), default=wish)
        note = "  # an edge of its histogram" if scaled else ""
        yield f"      - {{signal: {signal}, percentile: {percentile}, target: {_spell(target)}}}{note}"
    if way_for(Signal.ERROR_RATIO, supported):
        yield "      - {signal: error_ratio, target: 1%, window: 5m}"


def _not_told(facts: Mapping[Fact, Any]) -> Iterator[str]:
    for fact in (Fact.TTFT, Fact.WAITING):
        if isinstance(facts[fact], str):
            yield f"      # no {fact}: {' '.join(facts[fact].split())}"


def _policy(supported: set[Fact]) -> str:
    if {Fact.GENERATION_TOKENS, Fact.FINISHED} <= supported and supported & {Fact.ITL, Fact.TPOT}:
        return "{kind: capacity}"
    if Fact.WAITING in supported:
        return "{kind: threshold, signal: queue_depth, per_replica: true, upper: 4, lower: 0.5, dwell_up: 30s}"
    if Fact.KV_USAGE in supported:
        return "{kind: threshold, signal: kv_usage, upper: 0.8, lower: 0.4, dwell_up: 30s}"
    return "{kind: capacity}"


def _unique(name: str, taken: set[str]) -> str:
    """`name` as a pool name: the last part of a path, plain characters, not used before."""
    plain = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", name.rstrip("/").rsplit("/", 1)[-1]).strip("-._")[:55].strip("-._") or "pool"
    )
    number = 1
    while (chosen := plain if number == 1 else f"{plain}-{number}") in taken:
        number += 1
    taken.add(chosen)
    return chosen


def _spell(seconds: float) -> str:
    """A target as people write it, without the noise of binary fractions (0.1 * 0.001 * ...)."""
    return format_duration(float(f"{seconds:.6g}"))


def _any_of(metrics: Collection[str]) -> str:
    names = "|".join(re.escape(name) for name in sorted(metrics))
    return f"{{__name__=~{json.dumps(names)}}}"


def _reason(error: requests.RequestException) -> str:
    """What is behind the wrappings of requests and urllib3."""
    wrapped = error.args[0] if error.args else error
    text = without_credentials(str(getattr(wrapped, "reason", None) or error))
    return re.sub(r"^\w+\([^)]*\): ", "", text)


def _finite(edges: Iterable[str]) -> tuple[float, ...]:
    return tuple(sorted({float(edge) for edge in edges if math.isfinite(float(edge))}))


_HEAD = """\
# Written by `governor init` from {where}. Next: set the targets you promise, then
#   governor check FILE                               every mistake at once
#   governor doctor --config FILE                     what the metrics can and cannot tell
#   governor dry-run --config FILE --prometheus URL   what Governor would have done
# docs/configuration.md explains each key.
version: 1
interval: 15s
source: {{kind: prometheus, url: {url}}}
pools:"""
_FOOT = """
        # Once you trust what it decides, write mode: auto and name who carries it out:
        # actuator: {kind: kubernetes, namespace: NAMESPACE, name: DEPLOYMENT}
# Pools that share GPUs:
# budgets:
#   gpus: {max: 64, pools: all}
"""
