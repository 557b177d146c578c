"""Read a contract from its TOML file, refusing whatever is unknown, so that a typo cannot silently drop a fact."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from controller.core.facts import Fact
from controller.core.ports import Matcher
from sources.contracts.contract import Candidate, Contract

_MATCHER = re.compile(r'^(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)(?P<op>=~|!~|!=|=)"(?P<value>(?:[^"\\]|\\.)*)"$')
_KINDS = ("histogram", "counter", "gauge", "mean")
_COMBINE = ("sum", "max", "mean")
_OBSERVED = ("", "arrival", "schedule", "first_token", "step", "finish", "scrape")
_LISTS = ("duplicates", "born_with", "on", "workload_labels")
_TEXTS = ("within", "across", "count_metric", "value_label", "workload_kind", "since", "until", "observed_at", "note")
_NUMBERS = ("scale", "ignore_below", "ignore_above")
_CANDIDATE_KEYS = {
    "metric", "kind", "where", "no_model", "whole", "over", "plus", "only_with", *_LISTS, *_TEXTS, *_NUMBERS,
}  # fmt: skip
_CONTRACT_KEYS = {
    "title", "model_label", "tenant_label", "role_label", "scope", "aliases", "marks", "flags", "releases", "facts",
    "unsupported", "hints", "aka", "known", "never", "generations",
}  # fmt: skip

# What no engine tells about itself; a contract may still say otherwise.
_ELSEWHERE = {
    **dict.fromkeys(
        (Fact.RESTARTS, Fact.OOM_RESTARTS, Fact.READY_REPLICAS, Fact.WANTED_REPLICAS),
        "read from kube-state-metrics, not from the engine",
    ),
    **dict.fromkeys(
        (Fact.GPU_MEMORY, Fact.GPU_UTILISATION, Fact.XID_ERRORS), "read from the DCGM exporter, not from the engine"
    ),
    Fact.RETRIES: "no metric tells a retry from a first attempt; only a gateway that marks retries could",
    Fact.PROMPT_LENGTHS: "no histogram of prompt lengths is known of it, so no downgrade by prompt size",
    Fact.REMAINING_TOKENS: "not exposed; estimated from running requests and output lengths",
    Fact.HELD: "only a gateway with a queue of its own exposes it",
    Fact.SATURATION: "only a gateway with flow control exposes it",
}


def parse(engine: str, text: str) -> Contract:
    """The contract in `text`. Raises ValueError naming the engine, the place and the mistake."""
    data = tomllib.loads(text)
    _refuse_unknown(engine, data, _CONTRACT_KEYS)
    candidates = {
        _fact(engine, name): tuple(
            _candidate(f"{engine}: {name}[{i}]", _fact(engine, name), raw) for i, raw in enumerate(entries)
        )
        for name, entries in data.get("facts", {}).items()
    }
    reasons = dict(data.get("unsupported", {}))
    default = reasons.pop("default", "")
    unsupported = {_fact(engine, name): reason for name, reason in reasons.items()}
    if both := sorted(candidates.keys() & unsupported.keys()):
        raise ValueError(f"{engine}: {', '.join(both)}: both supported and unsupported")
    for fact in Fact:
        if fact not in candidates and fact not in unsupported:
            if not (reason := _ELSEWHERE.get(fact, default)):
                raise ValueError(f"{engine}: {fact}: neither a candidate nor a reason why there is none")
            unsupported[fact] = reason
    return Contract(
        engine=engine,
        title=data["title"],
        model_label=data.get("model_label", ""),
        marks=tuple(data["marks"]),
        candidates=candidates,
        unsupported=unsupported,
        hints={_fact(engine, name): reason for name, reason in data.get("hints", {}).items()},
        scope=_choice(engine, data.get("scope", "engine"), ("engine", "gateway", "platform")),
        tenant_label=data.get("tenant_label", ""),
        role_label=data.get("role_label", ""),
        aliases=tuple(data.get("aliases", ())),
        flags=data.get("flags", ""),
        releases=data.get("releases", ""),
        aka=dict(data.get("aka", {})),
        known=frozenset(data["marks"][0] + name for name in data.get("known", ())),
        never=dict(data.get("never", {})),
        generations=tuple(tuple(names) for names in data.get("generations", ())),
    )


def _candidate(place: str, fact: Fact, raw: Mapping[str, Any]) -> Candidate:
    _refuse_unknown(place, raw, _CANDIDATE_KEYS)
    kind = _choice(place, raw.get("kind", fact.kind.value), _KINDS)
    if kind != fact.kind.value and (fact.kind.value, kind) != ("histogram", "mean"):
        raise ValueError(f"{place}: a {fact.kind} cannot be read from a {kind}")
    if (kind == "mean") != bool(raw.get("count_metric")):
        raise ValueError(f"{place}: a mean needs count_metric, and nothing else has one")
    if bool(raw.get("only_with")) != bool(raw.get("on")):
        raise ValueError(f"{place}: only_with and on go together")
    values: dict[str, Any] = {name: raw[name] for name in (*_TEXTS, *_NUMBERS) if name in raw}
    values |= {name: tuple(raw[name]) for name in _LISTS if name in raw}
    for name in ("within", "across"):
        _choice(place, values.get(name, "sum"), _COMBINE)
    _choice(place, values.get("observed_at", ""), _OBSERVED)
    return Candidate(
        metric=raw["metric"],
        kind=kind,
        where=tuple(matcher(place, text) for text in raw.get("where", ())),
        no_model=bool(raw.get("no_model", False)),
        whole=bool(raw.get("whole", False)),
        over=_candidate(f"{place}.over", fact, raw["over"]) if "over" in raw else None,
        only_with=_partner(f"{place}.only_with", raw["only_with"]) if "only_with" in raw else None,
        plus=tuple(_candidate(f"{place}.plus[{i}]", fact, part) for i, part in enumerate(raw.get("plus", ()))),
        **values,
    )


def _partner(place: str, raw: Mapping[str, Any]) -> Candidate:
    """The gauge that `only_with` looks at, whatever the kind of the fact."""
    _refuse_unknown(place, raw, {"metric", "where"})
    return Candidate(raw["metric"], "gauge", tuple(matcher(place, text) for text in raw.get("where", ())))


def matcher(place: str, text: str) -> Matcher:
    """``label="value"`` with one of = != =~ !~. Raises ValueError."""
    if not (found := _MATCHER.match(text)):
        raise ValueError(f"{place}: {text!r} is not a label matcher")
    return Matcher(found["label"], found["op"], re.sub(r"\\(.)", r"\1", found["value"]))


def _fact(engine: str, name: str) -> Fact:
    try:
        return Fact(name)
    except ValueError:
        raise ValueError(f"{engine}: {name!r} is not a fact") from None


def _choice(place: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{place}: {value!r} is none of {', '.join(allowed)}")
    return value


def _refuse_unknown(place: str, raw: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := sorted(raw.keys() - allowed):
        raise ValueError(f"{place}: unknown key {', '.join(unknown)}")
