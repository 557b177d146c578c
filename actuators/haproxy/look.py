"""What HAProxy says of itself: its process, its servers, and the map that is Governor's memory in it. Parsing only."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field

from actuators.haproxy.cli import Cli
from actuators.haproxy.config import HAProxyConfig

# Bits of srv_admin_state: maintenance (forced, inherited, by configuration, by DNS) and drain (forced, inherited).
_MAINTENANCE, _DRAIN = 0x01 | 0x02 | 0x04 | 0x20 | 0x40, 0x08 | 0x10
_AGENT_SET = 0x02  # bit of srv_agent_state: an agent-check is configured
_BACKEND_AND_SERVERS = 2 | 4  # kinds of rows of `show stat`
_NO_BACKEND, _NO_PROXY = "Can't find backend", "No such proxy"
GENERATION = "governor@generation"


class Garbled(Exception):
    """HAProxy answered, and not with what was asked for: the message says what it said."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server of a backend. `maxconn` is 0 where there is no limit; `share` what it gets of its initial weight."""

    backend: str
    name: str
    address: str
    weight: int
    initial: int
    admin: int
    agent: bool
    maxconn: int = 0

    @property
    def out(self) -> bool:
        return bool(self.admin & (_MAINTENANCE | _DRAIN))

    @property
    def maintained(self) -> bool:
        """Whether somebody, the configuration or a name service has it in maintenance; Governor only drains."""
        return bool(self.admin & _MAINTENANCE)

    @property
    def share(self) -> float:
        if self.out or self.initial == 0:
            return 0.0
        return self.weight / self.initial


@dataclass(frozen=True, slots=True)
class View:
    """One look. `process` is another after each restart or reload; `idle` the seconds since expiry.lua looked at the
    map, None where nobody said."""

    process: tuple[str, str]
    servers: Mapping[tuple[str, str], Server]
    map: Mapping[str, str] = field(default_factory=dict)
    algorithms: Mapping[str, str] = field(default_factory=dict)
    idle: int | None = None
    addresses: Mapping[tuple[str, str], Server] = field(default_factory=dict)  # servers by backend and address:port

    @property
    def generation(self) -> int | None:
        told = self.map.get(GENERATION, "")
        return int(told) if told.isdigit() else None

    def of(self, backend: str) -> list[Server]:
        """The servers of a backend, by name."""
        return [server for (name, _), server in sorted(self.servers.items()) if name == backend]


def look(cli: Cli, config: HAProxyConfig) -> View:
    """Raises NotReached, Lost or Garbled; writes nothing."""
    backends = sorted({pool.backend for pool in config.pools.values()})
    info, *told = cli.look(
        [
            "show info",
            *(f"show servers state {backend}" for backend in backends),
            *(f"show stat {backend} {_BACKEND_AND_SERVERS} -1" for backend in backends),
            *([f"show map {config.map}"] if config.map else []),
            *(["show governor"] if config.expires else []),
        ]
    )
    process = _process(info)
    limits: dict[tuple[str, str], int] = {}
    algorithms: dict[str, str] = {}
    for text in told[len(backends) : 2 * len(backends)]:
        _stat(text, limits, algorithms)
    servers: dict[tuple[str, str], Server] = {}
    for text in told[: len(backends)]:
        servers |= _servers(text, limits)
    entries = _map(told[2 * len(backends)], config.map) if config.map else {}
    idle = _idle(told[-1]) if config.expires else None
    addresses = {(server.backend, server.address): server for server in servers.values()}
    return View(process, servers, entries, algorithms, idle, addresses)


def _process(text: str) -> tuple[str, str]:
    told = dict(line.partition(": ")[::2] for line in text.splitlines())
    if "Pid" not in told:
        raise Garbled(f"no HAProxy: `show info` says {text[:80]!r}")
    return told["Pid"], told.get("Start_time_sec", "")


def _servers(text: str, limits: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], Server]:
    if text.startswith(_NO_BACKEND):
        return {}
    head = next((line for line in text.splitlines() if line.startswith("# ")), "")
    names = head[2:].split()
    found: dict[tuple[str, str], Server] = {}
    try:
        for line in text.splitlines():
            if not line[:1].isdigit() or " " not in line:
                continue
            row = dict(zip(names, line.split(" "), strict=False))
            key = (row["be_name"], row["srv_name"])
            found[key] = Server(
                *key,
                _address(row["srv_addr"], row["srv_port"]),
                int(row["srv_uweight"]),
                int(row["srv_iweight"]),
                int(row["srv_admin_state"]),
                bool(int(row["srv_agent_state"]) & _AGENT_SET),
                limits.get(key, 0),
            )
    except (KeyError, ValueError) as error:
        raise Garbled(f"`show servers state` is not of a form that is known: {text[:80]!r}") from error
    if not names:
        raise Garbled(f"`show servers state` says {text[:80]!r}")
    return found


def _address(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _stat(text: str, limits: dict[tuple[str, str], int], algorithms: dict[str, str]) -> None:
    """Limits of servers, and the algorithm of each backend where HAProxy shows it."""
    if text.startswith(_NO_PROXY):
        return
    if not text.startswith("# pxname"):
        raise Garbled(f"`show stat` says {text[:80]!r}")
    for row in csv.DictReader(io.StringIO(text[2:])):
        if row.get("svname") == "BACKEND":
            algorithms[row["pxname"]] = row.get("algo") or ""
        elif (row.get("slim") or "").isdigit():
            limits[row["pxname"], row["svname"]] = int(row["slim"])


def _map(text: str, path: str) -> dict[str, str]:
    """Lines are `0xADDRESS key value`."""
    entries: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(" ", 2)
        if len(parts) < 3 or not parts[0].startswith("0x"):
            raise Garbled(f"map {path}: {line[:120]}")
        entries[parts[1]] = parts[2]
    return entries


def _idle(text: str) -> int | None:
    return int(text) if text.isdigit() else None
