"""The values that Governor wants in force, each with the time at which it is dropped when nobody renews it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from controller.core.model import Lever, Target
from controller.core.rest import at_rest


@dataclass(frozen=True, slots=True)
class Entry:
    """A value; `until` is when it is dropped, on the monotonic clock, None for never. `shed` is the part of a tenant's
    requests beyond a cap, by the demand at the time of deciding."""

    value: float
    until: float | None = None
    shed: float = 0.0


class Book(Mapping[Target, Entry]):
    """Immutable: a batch makes another book, so that one that was refused is simply put aside."""

    def __init__(self, entries: Mapping[Target, Entry] | None = None) -> None:
        self._entries = dict(entries or {})

    def __getitem__(self, target: Target) -> Entry:
        return self._entries[target]

    def __iter__(self) -> Iterator[Target]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def value(self, target: Target) -> float:
        """The value of a target, the neutral one where there is none."""
        entry = self._entries.get(target)
        return at_rest(target) if entry is None else entry.value

    def shed(self, target: Target) -> float:
        """The part of a tenant's requests to refuse."""
        entry = self._entries.get(target)
        return 0.0 if entry is None else entry.shed

    def having(self, entries: Mapping[Target, Entry]) -> "Book":
        """With these entries written over."""
        return Book({**self._entries, **entries})

    def without(self, targets: Collection[Target]) -> "Book":
        """With none of these."""
        return Book({t: e for t, e in self._entries.items() if t not in targets})

    def at(self, moment: float) -> "Book":
        """Without what has expired by then."""
        return Book({t: e for t, e in self._entries.items() if e.until is None or e.until > moment})

    def members(self, pool: str, lever: Lever) -> list[Target]:
        """The targets of a lever in a pool that there are values of, sorted."""
        return sorted(t for t in self._entries if t.pool == pool and t.lever is lever)

    def next_end(self) -> float | None:
        """When the first value expires, None when none does."""
        return min((e.until for e in self._entries.values() if e.until is not None), default=None)

    def ends(self, pool: str | None, *levers: Lever) -> float | None:
        """When the first value of these levers that is not neutral expires, of one pool or of all; None for never."""
        ends = [
            e.until
            for t, e in self._entries.items()
            if t.lever in levers and pool in (None, t.pool) and e.until is not None and e.value != at_rest(t)
        ]
        return min(ends, default=None)
