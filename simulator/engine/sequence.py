"""Sequence: one request inside an engine."""

from enum import Enum, auto

from simulator.engine.kv import Entry
from simulator.job import Job


class State(Enum):
    """Where a sequence is."""

    WAITING = auto()
    PREFILL = auto()  # in the batch, prompt not yet computed
    DECODE = auto()
    GONE = auto()


class Leg(Enum):
    """Which part of a request is asked of this engine."""

    WHOLE = auto()
    PREFILL = auto()  # compute the prompt, then hand it over
    DECODE = auto()  # the prompt's KV has arrived, all but the last token


class Sequence:
    """Tokens and steps; `key` orders by priority, then by arrival.

    `target` tokens must be in the KV cache before the next token comes, `computed` of them are; after a preemption the
    answer so far is among them. In decode the context is `base` plus the batch's step.
    """

    __slots__ = (
        "alone", "base", "computed", "finish", "first_at", "held", "job", "key", "lane", "last_at", "leg", "long",
        "made", "output", "prompt", "queued_at", "scheduled_at", "state", "target",
    )  # fmt: skip

    def __init__(self, job: Job, key: int, output: int, now: float, leg: Leg, long: bool) -> None:
        self.job = job
        self.key = key
        self.prompt = job.request.prompt_tokens
        self.output = output
        self.leg = leg
        self.long = long
        self.lane = -1  # of the queue
        self.state = State.WAITING
        self.target = self.prompt
        self.computed = 0
        self.made = 0  # tokens of the answer, as of the last prefill or preemption
        self.held: list[Entry] = []
        self.alone = 0  # blocks beside the held entries, as of the last prefill
        self.base = 0
        self.finish = 0
        self.queued_at = now
        self.scheduled_at = -1.0
        self.first_at = -1.0
        self.last_at = now  # last token, or the arrival
