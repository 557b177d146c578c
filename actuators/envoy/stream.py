"""One stream of one Envoy: what it asked for, what it was sent, what it took and what it refused.

State-of-the-world xDS: every answer carries a nonce, and the next request of its type with that nonce says yes, or no
with the reason. Not for threads: the hub holds its lock around every call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Refusal:
    """A generation of a resource that Envoy did not take, and its words."""

    generation: int
    words: str


@dataclass(slots=True)
class Subscription:
    """What a stream wants of one type. Generations are by name."""

    names: frozenset[str] = frozenset()
    sent: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    predecessor: str = ""  # the version that it came with, which another Governor told it


@dataclass(slots=True)
class Stream:
    """`node` is the Envoy's own id, or its address where it has none."""

    node: str
    wants: dict[str, Subscription] = field(default_factory=dict)  # by type URL
    _open: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)  # nonce: type, generations
    _count: int = 0

    def asked(self, type_url: str, names: frozenset[str], version: str, nonce: str, error: str) -> None:
        """A request came in."""
        known = type_url in self.wants
        want = self.wants.setdefault(type_url, Subscription())
        if not known and not nonce:
            want.predecessor = version
        want.names = names
        for gone in want.sent.keys() - names:
            want.sent.pop(gone)
        kind, generations = self._open.pop(nonce, ("", {}))
        if kind != type_url:
            return
        for name, generation in generations.items():
            if error:
                want.refused[name] = Refusal(generation, error)
            else:
                want.taken[name] = max(generation, want.taken.get(name, 0))

    def due(self, type_url: str, generations: Mapping[str, int]) -> dict[str, int]:
        """What it wants of a type and has not been sent; `generations` are what there is, by name."""
        want = self.wants[type_url]
        there = {name: generations[name] for name in sorted(want.names) if name in generations}
        return there if any(want.sent.get(name) != generation for name, generation in there.items()) else {}

    def sending(self, type_url: str, generations: Mapping[str, int]) -> str:
        """These go out now; the nonce to send them with."""
        self._count += 1
        nonce = str(self._count)
        self.wants[type_url].sent.update(generations)
        self._open[nonce] = (type_url, dict(generations))
        return nonce

    def took(self, type_url: str, name: str, generation: int) -> bool | None:
        """Whether it took this generation or a newer one of a resource; None while it has not said."""
        want = self.wants[type_url]
        if want.taken.get(name, -1) >= generation:
            return True
        refusal = want.refused.get(name)
        return False if refusal is not None and refusal.generation >= generation else None

    def words(self, type_url: str, name: str) -> str:
        """Why it refused a resource last."""
        refusal = self.wants[type_url].refused.get(name)
        return refusal.words if refusal is not None else ""

    def wanting(self, type_url: str, name: str) -> bool:
        """Whether it asked for a resource."""
        return type_url in self.wants and name in self.wants[type_url].names
