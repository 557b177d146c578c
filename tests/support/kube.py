"""A FAKE Kubernetes API server, over real HTTP on loopback.

A fake because no kube-apiserver can be installed from a package registry where these tests run; the issue on deep
Kubernetes work brings a real one. It keeps what the actuator depends on: resourceVersion and uid preconditions (409),
the Scale without managedFields and with its zero left out, ownership of spec.replicas in the workload's managedFields
(for apps kinds only, as the real server does), typed lists without `kind`, label selectors, discovery, RBAC, and the
faults of a bad day. It runs no controllers: pods are what a test puts there. The Kubernetes client that talks to it is
the real one.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

Json = dict[str, Any]
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
DISCOVERY = re.compile(r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)")
KINDS = {"deployments": "Deployment", "statefulsets": "StatefulSet"}


@dataclass(frozen=True)
class Call:
    """One request as RBAC sees it."""

    verb: str
    group: str
    resource: str


@dataclass
class Trouble:
    """What befalls the next request of `method` whose path contains `path`: an HTTP status, "hang" (received, never
    answered), "headers" (dripped, never ending), "lost" (done, never answered), "html", "cut" (the connection closes),
    "late" (somebody scales between our read and our write), "recreated" (somebody deletes and creates the workload in
    between)."""

    method: str
    path: str
    what: int | str
    message: str = "made to fail"


@dataclass
class FakeKube:
    """The state of the cluster, which tests edit directly."""

    objects: dict[tuple[str, str, str, str], Json] = field(default_factory=dict)  # group, plural, namespace, name
    discovery: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    pods: list[Json] = field(default_factory=list)
    lists: dict[str, list[Json] | None] = field(
        default_factory=lambda: {"horizontalpodautoscalers": [], "scaledobjects": None}  # None: no such CRD
    )
    trouble: list[Trouble] = field(default_factory=list)
    rules: Sequence[Mapping[str, Any]] | None = None  # RBAC rules; None allows everything
    calls: list[Call] = field(default_factory=list)
    writes: list[tuple[str, int]] = field(default_factory=list)
    kubeconfig: str = ""
    released: threading.Event = field(default_factory=threading.Event)
    clock: int = 0

    def deploy(
        self,
        name: str,
        replicas: int,
        *,
        group: str = "apps",
        plural: str = "deployments",
        kind: str = "",
        **metadata: Any,
    ) -> Json:
        """Create a workload in namespace prod as `kubectl create` would."""
        self.clock += 1
        spec_owner = {"manager": "kubectl-create", "operation": "Update", "time": "2024-01-01T00:00:00Z",
                      "fieldsV1": {"f:spec": {"f:replicas": {}, "f:template": {}}}}  # fmt: skip
        workload: Json = {
            "apiVersion": f"{group}/v1",
            "kind": kind or KINDS.get(plural, plural),
            "metadata": {
                "name": name,
                "namespace": "prod",
                "uid": f"uid-{name}-{self.clock}",
                "resourceVersion": str(self.clock),
                "managedFields": [spec_owner],
                **metadata,
            },
            "spec": {"replicas": replicas},
            "status": {"selector": f"app={name}"},
        }
        self.objects[group, plural, "prod", name] = workload
        return workload

    def replicas(self, name: str, group: str = "apps", plural: str = "deployments") -> int:
        return int(self.objects[group, plural, "prod", name]["spec"]["replicas"])

    def set_scale(self, workload: Json, replicas: int, manager: str, time: str = "2024-01-01T00:10:00Z") -> None:
        """Change the count through /scale in the name of `manager`, with its effect on field ownership."""
        self.clock += 1
        metadata = workload["metadata"]
        metadata["resourceVersion"] = str(self.clock)
        if workload["spec"]["replicas"] == replicas:
            return
        workload["spec"]["replicas"] = replicas
        if not workload["apiVersion"].startswith("apps/"):
            return
        for entry in metadata["managedFields"]:
            entry["fieldsV1"].get("f:spec", {}).pop("f:replicas", None)
        metadata["managedFields"] = [e for e in metadata["managedFields"] if e["fieldsV1"].get("f:spec")]
        metadata["managedFields"].append(
            {"manager": manager, "operation": "Update", "subresource": "scale", "time": time,
             "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        )  # fmt: skip

    def allows(self, call: Call) -> bool:
        return self.rules is None or any(
            call.group in rule["apiGroups"] and call.resource in rule["resources"] and call.verb in rule["verbs"]
            for rule in self.rules
        )


def scale_of(workload: Json) -> Json:
    meta = workload["metadata"]
    replicas = workload["spec"]["replicas"]
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": replicas, "selector": workload["status"]["selector"]},
    }


class Handler(BaseHTTPRequestHandler):
    kube: FakeKube
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # headers and body in one packet, or delayed ACKs cost 40 ms an answer

    def do_GET(self) -> None:
        self._serve("GET")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        trouble = next((t for t in self.kube.trouble if t.method == method and t.path in url.path), None)
        if trouble:
            self.kube.trouble.remove(trouble)
            if self._troubled(trouble, url.path):
                return
        status, answer = self._answer(method, unquote(url.path), parse_qs(url.query), body)
        if trouble and trouble.what == "lost":
            self._vanish()
            return
        self._send(status, answer)

    def _troubled(self, trouble: Trouble, path: str) -> bool:
        """Whether the trouble alone is the answer."""
        match trouble.what:
            case int(status):
                self._send(status, self._status(status, trouble.message))
            case "hang":
                self._vanish()
            case "cut":
                self.close_connection = True
            case "headers":
                self.close_connection = True
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                with suppress(OSError):  # the client has lost patience
                    while not self.kube.released.wait(0.02):
                        self.wfile.write(b"a")
                        self.wfile.flush()
            case "html":
                self._send(200, None, b"<html>Please log in</html>")
            case "late":
                workload = self._found(path)
                self.kube.set_scale(workload, workload["spec"]["replicas"] + 1, "kubectl")
                return False
            case "recreated":
                workload = self._found(path)
                self.kube.deploy(workload["metadata"]["name"], workload["spec"]["replicas"])
                return False
            case _:
                return False
        return True

    def _vanish(self) -> None:
        self.kube.released.wait()
        self.close_connection = True

    def _found(self, path: str) -> Json:
        match = PATH.fullmatch(path)
        assert match is not None
        return self.kube.objects[match["group"], match["plural"], match["namespace"], match["name"]]

    def _answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Json]:
        if found := DISCOVERY.fullmatch(path):
            resources = self.kube.discovery.get((found["group"], found["version"]))
            if resources is None:
                return 404, self._status(404, "the server could not find the requested resource")
            return 200, {"kind": "APIResourceList", "resources": resources}
        match = PATH.fullmatch(path)
        if match is None:
            return 404, self._status(404, f"no such path {path}")
        group, plural, name, sub = match["group"] or "", match["plural"], match["name"], match["sub"]
        verb = {"PUT": "update", "PATCH": "patch"}.get(method, "get" if name else "list")
        call = Call(verb, group, f"{plural}/{sub}" if sub else plural)
        self.kube.calls.append(call)
        if not self.kube.allows(call):
            return 403, self._status(403, f"cannot {verb} resource {call.resource!r} in API group {group!r}")
        if not name:
            return self._list(plural, match["namespace"], query)
        if method == "PATCH":
            return self._patch(name, json.loads(body))
        workload = self.kube.objects.get((group, plural, match["namespace"], name))
        if workload is None:
            return 404, self._status(404, f'{plural}.{group} "{name}" not found')
        if method == "GET":
            return 200, scale_of(workload) if sub else workload
        return self._put_scale(workload, json.loads(body), query.get("fieldManager", ["unknown"])[0])

    def _patch(self, name: str, patch: Json) -> tuple[int, Json]:
        """Annotations of a pod, merged as the real server does."""
        found = next((pod for pod in self.kube.pods if pod["metadata"]["name"] == name), None)
        if found is None:
            return 404, self._status(404, f'pods "{name}" not found')
        assert str(self.headers["Content-Type"]).endswith("merge-patch+json"), self.headers["Content-Type"]
        found["metadata"].setdefault("annotations", {}).update(patch["metadata"]["annotations"])
        return 200, found

    def _put_scale(self, workload: Json, scale: Json, manager: str) -> tuple[int, Json]:
        for key in ("uid", "resourceVersion"):
            given = scale["metadata"].get(key)
            if given and given != workload["metadata"][key]:
                return 409, self._status(409, "the object has been modified; please apply your changes to the latest")
        self.kube.writes.append((scale["metadata"]["name"], scale["spec"]["replicas"]))
        self.kube.set_scale(workload, scale["spec"]["replicas"], manager)
        return 200, scale_of(workload)

    def _list(self, plural: str, namespace: str, query: dict[str, list[str]]) -> tuple[int, Json]:
        if plural != "pods":
            items = self.kube.lists.get(plural)
            return (404, self._status(404, "page not found")) if items is None else (200, {"items": items})
        (selector,) = query["labelSelector"]
        wanted = dict(part.split("=") for part in selector.split(","))
        return 200, {"items": [
            p for p in self.kube.pods
            if p["metadata"]["namespace"] == namespace and wanted.items() <= p["metadata"]["labels"].items()
        ]}  # fmt: skip

    def _status(self, code: int, message: str) -> Json:
        return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}

    def _send(self, status: int, answer: Json | None, raw: bytes = b"") -> None:
        data = raw or json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if raw else "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "30")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Silence; the calls are kept in ``FakeKube.calls``."""


@contextmanager
def fake_kube(folder: Path) -> Iterator[FakeKube]:
    """A fake API server on a free loopback port, with a kubeconfig for it in `folder`."""
    kube = FakeKube()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"kube": kube}))
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "fake",
                "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{"name": "fake", "user": {"token": "not-a-real-token"}}],
                "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            }
        )
    )
    kube.kubeconfig = str(kubeconfig)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield kube
    finally:
        kube.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def pod(name: str, app: str, created: str = "2024-01-01T00:00:00Z", **status: Any) -> Json:
    """A pod in namespace prod with label app, and whatever status it is given."""
    containers = [{"name": "engine", "startupProbe": {}}]
    metadata = {"name": name, "namespace": "prod", "labels": {"app": app}, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Running", **status}}


def conditions(**states: str) -> list[Json]:
    """Pod conditions: ``Ready="True"``."""
    return [
        {"type": kind, "status": state, "lastTransitionTime": "2024-01-01T00:05:00Z"} for kind, state in states.items()
    ]
