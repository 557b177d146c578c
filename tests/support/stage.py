"""A stage for whole stories: served fleets, a Prometheus, an Envoy in front of each, and Governors as processes."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.support.envoy import EnvoyProcess, bootstrap, envoy, until
from tests.support.lines import Program, program
from tests.support.ports import free_port, free_row
from tests.support.prometheus import prometheus

ROOT = Path(__file__).parents[2]
STORY = ROOT / "examples" / "end-to-end"
PORTS = 16  # of one fleet: its own and those of its replicas
_CLI = ("-c", "from controller.cli import main; main()")
Json = dict[str, Any]


def soon(true: Callable[[], bool], what: str, within: float, tell: Callable[[], object] = str) -> float:
    """Waits until it is so, looking some times a second; after how long it was. `tell` is what is known where it is
    not."""
    begin = time.monotonic()
    pause = threading.Event()
    while not true():
        assert time.monotonic() < begin + within, f"not within {within:g} s: {what}; {tell()}"
        pause.wait(0.2)
    return time.monotonic() - begin


@dataclass
class Desk:
    """Stands between a Governor and the orders that a fleet takes, writes down all of them, and may withhold an
    answer: of the next order that `withholds` is set for, the fleet does it and Governor hears nothing."""

    to: str
    url: str = ""
    orders: list[Json] = field(default_factory=list)  # as they were carried out
    talk: list[str] = field(default_factory=list)  # GET and POST, in the order in which they came
    withholds: bool = False
    withheld: threading.Event = field(default_factory=threading.Event)  # one was carried out, and its answer kept back
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def values(self) -> list[float]:
        """What was ordered."""
        return [order["value"] for order in self.orders]


class _Clerk(BaseHTTPRequestHandler):
    desk: Desk

    def do_GET(self) -> None:
        self.desk.talk.append("GET")
        self._pass_on(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.desk.talk.append("POST")
        self._pass_on(body)

    def _pass_on(self, body: bytes | None) -> None:
        with urllib.request.urlopen(urllib.request.Request(self.desk.to, body), timeout=5) as answer:
            said = answer.read()
        if body is not None:
            self.desk.orders.append(json.loads(body))
            if self.desk.withholds:
                self.desk.withholds = False
                self.desk.withheld.set()
                self.desk.ended.wait()
                return
        with suppress(OSError):  # who asked may have lost patience, or life
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

    def log_message(self, *args: object) -> None:
        """Orders are kept, not told."""


@contextmanager
def desk(to: str) -> Iterator[Desk]:
    """A desk on a port of its own."""
    made = Desk(to)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Clerk,), {"desk": made}))
    made.url = f"http://127.0.0.1:{server.server_port}/replicas"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield made
    finally:
        made.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Site:
    """A served fleet with an Envoy in front; Governor's port is open to whoever comes."""

    name: str
    folder: Path
    port: int
    edge: EnvoyProcess
    xds: int  # where its Envoy expects a Governor
    since: float = 0.0  # unix seconds at which the fleet's clock began

    @property
    def url(self) -> str:
        """Where clients ask."""
        return f"http://127.0.0.1:{self.edge.front}"

    @property
    def replicas(self) -> str:
        """Where replica counts are read and written."""
        return f"http://127.0.0.1:{self.port}/replicas"

    @staticmethod
    def heard(at: float, begun: float) -> float:
        """Unix seconds on a clock that began at the monotonic time `begun`."""
        return at - time.time() + time.monotonic() - begun

    def addresses(self) -> dict[str, str]:
        """Where replicas listen, by name."""
        found: dict[str, str] = json.loads((self.folder / "endpoints.json").read_text())
        return found

    def capacity(self) -> tuple[int, int]:
        """Replicas that are wanted, and that serve."""
        with urllib.request.urlopen(self.replicas, timeout=10) as answer:
            (row,) = json.load(answer)["targets"]
        return row["value"], row["ready"]

    def limit(self) -> int | None:
        """Requests in flight beyond which Envoy refuses; None where Governor has set none."""
        found = self.edge.runtime("circuit_breakers.chat-steered.default.max_requests")
        return int(found) if found else None

    def shares(self) -> dict[str, int]:
        """Weight of each address that Envoy was told of by Governor, 0 for one that is drained; {} when what it was
        told has expired."""
        page = json.loads(self.edge.get("/clusters?format=json"))
        (cluster,) = [one for one in page["cluster_statuses"] if one["name"] == "chat-steered"]
        found = {}
        for host in cluster.get("host_statuses", ()):
            address = host["address"]["socket_address"]
            drained = host["health_status"].get("eds_health_status") == "DRAINING"
            found[f"{address['address']}:{address['port_value']}"] = 0 if drained else host.get("weight", 0)
        return found

    def asked(self) -> set[str]:
        """The addresses that the fallback has sent requests to."""
        page = json.loads(self.edge.get("/clusters?format=json"))
        (cluster,) = [one for one in page["cluster_statuses"] if one["name"] == "chat-plain"]
        found = set()
        for host in cluster.get("host_statuses", ()):
            address = host["address"]["socket_address"]
            total = sum(int(one.get("value", 0)) for one in host["stats"] if one["name"] == "rq_total")
            if total:
                found.add(f"{address['address']}:{address['port_value']}")
        return found

    def neutral(self) -> bool:
        """Whether nothing that a Governor said is in force: no limit, and no list of replicas."""
        return self.limit() is None and not self.shares()


@contextmanager
def sites(folder: Path, *names: str) -> Iterator[list[Site]]:
    """For each name a fleet, the list of its replicas, and an Envoy. Fleets begin at about the same time."""
    row = free_row(PORTS * len(names))
    ports = {name: row + PORTS * place for place, name in enumerate(names)}
    with ExitStack() as stack:
        fleets = {}
        for name, port in ports.items():
            own = folder / name
            own.mkdir()
            for file in ("fleet.yaml", "governor.yaml"):
                (own / file).write_text((STORY / file).read_text())
            command = [*_CLI, "serve-fleet", str(own / "fleet.yaml"), "--no-traffic", "--port", str(port)]
            fleets[name] = stack.enter_context(_process(command))
            command = [str(STORY / "endpoints.py"), f"http://127.0.0.1:{port}/endpoints/chat", str(own)]
            stack.enter_context(_process(command, quiet=True))
        made = []
        for name, port in ports.items():
            pipe = fleets[name].stdout
            assert pipe is not None
            line = pipe.readline()
            assert line.startswith("serving end-to-end since"), line
            since = float(line.split("since ")[1].split(":")[0])
            xds = free_port()
            edge = stack.enter_context(_edge(name, folder / name, xds))
            made.append(Site(name, folder / name, port, edge, xds, since))
        yield made


def _edge(name: str, folder: Path, xds: int) -> AbstractContextManager[EnvoyProcess]:
    """The shipped Envoy, whose fallback follows the list of replicas as it would follow a headless service."""
    watched = folder / "eds"
    until((watched / "chat-plain.json").exists, "the list of replicas is written", 20)

    def change(body: Json) -> None:
        (plain,) = [one for one in body["static_resources"]["clusters"] if one["name"] == "chat-plain"]
        del plain["load_assignment"]
        source = {"path": str(watched / "chat-plain.json"), "watched_directory": {"path": str(watched)}}
        eds = {"resource_api_version": "V3", "path_config_source": source}
        plain |= {"type": "EDS", "eds_cluster_config": {"eds_config": eds}}

    def text(front: int, admin: int) -> str:
        ports = {10000: front, 9901: admin, 18000: xds}
        return bootstrap("bootstrap.yaml", ports, node=f"edge-{name}", change=change)

    return envoy(folder, text)


@contextmanager
def _process(args: list[str], *, quiet: bool = False) -> "Iterator[subprocess.Popen[str]]":
    """`python args`, ended by its pid."""
    out = subprocess.DEVNULL if quiet else subprocess.PIPE
    with subprocess.Popen([sys.executable, *args], cwd=ROOT, text=True, stdout=out, stderr=subprocess.STDOUT) as one:
        try:
            yield one
        finally:
            one.terminate()
            try:
                one.wait(15)
            except subprocess.TimeoutExpired:
                one.kill()


def scraping(where: Site) -> AbstractContextManager[str]:
    """A Prometheus that scrapes the fleet of a site."""
    text = (STORY / "prometheus.yml").read_text().replace("127.0.0.1:9400", f"127.0.0.1:{where.port}")
    text = text.replace("127.0.0.1:9901", f"127.0.0.1:{where.edge.admin}")
    return prometheus(where.folder / "tsdb", text)


@dataclass
class Steered:
    """What a Governor of one site is configured with."""

    site: Site
    file: Path
    port: int

    @contextmanager
    def governor(self) -> Iterator[Program]:
        """`governor run`, from its first tick."""
        with program([*_CLI, "run", "--config", str(self.file)], ROOT, os.environ | {"PYTHONUNBUFFERED": "1"}) as one:
            one.wait("started", 40)
            yield one

    def page(self, path: str = "status") -> Json:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=10) as answer:
            page: Json = json.load(answer)
        return page

    def values(self) -> Mapping[str, float | None]:
        """Where the targets stand by Governor's status page."""
        return {row["target"]: row["current"] for row in self.page()["targets"]}


def steered(where: Site, metrics: str, orders: str) -> Steered:
    """The shipped config with the ports of this site; `orders` is where replicas are asked for."""
    port = free_port()
    text = (STORY / "governor.yaml").read_text()
    for old, new in {
        "http://127.0.0.1:9090": metrics, "http://127.0.0.1:9400/replicas": orders,
        "127.0.0.1:8080": f"127.0.0.1:{port}", "127.0.0.1:18000": f"127.0.0.1:{where.xds}",
        "http://127.0.0.1:9901": where.edge.url, "build/end-to-end/": f"{where.folder}/",
    }.items():  # fmt: skip
        assert old in text, old
        text = text.replace(old, new)
    assert yaml.safe_load(text)
    file = where.folder / "steered.yaml"
    file.write_text(text)
    return Steered(where, file, port)
