"""A fleet behind a gateway, small enough to reckon by hand: slots, serial prefill, a constant pace of decode.

Requests beyond a replica's slots wait inside it, first come first served, where no gateway can reach them; that is what
a concurrency cap is for. Clients go away when they have no first token in time, and may come again. Virtual time.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from routing.actions import Action, Cancel, Send
from routing.gateway import Gateway
from routing.knobs import Knobs
from routing.model import Replica, Request
from routing.strategies import make


@dataclass(slots=True)
class Client:
    """One wish, over all its attempts. Seconds."""

    request: Request
    output: int
    arrived: float
    patience: float = 1e9
    retries: int = 0
    obedient: bool = True  # waits for Retry-After; else comes again after a second
    attempts: int = 1
    first_token_at: float | None = None
    finished: bool = False

    @property
    def ttft(self) -> float:
        return float("inf") if self.first_token_at is None or not self.finished else self.first_token_at - self.arrived


@dataclass(slots=True)
class Server:
    slots: int
    busy: int = 0
    prefilled_at: float = 0.0
    waiting: deque[int] = field(default_factory=deque)


class GatewayPlant:
    """`prefill` prompt tokens/s and `pace` seconds per answer token of each replica."""

    def __init__(
        self,
        knobs: Knobs,
        *,
        replicas: int = 4,
        slots: int = 16,
        told: int | None = None,
        prefill: float = 20_000.0,
        pace: float = 0.02,
        strategy: str = "least-loaded",
    ) -> None:
        self.gateway = Gateway(knobs, make(strategy))
        self.prefill, self.pace = prefill, pace
        self.servers: dict[str, Server] = {}
        self.now = 0.0
        self.work = 0.0  # seconds of slots
        self._slots = slots
        self._told = told if told is not None else slots  # what the gateway believes
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._clients: dict[int, Client] = {}  # by id of the attempt under way
        self._at: dict[int, tuple[str, bool]] = {}  # attempt -> replica, in a slot
        self._serial = 0
        self._ids = 0
        for i in range(replicas):
            self.join(f"r{i}")

    def join(self, name: str) -> None:
        self.servers[name] = Server(self._slots)
        self._obey(self.gateway.joined(Replica(name, slots=self._told), self.now))

    def at(self, time: float, do: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (time, self._serial, do))

    def run(self, clients: Iterable[Client], until: float = 1e9) -> None:
        for client in clients:
            self.at(client.arrived, lambda client=client: self._arrive(client))  # type: ignore[misc]
        while self._events or self.gateway.next_at < until:
            due = min(self._events[0][0] if self._events else until, self.gateway.next_at)
            if due > until or (not self._events and not self.gateway.queued and not self.gateway.inflight):
                break
            self.now = max(self.now, due)
            if self.gateway.next_at <= self.now:
                self._obey(self.gateway.poll(self.now))
            else:
                heapq.heappop(self._events)[2]()

    def _arrive(self, client: Client) -> None:
        self._ids += 1
        id_ = self._ids
        self._clients[id_] = client
        request = replace(client.request, id=id_, attempt=client.attempts - 1)
        if client.patience < 1e9:
            self.at(self.now + client.patience, lambda: self._impatient(id_))
        self._obey(self.gateway.arrive(request, self.now))

    def _impatient(self, id_: int) -> None:
        client = self._clients.get(id_)
        if client is None or client.first_token_at is not None:
            return
        actions = self.gateway.gone(id_, self.now)
        self._stop(id_)
        self._over(id_, None)
        self._obey(actions)

    def _obey(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._enter(action.id, action.replica)
            elif isinstance(action, Cancel):
                self._stop(action.id)
                self._over(action.id, None)
            else:
                self._over(action.id, getattr(action, "retry_after", None))

    def _over(self, id_: int, retry_after: float | None) -> None:
        """Not served; its client may come again."""
        client = self._clients.pop(id_)
        client.first_token_at = None
        if client.attempts <= client.retries:
            client.attempts += 1
            wait = retry_after if retry_after is not None and client.obedient else 1.0
            self.at(self.now + wait, lambda: self._arrive(client))

    def _enter(self, id_: int, name: str) -> None:
        server = self.servers[name]
        if server.busy < server.slots:
            self._start(id_, name)
        else:
            server.waiting.append(id_)
            self._at[id_] = (name, False)

    def _start(self, id_: int, name: str) -> None:
        server, client = self.servers[name], self._clients[id_]
        server.busy += 1
        self._at[id_] = (name, True)
        server.prefilled_at = max(server.prefilled_at, self.now) + client.request.prompt_tokens / self.prefill
        first = server.prefilled_at
        self.work += first - self.now + client.output * self.pace
        self.at(first, lambda: self._first_token(id_))
        self.at(first + client.output * self.pace, lambda: self._finish(id_))

    def _first_token(self, id_: int) -> None:
        if id_ in self._at:
            self._clients[id_].first_token_at = self.now
            self._obey(self.gateway.first_token(id_, self.now, self._at[id_][0]))

    def _finish(self, id_: int) -> None:
        if id_ not in self._at:
            return
        name = self._at[id_][0]
        client = self._clients.pop(id_)
        client.finished = True
        self._leave(id_)
        self._obey(self.gateway.finished(id_, client.output, self.now, name))

    def _stop(self, id_: int) -> None:
        if id_ in self._at:
            self._leave(id_)

    def _leave(self, id_: int) -> None:
        name, served = self._at.pop(id_)
        server = self.servers[name]
        if not served:
            server.waiting.remove(id_)
            return
        server.busy -= 1
        while server.waiting and server.busy < server.slots:
            self._start(server.waiting.popleft(), name)


def poisson(
    rate: Callable[[float], float],
    until: float,
    *,
    seed: int = 1,
    klass: str = "",
    tenant: str = "",
    prompt: int = 500,
    output: int = 100,
    deadline: float | None = None,
    patience: float = 1e9,
    retries: int = 0,
    obedient: bool = True,
) -> list[Client]:
    """Arrivals at `rate(t)` requests/s, answers of exponential length around `output`."""
    chance = random.Random(f"{seed}/{klass}/{tenant}")
    peak = max(rate(t) for t in range(int(until) + 1))
    now, made = 0.0, []
    while peak > 0.0:
        now += chance.expovariate(peak)
        if now >= until:
            break
        if chance.random() * peak < rate(now):
            length = max(2, int(chance.expovariate(1 / output)))
            request = Request(
                0, prompt, 4 * output, tenant=tenant, klass=klass, deadline=None if deadline is None else now + deadline
            )
            made.append(Client(request, min(length, 4 * output), now, patience, retries, obedient))
    return made


def attained(clients: Iterable[Client], target: float) -> float:
    """The share of all that came of which the first token was there in time."""
    all_ = list(clients)
    return sum(client.ttft <= target for client in all_) / len(all_)
