"""What the config says of an Envoy: how it is reached, and what stands for each pool on its side."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from actuators.endpoints import Origin
from controller.core.address import unusable
from controller.core.model import Lever, Target
from controller.core.params import Unit, param, refuse


@dataclass(frozen=True, slots=True)
class Grpc:
    """Governor is the control plane: Envoys connect to it, and say yes or no to every update."""

    kind: Literal["grpc"] = param("Envoys connect to Governor.")
    listen: str = param("host:port that Envoys connect to.", "127.0.0.1:18000")
    certificate: str = param("Path of the server's certificate chain in PEM; needed beyond loopback.", "")
    key: str = param("Path of the server's private key in PEM.", "")
    client_ca: str = param("Path of the CA in PEM that Envoys' own certificates must come from.", "")
    plaintext: bool = param("Accept connections beyond loopback without TLS, where a mesh sees to it.", False)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            yield f"listen: {self.listen!r} is not an address; write host:port"
            host = "localhost"  # of what is no address nobody can say who reaches it
        if bool(self.certificate) != bool(self.key) or (self.client_ca and not self.certificate):
            yield "certificate: certificate and key go together; set both, and client_ca only beside them"
        elif not (self.certificate or self.plaintext or _is_loopback(host)):
            yield "listen: anyone could steer or read what is served there; set certificate, key, client_ca"


@dataclass(frozen=True, slots=True)
class Files:
    """Governor writes files that Envoys watch. Only what is steered by endpoints can expire."""

    kind: Literal["files"] = param("Governor writes files that Envoys watch.")
    folder: str = param("Folder that Envoys watch; nothing else may write there.")

    def __post_init__(self) -> None:
        if not self.folder.startswith("/"):
            raise ValueError("folder: is relative; write the whole path, from / on")


@dataclass(frozen=True, slots=True)
class EnvoyPool:
    """What a pool is called on Envoy's side, and where its replicas listen."""

    cluster: str = param("Cluster that routes send this pool's requests to.")
    eds: str = param("Cluster whose endpoints Governor tells, where it is another, such as a part of an aggregate.", "")
    fallback: str = param(
        "The other part of that aggregate: the same replicas without weights, which Envoy goes back to when the "
        "endpoints that Governor told expire.",
        "",
    )
    endpoints: Origin | None = param("Where the replicas listen; needed for weight, breaker and concurrency.", None)
    split: str = param("`runtime_key_prefix` of the weighted clusters that downgrade; governor.downgrade.POOL.", "")
    tokens_per_request: float | None = param(
        "Tokens, prompt and answer, that a request counts as, where no header tells: Envoy counts requests.",
        None,
        gt=0,
    )

    @property
    def told(self) -> str:
        """The cluster whose endpoints Governor tells."""
        return self.eds or self.cluster

    def limited(self) -> tuple[str, ...]:
        """The clusters that requests of this pool go through, each with its own count of them."""
        return (self.told, self.fallback) if self.fallback else (self.told,)


@dataclass(frozen=True, slots=True)
class EnvoyConfig:
    """One fleet of Envoys that are configured alike."""

    pools: Mapping[str, EnvoyPool] = param("What stands for each pool on Envoy's side.")
    transport: Grpc | Files = param("How Envoys learn of values.")
    admin: tuple[str, ...] = param("URLs of Envoys' admin pages, for reading back what is in force.", ())
    layers: str = param("RTDS layers are called by this, a dash and the lever.", "governor")
    caps: Literal["buckets", "shed"] = param(
        "How a tenant's cap is kept: by a bucket in each Envoy, or by the share of its requests that the fault filter "
        "refuses, which needs a policy that tells the tenant's demand, as fair_share does.",
        "buckets",
    )
    buckets: str = param("Name of the HTTP filter with tenants' buckets, as Envoy asks for it.", "governor-buckets")
    tenant_header: str = param(
        "Request header that names the tenant; it must not be the client's own word.", "x-tenant"
    )
    tokens_header: str = param(
        "Request header with the tokens of the request, prompt and answer; without it requests are counted.", ""
    )
    burst: float = param(
        "What a bucket holds, in seconds of its cap. An edit of one refills all, so others gain that much at most.",
        1.0,
        unit=Unit.DURATION,
        ge=0.1,
    )
    timeout: float = param("Longest wait for Envoys' yes or no.", 2.0, unit=Unit.DURATION, gt=0, le=3600)
    arrival: float = param(
        "How long the first read waits for Envoys, which look for a new Governor every two seconds or so.",
        2.5,
        unit=Unit.DURATION,
        ge=0,
    )
    refresh: float = param("Time between looks at where replicas listen.", 5.0, unit=Unit.DURATION, gt=0)
    lease: float = param(
        "gRPC: how long Envoys keep a list of replicas that no Governor renews; then the fallback serves.",
        60.0,
        unit=Unit.DURATION,
        ge=1,
    )
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        for number, url in enumerate(self.admin):
            if problem := unusable(url, "leave them out: Envoy's admin page asks for none"):
                yield f"admin.{number}: {problem}"
        for name, pool in self.pools.items():
            if pool.fallback and pool.fallback == pool.told:
                yield f"pools.{name}.fallback: is the cluster that is steered; name the other one"
                continue
            owner = next((one for one, other in self.pools.items() if pool.fallback == other.told and one != name), "")
            if pool.fallback and owner:
                yield f"pools.{name}.fallback: is the cluster of {owner}; name one with the same replicas"
        told = [pool.told for pool in self.pools.values()]
        if len(set(told)) < len(told):
            yield "pools: two of them have one cluster; give each its own"

    def layer(self, lever: Lever) -> str:
        """The RTDS layer of a lever. One for each, because a layer expires as a whole."""
        return f"{self.layers}-{lever.value}"

    def shed(self, target: Target) -> str:
        """The runtime key with the share of a tenant's requests that is refused, in hundredths."""
        return f"governor.shed.{target.pool}.{target.member}"

    def split(self, pool: str) -> str:
        """What the runtime keys of a pool's split begin with."""
        return self.pools[pool].split or f"governor.downgrade.{pool}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name leads wherever its owner likes
