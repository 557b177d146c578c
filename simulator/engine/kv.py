"""The block pool: blocks in use, and the prefix cache in those that are not, evicted least recently used first.

A free block still holds what was last computed in it, until its place is needed. So every freed block queues for
eviction, those that nobody can ever ask for again too: they take the cache's places as they do in vLLM.
"""

from collections import OrderedDict
from collections.abc import Sequence as Some
from typing import Protocol


class KVListener(Protocol):
    """Who wants to know what a prefix cache holds (the KV events of an engine). Hashes as in `Request.prefix`."""

    def stored(self, hashes: Some[int]) -> None: ...

    def evicted(self, hashes: Some[int]) -> None: ...

    def cleared(self) -> None: ...


class Entry:
    """A run of blocks that live and die together: one prefix hash of a prompt, or what a request held by itself
    (`key` None). `refs` requests use it; with none it waits for eviction."""

    __slots__ = ("key", "refs", "size")

    def __init__(self, key: int | None, size: int, refs: int) -> None:
        self.key = key
        self.size = size
        self.refs = refs


class Pool:
    """`total` blocks. `free` of them are in no request's use."""

    __slots__ = ("_blank", "_known", "_queue", "free", "listener", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.listener: KVListener | None = None
        self._blank = total  # free blocks that hold nothing
        self._known: dict[int, Entry] = {}
        self._queue: OrderedDict[Entry, None] = OrderedDict()  # free, the next to be evicted first

    def match(self, prefix: Some[int]) -> tuple[list[Entry], int]:
        """The cached entries of the leading blocks of a prompt, and how many blocks of them are free now."""
        found: list[Entry] = []
        free = 0
        known = self._known
        for key in prefix:
            entry = known.get(key)
            if entry is None:
                break
            if not entry.refs:
                free += entry.size
            found.append(entry)
        return found, free

    def hold(self, found: list[Entry], prefix: Some[int], size: int) -> None:
        """Use the `found` entries, and make entries of `size` blocks for the rest of the prefix; `found` grows by
        these. There must be room."""
        queue = self._queue
        for entry in found:
            if not entry.refs:
                del queue[entry]
                self.free -= entry.size
            entry.refs += 1
        new = prefix[len(found) :]
        if not new:
            return
        self.take(size * len(new))
        known = self._known
        for key in new:
            # A hash behind a gap in the chain may still be known; its blocks become nobody's.
            stale = known.get(key)
            if stale is not None:
                stale.key = None
            known[key] = entry = Entry(key, size, 1)
            found.append(entry)
        if self.listener is not None:
            self.listener.stored(new)

    def take(self, blocks: int) -> None:
        """Blocks for one request alone. There must be room."""
        self.free -= blocks
        short = blocks - self._blank
        if short > 0:
            gone: list[int] = []
            while short > 0:
                entry, _ = self._queue.popitem(last=False)
                short -= entry.size
                if entry.key is not None:
                    del self._known[entry.key]
                    gone.append(entry.key)
            if gone and self.listener is not None:
                self.listener.evicted(gone)
        self._blank = -short

    def adopt(self, held: list[Entry], keys: Some[int], size: int) -> int:
        """Blocks that a request took for itself become entries, which it holds; `keys` follow what it holds already.
        The answer is how many blocks they are."""
        known = self._known
        new: list[int] = []
        for key in keys:
            if key in known:  # somebody else computed the same; these blocks are a copy
                break
            known[key] = entry = Entry(key, size, 1)
            held.append(entry)
            new.append(key)
        if new and self.listener is not None:
            self.listener.stored(new)
        return size * len(new)

    def give(self, held: list[Entry], alone: int) -> None:
        """What a request held, back: the end of its chain first, so that prefixes outlive what follows them."""
        queue = self._queue
        free = alone
        if alone:
            queue[Entry(None, alone, 0)] = None
        for entry in reversed(held):
            entry.refs -= 1
            if not entry.refs:
                queue[entry] = None
                free += entry.size
        self.free += free
