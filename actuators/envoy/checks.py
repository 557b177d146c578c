"""What an Envoy can do with each lever, and what must hold before anything is told."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from actuators.envoy.book import Book
from actuators.envoy.config import EnvoyConfig, Grpc
from actuators.envoy.resources import CONCURRENCY, WHOLE, Scene, share
from controller.core.model import Decision, Lever, Target
from controller.core.ports import Ack, Binding, Capability
from controller.core.rest import NO_LIMIT

PER_ENDPOINT = (Lever.WEIGHT, Lever.BREAKER)

CAPABILITIES: Mapping[Lever, Capability] = {
    Lever.WEIGHT: Capability(
        "share", high=1.0, quantum=0.01, atomic=True, expiry=True, ack=Ack.VERSION, zones=False,
        note="weight of the replica's endpoint (EDS), the least of weight and breaker",
    ),
    Lever.BREAKER: Capability(
        "share", high=1.0, quantum=0.01, atomic=True, expiry=True, ack=Ack.VERSION,
        note="weight of the replica's endpoint (EDS); 0 drains it, what it has in flight finishes",
    ),
    Lever.ADMISSION: Capability(
        "requests in flight per replica", low=1.0, atomic=True, expiry=True, ack=Ack.VERSION, setpoints=(CONCURRENCY,),
        note="concurrency alone: the cluster's max_requests (RTDS), 503 beyond; shared evenly among Envoys",
    ),
    Lever.TENANT_CAP: Capability(
        "tokens/s", atomic=True, expiry=True, ack=Ack.VERSION,
        note="a local bucket per tenant (ECDS) that counts requests, or a share of them refused (RTDS); 429 beyond",
    ),
    Lever.DOWNGRADE: Capability(
        "share of requests", high=1.0, quantum=1 / WHOLE, atomic=True, expiry=True, ack=Ack.VERSION,
        note="weights of a route's weighted clusters (RTDS); the model's name in the body is for others to rewrite",
    ),
}  # fmt: skip


def capabilities(config: EnvoyConfig | None) -> dict[Lever, Capability]:
    """As configured, or at most."""
    if config is None:
        return dict(CAPABILITIES)
    streams = isinstance(config.transport, Grpc)
    ack = Ack.VERSION if streams or config.admin else Ack.ANSWER
    fallen = all(pool.fallback for pool in config.pools.values() if pool.endpoints is not None)
    return {
        lever: replace(one, ack=ack, expiry=fallen if lever in PER_ENDPOINT else streams)
        for lever, one in CAPABILITIES.items()
    }


def check(config: EnvoyConfig, binding: Binding) -> None:
    """Whether the config has all that the levers need; raises ValueError with the place and the mend."""
    for name in binding.pools:
        if name not in config.pools:
            raise ValueError(f"pools: has no {name}, whose levers it is to move; add {name}: {{cluster: ...}}")
    for name, lever in {*binding.scopes, *((t.pool, t.lever) for t in binding.targets)}:
        if lever in (*PER_ENDPOINT, Lever.ADMISSION) and config.pools[name].endpoints is None:
            raise ValueError(f"pools.{name}.endpoints: is missing, and {lever} needs it; tell where replicas listen")
        if lever not in CAPABILITIES:
            raise ValueError(f"pools.{name}: Envoy cannot move {lever}")
    for target in binding.targets:
        _check_target(config, target)


def _check_target(config: EnvoyConfig, target: Target) -> None:
    pool = config.pools[target.pool]
    if target.lever is Lever.ADMISSION and target.member != CONCURRENCY:
        raise ValueError(
            f"pools.{target.pool}: Envoy cannot move {target.member}; write setpoints: [{CONCURRENCY}] beside the lever"
        )
    if target.lever is Lever.DOWNGRADE and target.member not in config.pools:
        raise ValueError(f"pools: has no {target.member}, which receives; add {target.member}: {{cluster: ...}}")
    counted = config.caps == "shed" or config.tokens_header or pool.tokens_per_request is not None
    if target.lever is Lever.TENANT_CAP and not counted:
        raise ValueError(
            f"pools.{target.pool}.tokens_per_request: is missing: Envoy counts requests; "
            "write the mean of a request's tokens, prompt and answer, or set tokens_header"
        )


def refused(config: EnvoyConfig, scene: Scene, book: Book, decisions: Sequence[Decision]) -> dict[Target, str]:
    """Decisions that would leave a pool without anybody to serve, or send more than all of it away, as `book` has them
    together with what is in force; the others of a batch may go on."""
    problems: dict[Target, str] = {}
    if config.caps == "shed":
        blind = "nothing tells the tenant's demand, of which a share is to be refused; use fair_share, or caps: buckets"
        caps = (d for d in decisions if d.target.lever is Lever.TENANT_CAP and d.final != NO_LIMIT)
        problems |= {d.target: blind for d in caps if not d.evidence.get("demand")}
    for pool in config.pools:
        mine = [d for d in decisions if d.target.pool == pool]
        lowered = [d for d in mine if d.target.lever in PER_ENDPOINT and d.final == 0]
        endpoints = [one for one in scene.endpoints.get(pool, ()) if one.ready]
        if lowered and endpoints and all(share(book, pool, one) <= 0 for one in endpoints):
            why = f"no replica of {pool} would be left in rotation"
            problems |= {d.target: why for d in lowered}
        away = fsum(book.value(t) for t in book.members(pool, Lever.DOWNGRADE))
        if away > 1 + 1e-9:
            why = f"{away:g} of the requests of {pool} would be sent away"
            problems |= {d.target: why for d in mine if d.target.lever is Lever.DOWNGRADE}
    return problems
