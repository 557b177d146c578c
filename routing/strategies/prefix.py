"""What the strategies that know whole prefixes share: a block map, from what was sent or from what engines tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.blocks import BlockMap
from routing.strategies.strategy import Base, Choice

MOST_BLOCKS: Final = 65536


@dataclass(frozen=True, slots=True)
class PrefixParameters:
    """What is remembered of prompts, and how far they are compared."""

    cache_tokens: int = knob(
        "most prompt tokens believed to be cached at a replica; its KV capacity where that is known and less. At most "
        f"{MOST_BLOCKS} blocks are kept of each",
        2**20,
        unit="tokens",
        ge=1,
    )
    depth: int = knob(
        "leading blocks of a prompt that are compared; each costs time", 256, unit="blocks", ge=1, le=4096
    )


P = TypeVar("P", bound=PrefixParameters)


class PrefixBase(Base[P]):
    """The map, approximate: a replica is believed to hold what was sent to it, until so much else was sent to it that
    its cache must have dropped it. A replica that joins is empty."""

    def __init__(self, parameters: P) -> None:
        super().__init__(parameters)
        self.blocks = BlockMap(MOST_BLOCKS)
        self._replicas: dict[str, Replica] = {}  # as their host keeps them up to date

    def depths(self, request: Request) -> dict[str, int]:
        """Leading blocks of the prompt that each replica is believed to hold."""
        return self.blocks.depths(request.prefix, self.parameters.depth)

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        prefix = request.prefix[: self.parameters.depth]
        for name in (choice.replica, choice.prefill):
            if name:
                replica, tokens = self._replicas.get(name), self.parameters.cache_tokens
                if replica is not None and replica.kv_tokens is not None:
                    tokens = min(tokens, replica.kv_tokens)
                self.blocks.add(name, prefix, min(max(1, tokens // request.block), MOST_BLOCKS))

    def joined(self, replica: Replica, now: float) -> None:
        self.blocks.forget(replica.name)
        self._replicas[replica.name] = replica

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self.blocks.forget(name)
        self._replicas.pop(name, None)

    def extra(self) -> dict[str, int]:
        return {"blocks": len(self.blocks)}


def sole(name: str, depths: Mapping[str, int]) -> bool:
    """Whether this replica alone holds so much of the prompt, so that its cache and nothing else has chosen it."""
    depth = depths.get(name, 0)
    return depth > 0 and not any(other >= depth for holder, other in depths.items() if holder != name)
