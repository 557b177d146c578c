"""Which frontends there are, and what a request weighs in each pool."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from controller.core.address import unusable
from controller.core.params import SecretRef, Unit, param, refuse


@dataclass(frozen=True, slots=True)
class DynamoPool:
    """What a pool is called in Dynamo, and how its requests are counted there."""

    model: str = param("Name of the model, as GET /v1/models of the frontend has it.")
    tokens_per_request: float = param(
        "Tokens that a usual request counts as: of its prompt, and of its answer with --router-track-output-blocks.",
        gt=0,
    )
    by: Literal["decode_blocks", "prefill_tokens"] = param(
        "decode_blocks: requests in flight, by their share of the KV cache. prefill_tokens: only those that wait for "
        "their first token, by the tokens of their prompts.",
        "decode_blocks",
    )


@dataclass(frozen=True, slots=True)
class DynamoConfig:
    """Frontends that serve the same models. Each has a memory of its own, so all of them are told."""

    frontends: tuple[str, ...] = param("URL of each frontend.")
    pools: Mapping[str, DynamoPool] = param("What belongs to each pool.")
    api_key: SecretRef | None = param(
        "Bearer token of a proxy in front of the frontends; they themselves ask for none.", None, unit=Unit.SECRET
    )
    ca_file: str = param("CA bundle for https; by default the usual public ones.", "")
    timeout: float = param("Longest wait for one answer.", 2.0, unit=Unit.DURATION, gt=0, le=3600)
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if not self.frontends:
            yield "frontends: is empty; write the URL of each frontend"
        for number, url in enumerate(self.frontends):
            if problem := unusable(url, "use api_key"):
                yield f"frontends.{number}: {problem}"
        if len({url.rstrip("/") for url in self.frontends}) < len(self.frontends):
            yield "frontends: names one twice; remove it"
        models = [pool.model for pool in self.pools.values()]
        if len(set(models)) < len(models):
            yield "pools: two have one model; give each its own"
