"""How HAProxy is reached, and what of it belongs to which pool."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from controller.core.params import Unit, param, refuse


@dataclass(frozen=True, slots=True)
class HAProxyPool:
    """What of HAProxy belongs to a pool."""

    backend: str = param("Backend that serves the pool; one backend serves one pool.")
    by: Literal["name", "address"] = param(
        "Whether a replica, as its metrics call it, is the name or the address:port of a server.", "name"
    )
    servers: Mapping[str, str] = param("Name of the server by replica, where `by` does not find it.", {})
    tokens_per_request: float | None = param(
        "Tokens, prompt and answer, of a usual request: HAProxy counts requests. Needed for tenant_cap.", None, gt=0
    )

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        owners: dict[str, list[str]] = {}
        for replica, name in self.servers.items():
            owners.setdefault(name, []).append(replica)
        for name, (replica, *others) in owners.items():
            if others:
                yield f"servers.{replica}: {name} stands for another replica too; a server is one replica"


@dataclass(frozen=True, slots=True)
class HAProxyConfig:
    """One HAProxy. By its admin socket it can do all; as its agent only what a server can be told."""

    pools: Mapping[str, HAProxyPool] = param("What belongs to each pool.")
    socket: str = param("Path of the stats socket, or 127.0.0.1:port. Level admin; for an agent, level user is enough.")
    mode: Literal["socket", "agent"] = param(
        "socket: Governor writes. agent: HAProxy asks Governor, by `agent-check`. Never both for one server.", "socket"
    )
    map: str = param("socket: path of the map, as HAProxy's configuration writes it; Governor's memory there.", "")
    map_file: str = param("socket: where Governor can write that file, so that it outlives a reload.", "")
    state_file: str = param("socket: where Governor can write HAProxy's server-state-file, for the same reason.", "")
    expires: bool = param(
        "socket: whether HAProxy drops values in time: it has loaded expiry.lua, and its rules compare the date.", False
    )
    window: float = param("socket: period of gpc0_rate in HAProxy's rules.", 10.0, unit=Unit.DURATION, ge=1)
    listen: str = param("agent: host:port at which HAProxy asks.", "")
    timeout: float = param(
        "Longest wait for the whole of one reading or writing.", 2.0, unit=Unit.DURATION, gt=0, le=3600
    )
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if not self.socket.startswith("/"):
            yield from _said(_loopback, self.socket)
        if self.mode == "socket" and not self.map:
            yield "map: is missing; write the path of the map that HAProxy's configuration names"
        if self.mode == "agent" and not self.listen:
            yield "listen: is missing; write host:port, where agent-addr and agent-port of HAProxy point"
        elif self.mode == "agent":
            yield from _said(_place, "listen", self.listen)
        for name, path in (("map_file", self.map_file), ("state_file", self.state_file)):
            if path and not Path(path).is_absolute():
                yield f"{name}: is relative; write the whole path, from / on"
        if self.mode == "socket" and self.expires and self.state_file and not self.map_file:
            yield (
                "map_file: is missing; after a reload HAProxy would know from state_file that a server is drained, and "
                "not know until when"
            )
        if self.mode == "agent" and (self.map or self.map_file or self.state_file or self.expires):
            yield "mode: an agent writes nothing; leave out map, map_file, state_file and expires"
        backends = [pool.backend for pool in self.pools.values()]
        if len(set(backends)) < len(backends):
            yield "pools: two share a backend; give each its own"

    @property
    def persistent(self) -> bool:
        """Whether what was written is there again after HAProxy restarts."""
        return self.mode == "agent" or bool(self.map_file and self.state_file)


def _said(check: Callable[..., object], *given: str) -> Iterator[str]:
    """What a check raises, as one mistake among others."""
    try:
        check(*given)
    except ValueError as error:
        yield str(error)


def _place(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{name}: {text!r} is no host:port; write for example 127.0.0.1:9777")
    return host.strip("[]"), int(port)


def _loopback(text: str) -> tuple[str, int]:
    host, port = _place("socket", text)
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise ValueError(f"socket: {host} is not this machine, and the socket asks for no password; use a unix socket")
    return host, port


def listen_at(text: str) -> tuple[str, int]:
    """Host and port at which HAProxy asks."""
    return _place("listen", text)


def address(text: str) -> str | tuple[str, int]:
    """A path of a unix socket, or host and port."""
    return text if text.startswith("/") else _place("socket", text)
