"""A real nginx on loopback that runs the shipped template, with engines that another nginx plays."""

import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actuators.file.template import fill
from tests.support.pipelined import traffic
from tests.support.ports import free_port
from tests.support.real import program
from tests.support.waiting import until

TEMPLATE = Path(__file__).parents[2] / "examples" / "targets" / "nginx" / "nginx.conf.j2"
ENGINES = ("r1", "r2", "r3", "small")
_PATHS = "".join(f"{name}_temp_path {name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))


class Nginx:
    """One nginx; `values` and `output` are the two files of Governor's actuator."""

    def __init__(self, folder: Path, **places: str) -> None:
        self.folder, self.port = folder, free_port()
        self.values, self.output = folder / "values.json", folder / "nginx.conf"
        self.places = {name: f"127.0.0.1:{free_port()}" for name in ENGINES}
        self._played = {name: place for name, place in self.places.items() if name not in places}
        self.places |= places
        self.variables = {"listen": f"127.0.0.1:{self.port}", **self.places}
        self._running: list[subprocess.Popen[bytes]] = []

    def command(self, *words: str) -> tuple[str, ...]:
        return (program("nginx"), "-p", str(self.folder), *words)

    def start(self, values: dict[str, float]) -> None:
        self.values.write_text(json.dumps(values))
        self.output.write_text(fill(str(TEMPLATE), values, self.variables))
        servers = "".join(
            f"server {{ listen {place}; location / {{ add_header x-engine {name}; return 200 ''; }} }}\n"
            for name, place in self._played.items()
        )
        players = self.folder / "players.conf"
        players.write_text(
            f"pid players.pid; error_log players.log; events {{}}\nhttp {{ access_log off; {_PATHS}\n{servers} }}\n"
        )
        for config in (players, self.output):
            command = self.command("-c", str(config), "-g", "daemon off;")
            self._running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until(self._answers)
        until(lambda: len(self.workers()) == 2)  # the port is open before they are there

    def stop(self) -> None:
        for one in self._running:
            one.terminate()
            one.wait(10)
        self._running = []

    @property
    def master(self) -> int:
        return self._running[1].pid

    def workers(self) -> set[str]:
        """Process ids of the workers, old ones that still serve a stream among them."""
        path = Path(f"/proc/{self.master}/task/{self.master}/children")
        return set(path.read_text().split())

    def reloaded(self, before: set[str]) -> bool:
        """Whether new workers have taken over, and those of before accept nothing more."""
        now = self.workers()
        return len(now - before) >= 2 and all(_leaving(worker) for worker in now & before)

    def traffic(self, count: int, **headers: str) -> Counter[str]:
        return traffic(self.port, count, **headers)

    def _answers(self) -> bool:
        assert all(one.poll() is None for one in self._running), (self.folder / "error.log").read_text()
        try:
            for port in (self.port, *(int(place.rpartition(":")[2]) for place in self._played.values())):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            return False
        return True


def _leaving(worker: str) -> bool:
    try:
        return b"shutting down" in Path(f"/proc/{worker}/cmdline").read_bytes()
    except OSError:
        return True  # gone


@contextmanager
def nginx(folder: Path, values: dict[str, float] | None = None, **places: str) -> Iterator[Nginx]:
    one = Nginx(folder, **places)
    try:
        one.start(values or {})
        yield one
    finally:
        one.stop()
