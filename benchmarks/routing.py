"""How long a routing decision takes: capability match and pick, for every strategy, among 64 replicas.

The fleet is in mid-flight: 1,000 requests open, caches full of 200 conversations in 20 families with a common system
prompt, engines that report and tell of their caches. What a gateway does besides, to book what it sent, is shown too.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from statistics import median

from routing.capability import Capability
from routing.hashing import mix
from routing.model import Ability, Replica, Request
from routing.strategies import NAMES, make

REPLICAS, OPEN, COUNT, SEEDS = 64, 1000, 1500, 5
PROMPTS = (2048, 16384)  # tokens
BLOCK = 64
BOUND = 50.0  # microseconds, of the median
_PARAMETERS: dict[str, dict[str, float | str | bool]] = {
    "direct": {"otherwise": "least-loaded"},
    "consistent-hash": {"by": "prefix"},
}


@dataclass(frozen=True, slots=True)
class Decision:
    """One strategy at one length of prompt, microseconds: medians over the seeds of the median and the 99th percentile
    of a decision, and of the median booking (`sent`)."""

    strategy: str
    prompt: int
    median: float
    p99: float
    booking: float


def fleet(strategy: str) -> list[Replica]:
    """Two models, three zones, a canary; a quarter does prefill where the strategy can use it."""
    return [
        Replica(
            f"r{number:02}",
            Ability(
                model="chat",
                version="v2" if number % 8 == 0 else "v1",
                role=("prefill" if number % 4 == 1 else "decode") if strategy == "prefill-decode" else "both",
                zone=f"z{number % 3}",
                context=131_072,
                canary=0.125 if number % 8 == 0 else None,
            ),
            kv_tokens=2_000_000,
            reported_at=0.0,
        )
        for number in range(REPLICAS)
    ]


def requests(seed: int, prompt: int, count: int) -> Iterator[Request]:
    """Conversations: a system prompt of an eighth of the prompt, a history, and a last part of their own."""
    chance, blocks = Random(seed), prompt // BLOCK
    for number in range(count):
        talk = chance.randrange(200)
        system, history = blocks // 8, blocks * 3 // 4
        prefix = (
            *(mix(talk % 20 * 1000 + place) for place in range(system)),
            *(mix(talk * 10**6 + place) for place in range(system, history)),
            *(mix(number * 10**9 + place) for place in range(history, blocks)),
        )
        yield Request(
            number, prompt + 5, 500, prefix, BLOCK, f"s{talk}", f"t{talk % 9}", "chat",
            model="chat", adapter=f"a{talk % 40}", zone=f"z{talk % 3}",
        )  # fmt: skip


def run(name: str, prompt: int, seed: int, count: int = COUNT, opened: int = OPEN) -> tuple[list[float], list[float]]:
    """Microseconds of each decision and each booking, once the fleet is as full as it gets."""
    strategy, capability, replicas = make(name, _PARAMETERS.get(name)), Capability(), fleet(name)
    by_name = {replica.name: replica for replica in replicas}
    for replica in replicas:
        strategy.joined(replica, 0.0)
    flying: deque[tuple[Request, str]] = deque()
    decisions, bookings = [], []
    for request in requests(seed, prompt, count + opened):
        now = request.id * 0.01
        begun = time.thread_time()
        choice = strategy.pick(request, capability.match(request, replicas).replicas, now)
        decided = time.thread_time()
        strategy.sent(request, choice, now)
        booked = time.thread_time()
        if request.id >= opened:
            decisions.append((decided - begun) * 1e6)
            bookings.append((booked - decided) * 1e6)
        replica = by_name[choice.replica]
        replica.inflight += 1
        replica.inflight_tokens += request.prompt_tokens + 200
        strategy.first_token(request.id, now)
        strategy.stored(choice.replica, request.prefix, now)
        flying.append((request, choice.replica))
        if len(flying) > opened:
            ended, where = flying.popleft()
            by_name[where].inflight -= 1
            by_name[where].inflight_tokens -= ended.prompt_tokens + 200
            strategy.finished(ended.id, 200, now)
    return decisions, bookings


def measure(
    names: Sequence[str] = NAMES, *, seeds: int = SEEDS, count: int = COUNT, opened: int = OPEN
) -> Iterator[Decision]:
    """Each strategy at each length of prompt."""
    for prompt in PROMPTS:
        for name in names:
            runs = [run(name, prompt, seed, count, opened) for seed in range(seeds)]
            yield Decision(
                name,
                prompt,
                median(median(decisions) for decisions, _ in runs),
                median(sorted(decisions)[int(0.99 * len(decisions))] for decisions, _ in runs),
                median(median(bookings) for _, bookings in runs),
            )


def line(one: Decision) -> str:
    """For the terminal."""
    return (
        f"routing {one.strategy}, prompts of {one.prompt:,}: {one.median:.1f} us, p99 {one.p99:.1f} us, "
        f"booking {one.booking:.1f} us"
    )


HEADING = "## Routing decisions\n"
_SECTION = """
A decision is capability match and pick among {replicas} replicas, with {open:,} requests open and full caches:
medians over {seeds} seeds of the median and the 99th percentile of {count:,} decisions, in microseconds of CPU time,
{when}. Booking is what a strategy notes once the request is sent. Prompts of 2,048 and of 16,384 tokens, in
blocks of 64. The bound is {bound:g} for the median. `make bench ARGS="--only routing"` measures it anew.

| strategy | 2,048: median | p99 | booking | 16,384: median | p99 | booking |
| --- | --- | --- | --- | --- | --- | --- |
"""


def section(rows: Sequence[Decision]) -> str:
    """Its part of docs/performance.md, ending in an empty line."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    lines = [
        HEADING,
        _SECTION.format(replicas=REPLICAS, open=OPEN, seeds=SEEDS, count=COUNT, when=when, bound=BOUND),
    ]
    for name in dict.fromkeys(one.strategy for one in rows):
        mine = [one for prompt in PROMPTS for one in rows if (one.strategy, one.prompt) == (name, prompt)]
        cells = " | ".join(
            f"{one.median:.1f}{'' if one.median <= BOUND else ' **(missed)**'} | {one.p99:.0f} | {one.booking:.1f}"
            for one in mine
        )
        lines.append(f"| {name} | {cells} |\n")
    return "".join([*lines, "\n"])
