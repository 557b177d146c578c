"""The gRPC server that Envoys connect to: from messages of the wire to the hub, and back.

The only module that imports grpc and Envoy's protobuf types, and only when a server is really opened.
"""

import os
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from actuators.envoy.config import Grpc
from actuators.envoy.hub import Hub, Parcel, Told
from actuators.envoy.resources import Key, Kind, Resource
from actuators.envoy.transport import Verdict
from controller.core.ports import ActuatorError

_STREAMS = 1024  # an Envoy holds up to five
_SERVICES = {
    "envoy.service.discovery.v3.AggregatedDiscoveryService": "StreamAggregatedResources",
    "envoy.service.endpoint.v3.EndpointDiscoveryService": "StreamEndpoints",
    "envoy.service.runtime.v3.RuntimeDiscoveryService": "StreamRuntime",
    "envoy.service.extension.v3.ExtensionConfigDiscoveryService": "StreamExtensionConfigs",
}
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second Governor on this port must fail, and not get every other Envoy
    ("grpc.keepalive_time_ms", 10_000),  # a peer whose machine is gone says no goodbye
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class GrpcTransport:
    """Serves what the hub holds to every Envoy that asks for it."""

    def __init__(self, config: Grpc, hub: Hub) -> None:
        self._config, self._hub = config, hub
        self._server: Any = None
        self._messages: _Messages | None = None

    def open(self) -> None:
        """See ``Transport``."""
        if self._server is not None:
            return
        try:
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own words on stderr are no lines of our log
            import grpc  # an extra that most installations lack

            self._messages = _Messages()
        except ImportError as error:
            raise ActuatorError("Envoy needs gRPC: pip install 'inference-governor[envoy]'") from error
        pool = ThreadPoolExecutor(_STREAMS, "governor-envoy")
        server = grpc.server(pool, options=_OPTIONS)
        server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(
                    service, {method: grpc.stream_stream_rpc_method_handler(self._talk, *self._messages.codec)}
                )
                for service, method in _SERVICES.items()
            )
        )
        try:
            credentials = self._credentials(grpc)
            listen = self._config.listen
            bound = server.add_secure_port(listen, credentials) if credentials else server.add_insecure_port(listen)
        except OSError as error:
            raise ActuatorError(f"cannot serve Envoys: {error.strerror or error}") from error
        except RuntimeError as error:
            raise ActuatorError(f"cannot listen on {self._config.listen}; is another Governor there?") from error
        if not bound:
            raise ActuatorError(f"cannot listen on {self._config.listen}; is another Governor there?")
        server.start()
        self._server = server

    def _credentials(self, grpc: Any) -> Any:
        if not self._config.certificate:
            return None
        pair = (Path(self._config.key).read_bytes(), Path(self._config.certificate).read_bytes())
        ca = Path(self._config.client_ca).read_bytes() if self._config.client_ca else None
        return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)

    def envoys(self) -> int:
        """See ``Transport``."""
        return self._hub.sharing()

    def tell(self, resources: Mapping[Key, Resource], changed: Collection[Key]) -> None:
        """See ``Transport``."""
        self._hub.tell(resources, changed)

    def verdicts(self, keys: Collection[Key], within: float) -> dict[Key, Verdict]:
        """See ``Transport``."""
        return self._hub.verdicts(keys, within)

    def close(self) -> None:
        """Envoys keep what they have for as long as it lasts."""
        self._hub.close()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    # --- one stream ------------------------------------------------------------------------------------------------

    def _talk(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Called by gRPC in a thread of its own for each stream; what it yields is sent."""
        messages = self._messages
        first = next(requests, None)
        if first is None or messages is None:
            return
        ended = threading.Event()

        def over() -> None:
            ended.set()
            self._hub.wake()

        if not context.add_callback(over):
            return
        with self._hub.stream(first.node.id or context.peer()) as stream:
            self._hub.asked(stream, *_asked(first))

            def listen() -> None:
                try:
                    for request in requests:
                        self._hub.asked(stream, *_asked(request))
                except Exception:  # noqa: BLE001 - gRPC ends a broken stream so, with a class that it does not export
                    over()
                over()

            threading.Thread(target=listen, name="governor-envoy-listen", daemon=True).start()
            while (parcel := self._hub.next(stream, ended.is_set)) is not None:
                yield messages.response(parcel)


def _asked(request: Any) -> tuple[str, tuple[str, ...], str, str, str]:
    error = request.error_detail.message or ("no reason given" if request.HasField("error_detail") else "")
    return request.type_url, tuple(request.resource_names), request.version_info, request.response_nonce, error


class _Messages:
    """Protobuf messages from resources in their JSON form. What was made last is kept: other Envoys get the same."""

    def __init__(self) -> None:
        from envoy.config.core.v3 import extension_pb2
        from envoy.config.endpoint.v3 import endpoint_pb2
        from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2  # noqa: F401 - is in an Any
        from envoy.service.discovery.v3 import discovery_pb2
        from envoy.service.runtime.v3 import rtds_pb2
        from google.protobuf import any_pb2, json_format

        self._discovery, self._any, self._json = discovery_pb2, any_pb2.Any, json_format
        self._assignment = endpoint_pb2.ClusterLoadAssignment
        self._classes = {
            Kind.RUNTIME: rtds_pb2.Runtime,
            Kind.FILTER: extension_pb2.TypedExtensionConfig,
        }
        self._made: dict[Key, tuple[Mapping[str, Any], Any]] = {}
        self.codec = (discovery_pb2.DiscoveryRequest.FromString, discovery_pb2.DiscoveryResponse.SerializeToString)

    def response(self, parcel: Parcel) -> Any:
        """One answer with all that is in a parcel."""
        return self._discovery.DiscoveryResponse(
            version_info=parcel.version,
            nonce=parcel.nonce,
            type_url=parcel.kind.value,
            resources=[self._wrapped(parcel, told) for told in parcel.told],
        )

    def _wrapped(self, parcel: Parcel, told: Told) -> Any:
        name, message = told.resource.key.name, self._message(told.resource)
        lasting = parcel.lasting.get(name)
        if lasting is None:
            return self._packed(message)
        if parcel.kind is Kind.ENDPOINTS:
            mortal = type(message)()
            mortal.CopyFrom(message)
            mortal.policy.endpoint_stale_after.FromNanoseconds(int(lasting * 1e9))
            return self._packed(mortal)
        resource = self._discovery.Resource(name=name, version=parcel.version, resource=self._packed(message))
        resource.ttl.FromNanoseconds(int(lasting * 1e9))
        return self._packed(resource)

    def _message(self, resource: Resource) -> Any:
        body, made = self._made.get(resource.key, ({}, None))
        if made is None or body is not resource.body:
            if resource.key.kind is Kind.ENDPOINTS:
                made = self._endpoints(resource.body)
            else:
                made = self._json.ParseDict(resource.body, self._classes[resource.key.kind]())
            self._made[resource.key] = (resource.body, made)
        return made

    def _endpoints(self, body: Mapping[str, Any]) -> Any:
        """What ``ParseDict`` makes of it, thirty times as fast: there may be thousands. Some numbers are messages."""
        groups = [
            {"lb_endpoints": [_number(row, "load_balancing_weight") for row in group["lb_endpoints"]]}
            for group in body["endpoints"]
        ]
        policy = body.get("policy")
        return self._assignment(
            cluster_name=body["cluster_name"],
            endpoints=groups,
            policy=_number(policy, "overprovisioning_factor") if policy else None,
        )

    def _packed(self, message: Any) -> Any:
        packed = self._any()
        packed.Pack(message)
        return packed


def _number(message: Mapping[str, Any], field: str) -> dict[str, Any]:
    """With a number in the place where protobuf has a message for it, so that it can be absent."""
    return {**message, field: {"value": message[field]}}
