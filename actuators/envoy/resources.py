"""What Envoy is told, from the values that are wanted and where replicas listen. Pure.

Bodies are xDS messages in their JSON form, the same for a stream and for a file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor
from typing import Any

from actuators.endpoints import Endpoint
from actuators.envoy.book import Book
from actuators.envoy.config import EnvoyConfig
from controller.core.model import Lever, Target
from controller.core.rest import NO_LIMIT

FULL = 100  # load balancing weight of a full share
WHOLE = 10_000  # all of a split
OPEN = (1 << 32) - 1  # tokens of a bucket that never runs dry
IDLE = 3600.0  # seconds in which a bucket of a cap of nothing gets its one request
_ANY_LEFT = 100_000  # the fallback is for no endpoint at all, not for a few ill ones
_BUCKET = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
CONCURRENCY = "concurrency"

Json = Mapping[str, Any]


class Kind(StrEnum):
    """The types of resources, by their URL."""

    ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
    FILTER = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"


@dataclass(frozen=True, slots=True)
class Key:
    """Which resource."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.rpartition('.')[2]} {self.name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource in its JSON form; `until` is when Envoy drops it, on the monotonic clock, None for never."""

    key: Key
    body: Json
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What the resources depend on beside the config: values, replicas by pool, and how many Envoys share the load."""

    book: Book
    endpoints: Mapping[str, Sequence[Endpoint]]
    envoys: int = 1
    lease: float | None = None  # when the list of replicas is dropped where nobody renews it, on the monotonic clock


def all_of(config: EnvoyConfig, scene: Scene) -> dict[Key, Resource]:
    """Everything that an Envoy may ask for."""
    made = [*_endpoints(config, scene), *_layers(config, scene), _buckets(config, scene)]
    return {one.key: one for one in made}


def carrier(config: EnvoyConfig, target: Target) -> Key:
    """The resource that carries a target's value."""
    if target.lever in (Lever.WEIGHT, Lever.BREAKER):
        return Key(Kind.ENDPOINTS, config.pools[target.pool].told)
    if target.lever is Lever.TENANT_CAP and config.caps == "buckets":
        return Key(Kind.FILTER, config.buckets)
    return Key(Kind.RUNTIME, config.layer(target.lever))


# --- endpoints: weights and breakers -------------------------------------------------------------------------------


def share(book: Book, pool: str, endpoint: Endpoint) -> float:
    """The part of a full share that a replica gets: a slow one that is warming up is held back once, not twice."""
    names = dict.fromkeys((endpoint.name, endpoint.address, endpoint.host))
    return min(
        (book.value(Target(pool, lever, name)) for lever in (Lever.WEIGHT, Lever.BREAKER) for name in names),
        default=1.0,
    )


def rotation(book: Book, pool: str, endpoints: Sequence[Endpoint]) -> list[tuple[Endpoint, int]]:
    """Each replica's weight in Envoy's whole numbers, 0 for one that gets no new requests. Where nobody would be left,
    as when the last healthy one was scaled away, all of them serve: something slow is better than nothing."""
    weights = [(one, _weight(share(book, pool, one)) if one.ready else 0) for one in endpoints]
    if any(weight for _, weight in weights):
        return weights
    ready = [one for one in endpoints if one.ready]
    return [(one, FULL if one.ready or not ready else 0) for one in endpoints]


def _weight(part: float) -> int:
    return 0 if part <= 0 else max(1, round(part * FULL))


def _endpoints(config: EnvoyConfig, scene: Scene) -> list[Resource]:
    made = []
    for name, pool in config.pools.items():
        endpoints = scene.endpoints.get(name, ())
        if not endpoints:
            continue  # never an empty list: an Envoy that waits for its first one goes to its fallback
        ends = (scene.book.ends(name, Lever.WEIGHT, Lever.BREAKER), scene.lease)
        until = min((end for end in ends if end is not None), default=None) if pool.fallback else None
        rows = [_row(one, weight) for one, weight in rotation(scene.book, name, endpoints)]
        body: dict[str, Any] = {"cluster_name": pool.told, "endpoints": [{"lb_endpoints": rows}]}
        if pool.fallback:
            body["policy"] = {"overprovisioning_factor": _ANY_LEFT}
        made.append(Resource(Key(Kind.ENDPOINTS, pool.told), body, until))
    return made


def _row(endpoint: Endpoint, weight: int) -> Json:
    """Weight 0 would be refused with all others, so what is out is drained: it finishes what it has."""
    address = {"socket_address": {"address": endpoint.host, "port_value": endpoint.port}}
    row: dict[str, Any] = {"endpoint": {"address": address}, "load_balancing_weight": weight or FULL}
    return row if weight else {**row, "health_status": "DRAINING"}


# --- runtime keys: the gate and the split --------------------------------------------------------------------------


def _layers(config: EnvoyConfig, scene: Scene) -> list[Resource]:
    layers = {Lever.ADMISSION: _gates(config, scene), Lever.DOWNGRADE: _splits(config, scene)}
    if config.caps == "shed":
        layers[Lever.TENANT_CAP] = _sheds(config, scene)
    return [
        Resource(
            Key(Kind.RUNTIME, config.layer(lever)),
            {"name": config.layer(lever), "layer": keys},
            scene.book.ends(None, lever),
        )
        for lever, keys in layers.items()
    ]


def gate_keys(config: EnvoyConfig, pool: str) -> list[str]:
    """The runtime keys that hold a pool's limit of requests in flight."""
    return [f"circuit_breakers.{cluster}.default.max_requests" for cluster in config.pools[pool].limited()]


def gate(value: float, replicas: int, envoys: int) -> int:
    """Requests in flight through one Envoy, of a set-point for each replica."""
    return max(1, ceil(value * max(1, replicas) / max(1, envoys)))


def in_rotation(scene: Scene, pool: str) -> int:
    """How many replicas of a pool get requests."""
    return sum(1 for _, weight in rotation(scene.book, pool, scene.endpoints.get(pool, ())) if weight)


def _gates(config: EnvoyConfig, scene: Scene) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for pool in config.pools:
        value = scene.book.value(Target(pool, Lever.ADMISSION, CONCURRENCY))
        if value < NO_LIMIT:
            limit = gate(value, in_rotation(scene, pool), scene.envoys)
            keys |= dict.fromkeys(gate_keys(config, pool), limit)
    return keys


def split_key(config: EnvoyConfig, pool: str, receiver: str) -> str:
    """The runtime key with the part of a pool's requests that a receiving pool gets."""
    return f"{config.split(pool)}.{config.pools[receiver].cluster}"


def _splits(config: EnvoyConfig, scene: Scene) -> dict[str, Any]:
    """All keys of a split, or none: one that is missing would have its weight from the route, in another unit."""
    keys: dict[str, Any] = {}
    for pool in config.pools:
        parts = {t.member: round(scene.book.value(t) * WHOLE) for t in scene.book.members(pool, Lever.DOWNGRADE)}
        if any(parts.values()):
            keys |= {split_key(config, pool, receiver): part for receiver, part in parts.items()}
            keys[split_key(config, pool, pool)] = WHOLE - sum(parts.values())
    return keys


def percent(part: float) -> int:
    """The part of requests to refuse as the fault filter counts it, never less than is wanted."""
    return min(100, ceil(100 * part - 1e-9))


def _sheds(config: EnvoyConfig, scene: Scene) -> dict[str, Any]:
    targets = [target for pool in config.pools for target in scene.book.members(pool, Lever.TENANT_CAP)]
    parts = {config.shed(target): percent(scene.book.shed(target)) for target in targets}
    return {key: part for key, part in parts.items() if part}


# --- the filter: tenants' buckets ----------------------------------------------------------------------------------


def _buckets(config: EnvoyConfig, scene: Scene) -> Resource:
    capped = [
        (pool.cluster, target)
        for name, pool in config.pools.items()
        for target in scene.book.members(name, Lever.TENANT_CAP)
        if scene.book.value(target) < NO_LIMIT and config.caps == "buckets"
    ]
    descriptors = [
        {
            "entries": [{"key": "destination_cluster", "value": cluster}, {"key": "tenant", "value": target.member}],
            "token_bucket": tenant_bucket(config, scene, target),
        }
        for cluster, target in capped
    ]
    counted = {"hits_addend": {"format": f"%REQ({config.tokens_header})%"}} if config.tokens_header else {}
    tenant = {"header_name": config.tenant_header, "descriptor_key": "tenant"}
    filter_: dict[str, Any] = {
        "@type": _BUCKET,
        "stat_prefix": "governor",
        "token_bucket": {"max_tokens": OPEN, "tokens_per_fill": OPEN, "fill_interval": "1s"},
        "always_consume_default_token_bucket": False,
        "filter_enabled": {"default_value": {"numerator": 100}},
        "filter_enforced": {"default_value": {"numerator": 100}},
        "rate_limits": [{"actions": [{"destination_cluster": {}}, {"request_headers": tenant}], **counted}],
        "descriptors": descriptors,
    }
    key = Key(Kind.FILTER, config.buckets)
    until = scene.book.ends(None, Lever.TENANT_CAP) if descriptors else None
    return Resource(key, {"name": config.buckets, "typed_config": filter_}, until)


def unit(config: EnvoyConfig, pool: str) -> float:
    """How many tokens what Envoy counts stands for."""
    return 1.0 if config.tokens_header else config.pools[pool].tokens_per_request or 1.0


def tenant_bucket(config: EnvoyConfig, scene: Scene, target: Target) -> Json:
    """One Envoy's part of a tenant's cap."""
    return bucket(scene.book.value(target) / unit(config, target.pool) / max(1, scene.envoys), config.burst)


def bucket(rate: float, burst: float) -> Json:
    """A bucket that fills at `rate` a second exactly, in whole tokens, and never holds more than one filling."""
    tokens = max(1, min(OPEN, floor(rate * burst + 1e-9)))
    interval = tokens / rate if rate > 1 / IDLE else IDLE
    return {"max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": f"{interval:.6f}s"}
