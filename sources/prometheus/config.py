"""How to reach a Prometheus, and how to read from it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from controller.core.params import SecretRef, Unit, param, refuse
from sources import address

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """Options of the Prometheus source; also of Thanos, Mimir and VictoriaMetrics, which speak the same API."""

    url: str = param("address of the API, without /api/v1, e.g. http://prometheus.monitoring:9090")
    headers: dict[str, str] = param("extra request headers, e.g. X-Scope-OrgID for Mimir", {})
    bearer: SecretRef | None = param("bearer token; a file is read anew for each request", None, unit=Unit.SECRET)
    username: str = param("user of basic authentication", "")
    password: SecretRef | None = param("password of basic authentication", None, unit=Unit.SECRET)
    ca: str = param("file with the certificate authority to trust; empty for the system's", "")
    cert: str = param("file with the client certificate, for mutual TLS", "")
    key: str = param("file with the key of the client certificate", "")
    insecure: bool = param("do not verify the server's certificate", False)
    connect_timeout: float = param("time to open a connection", 2.0, unit=Unit.DURATION, gt=0)
    delay: float = param(
        "how far behind the clock queries are evaluated. A scrape is stamped when it starts and stored when it ends: "
        "reading closer to now than a scrape lasts would lose what was counted in between",
        1.0,
        unit=Unit.DURATION,
        ge=0,
    )
    refresh: float = param("how often to look which metrics exist", 300.0, unit=Unit.DURATION, gt=0)
    concurrency: int = param("queries in flight at once", 4, ge=1, le=16)
    max_bytes: int = param("largest answer that is accepted, in bytes", 256_000_000, gt=0)
    recording_rules: bool = param("read histograms from the shipped recording rules", False)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        try:
            address.check("url", self.url, api=True)
        except ValueError as error:
            yield str(error)
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name):
                yield f"headers: {name!r} is not the name of a header; use letters, digits and -"
            if value != value.strip() or not (value.isascii() and value.isprintable()):
                yield f"headers: the value of {name} holds what no header can; write one line of plain text"
        if self.bearer is not None and (self.username or self.password is not None):
            yield "bearer: and username/password exclude each other; keep one"
        elif bool(self.username) != (self.password is not None):
            given, missing = ("username", "password") if self.username else ("password", "username")
            yield f"{given}: is given without {missing}; add {missing}, or remove {given}"
        if self.key and not self.cert:
            yield "key: is given without cert; name the client certificate too"
        if self.insecure and self.ca:
            yield "insecure: and ca exclude each other; with a ca there is no need for insecure"
