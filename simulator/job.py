"""Job: one request with the truth about it, and what became of it. Written by traffic, engine and gateway in turn."""

from dataclasses import dataclass
from enum import StrEnum

from routing.model import Request


class Ending(StrEnum):
    """How a job ended. All but FINISHED are misses to its client."""

    FINISHED = "finished"
    REJECTED = "rejected"  # refused before service
    TIMED_OUT = "timed_out"  # waited longer than it may
    ABORTED = "aborted"  # its client went away
    FAILED = "failed"  # the server's fault: crash, 500, lost with its replica


@dataclass(slots=True, eq=False)
class Job:
    """`output` is how many tokens the answer will have, which no router may look at. Times are unix seconds of the
    twin's clock, None until they come. `origin` is the id of the first attempt, `attempt` counts from 0. `patience` is
    how long the client waits for its first token before it goes away, None for ever. `stream` is the stream of traffic
    that it came from. `after` are the hashes of the blocks that the answer fills, chained to the prompt's: what a later
    turn of the conversation finds in the cache."""

    request: Request
    output: int
    arrived: float
    origin: int = -1
    attempt: int = 0
    patience: float | None = None
    stream: str = ""
    after: tuple[int, ...] = ()

    ending: Ending | None = None
    why: str = ""  # the gateway's or the engine's words
    replica: str = ""
    degraded: bool = False  # served by a smaller model, with consent
    sent_at: float | None = None  # to the replica
    scheduled_at: float | None = None  # first in a batch
    first_token_at: float | None = None
    ended_at: float | None = None
    cached: int = 0  # prompt tokens found in the prefix cache when first scheduled
    preempted: int = 0

    @property
    def ttft(self) -> float | None:
        """Seconds from arrival at the gateway to the first token."""
        return None if self.first_token_at is None else self.first_token_at - self.arrived

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; None before the end and for answers of one token."""
        if (
            self.ending is not Ending.FINISHED
            or self.first_token_at is None
            or self.ended_at is None
            or self.output < 2
        ):
            return None
        return (self.ended_at - self.first_token_at) / (self.output - 1)
