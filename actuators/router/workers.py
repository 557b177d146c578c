"""Workers as a router tells of them. Parsing only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

# What the router is told of a worker beside its URL when it comes back, with the values it has by itself.
_USUAL: Mapping[str, Any] = {
    "worker_type": "regular", "model_id": "unknown", "priority": 50, "cost": 1.0, "disable_health_check": False,
    "bootstrap_port": None,
}  # fmt: skip
REGULAR = "regular"
_PORTS = {"http": 80, "https": 443}


class Garbled(Exception):
    """The router answered, and not with what was asked for; `refused` where it wants a key."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker. `id` changes whenever it is added; `more` is what it has beside its URL that is not usual; `whole`
    is False where one replica is several workers, one for each of its ranks."""

    url: str
    id: str = ""
    kind: str = REGULAR
    healthy: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True


def address(url: str) -> str:
    """host:port of a worker, however its URL is written; "" where it has none."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port, host = parts.port or _PORTS.get(parts.scheme, 0), parts.hostname or ""
    except ValueError:
        return ""
    if not host or not port:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def workers(document: Any, where: str) -> dict[str, Worker]:
    """The workers of GET /workers by host:port. Raises Garbled."""
    try:
        found: dict[str, Worker] = {}
        for row in document["workers"]:
            url, rank = str(row["url"]), ""
            before, _, behind = url.rpartition("@")
            if before and behind.isdecimal():  # of a replica with ranks that are routed to one by one
                url, rank = before, behind
            place = address(url)
            one = Worker(
                url,
                str(row.get("id", "")),
                str(row.get("worker_type", REGULAR)).lower(),
                bool(row["is_healthy"]),
                {key: row[key] for key, usual in _USUAL.items() if row.get(key, usual) != usual},
                whole=not rank and place not in found,
            )
            found[place] = one
        return found
    except (KeyError, TypeError, AttributeError) as error:
        raise Garbled(f"{where}: GET /workers is not answered as this router does; is `make` right?") from error
