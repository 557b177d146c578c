"""Weights of zones with an actuator that knows single replicas alone passed `governor check`, and every write of them
was refused: the shares between regions stood still, and the plan said that they moved."""

import pytest

from controller.config import ConfigError, loads
from tests.support.written import pool, written

ENDPOINTS = "{kind: inline, replicas: {a: 'a:80'}}"
ACTUATORS = {
    "envoy": f"{{kind: envoy, transport: {{kind: grpc}}, pools: {{chat: {{cluster: c, endpoints: {ENDPOINTS}}}}}}}",
    "litellm": "{kind: litellm, document: /tmp/d.json, pools: {chat: {model: m}}}",
    "haproxy": "{kind: haproxy, socket: /run/s, map: /run/m, pools: {chat: {backend: b, by: address}}}",
}
KNOW = {
    "a server by its name": "{kind: haproxy, socket: /run/s, map: /run/m, pools: {chat: {backend: b}}}",
    "a server that is named": "{kind: haproxy, socket: /run/s, map: /run/m, pools: {chat: {backend: b, by: address, "
    "servers: {eu: one}}}}",
    "file": "{kind: file, path: /tmp/w.json, quantum: 0.01, initial: 1}",
    "webhook": "{kind: webhook, url: 'http://127.0.0.1:9/', initial: 1, quantum: 0.01}",
}


def config(actuator: str, by: str) -> str:
    lever = f"weight: {{by: {by}, policy: {{kind: weights}}, actuator: {actuator}}}"
    return written(pool("chat", "labels: {zone: region}", levers=[lever]))


@pytest.mark.parametrize("kind", sorted(ACTUATORS))
def test_a_zone_that_its_actuator_does_not_know_is_refused_before_every_write_of_it_is(kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(config(ACTUATORS[kind], "zone"))
    (found,) = caught.value.problems
    assert found.path == "pools.chat.levers.weight.actuator"
    assert found.mistake.startswith(f"{kind} weighs single replicas")
    assert found.mend.startswith("write by: replica, or name an actuator that knows groups")
    assert loads(config(ACTUATORS[kind], "replica")).pools


@pytest.mark.parametrize("kind", sorted(KNOW))
def test_a_target_that_has_a_share_whatever_its_size_is_taken(kind: str) -> None:
    assert loads(config(KNOW[kind], "zone")).pools
