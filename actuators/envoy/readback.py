"""What a target's value is by what Envoy, or a file, says. Pure.

What is found is compared with what was told: where it is the same, the value is the one that was told, exactly; only
what somebody else put there is computed back, as well as that goes.
"""

from collections.abc import Mapping
from typing import Any

from actuators.endpoints import Endpoint
from actuators.envoy.config import EnvoyConfig
from actuators.envoy.resources import (
    FULL,
    WHOLE,
    Json,
    Scene,
    gate,
    gate_keys,
    in_rotation,
    percent,
    share,
    split_key,
    tenant_bucket,
    unit,
)  # fmt: skip
from controller.core.model import Lever, Target
from controller.core.rest import NO_LIMIT


def runtime_keys(config: EnvoyConfig, scene: Scene, target: Target) -> tuple[str, ...]:
    """The runtime keys that say a target's value."""
    if target.lever is Lever.ADMISSION:
        return tuple(gate_keys(config, target.pool)[:1])
    if target.lever is Lever.DOWNGRADE:
        others = [t.member for t in scene.book.members(target.pool, Lever.DOWNGRADE)]
        return tuple(
            split_key(config, target.pool, one) for one in dict.fromkeys((target.member, *others, target.pool))
        )
    if target.lever is Lever.TENANT_CAP and config.caps == "shed":
        return (config.shed(target),)
    return ()


def of_runtime(config: EnvoyConfig, scene: Scene, target: Target, keys: Mapping[str, float]) -> float | None:
    """The value by the runtime keys in force; None where no key says anything."""
    wanted = runtime_keys(config, scene, target)
    if not wanted or wanted[0] not in keys:
        return None
    told = scene.book.value(target)
    if target.lever is Lever.ADMISSION:
        replicas = in_rotation(scene, target.pool)
        found = keys[wanted[0]]
        if told < NO_LIMIT and found == gate(told, replicas, scene.envoys):
            return told
        return round(found * scene.envoys / max(1, replicas), 3)
    if target.lever is Lever.TENANT_CAP:
        passing, mine = 100 - keys[wanted[0]], 100 - percent(scene.book.shed(target))
        if passing == mine:
            return told
        return round(told * passing / max(1, mine), 3) if told < NO_LIMIT else 0.0
    if keys[wanted[0]] == round(told * WHOLE) and target in scene.book:
        return told
    whole = sum(keys.get(name, 0.0) for name in wanted)
    return round(keys[wanted[0]] / whole, 4) if whole > 0 else None


def of_endpoints(scene: Scene, target: Target, endpoint: Endpoint, body: Json) -> float | None:
    """The value of a weight or a breaker by the endpoints of its cluster; None where its replica is not among them."""
    found = _weight_of(endpoint, body)
    if found is None:
        return None
    told = share(scene.book, target.pool, endpoint)
    if found == (round(told * FULL) if told > 0 else 0):
        return scene.book.value(target)
    if target.lever is Lever.BREAKER:
        return 0.0 if found == 0 else 1.0
    return min(1.0, found / FULL) if found else scene.book.value(target)


def _weight_of(endpoint: Endpoint, body: Json) -> int | None:
    for row in (row for group in body.get("endpoints", []) for row in group.get("lb_endpoints", [])):
        address: Any = row.get("endpoint", {}).get("address", {}).get("socket_address", {})
        if (address.get("address"), address.get("port_value")) == (endpoint.host, endpoint.port):
            return 0 if row.get("health_status") == "DRAINING" else int(row.get("load_balancing_weight", 1))
    return None


def of_filter(config: EnvoyConfig, scene: Scene, target: Target, body: Json) -> float:
    """The value of a cap by the filter's buckets; no bucket is no cap."""
    cluster, told = config.pools[target.pool].cluster, scene.book.value(target)
    for row in body.get("typed_config", {}).get("descriptors", []):
        if [entry.get("value") for entry in row.get("entries", [])] == [cluster, target.member]:
            held = row["token_bucket"]
            if told < NO_LIMIT and held == tenant_bucket(config, scene, target):
                return told
            rate = held["tokens_per_fill"] / float(str(held["fill_interval"]).rstrip("s"))
            return float(round(rate * unit(config, target.pool) * scene.envoys, 3))
    return NO_LIMIT
