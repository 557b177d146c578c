"""The endpoints of a Kubernetes service, from its EndpointSlices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actuators.kubernetes_scale.api import Access, Fault, connect, release
from controller.core.ports import ActuatorError


@dataclass(frozen=True, slots=True)
class Row:
    """One endpoint of a service; `pod` is "" where no pod stands behind it."""

    pod: str
    host: str
    port: int
    ready: bool


def endpoint_slices(
    namespace: str, service: str, port: str, kubeconfig: str, context: str, timeout: float
) -> Sequence[Row]:
    """All endpoints of the service, those that are not ready included; `port` is a port's name, "" for the first.
    Raises ActuatorError."""
    access = Access(kubeconfig, context, timeout, "inference-governor")
    cluster = connect(access)
    try:
        slices = cluster.slices(namespace, service)
    except Fault as fault:
        raise ActuatorError(str(fault)) from fault
    finally:
        release(access)
    rows: dict[str, Row] = {}
    for one in slices:
        number = _port(one.get("ports") or [], port)
        if number is None:
            continue
        for endpoint in one.get("endpoints") or []:
            row = _row(endpoint, number)
            if row is not None:
                rows[f"{row.host}:{row.port}"] = row
    if slices and not rows and port:
        raise ActuatorError(f"service {namespace}/{service} has no port called {port!r}")
    return [rows[key] for key in sorted(rows)]


def _port(ports: Sequence[dict[str, Any]], name: str) -> int | None:
    wanted = [p.get("port") for p in ports if not name or p.get("name") == name]
    return int(wanted[0]) if wanted and wanted[0] is not None else None


def _row(endpoint: dict[str, Any], port: int) -> Row | None:
    hosts = endpoint.get("addresses") or []
    if not hosts:
        return None
    target = endpoint.get("targetRef") or {}
    pod = str(target.get("name", "")) if target.get("kind") == "Pod" else ""
    # A condition that is not told means ready, says the API.
    ready = (endpoint.get("conditions") or {}).get("ready", True) is not False
    return Row(pod, str(hosts[0]), port, ready)
