"""The same batch, token by token: what the macro-steps are measured against, in speed and in every count."""

from simulator.engine.counts import Histogram
from simulator.engine.sequence import Sequence


class SteppedBatch:
    """One step at a time, one sequence at a time. See `simulator.engine.batch.Decoders`."""

    __slots__ = ("_block", "_context", "_left")

    def __init__(self, block: int) -> None:
        self._block = block
        self._left: dict[Sequence, int] = {}
        self._context: dict[Sequence, int] = {}

    @property
    def n(self) -> int:
        return len(self._left)

    @property
    def context(self) -> int:
        return sum(self._context.values())

    def add(self, sequence: Sequence, context: int, steps: int) -> None:
        self._left[sequence] = steps
        self._context[sequence] = context

    def remove(self, sequence: Sequence) -> None:
        del self._left[sequence]
        del self._context[sequence]

    def context_of(self, sequence: Sequence) -> int:
        return self._context[sequence]

    def reach(self) -> int:
        return 1

    def blocks(self, steps: int) -> int:
        return sum((context + ahead) % self._block == 0 for context in self._context.values() for ahead in range(steps))

    def fit(self, steps: int, free: int) -> int:
        return steps if self.blocks(steps) <= free else 0

    def run(self, steps: int) -> list[Sequence]:
        ended: list[Sequence] = []
        for sequence in self._left:
            self._context[sequence] += 1
            self._left[sequence] -= 1
            if not self._left[sequence]:
                ended.append(sequence)
        for sequence in ended:
            self.remove(sequence)
        return ended

    def observe(self, itl: Histogram, first: float, slope: float, steps: int) -> None:
        for _ in self._left:
            itl.add(first)

    def sequences(self) -> list[Sequence]:
        return list(self._left)
