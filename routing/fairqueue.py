"""The gateway's queue: classes in strict order with floors, tenants by tokens served, bounded.

*Between ranks* of classes the lowest goes first. A rank with a floor f earns credit while it waits,

    credit += f · cost of whatever is served;    credit = max(0, credit - cost) when it is served itself

and its head goes first as soon as the credit covers its cost. So a rank that waits gets at least its floor of what is
served (less one request), and overtakes a higher one by no more than that. An idle rank earns nothing, and nobody rises
with age: in an overload everything is old, and ageing would turn strict order into first come, first served.

*Between tenants* of a rank the smallest virtual counter goes first: it grows by cost / weight with each request that is
served, is put right when the answer's length is known, and on return from idleness is lifted to the smallest counter
of those that wait (else to the last one served), so that nobody saves up for a burst. Two tenants that both wait
differ by no more than two of the largest requests. *Within a tenant*: first come, first served.

A rank with a floor also keeps that share of the places when the queue is full; else those above would push it out, and
its floor of the service would be a floor of nothing.

Cost = prompt_price · prompt + output_price · expected answer, tokens. Not `fair`: all are one rank and tenant.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
MANY = 10_000  # idle tenants remembered in a class


class Entry(Generic[T]):
    """One that waits. `cost` is in priced tokens, `weight` is its tenant's."""

    __slots__ = ("cost", "id", "item", "line", "live", "rank", "seq", "tenant", "weight")

    def __init__(self, id: int, item: T, rank: int, tenant: str, weight: float, cost: float) -> None:  # noqa: A002
        self.id = id
        self.item = item
        self.rank = rank
        self.tenant = tenant
        self.weight = weight
        self.cost = cost
        self.seq = 0
        self.live = True  # False once it left
        self.line = (rank, tenant)  # where it stands now: all in one line in a plain queue


class _Line(Generic[T]):
    """The entries of one tenant at one rank, in order of arrival; those that left are skipped at the head."""

    __slots__ = ("entries", "live")

    def __init__(self) -> None:
        self.entries: deque[Entry[T]] = deque()
        self.live = 0

    def head(self) -> Entry[T]:
        while not self.entries[0].live:
            self.entries.popleft()
        return self.entries[0]

    def tail(self) -> Entry[T]:
        while not self.entries[-1].live:
            self.entries.pop()
        return self.entries[-1]


class _Group(Generic[T]):
    """One rank while it waits. `heap` orders its tenants by counter; stale pairs are skipped."""

    __slots__ = ("credit", "heap", "lines", "live", "rank")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.credit = 0.0
        self.live = 0
        self.lines: dict[str, _Line[T]] = {}
        self.heap: list[tuple[float, str]] = []


class FairQueue(Generic[T]):
    """Who is next. Not a law of time: how long each may wait is its owner's affair, who calls `remove`."""

    def __init__(self, *, fair: bool = False, floors: Mapping[int, float] | None = None) -> None:
        self.fair = fair
        self._floors: Mapping[int, float] = floors or {}
        self._groups: list[_Group[T]] = []  # by rank
        self._entries: dict[int, Entry[T]] = {}  # all, by id, in order of arrival
        self._aside: dict[int, Entry[T]] = {}
        self._counters: dict[int, dict[str, float]] = {}  # rank -> tenant -> virtual service
        self._last: dict[int, float] = {}  # rank -> counter of the tenant served last
        self._seq = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """Entries that could be served, those set aside not counted."""
        return len(self._entries) - len(self._aside)

    def __iter__(self) -> Iterator[Entry[T]]:
        """All, in order of arrival."""
        return iter(list(self._entries.values()))

    def push(self, entry: Entry[T]) -> None:
        """At the end of its line."""
        self._seq += 1
        entry.seq = self._seq
        self._entries[entry.id] = entry
        self._stand(entry)

    def head(self) -> Entry[T] | None:
        """Who is next; it stays until it is taken, removed or set aside."""
        group = self._due()
        return None if group is None else self._next_line(group).head()

    def take(self, entry: Entry[T]) -> None:
        """It is served: its rank and tenant pay for it, the others that wait earn their floors."""
        rank, tenant = entry.line
        for group in self._groups:
            floor = self._floors.get(group.rank, 0.0)
            if floor and self.fair:
                group.credit += floor * entry.cost
            if group.rank == rank:
                group.credit = max(0.0, group.credit - entry.cost)
        self._last[rank] = self._counters[rank][tenant]
        self._charge(rank, tenant, entry.cost / entry.weight)
        self.remove(entry.id)

    def settle(self, entry: Entry[T], more: float) -> None:
        """The true cost of one that was taken was `more` than what was paid (less, if negative)."""
        rank, tenant = entry.line
        if more and tenant in self._counters.get(rank, ()):
            self._charge(rank, tenant, more / entry.weight)

    def remove(self, id: int) -> Entry[T] | None:  # noqa: A002
        """It leaves without being served; None when it is not there."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return None
        entry.live = False
        if self._aside.pop(id, None) is None:
            self._leave(entry)
        return entry

    def set_aside(self, entry: Entry[T]) -> None:
        """Nothing can serve it now; it keeps its place in the count, and stands in nobody's way."""
        self._aside[entry.id] = entry
        rank, tenant = entry.line
        self._group(rank).lines[tenant].entries.remove(entry)  # it is the head
        self._leave(entry)

    def bring_back(self) -> None:
        """Those set aside return to their places in line."""
        back = list(self._aside.values())
        self._aside.clear()
        for entry in back:
            self._stand(entry)

    def victim(self, rank: int, tenant: str, length: int) -> Entry[T] | None:
        """Who must go for a newcomer of this rank and tenant, when all `length` places are taken; None: the newcomer.

        A rank keeps its floor of the places, at least one. From the lowest rank up, the first that has more than it
        keeps gives one, if it is below the newcomer, or the newcomer's own rank has less than it keeps; in that rank
        itself, one of a tenant that hogs it. It is the newest of the longest line that goes.
        """
        if not self.fair:
            return None
        owed = self.waiting_at(rank) < self._keeps(rank, length)
        for group in reversed(self._groups):
            if group.rank < rank and not owed:
                return None
            name, line = max(group.lines.items(), key=lambda pair: (pair[1].live, pair[0]))
            if group.rank == rank:
                own = group.lines.get(tenant)
                if name != tenant and line.live > (own.live if own else 0) + 1:
                    return line.tail()
            elif group.live > self._keeps(group.rank, length):
                return line.tail()
        return None

    def _keeps(self, rank: int, length: int) -> int:
        floor = self._floors.get(rank, 0.0)
        return max(1, int(floor * length)) if floor else 0

    def floor(self, rank: int) -> float:
        """The share that is guaranteed to this rank, 0..1."""
        return self._floors.get(rank, 0.0) if self.fair else 0.0

    def waiting_at(self, rank: int) -> int:
        """How many of this rank wait; 0 in a plain queue, which knows none."""
        if not self.fair:
            return 0
        return next((group.live for group in self._groups if group.rank == rank), 0)

    def ahead(self, rank: int) -> int:
        """How many of this rank or a higher one wait; all, in a plain queue."""
        if not self.fair:
            return self.waiting
        return sum(group.live for group in self._groups if group.rank <= rank)

    def tune(self, *, fair: bool, floors: Mapping[int, float]) -> None:
        """Other rules from now on; those that wait take their new places in order of arrival."""
        self._floors = floors
        if fair != self.fair:
            self.fair = fair
            self._groups.clear()
            for entry in list(self._entries.values()):
                if entry.id not in self._aside:
                    self._stand(entry)

    def _due(self) -> _Group[T] | None:
        if not self._groups:
            return None
        best, most = self._groups[0], -1.0
        for group in self._groups[1:]:
            if group.credit > 0.0:
                over = group.credit - self._next_line(group).head().cost
                if over >= 0.0 and over > most:
                    best, most = group, over
        return best

    def _next_line(self, group: _Group[T]) -> _Line[T]:
        counters = self._counters[group.rank]
        while True:
            counter, tenant = group.heap[0]
            line = group.lines.get(tenant)
            if line is not None and counters[tenant] == counter:
                return line
            heapq.heappop(group.heap)

    def _charge(self, rank: int, tenant: str, amount: float) -> None:
        counters = self._counters[rank]
        counters[tenant] += amount
        for group in self._groups:
            if group.rank == rank and tenant in group.lines:
                heapq.heappush(group.heap, (counters[tenant], tenant))

    def _stand(self, entry: Entry[T]) -> None:
        entry.line = rank, tenant = (entry.rank, entry.tenant) if self.fair else (0, "")
        group = self._group(rank)
        line = group.lines.get(tenant)
        if line is None:
            self._lift(group, tenant)
            line = group.lines[tenant] = _Line()
            heapq.heappush(group.heap, (self._counters[rank][tenant], tenant))
        while line.entries and not line.entries[-1].live:
            line.entries.pop()
        if line.entries and line.entries[-1].seq > entry.seq:  # back from aside
            line.entries = deque(sorted([*(one for one in line.entries if one.live), entry], key=lambda one: one.seq))
        else:
            line.entries.append(entry)
        line.live += 1
        group.live += 1

    def _leave(self, entry: Entry[T]) -> None:
        rank, tenant = entry.line
        group = self._group(rank)
        line = group.lines[tenant]
        line.live -= 1
        group.live -= 1
        if not line.live:
            del group.lines[tenant]
            if not group.lines:
                self._groups.remove(group)

    def _group(self, rank: int) -> _Group[T]:
        place = bisect_left(self._groups, rank, key=lambda group: group.rank)
        if place == len(self._groups) or self._groups[place].rank != rank:
            self._groups.insert(place, _Group(rank))
        return self._groups[place]

    def _lift(self, group: _Group[T], tenant: str) -> None:
        counters = self._counters.setdefault(group.rank, {})
        if group.lines:
            self._next_line(group)
            least = group.heap[0][0]
        else:
            least = self._last.get(group.rank, 0.0)
            group.heap.clear()
        if len(counters) > MANY:
            for name in [name for name, counter in counters.items() if counter <= least and name not in group.lines]:
                del counters[name]
        counters[tenant] = max(counters.get(tenant, 0.0), least)
