"""Which routers serve which pool, and where the replicas listen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from actuators.endpoints import Origin
from controller.core.address import unusable
from controller.core.params import SecretRef, Unit, param, refuse


@dataclass(frozen=True, slots=True)
class RouterPool:
    """The routers of one pool. Each remembers its workers alone, so all of them are told."""

    routers: tuple[str, ...] = param("URL of each router process that serves the pool.")
    metrics: tuple[str, ...] = param(
        "vllm: URL of the metrics page of each, in the same order: only there a restart shows for certain.", ()
    )
    endpoints: Origin | None = param(
        "Where the replicas listen; without it, their names in the metrics must be host:port.", None
    )
    scheme: Literal["http", "https", "grpc"] = param("How a worker is called that the router does not know.", "http")

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if not self.routers:
            yield "routers: is empty; write the URL of each router"
        for name, urls in (("routers", self.routers), ("metrics", self.metrics)):
            for number, url in enumerate(urls):
                if problem := unusable(url, "use api_key"):
                    yield f"{name}.{number}: {problem}"
            if len(set(urls)) < len(urls):
                yield f"{name}: names one twice; remove it"
        if self.routers and self.metrics and len(self.metrics) != len(self.routers):
            yield "metrics: has not as many URLs as routers; write one for each, in the same order"


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Routers of one make."""

    make: Literal["sglang", "vllm"] = param("sglang: sglang-router. vllm: vllm-router of vllm-project/router.")
    pools: Mapping[str, RouterPool] = param("The routers of each pool; one router serves one pool.")
    api_key: SecretRef | None = param(
        "sglang: a key of role admin from --control-plane-api-keys, or that of --api-key.", None, unit=Unit.SECRET
    )
    worker_key: SecretRef | None = param(
        "sglang: key that the workers ask of the router, told to it with each worker.", None, unit=Unit.SECRET
    )
    ca_file: str = param("CA bundle for https; by default the usual public ones.", "")
    timeout: float = param(
        "Longest wait for one command, the router's look at a worker that comes back included.", 5.0,
        unit=Unit.DURATION, gt=0, le=3600,
    )  # fmt: skip
    refresh: float = param("Time between looks at where replicas listen.", 5.0, unit=Unit.DURATION, gt=0)
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if not self.pools:
            yield "pools: is empty; write the routers of each pool"
        urls = [url.rstrip("/") for pool in self.pools.values() for url in pool.routers]
        if len(set(urls)) < len(urls):
            yield "pools: two share a router; give each its own"
        if self.make == "sglang" and any(pool.metrics for pool in self.pools.values()):
            yield "metrics: means nothing for sglang, whose workers have new ids after a restart; remove it"
        if self.make == "vllm" and self.api_key is not None:
            yield "api_key: vllm-router asks for no key (its --api-key is for workers); remove it"
        if self.make == "vllm" and self.worker_key is not None:
            yield "worker_key: is the --api-key of vllm-router itself; remove it"
