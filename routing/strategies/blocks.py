"""Which replica holds which blocks of prompts: a prefix tree, kept as a map.

Block hashes are chained, so a hash names its whole prefix, and a node of the tree is one entry of a dict. Holders are
the bits of one integer, and a walk along a prompt is an `and` per block. A replica's blocks are forgotten oldest first;
as a use touches the last block first and the leading one last, leaves go before what they hang on, as in the caches of
the engines. Memory: `capacity` blocks per replica, about 250 bytes each.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

_MASKS: Final = 4096  # sets of holders whose names are remembered


class BlockMap:
    """The map. `capacity` is the most blocks held per replica; it may be changed at any time."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._holders: dict[int, int] = {}  # block -> bits of the replicas
        self._blocks: dict[str, OrderedDict[int, None]] = {}  # replica -> its blocks, the oldest first
        self._bits: dict[str, int] = {}
        self._names: list[str] = []  # by number of the bit; empty = free
        self._sets: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """How many different blocks are known."""
        return len(self._holders)

    def size(self, name: str) -> int:
        """How many blocks the replica is believed to hold."""
        blocks = self._blocks.get(name)
        return len(blocks) if blocks else 0

    def depths(self, prefix: Sequence[int], limit: int) -> dict[str, int]:
        """How many leading blocks of `prefix` each replica holds without a gap; those with none are left out. At most
        `limit` blocks are looked at.

        Who holds a block holds all before it, so the ends of the matches are found by bisection. `remove` breaks that
        if it takes a block out of the middle, which no engine does that drops leaves first; then a match may be
        believed to be longer than it is, or shorter, until the prompt is sent there again and `add` mends it.
        """
        holders = self._holders
        mask, depth, most = holders.get(prefix[0], 0) if prefix else 0, 1, min(len(prefix), limit)
        found: dict[str, int] = {}
        while mask:
            last, beyond = depth, most + 1  # all of the mask hold `last` blocks, not all hold `beyond`
            while beyond - last > 1:
                middle = (last + beyond) // 2
                if holders.get(prefix[middle - 1], 0) & mask == mask:
                    last = middle
                else:
                    beyond = middle
            still = holders.get(prefix[last], 0) & mask if last < most else 0
            found.update(dict.fromkeys(self._named(mask & ~still), last))
            depth, mask = last + 1, still
        return found

    def add(self, name: str, prefix: Sequence[int], capacity: int | None = None) -> None:
        """The replica now holds these blocks, the leading one first; `capacity` overrides the common one."""
        if name not in self._blocks:
            self._admit(name)
        bit, blocks, holders = self._bits[name], self._blocks[name], self._holders
        new = [block for block in prefix if block not in blocks]
        for block in new:
            blocks[block] = None
            holders[block] = holders.get(block, 0) | bit
        deque(map(blocks.move_to_end, reversed(prefix)), maxlen=0)
        most = self.capacity if capacity is None else capacity
        while len(blocks) > most:
            self._release(blocks.popitem(last=False)[0], bit)

    def missing(self, name: str, blocks: Sequence[int]) -> Sequence[int]:
        """Those of the blocks that the replica is not believed to hold."""
        held = self._blocks.get(name)
        return [block for block in blocks if block not in held] if held else blocks

    def remove(self, name: str, blocks: Sequence[int]) -> None:
        """The replica no longer holds these."""
        held = self._blocks.get(name)
        if held is None:
            return
        for block in blocks:
            if block in held:
                del held[block]
                self._release(block, self._bits[name])

    def forget(self, name: str) -> None:
        """The replica is gone, or has lost all it had."""
        held = self._blocks.pop(name, None)
        if held is None:
            return
        bit = self._bits.pop(name)
        for block in held:
            self._release(block, bit)
        self._names[bit.bit_length() - 1] = ""
        self._sets.clear()

    def _admit(self, name: str) -> None:
        place = self._names.index("") if "" in self._names else len(self._names)
        if place == len(self._names):
            self._names.append(name)
        else:
            self._names[place] = name
        self._bits[name] = 1 << place
        self._blocks[name] = OrderedDict()

    def _release(self, block: int, bit: int) -> None:
        left = self._holders[block] & ~bit
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]

    def _named(self, bits: int) -> tuple[str, ...]:
        names = self._sets.get(bits)
        if names is None:
            if len(self._sets) >= _MASKS:
                self._sets.clear()
            names = tuple(name for place, name in enumerate(self._names) if bits >> place & 1)
            self._sets[bits] = names
        return names
