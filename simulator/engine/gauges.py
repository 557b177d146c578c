"""What an engine shows of itself at any time, as of the last call."""

from typing import NamedTuple

from simulator.engine.scheduler import Scheduler
from simulator.engine.sequence import Sequence, State


class Load(NamedTuple):
    """What an engine tells of itself: requests in the batch, requests that wait, KV usage 0..1."""

    running: int
    waiting: int
    kv_usage: float


class Gauges:
    """Gauges of one engine. Blocks that only the prefix cache holds are free, as in vLLM."""

    _scheduler: Scheduler
    _sequences: dict[int, Sequence]  # by id of the job
    _queued: int  # who found no place in the step in progress
    _frozen: Load | None  # what it told when its core stopped

    @property
    def load(self) -> Load:
        """What the engine itself tells. Who comes during a step is counted as waiting only when the next one has no
        place for it, as in vLLM; an engine core that has stopped tells nothing new."""
        return self._frozen or Load(self.running, min(self._queued, self.waiting), self.kv_usage)

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        """Requests that wait, preempted ones included."""
        return self._scheduler.queue.count

    @property
    def kv_usage(self) -> float:
        """0..1."""
        pool = self._scheduler.pool
        return (pool.total - pool.free) / pool.total if pool.total else 0.0

    def made(self, id: int) -> int | None:  # noqa: A002 - the contract's word
        """Tokens of a job's answer so far, as of the last call; None when it is not here (any more)."""
        sequence = self._sequences.get(id)
        if sequence is None:
            return None
        if sequence.state is State.DECODE:
            return self._scheduler.batch.context_of(sequence) - sequence.prompt + 1
        return sequence.made

    @property
    def adapters(self) -> tuple[str, ...]:
        """LoRA adapters that are loaded, the least recently used first."""
        return self._scheduler.loaded
