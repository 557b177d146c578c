"""A small plant for routing: servers with slots, work in proportion to tokens, prefix caches, KV memory, virtual time.

Far simpler than the engines of the twin, so that what a test shows is the strategy's doing and can be checked by hand:
a request holds a slot of its server for `prefill` seconds per uncached prompt token and `decode` seconds per token of
answer, first come first served. One that starts where its tokens exceed the memory left is preempted: it takes twice as
long.
"""

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from routing.hashing import mix
from routing.model import Replica, Request
from routing.strategies import Choice, Strategy

PREFILL, DECODE = 2e-4, 1e-2  # seconds per token


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request, its true answer length, and when it comes."""

    at: float
    request: Request
    output: int


@dataclass(slots=True)
class Served:
    """What became of one."""

    arrival: Arrival
    choice: Choice
    first_token: float = math.inf
    end: float = math.inf
    cached: int = 0

    @property
    def ttft(self) -> float:
        return self.first_token - self.arrival.at

    @property
    def e2e(self) -> float:
        return self.end - self.arrival.at


@dataclass(slots=True)
class _Server:
    replica: Replica
    slots: int
    cache_blocks: int
    speed: float = 1.0
    queue: deque[Served] = field(default_factory=deque)
    busy: dict[int, Served] = field(default_factory=dict)
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    kv: int = 0
    queued: float = 0.0  # tokens in the queue, as guessed


def chain(*names: int) -> tuple[int, ...]:
    """Block hashes of a prompt, each chained to the one before, so that equal beginnings have equal hashes."""
    blocks: list[int] = []
    for name in names:
        blocks.append(mix((blocks[-1] if blocks else 1) ^ mix(name)))
    return tuple(blocks)


def ask(id: int, prompt: int = 100, max_tokens: int = 100, prefix: tuple[int, ...] = (), **more: object) -> Request:  # noqa: A002
    """A request; with a prefix, its prompt is the prefix and `prompt` tokens of its own."""
    return Request(id, len(prefix) * 64 + prompt, max_tokens, prefix, **more)  # type: ignore[arg-type]


def fleet(count: int, *, kv_tokens: int | None = None) -> list[Replica]:
    return [Replica(f"r{number:02}", kv_tokens=kv_tokens) for number in range(count)]


class Plant:
    """The servers and a gateway in front of them that does what the strategy says; what is refused waits there."""

    def __init__(
        self,
        strategy: Strategy,
        replicas: Sequence[Replica],
        *,
        slots: int = 4,
        cache_blocks: int = 10_000,
        events: bool = False,
        report: float = math.inf,
        guess: Callable[[Request], float] = lambda request: float(request.max_tokens),
    ) -> None:
        self.strategy, self.events, self.report, self.guess = strategy, events, report, guess
        self.slots, self.cache_blocks = slots, cache_blocks
        self.now = 0.0
        self.served: list[Served] = []
        self.preempted = 0
        self._servers: dict[str, _Server] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._held: deque[Arrival] = deque()
        self._count = 0
        for replica in replicas:
            self.join(replica)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Something that happens then."""
        self._count += 1
        heapq.heappush(self._agenda, (when, self._count, do))

    def join(self, replica: Replica) -> None:
        self._servers[replica.name] = _Server(replica, self.slots, self.cache_blocks)
        self.strategy.joined(replica, self.now)

    def leave(self, name: str) -> None:
        """Drained to the end: what it has still finishes, nothing new comes, its cache is gone."""
        self._servers.pop(name).replica.draining = True
        self.strategy.left(name, self.now)

    def server(self, name: str) -> _Server:
        return self._servers[name]

    def run(self, arrivals: Iterable[Arrival]) -> list[Served]:
        """All of them, to their ends; in the order in which they were sent."""
        for arrival in arrivals:
            self.at(arrival.at, lambda arrival=arrival: self._arrive(arrival))  # type: ignore[misc]
        if self.report < math.inf:
            self.at(self.now, self._report)
        while self._agenda:
            self.now, _, do = heapq.heappop(self._agenda)
            do()
        return self.served

    def _report(self) -> None:
        for server in self._servers.values():
            one = server.replica
            one.running, one.waiting, one.reported_at = len(server.busy), len(server.queue), self.now
            one.kv_usage = min(1.0, server.kv / one.kv_tokens) if one.kv_tokens else 0.0
        if self._agenda:
            self.at(self.now + self.report, self._report)

    def _arrive(self, arrival: Arrival) -> None:
        self._held.append(arrival)
        self._send()

    def _send(self) -> None:
        while self._held:
            arrival = self._held[0]
            replicas = [self._told(server) for server in self._servers.values()]
            choice = self.strategy.pick(arrival.request, replicas, self.now)
            if not choice.replica:
                return
            self._held.popleft()
            self.strategy.sent(arrival.request, choice, self.now)
            server = self._servers[choice.replica]
            server.replica.inflight += 1
            server.queued += arrival.request.prompt_tokens + self.guess(arrival.request)
            one = Served(arrival, choice)
            self.served.append(one)
            server.queue.append(one)
            self._start(server)

    def _told(self, server: _Server) -> Replica:
        """With the tokens still to be worked off, as a gateway knows them: it sees first tokens and counts answers."""
        tokens = server.queued
        for one in server.busy.values():
            request = one.arrival.request
            if self.now < one.first_token:
                tokens += request.prompt_tokens + self.guess(request)
            else:
                made = one.arrival.output * (self.now - one.first_token) / (one.end - one.first_token)
                tokens += max(0.0, self.guess(request) - made)
        server.replica.inflight_tokens = tokens
        return server.replica

    def _start(self, server: _Server) -> None:
        while server.queue and len(server.busy) < server.slots:
            one = server.queue.popleft()
            request, output = one.arrival.request, one.arrival.output
            server.busy[request.id] = one
            server.queued -= request.prompt_tokens + self.guess(request)
            one.cached = min(self._cached(server, request.prefix) * request.block, request.prompt_tokens)
            tokens = request.prompt_tokens + output
            prefill = PREFILL * (request.prompt_tokens - one.cached)
            seconds = prefill + DECODE * output
            if server.replica.kv_tokens is not None and server.kv + tokens > server.replica.kv_tokens:
                self.preempted += 1
                seconds *= 2.0
            server.kv += tokens
            one.first_token, one.end = self.now + prefill / server.speed, self.now + seconds / server.speed
            self.at(one.first_token, lambda number=request.id: self.strategy.first_token(number, self.now))  # type: ignore[misc]
            self.at(one.end, lambda one=one: self._finish(server, one))  # type: ignore[misc]

    def _finish(self, server: _Server, one: Served) -> None:
        request, output = one.arrival.request, one.arrival.output
        del server.busy[request.id]
        server.kv -= request.prompt_tokens + output
        server.replica.inflight -= 1
        self.strategy.finished(request.id, output, self.now)
        self._start(server)
        self._send()

    def _cached(self, server: _Server, prefix: tuple[int, ...]) -> int:
        """Leading blocks found; afterwards all of them are there."""
        found = next((place for place, block in enumerate(prefix) if block not in server.cache), len(prefix))
        for block in reversed(prefix):
            server.cache[block] = None
            server.cache.move_to_end(block)
        gone = [server.cache.popitem(last=False)[0] for _ in range(len(server.cache) - server.cache_blocks)]
        if self.events:
            self.strategy.stored(server.replica.name, prefix[found:], self.now)
            self.strategy.evicted(server.replica.name, gone, self.now)
        return found


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def hit_rate(served: Iterable[Served]) -> float:
    """Prompt tokens that were skipped, over all: the truth, not what the strategy believed."""
    rows = list(served)
    return sum(one.cached for one in rows) / sum(one.arrival.request.prompt_tokens for one in rows)


def counts(served: Iterable[Served], names: Iterable[str]) -> dict[str, int]:
    """Requests per server, those with none too."""
    found = dict.fromkeys(names, 0)
    for one in served:
        found[one.choice.replica] = found.get(one.choice.replica, 0) + 1
    return found
