"""What the actuator ``litellm`` must be told."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actuators.redis.server import RedisServer
from controller.core.address import unusable
from controller.core.params import SecretRef, Unit, param, refuse


@dataclass(frozen=True, slots=True)
class LiteLLMPool:
    """What of LiteLLM belongs to a pool."""

    model: str = param("Its model group: the `model_name` that clients ask for.")
    tenants: tuple[str, ...] = param(
        "plugin: tenants that consent to a smaller model, * is everybody; without classes too, those of the pool.", ()
    )
    classes: tuple[str, ...] = param("plugin: request classes that consent; where both are told, both must.", ())
    deployments: Mapping[str, str] = param("api: `model_info.id` of a replica, where it is not called the same.", {})


@dataclass(frozen=True, slots=True)
class LiteLLMConfig:
    """One LiteLLM proxy, or several that read the same document or share a database."""

    pools: Mapping[str, LiteLLMPool] = param("What belongs to each pool.")
    mode: Literal["plugin", "api"] = param(
        "plugin: governor_litellm.py runs inside the proxy and reads a document. api: the management API of an "
        "installation with a database.",
        "plugin",
    )
    document: str = param("plugin: path of the document that Governor writes.", "")
    redis: RedisServer | None = param("plugin: keeps the document in Redis instead of a file.", None)
    key: str = param("plugin: its key there.", "governor:litellm")
    status: tuple[str, ...] = param("plugin: http://HOST:4000/governor/status of each proxy, to be sure of it.", ())
    tenant: str = param(
        "plugin: who the tenant is: header:NAME, or team_id, user_id, key_alias, end_user_id or metadata:NAME of the "
        "caller's key.",
        "team_id",
    )
    klass: str = param("plugin: what the class is, in the same words.", "header:x-request-class")
    processes: int = param("plugin: proxy processes that share the traffic; each gets its part of a cap.", 1, ge=1)
    burst: float = param("plugin: tokens that a tenant may take at once, at least.", 32768.0, gt=0)
    burst_seconds: float = param("plugin: so many seconds of its rate it may.", 5.0, unit=Unit.DURATION, ge=0)
    url: str = param("api: address of the proxy.", "")
    master_key: SecretRef | None = param("api: key of an administrator.", None, unit=Unit.SECRET)
    keys: Mapping[str, str] = param("api: hashed token of each tenant's key (`token` of /key/info), not the key.", {})
    settle: float = param("api: time until every proxy has seen a change.", 60.0, unit=Unit.DURATION, ge=0)
    ca_file: str = param("CA bundle for https; by default the usual public ones.", "")
    timeout: float = param(
        "Longest wait for one answer, and for those of all of status together.", 2.0, unit=Unit.DURATION, gt=0,
        le=3600,
    )  # fmt: skip
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        for name, url in (("url", self.url), *((f"status.{n}", one) for n, one in enumerate(self.status))):
            if (url or name != "url") and (problem := unusable(url, "leave them out", example="http://HOST:4000")):
                yield f"{name}: {problem}"
        models = [pool.model for pool in self.pools.values()]
        if len(set(models)) < len(models):
            yield "pools: two share a model group, whose values would be those of one; give each its own"
        if self.mode == "plugin":
            yield from self._plugin()
        elif not self.url or self.master_key is None:
            yield "url: the management API needs url and master_key"
        elif any(key.startswith("sk-") for key in self.keys.values()):
            yield "keys: has a key itself, a secret; write its hashed token, `token` of /key/info"

    def _plugin(self) -> Iterator[str]:
        if bool(self.document) == (self.redis is not None):
            yield "document: write where the document is: a path, or redis, and not both"
        if self.document and not Path(self.document).is_absolute():
            yield "document: is relative; write the whole path, from / on"
        for name, source in (("tenant", self.tenant), ("klass", self.klass)):
            kind, _, rest = source.partition(":")
            if kind in ("header", "metadata"):
                fine = bool(rest)
            else:
                fine = source in ("team_id", "user_id", "key_alias", "end_user_id", "")
            if not fine:
                yield f"{name}: {source!r} names nothing; write header:NAME or team_id"
