"""The twin in real time, over HTTP: what a real Prometheus scrapes and real gateways talk to.

Each replica whose process serves has a port of its own, with vLLM's completions, `/metrics` and `/health`; it refuses
connections while it loads and after it died. One more port is for whoever runs the fleet: targets for Prometheus'
http_sd, what kube-state-metrics shows, and replica counts in the form that Governor's webhook actuator reads and
writes.

The one impure file of this room.
"""

import asyncio
import errno
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from aiohttp import web

from controller.core.errors import InputError
from simulator.cluster.life import Stage
from simulator.cluster.server import Server
from simulator.job import Ending, Job
from simulator.serve import openai
from simulator.twin import Twin
from simulator.watch.kube_state import INSTANCE, JOB
from simulator.watch.page import labels
from simulator.watch.text import exposition

AHEAD = 60.0  # seconds that the clock of who gives orders may be fast
MOST = 1000  # replicas of a pool that an order may ask for; each has a port
FARTHEST = 2000  # ports above the fleet's own that are tried
PACE = 0.01  # seconds between two looks at the twin
FIRST_ID = 1 << 50  # ids of requests that come over HTTP begin here, far above those of traffic and its retries
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_CLUSTER = labels(job=JOB, instance=INSTANCE)


@dataclass(slots=True)
class _Port:
    """The open port of one replica."""

    server: Server
    port: int
    runner: web.AppRunner


@dataclass(slots=True)
class _Visits:
    """Requests that came over HTTP and have not ended."""

    jobs: dict[int, Job] = field(default_factory=dict)
    next_id: int = FIRST_ID


class FleetServer:
    """Serves a twin on `host`, the fleet's own port being `port` and those of its replicas the next ones. `clock` gives
    the twin's time in unix seconds; nobody else may let its time pass meanwhile."""

    def __init__(self, twin: Twin, host: str, port: int, clock: Callable[[], float]) -> None:
        self._twin, self._host, self._port, self._clock = twin, host, port, clock
        self._ports: dict[str, _Port] = {}
        self._visits = _Visits()
        self._pulse = asyncio.Event()
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        for front in twin.fleet.fronts.values():
            front.gateway.clock = time.perf_counter  # measures decisions, decides nothing
        self._written: dict[str, float] = {}  # by pool: the newest order that was taken, unix seconds of its sender

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Serve until `stop`; `ready` is called once all is open. Raises InputError when a port is not to be had."""
        routes = [
            web.get("/targets", self._targets),
            web.get("/endpoints/{pool}", self._endpoints),
            web.get("/metrics", self._cluster),
            web.get("/gateways/{pool}/metrics", self._gateway),
            web.get("/health", _health),
            web.get("/replicas", self._replicas),
            web.post("/replicas", self._scale),
        ]
        own = await self._open(routes, self._port)
        try:
            self._now()
            await self._follow()
            ready()
            while not stop.is_set():
                self._now()
                await self._follow()
                pulse, self._pulse = self._pulse, asyncio.Event()
                pulse.set()
                await asyncio.sleep(PACE)
        finally:
            # Open streams get no more tokens, and are cut off after the time-out of their port.
            ports = (port.runner.cleanup() for port in self._ports.values())
            await asyncio.gather(own.cleanup(), *ports, *self._closing)

    def _now(self) -> float:
        """Let time pass until the present."""
        now = max(self._clock(), self._twin.now)
        self._twin.advance(now)
        return now

    # --- ports -------------------------------------------------------------------------------------------------------

    async def _open(self, routes: Iterable[web.RouteDef], port: int) -> web.AppRunner:
        application = web.Application(client_max_size=1 << 26)
        application.add_routes(routes)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, port).start()
        except (OSError, OverflowError) as error:
            await runner.cleanup()
            wrong = "--host" if getattr(error, "errno", None) == errno.EADDRNOTAVAIL else "--port"
            raise InputError(f"{self._host}:{port} cannot be served on: {error}; choose another {wrong}") from error
        return runner

    async def _open_next(self, server: Server) -> _Port:
        """The lowest port above the fleet's own that nobody has, here or elsewhere."""
        taken = {port.port for port in self._ports.values()}
        free = (port for port in range(self._port + 1, self._port + FARTHEST) if port not in taken)
        for port in free:
            try:
                return _Port(server, port, await self._open(self._routes(server), port))
            except InputError as error:
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                    raise
        raise InputError(f"there is no free port in the {FARTHEST} above {self._port}; choose another --port")

    async def _close(self, runner: web.AppRunner) -> None:
        """Nobody connects any more. Streams that were cut off get to know with the next pulse, so waiting for them here
        would hold up all others."""
        for site in list(runner.sites):
            await site.stop()
        task = asyncio.create_task(runner.cleanup())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _follow(self) -> None:
        """Open and close ports as processes begin and end."""
        async with self._opening:
            await self._follow_once()

    async def _follow_once(self) -> None:
        serving = {
            server.name: server
            for pool in self._twin.fleet.cluster.pools.values()
            for server in pool.servers.values()
            if server.engine is not None
        }
        for name in [name for name in self._ports if name not in serving]:
            await self._close(self._ports.pop(name).runner)
        for name, server in serving.items():
            if name not in self._ports:
                self._ports[name] = await self._open_next(server)

    def _routes(self, server: Server) -> list[web.RouteDef]:
        def bound(handler: Callable[[Server, web.Request], Awaitable[web.StreamResponse]]) -> Any:
            async def handle(request: web.Request) -> web.StreamResponse:
                return await handler(server, request)

            return handle

        return [
            web.get("/health", _health),
            web.get("/metrics", bound(self._metrics)),
            web.get("/v1/models", bound(self._models)),
            web.post("/v1/completions", bound(self._completions)),
            web.post("/v1/chat/completions", bound(self._chat)),
        ]

    # --- one replica -------------------------------------------------------------------------------------------------

    async def _metrics(self, server: Server, request: web.Request) -> web.StreamResponse:
        self._now()
        self._twin.fleet.refresh(server)
        page = server.page()
        if page is None:
            raise web.HTTPServiceUnavailable
        return web.Response(text=exposition(page, server.target), headers={"Content-Type": _TEXT})

    async def _models(self, server: Server, request: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": self._model(server), "object": "model"}]})

    async def _completions(self, server: Server, request: web.Request) -> web.StreamResponse:
        return await self._answer(server, request, chat=False)

    async def _chat(self, server: Server, request: web.Request) -> web.StreamResponse:
        return await self._answer(server, request, chat=True)

    def _model(self, server: Server) -> str:
        return self._twin.fleet.spec.pools[server.pool].model_name or server.pool

    async def _answer(self, server: Server, request: web.Request, *, chat: bool) -> web.StreamResponse:
        raw = await request.read()
        self._visits.next_id += 1
        try:
            order = openai.parse(raw, self._visits.next_id, self._model(server), chat=chat, headers=request.headers)
        except openai.BadRequest as bad:
            return _refusal(str(bad), "NotFoundError" if bad.status == 404 else "BadRequestError", bad.status)
        now = self._now()
        job = Job(order.request, order.request.max_tokens, now)
        self._twin.fleet.visit(job, server)
        try:
            if order.stream:
                return await self._stream(server, request, order, job)
            while job.ending is None:
                await self._look(server)
            return self._over(order, job)
        finally:
            if job.ending is None:
                self._now()
                self._twin.fleet.leave(job, server)

    async def _stream(self, server: Server, request: web.Request, order: openai.Order, job: Job) -> web.StreamResponse:
        while job.ending is None and not self._made(server, job):
            await self._look(server)
        if job.ending not in (None, Ending.FINISHED):
            return self._over(order, job)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        answer, made = openai.Answer(order, job.arrived), 0
        while True:
            ending = _ending(job)
            tokens = job.output if ending is Ending.FINISHED else self._made(server, job)
            if tokens > made:
                await response.write(answer.chunk(made, tokens).encode())
                made = tokens
            if ending is not None:
                break
            await self._look(server)
        if ending is not Ending.FINISHED:
            # The status has gone out with the first token: a stream that ends early is a broken connection.
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write(answer.end(made).encode())
        await response.write_eof()
        return response

    async def _look(self, server: Server) -> None:
        """Wait for the next pulse, and bring the replica to the present."""
        await self._pulse.wait()
        self._twin.fleet.refresh(server)

    def _made(self, server: Server, job: Job) -> int:
        return (server.engine.made(job.request.id) or 0) if server.engine is not None else 0

    def _over(self, order: openai.Order, job: Job) -> web.Response:
        """The answer that is no stream, or why there is none."""
        if job.ending is Ending.FINISHED:
            return web.Response(
                text=openai.Answer(order, job.arrived).whole(job.output), content_type="application/json"
            )
        if job.ending is Ending.REJECTED and job.why.endswith("(HTTP 400)"):
            return _refusal(job.why.removesuffix(" (HTTP 400)"), "BadRequestError", 400)
        if job.ending is Ending.REJECTED:
            return _refusal(job.why.removesuffix(" (HTTP 503)"), "ServiceUnavailableError", 503)
        return _refusal(job.why, "InternalServerError", 500)

    # --- the fleet ---------------------------------------------------------------------------------------------------

    async def _targets(self, request: web.Request) -> web.StreamResponse:
        """For Prometheus' http_sd_configs. Replicas that were discovered and do not serve yet have port 1: nobody is
        there."""
        self._now()
        await self._follow()
        found = [
            {
                "targets": [f"{self._host}:{self._ports[server.name].port if server.name in self._ports else 1}"],
                "labels": dict(server.target),
            }
            for pool in self._twin.fleet.cluster.pools.values()
            for server in pool.servers.values()
            if server.life.stage not in (Stage.REQUESTED, Stage.PROVISIONING)
        ]
        own = [f"{self._host}:{self._port}"]
        gateways = [
            {
                "targets": own,
                "labels": {**dict(front.picker.target), "__metrics_path__": f"/gateways/{front.pool}/metrics"},
            }
            for front in self._twin.fleet.fronts.values()
        ]
        return web.json_response([*found, *gateways, {"targets": own, "labels": dict(_CLUSTER)}])

    async def _endpoints(self, request: web.Request) -> web.StreamResponse:
        """Where the replicas that should get requests listen, by name, as EndpointSlices have it: one that drains is in
        ``/targets`` until it has ended, but no longer here."""
        self._now()
        await self._follow()
        pool = self._twin.fleet.cluster.pools.get(request.match_info["pool"])
        if pool is None:
            raise web.HTTPNotFound
        names = (server.name for server in pool.ready())
        return web.json_response(
            {name: f"{self._host}:{self._ports[name].port}" for name in names if name in self._ports}
        )

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        self._now()
        front = self._twin.fleet.fronts.get(request.match_info["pool"])
        if front is None:
            raise web.HTTPNotFound
        return web.Response(text=exposition(front.page(), front.picker.target), headers={"Content-Type": _TEXT})

    async def _cluster(self, request: web.Request) -> web.StreamResponse:
        self._now()
        page = self._twin.fleet.cluster.page()
        return web.Response(text=exposition(page, _CLUSTER), headers={"Content-Type": _TEXT})

    async def _replicas(self, request: web.Request) -> web.StreamResponse:
        """What Governor's webhook actuator reads."""
        self._now()
        await self._follow()  # who is told to be ready answers
        rows = [
            {"pool": pool.name, "lever": "replicas", "member": "", "value": pool.wanted, "ready": len(pool.ready())}
            for pool in self._twin.fleet.cluster.pools.values()
        ]
        return web.json_response({"targets": rows})

    async def _scale(self, request: web.Request) -> web.StreamResponse:
        """What Governor's webhook actuator writes. An order that is older than one that was taken changes nothing."""
        try:
            order = openai.plain(await request.read())
        except openai.BadRequest as bad:
            return _refusal(str(bad), "BadRequestError", 400)
        pool, lever, value, at = (order.get(name) for name in ("pool", "lever", "value", "at"))
        known = self._twin.fleet.cluster.pools
        if not isinstance(pool, str) or pool not in known or lever != "replicas":
            return _refusal(f"there is no {pool}/{lever}; pools are {', '.join(known)}", "NotFoundError", 404)
        if not _is_number(at) or at > self._now() + AHEAD:  # a later one would make all honest ones old
            return _refusal("at must be when the order was given, unix seconds, not later", "BadRequestError", 400)
        if not _is_number(value) or not 0 <= value <= MOST or value != int(value):
            return _refusal(f"value must be a whole number of replicas, 0 to {MOST}", "BadRequestError", 422)
        if at >= self._written.get(pool, at):
            self._written[pool] = at
            self._twin.fleet.cluster.scale(pool, int(value), self._now())
        return web.json_response({"value": known[pool].wanted})


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _ending(job: Job) -> Ending | None:
    """Read anew: the twin writes it."""
    return job.ending


async def _health(_: web.Request) -> web.StreamResponse:
    return web.Response()


def _refusal(message: str, kind: str, status: int) -> web.Response:
    return web.Response(text=openai.error(message, kind, status), status=status, content_type="application/json")


def serve(twin: Twin, host: str, port: int, ready: Callable[[], None]) -> None:
    """Serve a twin that begins now, until SIGINT or SIGTERM. Raises InputError when a port is not to be had."""

    async def main() -> None:
        stop = asyncio.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sign, stop.set)
        await FleetServer(twin, host, port, time.time).run(stop, ready)

    asyncio.run(main())
