"""The decoding part of the batch, any number of steps at once, at a cost that does not depend on its size.

All sequences gain one token a step. So a sequence is told by the step at which it ends, the sum of contexts grows by n,
and a sequence needs a block every `block` steps: it is enough to count, for each residue, how many need one then.
"""

from heapq import heappop, heappush
from typing import Protocol

from simulator.engine.counts import Histogram
from simulator.engine.sequence import Sequence


class Decoders(Protocol):
    """The sequences that decode. `n` of them with `context` tokens in all, before the next step; `reach` is how many
    steps `run` can take at once."""

    @property
    def n(self) -> int: ...

    @property
    def context(self) -> int: ...

    def add(self, sequence: Sequence, context: int, steps: int) -> None:
        """A sequence that decodes from now on for so many steps, with so many tokens in the cache."""

    def remove(self, sequence: Sequence) -> None:
        """Before its end."""

    def context_of(self, sequence: Sequence) -> int: ...

    def reach(self) -> int:
        """Steps to the first end, at least one while there are sequences."""

    def blocks(self, steps: int) -> int:
        """New blocks that the next steps need."""

    def fit(self, steps: int, free: int) -> int:
        """As many of the next steps as `free` blocks allow."""

    def run(self, steps: int) -> list[Sequence]:
        """Take the steps, at most `reach()`; who ended leaves and is the answer."""

    def observe(self, itl: Histogram, first: float, slope: float, steps: int) -> None:
        """Inter-token latencies of the next steps, the first of which lasts `first` seconds and each `slope` more."""

    def sequences(self) -> list[Sequence]: ...


class Batch:
    """Macro-steps. See `Decoders`."""

    __slots__ = ("_block", "_due", "_phase", "_times", "context", "n", "step")

    def __init__(self, block: int) -> None:
        self.n = 0
        self.context = 0
        self.step = 0
        self._block = block
        self._phase = [0] * block  # sequences by (context - step) mod block
        self._due: dict[int, list[Sequence]] = {}  # by the step at which they end
        self._times: list[int] = []  # the keys of _due, a heap

    def add(self, sequence: Sequence, context: int, steps: int) -> None:
        base = context - self.step
        sequence.base = base
        sequence.finish = finish = self.step + steps
        self.n += 1
        self.context += context
        self._phase[base % self._block] += 1
        due = self._due.get(finish)
        if due is None:
            self._due[finish] = [sequence]
            heappush(self._times, finish)
        else:
            due.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        self._due[sequence.finish].remove(sequence)
        self._left(sequence)

    def _left(self, sequence: Sequence) -> None:
        self.n -= 1
        self.context -= sequence.base + self.step
        self._phase[sequence.base % self._block] -= 1

    def context_of(self, sequence: Sequence) -> int:
        return sequence.base + self.step

    def reach(self) -> int:
        times = self._times
        while times:
            if self._due[times[0]]:
                return times[0] - self.step
            del self._due[heappop(times)]
        return 0

    def blocks(self, steps: int) -> int:
        if steps == 1:
            return self._phase[-self.step % self._block]
        cycles, rest = divmod(steps, self._block)
        needed = cycles * self.n
        for step in range(self.step, self.step + rest):
            needed += self._phase[-step % self._block]
        return needed

    def fit(self, steps: int, free: int) -> int:
        if (steps // self._block + 1) * self.n <= free:
            return steps
        cycles = min(free // self.n, steps // self._block)
        taken, needed = cycles * self._block, cycles * self.n
        while taken < steps:
            needed += self._phase[-(self.step + taken) % self._block]
            if needed > free:
                break
            taken += 1
        return taken

    def run(self, steps: int) -> list[Sequence]:
        self.step += steps
        self.context += steps * self.n
        times = self._times
        if not times or times[0] > self.step:
            return []
        heappop(times)
        ended = self._due.pop(self.step)
        for sequence in ended:
            self._left(sequence)
        return ended

    def observe(self, itl: Histogram, first: float, slope: float, steps: int) -> None:
        itl.ramp(first, slope, steps, self.n)

    def sequences(self) -> list[Sequence]:
        return [sequence for finish in sorted(self._due) for sequence in self._due[finish]]
