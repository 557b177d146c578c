"""A real Envoy on loopback, from the bootstraps that are shipped, with replicas behind it that say their names."""

import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from tests.support.ports import free_port
from tests.support.real import program

TARGETS = Path(__file__).parents[2] / "examples" / "targets" / "envoy"
_SOON = 10.0  # seconds in which whatever is waited for must have come


def until(true: Callable[[], bool], what: str, within: float = _SOON) -> None:
    """Waits until it is so."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not true():
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        pause.wait(0.01)


@dataclass
class Replicas:
    """Replicas of the tests: each answers with its name, or with 500 while it is `broken`. A path of /hold waits until
    ``let_go``. `in_flight` counts requests that wait, `seen` those that came, by name."""

    names: Sequence[str]
    ports: dict[str, int] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    broken: set[str] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _open: asyncio.Event | None = None
    _tasks: set[Any] = field(default_factory=set)

    @property
    def addresses(self) -> dict[str, str]:
        return {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}

    def let_go(self) -> None:
        """Every request that waits is answered, and none waits any more until ``hold``."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def hold(self) -> None:
        """Requests to /hold wait from now on."""
        self._loop.call_soon_threadsafe(self._gate.clear)

    @property
    def _gate(self) -> asyncio.Event:
        assert self._open is not None
        return self._open

    async def _serve(self, started: threading.Event) -> None:
        self._open = asyncio.Event()
        for name in self.names:
            server = await asyncio.start_server(partial(self._talk, name), "127.0.0.1", 0)
            self._tasks.add(server)
            self.ports[name] = server.sockets[0].getsockname()[1]
        started.set()

    async def _talk(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.seen[name] += 1
                if b" /hold" in head.split(b"\r\n", 1)[0]:
                    self.in_flight += 1
                    await self._gate.wait()
                    self.in_flight -= 1
                body, status = name.encode(), b"500 Broken" if name in self.broken else b"200 OK"
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
                await writer.drain()
        writer.close()


@contextmanager
def replicas(*names: str) -> Iterator[Replicas]:
    """Replicas with these names, each on a port of its own."""
    made = Replicas(names)
    loop, started = made._loop, threading.Event()  # noqa: SLF001
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(made._serve(started), loop)  # noqa: SLF001
    assert started.wait(_SOON)
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(_end(made), loop).result(_SOON)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(made: Replicas) -> None:
    for server in made._tasks:  # noqa: SLF001
        server.close()
    me = asyncio.current_task()
    rest = [task for task in asyncio.all_tasks() if task is not me]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


@dataclass
class EnvoyProcess:
    """A running Envoy. `front` is where requests go in."""

    front: int
    admin: int
    bootstrap: Path
    number: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.admin}"

    def get(self, path: str, method: str = "GET") -> str:
        """The admin page."""
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=5)
        try:
            link.request(method, path)
            return link.getresponse().read().decode()
        finally:
            link.close()

    def stat(self, name: str) -> str:
        """One stat, "" when there is none."""
        lines = dict(line.rpartition(": ")[::2] for line in self.get(f"/stats?filter={name}").splitlines())
        return lines.get(name, "").strip('"')

    def runtime(self, key: str) -> str:
        """The value of a runtime key in force, "" when it is not set."""
        entry = json.loads(self.get("/runtime"))["entries"].get(key)
        return str(entry["final_value"]) if entry else ""

    def start(self) -> None:
        """Start, and wait until the front takes connections."""
        command = [program("envoy"), "-c", str(self.bootstrap), "--concurrency", "1", "--use-dynamic-base-id"]
        log = self.bootstrap.with_suffix(".log").open("ab")
        with log:
            self.process = subprocess.Popen([*command, "-l", "warn", "--drain-time-s", "1"], stdout=log, stderr=log)
        until(self._takes, f"Envoy takes connections; see {self.bootstrap.with_suffix('.log')}", 20)

    def _takes(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.bootstrap.with_suffix(".log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.front), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, path: str = "/", **headers: str) -> str:
        """The name of the replica that answered one request, or the status where it was none."""
        return next(iter(self.traffic(1, path, at_once=1, **headers)))

    def traffic(self, count: int, path: str = "/", *, at_once: int = 50, **headers: str) -> Counter[str]:
        """So many requests on one connection, counted by who answered, or by status. `at_once` are sent before the
        first is answered: 1 where some are refused, since Envoy may close after that. Underscores in names of headers
        are dashes."""
        message = _message(path, headers)
        out: Counter[str] = Counter()
        with socket.create_connection(("127.0.0.1", self.front), timeout=_SOON) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = link.makefile("rb")
            sent = 0
            while sent < count:
                batch = min(at_once, count - sent)
                link.sendall(message * batch)
                sent += batch
                for _ in range(batch):
                    out[_answer(stream)] += 1
        return out

    @contextmanager
    def asking(self, path: str = "/", **headers: str) -> Iterator[Callable[[], str]]:
        """One connection; each call is a request on it, and gives who answered."""
        message = _message(path, headers)
        with socket.create_connection(("127.0.0.1", self.front), timeout=_SOON) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with link.makefile("rb") as stream:

                def ask() -> str:
                    link.sendall(message)
                    return _answer(stream)

                yield ask


def _message(path: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nhost: test\r\n{lines}\r\n".encode()


def _answer(stream: BinaryIO) -> str:
    status, length = stream.readline().split()[1].decode(), 0
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body = stream.read(length).decode()
    return body if status == "200" else status


def bootstrap(
    name: str,
    ports: Mapping[int, int],
    *,
    node: str = "edge-1",
    change: Callable[[dict[str, Any]], None] | None = None,
    folder: Path | None = None,
) -> str:
    """A shipped bootstrap with other ports, and another folder where it watches one."""
    text = (TARGETS / name).read_text()
    for old, new in ports.items():
        assert f"port_value: {old}}}" in text
        text = text.replace(f"port_value: {old}}}", f"port_value: {new}}}")
    if folder is not None:
        text = text.replace("/etc/envoy/governor", str(folder))
    body = yaml.safe_load(text)
    body["node"]["id"] = node
    if change is not None:
        change(body)
    return json.dumps(body)


def neutral_files(folder: Path) -> Path:
    """The folder that an Envoy of the file bootstrap watches, as it is shipped."""
    return Path(shutil.copytree(TARGETS / "governor", folder / "governor"))


@contextmanager
def envoy(
    folder: Path,
    text: Callable[[int, int], str],
    number: int = 1,
    *,
    admin: int = 0,
) -> Iterator[EnvoyProcess]:
    """A running Envoy; `text` makes its bootstrap from the ports of front and admin page."""
    front, admin = free_port(), admin or free_port()
    path = folder / f"envoy-{number}.json"
    path.write_text(text(front, admin))
    made = EnvoyProcess(front, admin, path, number)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Wire:
    """A wire between an Envoy and Governor. ``cut`` ends what is connected, and takes nobody until ``mend``. While it
    is `deaf` the answering end does not hear the asking one, as until the monotonic time `deaf_until`."""

    def __init__(self, to: int) -> None:
        self.deaf, self.deaf_until = False, 0.0
        self._to, self._cut = to, False
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    assert not self._cut
                    server = socket.create_connection(("127.0.0.1", self._to), timeout=5)
                except (OSError, AssertionError):
                    client.close()
                    continue
                server.settimeout(None)
                self._ends += [client, server]
                threading.Thread(target=self._carry, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._carry, args=(server, client, False), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, words: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not words or not (self.deaf or time.monotonic() < self.deaf_until):
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._cut = True
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for end in self._ends:
            end.close()


@contextmanager
def wire(to: int) -> Iterator[Wire]:
    """A wire to a port on which Governor listens, now or later."""
    made = Wire(to)
    try:
        yield made
    finally:
        made.close()
