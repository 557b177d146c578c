"""An open-loop load generator for OpenAI's completions, with a clock of its own.

Requests are sent when they are due, whatever became of the ones before them, and times count from when they were due: a
server that makes its clients wait does not thereby ask less of itself, and a generator that is late does not flatter it
(coordinated omission). The same arrivals can go to several places at once.
"""

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

import aiohttp

_TOKEN = b'data: {"'


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when it is due in seconds since the start, its number, tokens of prompt and answer."""

    at: float
    number: int
    prompt: int
    answer: int


class Crowd:
    """Poisson arrivals of `rate` requests/s, which may be changed while they come. Lengths are within a factor of 1.4
    around their middle. Who comes when depends on the seed and on the rates alone, never on what became of others."""

    def __init__(self, seed: int, rate: float, *, prompt: int, answer: int) -> None:
        self.rate = rate
        self._chance, self._prompt, self._answer = Random(seed), prompt, answer
        self._at, self._number = 0.0, 0

    def next(self) -> Arrival:
        """Whoever comes next."""
        self._at += self._chance.expovariate(self.rate)
        self._number += 1
        return Arrival(self._at, self._number, self._length(self._prompt), self._length(self._answer))

    def _length(self, middle: int) -> int:
        return max(2, round(middle * math.exp2(self._chance.uniform(-0.5, 0.5))))


@dataclass(frozen=True, slots=True)
class Seen:
    """What one client saw. Seconds since its request was due; `status` 0 when there was no whole answer in time."""

    at: float
    status: int
    first: float
    last: float
    tokens: int
    late: float  # by how much the generator sent it after it was due

    def good(self, ttft: float, tpot: float) -> bool:
        """Whether both promises were kept, to the last token."""
        pace = (self.last - self.first) / max(1, self.tokens - 1)
        return self.status == 200 and self.first <= ttft and pace <= tpot


@dataclass
class Clients:
    """Clients of several places while they ask. `seen` by place grows as answers end; `begun` is the monotonic time of
    the start, `due` how many were due at each place."""

    crowd: Crowd
    begun: float
    seen: dict[str, list[Seen]]
    stopped: asyncio.Event
    due: list[float] = field(default_factory=list)
    flying: set[asyncio.Task[None]] = field(default_factory=set)

    def between(self, place: str, begin: float, end: float) -> list[Seen]:
        """What those saw that came in a stretch of time, as far as their answers have ended."""
        return [one for one in list(self.seen[place]) if begin <= one.at < end]

    def came(self, begin: float, end: float) -> int:
        """How many were due in it."""
        return sum(begin <= at < end for at in list(self.due))

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun


@contextmanager
def clients(places: Mapping[str, str], crowd: Crowd, *, model: str, patience: float) -> Iterator[Clients]:
    """Sends each of a crowd to all places (a name and a URL each) from now on, in a thread of its own. A client goes
    away when its answer is not whole after `patience` seconds. At the end of the block no more are sent."""
    loop = asyncio.new_event_loop()
    made = Clients(crowd, time.monotonic(), {place: [] for place in places}, asyncio.Event())
    thread = threading.Thread(target=loop.run_until_complete, args=(_all(made, places, model, patience),), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(made.stopped.set)
        thread.join()
        loop.close()


async def _all(made: Clients, places: Mapping[str, str], model: str, patience: float) -> None:
    timeout = aiohttp.ClientTimeout(total=patience)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        while True:
            arrival = made.crowd.next()
            with suppress(TimeoutError):
                await asyncio.wait_for(made.stopped.wait(), max(0.0, arrival.at - made.now))
                break
            made.due.append(arrival.at)
            for place, url in places.items():
                task = asyncio.create_task(_one(made, session, place, url, arrival, model))
                made.flying.add(task)
                task.add_done_callback(made.flying.discard)
        for task in made.flying:
            task.cancel()
        await asyncio.gather(*made.flying, return_exceptions=True)


async def _one(
    made: Clients, session: aiohttp.ClientSession, place: str, url: str, arrival: Arrival, model: str
) -> None:
    """One request. Its prompt is like no other, so that no cache answers it."""
    late, first, status, whole = made.now - arrival.at, 0.0, 0, False
    prompt = [(arrival.number * 7919 + position) % 100_000 for position in range(arrival.prompt)]
    body = {"model": model, "prompt": prompt, "max_tokens": arrival.answer, "stream": True}
    try:
        async with session.post(f"{url}/v1/completions", data=json.dumps(body)) as answer:
            status = answer.status
            async for line in answer.content:
                if line.startswith(_TOKEN):
                    first = first or made.now - arrival.at
                whole = whole or line.startswith(b"data: [DONE]")
    except (aiohttp.ClientError, TimeoutError, OSError):
        status = 0
    if status == 200 and not whole:
        status = 0
    made.seen[place].append(Seen(arrival.at, status, first, made.now - arrival.at, arrival.answer, late))
