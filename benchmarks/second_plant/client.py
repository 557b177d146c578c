"""An open-loop client: sends each request when it is due, however many are under way, and times what comes back."""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

TIMEOUT = 120.0  # seconds until an answer is given up


_HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: when it is due (seconds after the start) and its tokens."""

    at: float
    prompt: int
    answer: int


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it. `due`, `sent`, the times of the `first` and the `last` token are of the client's clock, NaN
    where nothing came; `ok` says whether the whole answer did, `open` that the clock stopped before."""

    ask: Ask
    due: float
    sent: float
    first: float
    last: float
    ok: bool
    open: bool = False

    @property
    def tpot(self) -> float:
        """Mean seconds per token after the first; 0 for an answer of one."""
        return (self.last - self.first) / (self.ask.answer - 1) if self.ask.answer > 1 else 0.0


async def play(
    asks: Sequence[Ask], port: int, model: str, start: float, end: float, clock: Callable[[], float]
) -> list[Told]:
    """Send all of them, and wait for the answers until `end`. `start` and `end` are of `clock`."""
    tasks = []
    for ask in asks:
        await asyncio.sleep(max(0.0, start + ask.at - clock()))
        tasks.append(asyncio.create_task(_one(ask, start + ask.at, port, model, clock)))
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=max(0.0, end - clock()))
        for task in late:
            task.cancel()
    return list(await asyncio.gather(*tasks))


def body(ask: Ask, model: str) -> bytes:
    """The request. Prompts share nothing, so that no cache helps."""
    first = int(ask.at * 1e6)
    prompt = [(first + place * 7) % 2000 for place in range(ask.prompt)]
    return json.dumps(
        {"model": model, "prompt": prompt, "max_tokens": ask.answer, "stream": True, "ignore_eos": True}
    ).encode()


async def _one(ask: Ask, due: float, port: int, model: str, clock: Callable[[], float]) -> Told:
    sent = clock()
    first, last, tokens, ok = math.nan, math.nan, 0, False
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            try:
                data = body(ask, model)
                writer.write(_HEAD % len(data) + data)
                await writer.drain()
                if b" 200" in await reader.readline():
                    async for line in reader:
                        if line.startswith(b"data: [DONE]"):
                            ok = tokens > 0
                            break
                        if line.startswith(b"data: {") and b'"text":""' not in line:
                            last = clock()
                            first = last if tokens == 0 else first
                            tokens += 1
            finally:
                writer.close()
    except asyncio.CancelledError:
        return Told(ask, due, sent, first, last, ok=False, open=True)
    except (OSError, TimeoutError, ValueError):
        ok = False
    return Told(ask, due, sent, first, last, ok)
