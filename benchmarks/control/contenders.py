"""Who is compared: Governor with its one config, the peers with what is tuned in each, and the bounds.

Governor's config is `governor.yaml` for all scenarios. A pool's name, its GPUs, the promises, the prior of its cold
start and what tenants were promised come from the scenario, as they would from a user.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import yaml

from benchmarks.control.cases import BOUNDED, FULL, OWN, Case
from benchmarks.control.plant import CHAT, INTERVAL, KV_TOKENS, PROFILE, SLOTS, Data, seconds
from controller.simulate.jobs import GOVERNOR, NONE, ORACLE, STATIC

CONFIG = Path(__file__).with_name("governor.yaml")
HELD = "small"  # the pool that nobody scales


@dataclass(frozen=True, slots=True)
class Peer:
    """A policy for replicas alone. `fixed` are parameters that describe the engine, and are nobody's to tune."""

    name: str
    kind: str
    tuned: str
    grid: tuple[float, ...]
    about: str
    fixed: Mapping[str, float]

    def settings(self, value: float, case: Case) -> Data:
        """The plugin with a value of its tuned parameter, and the engine as it is in the case."""
        engine = case.scenario["fleet"]["pools"][CHAT]["engine"]
        given = {name: engine[word] for name, word in _ENGINE.items() if name in self.fixed}
        return {"kind": self.kind, **self.fixed, **given, self.tuned: value}


_PEERS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "hpa": ("benchmarks.peers.hpa:Hpa", {}),
    "keda": ("benchmarks.peers.keda:Keda", {}),
    "keda-rate": ("benchmarks.peers.keda:KedaRate", {}),
    "kpa": ("benchmarks.peers.kpa:Kpa", {}),
    "apa": ("benchmarks.peers.apa:Apa", {}),
    "wva": ("benchmarks.peers.wva:Wva", {"kv_tokens": KV_TOKENS, "max_seqs": SLOTS}),
    "wva-derived": ("benchmarks.peers.wva:WvaDerived", {"kv_tokens": KV_TOKENS, "max_seqs": SLOTS}),
    "dynamo": ("benchmarks.peers.dynamo:Dynamo", {**PROFILE, "kv_tokens": KV_TOKENS, "max_seqs": SLOTS}),
    "pid-p99": ("benchmarks.peers.pid_p99:PidP99", {}),
}


_ENGINE = {"kv_tokens": "kv_tokens", "max_seqs": "max_num_seqs"}  # parameters of peers and keys of engines


@cache
def peers() -> tuple[Peer, ...]:
    """All peers that there are."""
    found = []
    for name, (kind, fixed) in _PEERS.items():
        module, _, attribute = kind.partition(":")
        policy: Any = getattr(import_module(module), attribute)
        known = set(policy.Config.__dataclass_fields__)
        mine = {key: value for key, value in fixed.items() if key in known}
        found.append(Peer(name, kind, policy.TUNED, tuple(policy.GRID), policy.ABOUT, mine))
    return tuple(found)


def peer(name: str) -> Peer:
    """The peer of this name. Raises KeyError."""
    return {one.name: one for one in peers()}[name]


def names(case: Case, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """Who runs in a case, in the order of the page; of them those that are wanted, Governor always."""
    scopes: Mapping[str, tuple[str, ...]] = {
        FULL: (NONE, *(one.name for one in peers()), STATIC, ORACLE),
        BOUNDED: (NONE, *(one.name for one in peers())),
        OWN: (NONE,),
    }
    return (GOVERNOR, *(name for name in scopes[case.scope] if wanted is None or name in wanted))


def levers(config: Path = CONFIG) -> tuple[str, ...]:
    """The levers of Governor's config."""
    return tuple(cast(Data, yaml.safe_load(config.read_text(encoding="utf-8")))["pool"]["levers"])


def governed(case: Case, config: Path = CONFIG, only: Sequence[str] | None = None) -> Data:
    """Governor's config for a case; `only` are the levers of the config that are kept, all when not given."""
    template = cast(Data, yaml.safe_load(config.read_text(encoding="utf-8")))
    pool, rest = template["pool"], {key: value for key, value in template.items() if key != "pool"}
    kept = {name: one for name, one in pool["levers"].items() if only is None or name in only}
    filled = _filled(case, rest, {**pool, "levers": kept})
    for name, spec in case.scenario["fleet"]["pools"].items():
        if "profile" not in filled["pools"][name]:  # peers that count in tokens are told the largest batch, too
            filled["pools"][name]["max_num_seqs"] = spec["engine"]["max_num_seqs"]
    return filled


def bare(case: Case) -> Data:
    """The pools as a peer sees them: how engines and gateway are watched, and between which bounds they move."""
    lever = {"mode": "auto", "min": 2, "max": 40, "policy": {"kind": "capacity"}}
    gateway = {"engine": "gaie", "labels": {"tenant": "fairness_id", "class": "request_class"}}
    pool = {"engine": "vllm", "gateway": gateway, "window": "60s", "levers": {"replicas": lever}}
    return _filled(case, {"interval": "15s"}, pool)


def _filled(case: Case, rest: Data, pool: Data) -> Data:
    promise = case.scenario["promises"]["default"]
    ttft, tpot = promise["ttft"], promise["tpot"]
    pools = {}
    for name, spec in case.scenario["fleet"]["pools"].items():
        routes = spec["gateway"]["knobs"].get("downgrade", ())
        pools[name] = {
            **pool,
            **_parties(case, name, pool),
            "selector": {"model_name": spec.get("model_name", name)},
            "objectives": [
                {"signal": "ttft", "percentile": "p95", "target": ttft},
                {"signal": "itl", "percentile": "p95", "target": tpot},
            ],
            "workload": {"namespace": "default", "name": name},
            "gpus_per_replica": spec["gpus"],
            "cold_start": seconds(case.cold_start),
            "levers": {} if name == HELD else _levers(pool["levers"], case, [route["pool"] for route in routes]),
            **(_told(case.profile) if case.profile is not None and name == CHAT else {}),
        }
    if case.interval != INTERVAL:  # reading must be done before the next tick
        rest = {**rest, "interval": seconds(case.interval), "deadline": seconds(case.interval / 2)}
    return {**rest, "pools": pools}


def _parties(case: Case, name: str, pool: Data) -> Data:
    """What tenants were promised and what the classes stand for, where a gateway tells them apart."""
    if "gateway" not in pool:
        return {}
    spec = case.scenario["fleet"]["pools"][name]
    return {
        "gateway": {**pool["gateway"], "selector": {"model_name": spec.get("model_name", name)}},
        "tenants": {one: {"guarantee": tokens, "consents": True} for one, tokens in case.tenants.items()},
        "classes": {
            "critical": {"rank": 0, "consents": True},
            "sheddable": {"rank": 1, "sheddable": True, "consents": True},
        },
    }


def _levers(all_of_them: Data, case: Case, receivers: Sequence[str]) -> Data:
    """Those levers that have something to move in a case: no caps without promises, no downgrade without a receiver."""
    own: Mapping[str, Data | None] = {
        "tenant_cap": {} if case.tenants else None,
        "downgrade": {"receivers": list(receivers)} if receivers else None,
    }
    return {name: {**lever, **more} for name, lever in all_of_them.items() if (more := own.get(name, {})) is not None}


def _told(error: Mapping[str, float]) -> Data:
    """Step times as Governor is given them: the true ones times the errors."""
    words = {"a": "base", "b": "prefill_token", "c": "sequence", "d": "kv_token", "e": "attention"}
    times = {word: seconds(PROFILE[name] * error.get(name, 1.0)) for name, word in words.items()}
    return {"profile": {**times, "max_num_seqs": SLOTS, "kv_tokens": KV_TOKENS}}
