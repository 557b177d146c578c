"""The contract of Envoy against the page of a real one that refused some requests."""

import threading
from math import fsum
from pathlib import Path
from typing import Any

from controller.core.facts import Fact
from sources.contracts import Candidate, load
from sources.contracts.resolve import resolve
from sources.exposition import Exposition, parse
from tests.support.envoy import bootstrap, envoy, replicas, until
from tests.support.ports import free_port


def told(page: Exposition, fact: Fact) -> float:
    """The sum of what the contract reads for a fact of the pool chat."""
    choice = resolve(load("envoy"), page.names)[fact]
    assert isinstance(choice, Candidate)
    return fsum(
        sample.value
        for piece in choice.parts
        for sample in page.samples
        for labels in [dict(sample.labels)]
        if sample.name == piece.metric
        and labels["envoy_cluster_name"] in ("chat", "chat-steered", "chat-plain")
        and all(labels.get(one.label) == one.value for one in piece.where)
    )


def test_what_envoy_refused_was_never_asked_for(tmp_path: Path) -> None:
    """Engines behind a limit look calm; that more comes than they take is on Envoy's page alone."""
    with replicas("r1") as behind:

        def change(body: dict[str, Any]) -> None:
            (plain,) = [one for one in body["static_resources"]["clusters"] if one["name"] == "chat-plain"]
            address = {"socket_address": {"address": "127.0.0.1", "port_value": behind.ports["r1"]}}
            plain["load_assignment"]["endpoints"] = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
            limit = {"circuit_breakers.chat-plain.default.max_requests": 2}
            body["layered_runtime"]["layers"][0]["static_layer"] |= limit

        def text(front: int, admin: int) -> str:
            return bootstrap("bootstrap.yaml", {10000: front, 9901: admin, 18000: free_port()}, change=change)

        with envoy(tmp_path, text) as edge:
            until(lambda: edge.ask() == "r1", "Envoy has its fallback")
            answered = behind.seen["r1"]
            behind.hold()
            held = [threading.Thread(target=edge.ask, args=("/hold",)) for _ in range(2)]
            for one in held:
                one.start()
            until(lambda: behind.in_flight == 2, "two are in flight")
            assert [edge.ask() for _ in range(3)] == ["503"] * 3
            page = parse(edge.get("/stats/prometheus"))
            behind.let_go()
            for one in held:
                one.join()
    assert told(page, Fact.REJECTED) == 3
    assert told(page, Fact.ARRIVED) == answered + 2 + 3
    assert told(page, Fact.FINISHED) == answered
    assert told(page, Fact.ERRORS) >= 3
    choice = resolve(load("envoy"), page.names)[Fact.E2E]
    assert isinstance(choice, Candidate)
    assert choice.scale == 0.001
