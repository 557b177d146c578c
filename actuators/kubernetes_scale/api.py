"""The Kubernetes API calls that scaling needs, each with a time-out and without hidden retries, and their faults.

The only module that imports the ``kubernetes`` client, and only when a cluster is really used.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import urllib3

from actuators.paced import begun, paced, within
from controller.core.model import Outcome
from controller.core.ports import ActuatorError

if TYPE_CHECKING:
    from kubernetes import client

Json = Mapping[str, Any]
COST = "controller.kubernetes.io/pod-deletion-cost"

_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409
_TOO_MANY = 429
# A server error to a write says nothing of the write: an etcd time-out is a 500 and may yet commit.
_UNCERTAIN = frozenset({500, 502, 504})
_WORDS = 300  # characters of a server's own words that are worth a log line


class Fault(Exception):
    """A call that did not work. `outcome` is what that means for a write; `status` the HTTP status, 0 when there was
    none."""

    def __init__(self, outcome: Outcome, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.status = status


@dataclass(frozen=True, slots=True)
class Workload:
    """An object with a scale subresource."""

    group: str
    version: str
    plural: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server, and who we are to it. `timeout` seconds for each call, connecting included."""

    kubeconfig: str
    context: str
    timeout: float
    identity: str


_LOCK = threading.Lock()
_OPEN: dict[Access, tuple["Cluster", int]] = {}


def connect(access: Access) -> "Cluster":
    """The process's one connection for this access; ``release`` it as often as it was asked for."""
    with _LOCK:
        cluster, users = _OPEN[access] if access in _OPEN else (Cluster(access), 0)
        _OPEN[access] = (cluster, users + 1)
        return cluster


def release(access: Access) -> None:
    """Close the connection when nobody needs it any more."""
    with _LOCK:
        cluster, users = _OPEN.pop(access)
        if users > 1:
            _OPEN[access] = (cluster, users - 1)
        else:
            cluster.close()


class Cluster:
    """One API server, shared by all actuators of the process that use the same credentials: see ``connect``.

    What it learns in one tick it keeps for that tick (``at``): a server that did not answer is not asked again, so
    that it costs one time-out and not one per pool; and autoscalers are listed once per namespace.
    """

    def __init__(self, access: Access) -> None:
        try:
            from kubernetes import client, config  # an extra that most installations lack
        except ImportError as error:
            raise ActuatorError(
                "the kubernetes actuator needs the Kubernetes client: pip install 'inference-governor[kubernetes]'"
            ) from error
        configuration = client.Configuration()
        try:
            if not access.kubeconfig and not access.context and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=access.kubeconfig or None,
                    context=access.context or None,
                    client_configuration=configuration,
                )
        except config.ConfigException as error:
            raise ActuatorError(
                f"no usable Kubernetes credentials: {error}; run in a cluster or set kubeconfig and context"
            ) from error
        configuration.connection_pool_maxsize = 32  # actuators are asked side by side
        configuration.retries = False  # urllib3 would otherwise repeat a PUT whose answer was lost
        self._access = access
        self._client = client.ApiClient(configuration)
        self._client.user_agent = access.identity
        paced(self._client.rest_client.pool_manager)
        self._objects = client.CustomObjectsApi(self._client)  # speaks every group, apps included, in plain JSON
        self._core = client.CoreV1Api(self._client)
        self._refused: type[client.ApiException] = client.ApiException
        self._lock = threading.Lock()  # guards what is kept for one tick
        self._now: float | None = None
        self._silent = False
        self._scalers: dict[str, Mapping[str, Sequence[Json]]] = {}

    def at(self, now: float) -> None:
        """A tick begins, or goes on when `now` (unix seconds) is the same as before."""
        with self._lock:
            if now != self._now:
                self._now, self._silent = now, False
                self._scalers.clear()

    def scale(self, work: Workload) -> Json:
        """The Scale of a workload."""
        where = (work.group, work.version, work.namespace, work.plural, work.name)
        answer = self._get(f"{work}/scale", self._objects.get_namespaced_custom_object_scale, *where)
        return _checked_scale(work, answer, Outcome.FAILED)

    def replace_scale(self, work: Workload, read: Json, replicas: int) -> Json:
        """Set the replica count of exactly the object and version that was `read`; the Scale as accepted."""
        identity = {
            k: read["metadata"][k] for k in ("name", "namespace", "uid", "resourceVersion") if k in read["metadata"]
        }
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": identity, "spec": {"replicas": replicas}}
        answer = self._call(
            f"{work}/scale",
            Outcome.UNKNOWN,
            lambda: self._objects.replace_namespaced_custom_object_scale(
                work.group, work.version, work.namespace, work.plural, work.name, body,
                field_manager=self._access.identity, _preload_content=False, _request_timeout=self._access.timeout,
            ),
        )  # fmt: skip
        return _checked_scale(work, answer, Outcome.UNKNOWN)

    def workload(self, work: Workload) -> Json:
        """The workload itself, for its managedFields and owner."""
        where = (work.group, work.version, work.namespace, work.plural, work.name)
        return self._get(str(work), self._objects.get_namespaced_custom_object, *where)

    def pods(self, namespace: str, selector: str) -> Sequence[Json]:
        """The pods that a selector (in string form) matches."""
        return _items(
            self._get(f"pods in {namespace}", self._core.list_namespaced_pod, namespace, label_selector=selector)
        )

    def set_cost(self, namespace: str, pod: str, cost: int) -> None:
        """What it costs to end a pod, against its peers. One that is gone meanwhile costs nothing."""
        body = {"metadata": {"annotations": {COST: str(cost)}}}
        try:
            self._call(
                f"pod {namespace}/{pod}",
                Outcome.FAILED,  # the count was not touched, whatever became of this
                lambda: self._core.patch_namespaced_pod(
                    pod, namespace, body, field_manager=self._access.identity, _preload_content=False,
                    _request_timeout=self._access.timeout,
                ),
            )  # fmt: skip
        except Fault as fault:
            if fault.status != _NOT_FOUND:
                raise

    def autoscalers(self, namespace: str) -> Mapping[str, Sequence[Json]]:
        """The HorizontalPodAutoscalers and KEDA ScaledObjects of a namespace, by kind."""
        with self._lock:  # also while asking: who comes meanwhile waits for the answer and does not ask again
            if namespace not in self._scalers:
                self._scalers[namespace] = {
                    "HorizontalPodAutoscaler": self._list("autoscaling", "v2", namespace, "horizontalpodautoscalers"),
                    "ScaledObject": self._scaled_objects(namespace),
                }
            return self._scalers[namespace]

    def _scaled_objects(self, namespace: str) -> Sequence[Json]:
        try:
            return self._list("keda.sh", "v1alpha1", namespace, "scaledobjects")
        except Fault as fault:
            if fault.status == _NOT_FOUND:  # KEDA is not installed
                return ()
            raise

    def slices(self, namespace: str, service: str) -> Sequence[Json]:
        """The EndpointSlices of a service."""
        selector = f"kubernetes.io/service-name={service}"
        return self._list("discovery.k8s.io", "v1", namespace, "endpointslices", label_selector=selector)

    def _list(self, group: str, version: str, namespace: str, plural: str, **query: str) -> Sequence[Json]:
        what, ask = f"{plural} in {namespace}", self._objects.list_namespaced_custom_object
        return _items(self._get(what, ask, group, version, namespace, plural, **query))

    def plural(self, group: str, version: str, kind: str) -> str:
        """The resource name of a kind that has a scale subresource, from the discovery API."""
        answer = self._get(f"resources of {group}/{version}", self._objects.get_api_resources, group, version)
        resources: Sequence[Json] = answer.get("resources") or []
        names = {str(r.get("name")) for r in resources}
        plural = next(
            (str(r["name"]) for r in resources if r.get("kind") == kind and "/" not in str(r.get("name"))), ""
        )
        if not plural:
            raise Fault(Outcome.REFUSED, f"the cluster has no kind {kind} in {group}/{version}", _NOT_FOUND)
        if f"{plural}/scale" not in names:
            raise Fault(Outcome.REFUSED, f"{kind} of {group}/{version} has no scale subresource", _NOT_FOUND)
        return plural

    def close(self) -> None:
        self._client.close()  # type: ignore[no-untyped-call]

    def _get(self, what: str, method: Callable[..., Any], *where: str, **query: str) -> Json:
        return self._call(
            what,
            Outcome.FAILED,
            lambda: method(*where, **query, _preload_content=False, _request_timeout=self._access.timeout),
        )

    def _call(self, what: str, lost: Outcome, send: Callable[[], Any]) -> Json:
        """Send and decode. `lost` is the outcome when the request went out and no clear answer came back."""
        if self._silent:
            raise Fault(Outcome.FAILED, f"{what}: not asked, the API server did not answer a moment ago")
        try:
            with within(self._access.timeout):
                data = send().data
        except self._refused as error:
            raise _fault(what, lost, error) from error
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            self._silent = True
            raise Fault(Outcome.FAILED, f"{what}: the API server cannot be reached: {error}") from error
        except urllib3.exceptions.HTTPError as error:
            self._silent = True
            raise Fault(
                lost, f"{what}: no answer from the API server within {self._access.timeout:g} s: {error}"
            ) from error
        try:
            answer = json.loads(data)
        except ValueError as error:
            raise Fault(lost, f"{what}: the answer is not JSON; is a proxy in the way?", 200) from error
        if not isinstance(answer, dict):
            raise Fault(lost, f"{what}: the answer is not an object", 200)
        return answer


def _fault(what: str, lost: Outcome, error: "client.ApiException") -> Fault:
    status = int(error.status or 0)
    words = _message(error)
    if status == 0:  # the client reports TLS failures so
        why = "TLS broke before an answer came" if begun() else "the connection is not trusted"
        return Fault(lost if begun() else Outcome.FAILED, f"{what}: {why}: {words}")
    if status == _FORBIDDEN:
        return Fault(
            Outcome.REFUSED, f"{what}: forbidden: {words}; see manifests/{_rights(what)} for the rights", status
        )
    if status == _NOT_FOUND:
        return Fault(Outcome.REFUSED, f"{what}: not found: {words}", status)
    if status == _CONFLICT:
        return Fault(Outcome.FAILED, f"{what}: changed by somebody else meanwhile: {words}", status)
    if status == _TOO_MANY:
        return Fault(Outcome.FAILED, f"{what}: the API server is throttling: {words}", status)
    if status in _UNCERTAIN:
        return Fault(lost, f"{what}: server error {status}: {words}", status)
    outcome = Outcome.FAILED if status >= 500 else Outcome.REFUSED
    return Fault(outcome, f"{what}: HTTP {status}: {words}", status)


def _rights(what: str) -> str:
    return "components/drain" if what.startswith("pod ") else "base/rbac.yaml"


def _message(error: "client.ApiException") -> str:
    """The message of the Status object, else the reason line."""
    try:
        status = json.loads(error.body or "")
    except (TypeError, ValueError):
        return str(error.reason)[:_WORDS]
    return str(status.get("message", error.reason) if isinstance(status, dict) else error.reason)[:_WORDS]


def _items(answer: Json) -> Sequence[Json]:
    items: Sequence[Json] = answer.get("items") or []
    return items


def _checked_scale(work: Workload, answer: Json, lost: Outcome) -> Json:
    if answer.get("kind") != "Scale" or "resourceVersion" not in answer.get("metadata", {}):
        raise Fault(lost, f"{work}/scale: the answer is not a Scale; is a proxy in the way?", 200)
    return answer


def replicas_of(scale: Json) -> int:
    """spec.replicas; the API leaves a zero out."""
    return int(scale.get("spec", {}).get("replicas", 0))
