"""Where the replicas of a pool listen: written in the config, in a file, behind a DNS name, or in EndpointSlices.

Actuators that speak to a balancer in addresses map the replica names of the metrics through here. An origin that cannot
be read, or that suddenly names nobody, leaves the last list as it is: an empty one would be an outage of our making.
"""

import ipaddress
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import yaml

from actuators.kubernetes_scale.slices import endpoint_slices
from controller.core.params import param, refuse
from controller.core.ports import ActuatorError

log = logging.getLogger("governor.endpoints")


class OriginError(Exception):
    """An origin could not be read; the message says which, why, and the mend."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica: its name in the metrics, and where it listens. `ready` is False while it should get no requests by
    the word of its own origin."""

    name: str
    host: str
    port: int
    ready: bool = True

    @property
    def address(self) -> str:
        """As the label `instance` of Prometheus has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Inline:
    """Replicas that stay where they are."""

    kind: Literal["inline"] = param("Replicas are written here.")
    replicas: Mapping[str, str] = param("host:port of each replica, by its name in the metrics.")

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        listens: dict[str, str] = {}
        for name, address in self.replicas.items():
            try:
                one = parsed(name, address)
            except OriginError as error:
                yield f"replicas.{name}: {error}"
                continue
            if listens.setdefault(one.address, name) != name:
                yield f"replicas.{name}: {address} is {listens[one.address]} too; write where it listens"


@dataclass(frozen=True, slots=True)
class InFile:
    """Replicas in a file that something else keeps."""

    kind: Literal["file"] = param("Replicas are in a file.")
    path: str = param("JSON or YAML file with a mapping of replica names to host:port.")


@dataclass(frozen=True, slots=True)
class Dns:
    """Replicas behind one name, such as a headless service; their names are their addresses, as in `instance`."""

    kind: Literal["dns"] = param("Replicas are the addresses of a DNS name.")
    host: str = param("The name.")
    port: int = param("The port that they listen on.", ge=1, le=65535)
    timeout: float = param("Longest wait for an answer, seconds.", 2.0, gt=0, le=3600)


@dataclass(frozen=True, slots=True)
class Slices:
    """Replicas of a Kubernetes service; their names are those of their pods."""

    kind: Literal["kubernetes"] = param("Replicas are those of a service's EndpointSlices.")
    namespace: str = param("Namespace of the service.")
    service: str = param("Name of the service.")
    port: str = param("Name of the port; the first one where it is empty.", "")
    kubeconfig: str = param("Path of a kubeconfig; by default the pod's service account, or else the usual file.", "")
    context: str = param("Context of the kubeconfig.", "")
    timeout: float = param("Longest wait for an answer, seconds.", 2.0, gt=0, le=3600)


Origin = Inline | InFile | Dns | Slices


class _Fetch(Protocol):
    def __call__(self) -> Sequence[Endpoint]: ...


class Endpoints:
    """The replicas of one pool. ``refresh`` asks the origin, at most once in `every` seconds; everything else answers
    from what was last known. For several threads."""

    def __init__(self, origin: Origin, every: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = _fetcher(origin)
        self._every, self._clock = every, clock
        self._lock = threading.Lock()
        self._asked: float | None = None
        self._known: tuple[Endpoint, ...] = ()
        self._index: Mapping[str, Endpoint] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why the list may be old, "" when it is not."""
        return self._problem

    @property
    def known(self) -> tuple[Endpoint, ...]:
        """The replicas, sorted by name."""
        return self._known

    def _wrong(self, problem: str) -> None:
        """Told once, and once that it is over: in a running Governor a list that is kept looks like a new one."""
        if problem and problem != self._problem:
            log.warning("where replicas listen cannot be told: %s", problem)
        elif self._problem and not problem:
            log.info("where replicas listen can be told again")
        self._problem = problem

    def refresh(self) -> bool:
        """Ask the origin if it is time to; whether the list is another one now."""
        with self._lock:
            now = self._clock()
            if self._asked is not None and now - self._asked < self._every:
                return False
            self._asked = now
            try:
                found = tuple(sorted(self._fetch(), key=lambda one: (one.name, one.address)))
            except OriginError as error:
                self._wrong(f"{error}; the last list is kept")
                return False
            if not found and self._known:
                self._wrong("the origin names no replica any more; the last list is kept")
                return False
            self._wrong("" if found else "the origin names no replica")
            if found == self._known:
                return False
            self._known, self._index = found, _index(found)
            return True

    def find(self, replica: str) -> Endpoint | None:
        """The endpoint of a replica by its name, its address, or its host where only one listens there."""
        return self._index.get(replica)


def _index(endpoints: Sequence[Endpoint]) -> dict[str, Endpoint]:
    """By all that they may be called; a name of one goes before the address of another."""
    hosts = Counter(one.host for one in endpoints)
    alone = {one.host: one for one in endpoints if hosts[one.host] == 1}
    return {**alone, **{one.address: one for one in endpoints}, **{one.name: one for one in endpoints}}


def parsed(name: str, address: object) -> Endpoint:
    """An endpoint from host:port or [IPv6]:port; raises OriginError."""
    host, colon, port = str(address).rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "@" in host:
        colon = ""
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        what = f"{address!r} of {name!r}" if "@" not in str(address) else f"what stands for {name!r}"
        raise OriginError(f"{what} is no address; write host:port")
    return Endpoint(name, host, int(port))


@lru_cache(maxsize=1 << 16)
def is_ip(host: str) -> bool:
    """Whether it is a literal address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _fetcher(origin: Origin) -> _Fetch:
    if isinstance(origin, Inline):
        found = tuple(parsed(name, address) for name, address in origin.replicas.items())
        return lambda: found
    if isinstance(origin, InFile):
        return lambda: _from_file(origin)
    if isinstance(origin, Dns):
        return lambda: _from_dns(origin)
    return lambda: _from_slices(origin)


def _from_file(origin: InFile) -> Sequence[Endpoint]:
    try:
        document: Any = yaml.safe_load(Path(origin.path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OriginError(f"cannot read {origin.path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise OriginError(f"{origin.path} is neither JSON nor YAML") from error
    if not isinstance(document, dict):
        raise OriginError(f"{origin.path} is no mapping; write `name: host:port` for each replica")
    return [parsed(str(name), address) for name, address in document.items()]


def _from_dns(origin: Dns) -> Sequence[Endpoint]:
    """The resolver of the system has no time-out of its own, so it is left behind when it does not answer."""
    answers: list[list[str]] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            rows = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            answers.append(sorted({str(row[4][0]) for row in rows}))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=ask, name="governor-dns", daemon=True)
    thread.start()
    thread.join(origin.timeout)
    if failed:
        raise OriginError(f"cannot resolve {origin.host}: {failed[0].strerror or failed[0]}") from failed[0]
    if not answers:
        raise OriginError(f"no answer for {origin.host} within {origin.timeout:g} s")
    found = [Endpoint("", host, origin.port) for host in answers[0]]
    return [Endpoint(one.address, one.host, one.port) for one in found]


def _from_slices(origin: Slices) -> Sequence[Endpoint]:
    try:
        rows = endpoint_slices(
            origin.namespace, origin.service, origin.port, origin.kubeconfig, origin.context, origin.timeout
        )
    except ActuatorError as error:
        raise OriginError(str(error)) from error
    return [Endpoint(row.pod or row.host, row.host, row.port, row.ready) for row in rows]
