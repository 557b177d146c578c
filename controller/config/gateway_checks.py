"""Contradictions of a pool's gateway: a contract that is none of a gateway, and series that are read for two pools."""

from collections.abc import Iterator, Sequence

from controller import registry
from controller.config.errors import Finding, Path
from controller.config.fields import matchers
from controller.config.models import GovernorConfig, PoolConfig
from controller.config.report import nearest
from controller.registry import PluginError


def check_gateway(at: Path, pool: PoolConfig, engines: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with the gateway of the pool at `at`; `engines` are the contracts there are."""
    gateway = pool.gateway
    if gateway is None or not engines:
        return
    here: Path = (*at, "gateway", "engine")
    try:
        known = registry.gateways()
    except PluginError:
        return  # reported with the engines
    if gateway.engine not in engines:
        yield Finding(here, f"no gateway is called {gateway.engine!r}", nearest(gateway.engine, known))
    elif gateway.engine not in known:
        yield Finding(
            here, f"{gateway.engine} is an engine and no gateway", f"write one of {', '.join(known)}, or remove gateway"
        )
    elif pool.engine in known:
        yield Finding(
            (*at, "engine"),
            f"{pool.engine} is a gateway, and the pool has one already",
            "write the engine of the replicas here, or remove gateway",
            ((*at, "gateway"),),
        )


def shared_gateways(config: GovernorConfig) -> Iterator[Finding]:
    """Two pools that read the same series of a gateway would both be offered what comes to one of them."""
    series: dict[object, str] = {}
    for name, pool in config.pools.items():
        if pool.gateway is None:
            continue
        first = series.setdefault((pool.gateway.engine, matchers(pool.gateway.selector)), name)
        if first != name:
            yield Finding(
                ("pools", name, "gateway", "selector"),
                f"selects the same series as the gateway of pool {first}",
                "add a label that tells the pools apart, such as the model's",
                (("pools", first, "gateway"), ("pools", name, "gateway", "engine")),
            )
