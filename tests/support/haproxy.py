"""A real HAProxy on loopback, with engines that it plays itself, and a wire to its socket that breaks."""

import os
import re
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from actuators.haproxy.cli import Cli, Lost, NotReached
from tests.support.pipelined import traffic
from tests.support.ports import free_port
from tests.support.real import program
from tests.support.waiting import until

SHIPPED = Path(__file__).parents[2] / "examples" / "targets" / "haproxy"
ENGINES = ("R1", "R2", "R3", "SMALL")


def playing(engines: Mapping[str, str]) -> str:
    """Frontends that answer in place of engines, each with its name, by the address that it listens at."""
    return "".join(
        f"frontend play_{name}\n  mode http\n  timeout client 5s\n  bind {place}\n"
        f"  http-request return status 200 hdr x-engine {name}\n"
        for name, place in engines.items()
    )


class Proxy:
    """One HAProxy that runs a shipped configuration; it can be started again over the same files."""

    def __init__(self, folder: Path, config: str = "haproxy.cfg", more: str = "", **environment: str) -> None:
        self.folder, self.port = folder, free_port()
        self.map, self.state = folder / "governor.map", folder / "servers.state"
        self.socket, self.read_socket, self.user = (folder / f"{name}.sock" for name in ("admin", "read", "user"))
        self.map.touch()
        self.state.touch()
        engines = {name: f"127.0.0.1:{free_port()}" for name in ENGINES}
        engines.update({name: place for name, place in environment.items() if name in ENGINES})
        self.engines = engines
        self._environment = {
            "PATH": os.environ.get("PATH", ""), "GOVERNOR_DIR": str(folder), "GOVERNOR_MAP": str(self.map),
            "GOVERNOR_LUA": str(SHIPPED / "expiry.lua"), "LISTEN": f"127.0.0.1:{self.port}", **engines, **environment,
        }  # fmt: skip
        plays = playing({name: place for name, place in engines.items() if name not in environment})
        extra = folder / "test.cfg"
        levels = f"global\n  stats socket {self.user} level user\n  stats socket {folder / 'test.sock'} level admin\n"
        extra.write_text(levels + plays + more)
        self._command = [program("haproxy"), "-db", "-f", str(SHIPPED / config), "-f", str(extra)]
        self._process: subprocess.Popen[bytes] | None = None
        self._old: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._launch()
        until(self._answers)

    def _launch(self, *more: str) -> None:
        with (self.folder / "haproxy.log").open("ab") as log:
            self._process = subprocess.Popen([*self._command, *more], env=self._environment, stdout=log, stderr=log)

    def stop(self) -> None:
        for old in self._old:
            old.kill()
            old.wait()
        self._old.clear()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def reload(self) -> None:
        """A new process takes over, and the old one ends with what it still serves."""
        old = self._process
        assert old is not None
        self._old.append(old)
        self._launch("-sf", str(old.pid))
        until(lambda: self.cli("show info")[0].splitlines()[6] == f"Pid: {self._process.pid}")  # type: ignore[union-attr]

    def freeze(self, *, frozen: bool) -> None:
        """It stands still in the midst of what it does, and goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def cli(self, *commands: str) -> list[str]:
        with Cli(str(self.folder / "test.sock"), 5.0) as cli:
            return [cli.ask(command) for command in commands]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "haproxy.log").read_text()
        try:
            return bool(self.cli("show info"))
        except (NotReached, Lost):
            return False

    # --- looking from outside -----------------------------------------------------------------------------------

    def share(self, server: str) -> float:
        """Of its initial weight; 0 in drain."""
        rows = [line.split(" ") for line in self.cli("show servers state")[0].splitlines()]
        row = next(row for row in rows if len(row) > 8 and f"{row[1]}/{row[3]}" == server)
        return 0.0 if int(row[6]) else int(row[7]) / int(row[8])

    def limit(self, server: str) -> int:
        rows = [line.split(",") for line in self.cli("show stat")[0].splitlines()]
        return int(next(row[6] for row in rows if f"{row[0]}/{row[1]}" == server) or 0)

    def entries(self) -> dict[str, str]:
        lines = self.cli(f"show map {self.map}")[0].splitlines()
        return dict(line.split(" ")[1:3] for line in lines)

    def traffic(self, count: int, **headers: str) -> Counter[str]:
        """Answers by engine, or by status where none answered."""
        return traffic(self.port, count, **headers)


@contextmanager
def haproxy(folder: Path, config: str = "haproxy.cfg", more: str = "", **environment: str) -> Iterator[Proxy]:
    proxy = Proxy(folder, config, more, **environment)
    try:
        proxy.start()
        yield proxy
    finally:
        proxy.stop()


class Wire:
    """A socket in front of HAProxy's. `next` are the fates of the connections to come: "refuse" closes it, "hang" never
    answers, "garbage" answers as a web server does, "user" leads to the socket that may not write, ("lose", WORDS)
    passes the first command that begins so on and ends before its answer, ("stop", WORDS) ends before it is passed on,
    ("meddle", WORDS) calls `meddle` before.
    `writes` counts commands that change something; `said` are all commands."""

    def __init__(self, folder: Path, behind: Path, user: Path) -> None:
        self.path = folder / "wire.sock"
        self.next: list[str | tuple[str, str]] = []
        self.writes = 0
        self.said: list[str] = []
        self.meddle: Callable[[], object] = lambda: None
        self._behind, self._user = behind, user
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            one.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, client: socket.socket) -> None:
        fate = self.next.pop(0) if self.next else ""
        try:
            while fate == "garbage" and (data := client.recv(1 << 16)):
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n<html>\n> " * data.count(b"\n"))
            if fate == "hang":
                return  # kept open, says nothing
            if fate not in ("refuse", "garbage"):
                self._pass_on(client, fate)
            client.close()
        except OSError:
            client.close()

    def _pass_on(self, client: socket.socket, fate: str | tuple[str, str]) -> None:
        with socket.socket(socket.AF_UNIX) as behind:
            behind.connect(str(self._user if fate == "user" else self._behind))
            back = threading.Thread(target=_copy, args=(behind, client), daemon=True)
            back.start()
            while data := client.recv(1 << 16):
                lines = data.splitlines(keepends=True)
                self.said.extend(line.decode().rstrip() for line in lines)
                self.writes += len(re.findall(rb"^(?:set|commit) ", data, re.MULTILINE))
                kind, words = fate if isinstance(fate, tuple) else ("", "")
                at = next((n for n, line in enumerate(lines) if kind and line.startswith(words.encode())), None)
                if at is not None and kind == "meddle":
                    self.meddle()
                elif at is not None:
                    client.shutdown(socket.SHUT_RDWR)  # nobody hears of what comes now
                    passed = lines[: at + (kind == "lose")]
                    behind.sendall(b"".join([*passed, b"quit\n"]))
                    back.join(5)  # HAProxy has done it
                    return
                behind.sendall(data)
            behind.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until the source has ended, whether or not somebody still listens."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            with suppress(OSError):
                target.sendall(data)


@contextmanager
def wire(proxy: Proxy) -> Iterator[Wire]:
    one = Wire(proxy.folder, proxy.socket if proxy.socket.exists() else proxy.read_socket, proxy.user)
    try:
        yield one
    finally:
        one.close()
