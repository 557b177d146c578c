"""Keeps what Governor and Envoy must know of a served fleet: where each replica listens. In Kubernetes, EndpointSlices
and a headless service are that.

    python endpoints.py http://127.0.0.1:9400/endpoints/chat FOLDER

FOLDER/endpoints.json is for Governor (`endpoints: {kind: file}`), FOLDER/eds/chat-plain.json for Envoy's fallback.
"""

import json
import signal
import sys
import threading
import urllib.request
from pathlib import Path

EVERY = 0.25  # seconds
CLUSTER = "chat-plain"


def serving(url: str) -> dict[str, str]:
    """host:port by the name of the replica."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        found: dict[str, str] = json.load(answer)
    return found


def for_envoy(replicas: dict[str, str]) -> dict[str, object]:
    """The same as Envoy's EDS has it."""
    rows = []
    for address in replicas.values():
        host, _, port = address.rpartition(":")
        rows.append({"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}})
    kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    assignment = {"@type": kind, "cluster_name": CLUSTER, "endpoints": [{"lb_endpoints": rows}]}
    return {"version_info": ",".join(replicas), "resources": [assignment]}


def put(file: Path, document: object) -> None:
    """In one step: nobody reads half of it."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(document))
    new.replace(file)


def main(url: str, folder: Path) -> None:
    """Until SIGTERM or Ctrl-C."""
    ended = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: ended.set())
    (folder / "eds").mkdir(parents=True, exist_ok=True)
    known: dict[str, str] | None = None
    while not ended.wait(EVERY):
        try:
            now = serving(url)
        except OSError:
            continue  # the last list stands
        if now and now != known:
            put(folder / "endpoints.json", now)
            put(folder / "eds" / f"{CLUSTER}.json", for_envoy(now))
            known = now


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
