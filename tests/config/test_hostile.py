"""What a tired or hostile person writes: each contradiction passed `governor check`, and was found out at night."""

from collections.abc import Iterable

import pytest

from controller.config import ConfigError, loads
from controller.run.assembly import refused
from tests.support.written import pool, written

REPLICAS = "replicas: {min: 1, max: 8, policy: {kind: capacity}}"
PROMISE = "objectives: [{signal: ttft, percentile: p95, target: 2s}]"
HAPROXY = "{kind: haproxy, socket: /run/s, map: /run/m, expires: true, pools: {chat: {backend: b}, code: {backend: c}}}"
AT = "endpoints: {kind: inline, replicas: {r: 'a:80'}}"
HERE = "http://a/metrics"


def moved(actuator: str) -> str:
    return REPLICAS.replace("}}", f"}}, actuator: {actuator}}}")


def tripped(actuator: str, more: str = "") -> str:
    return f"breaker: {{{more}policy: {{kind: breaker}}, actuator: {actuator}}}"


def envoy(listen: str, *pools: str) -> str:
    told = ", ".join(pools or (f"chat: {{cluster: chat, {AT}}}", f"code: {{cluster: code, {AT}}}"))
    return f"{{kind: envoy, transport: {{kind: grpc, listen: '{listen}'}}, pools: {{{told}}}}}"


EVERYWHERE = envoy("0.0.0.0:18000").replace("grpc,", "grpc, plaintext: true,")
TWICE = f"chat: {{cluster: c, {AT.replace('{r:', '{q: a:80, r:')}}}"


def file(more: str) -> str:
    return f"{{kind: file, initial: 1, {more}}}"


def chat(*keys: str, levers: Iterable[str] = (REPLICAS,), promise: str = PROMISE, selector: str = "") -> str:
    return pool("chat", promise, *keys, levers=levers, selector=selector)


def code(*keys: str, levers: Iterable[str] = (REPLICAS,)) -> str:
    return pool("code", PROMISE, *keys, levers=levers)


def said(text: str) -> list[str]:
    """All that is wrong, each with its place and its mend."""
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert all(one.path and one.mend and one.line for one in caught.value.problems)
    return [str(one) for one in caught.value.problems]


ALONE = {
    "two actuators would rewrite one file": (
        written(chat(levers=[moved("a")]), code(levers=[moved("b")]),
                actuators=f"{{a: {file('path: /tmp/x')}, b: {file('path: /tmp/x, format: yaml')}}}"),
        "actuators.b.path: /tmp/x is the file of actuators.a.path too; describe it once under `actuators`",
    ),
    "two levers that do not know of each other write one HAProxy": (
        written(chat(levers=[tripped(HAPROXY), f"weight: {{policy: {{kind: weights}}, actuator: {HAPROXY}}}"])),
        "pools.chat.levers.weight.actuator.socket: /run/s is the socket of pools.chat.levers.breaker.actuator.socket",
    ),
    "two control planes listen at one port": (
        written(chat(levers=[tripped("a")]), code(levers=[tripped("b")]),
                actuators=f"{{a: {envoy('127.0.0.1:18000')}, b: {EVERYWHERE}}}"),
        "actuators.b.transport.listen: 0.0.0.0:18000 is the port of actuators.a.transport.listen too; give each its",
    ),
    "Envoys connect to the port of the status page": (
        written(chat(levers=[tripped(envoy("127.0.0.1:8080"))])),
        "pools.chat.levers.breaker.actuator.transport.listen: 127.0.0.1:8080 is the port of http.listen too; give each",
    ),
    "the file that is made is the file that it is made of": (
        written(chat(levers=[moved(file("path: /tmp/a, template: /tmp/t, output: /tmp/t"))])),
        "pools.chat.levers.replicas.actuator.output: the values, the template and what is made of them are three files",
    ),
    "a page is read for two pools": (
        written(chat(), code(), source=f"{{kind: direct, replicas: {{chat: ['{HERE}'], code: ['{HERE}']}}}}"),
        "source.replicas.code[0]: this page is listed for chat too, and its load would count twice; list it once",
    ),
    "a page is read twice": (
        written(chat(), source=f"{{kind: direct, replicas: {{chat: ['{HERE}', '{HERE}']}}}}"),
        "source.replicas.chat[1]: this page is listed twice, and its load would count twice; list it once",
    ),
    "two pools have one model group": (
        written(chat(levers=[tripped("a")]), code(levers=[tripped("a")]),
                actuators="{a: {kind: litellm, document: /tmp/d, pools: {chat: {model: m}, code: {model: m}}}}"),
        "actuators.a.pools: two share a model group, whose values would be those of one; give each its own",
    ),
    "two replicas are one server": (
        written(chat(levers=[tripped(HAPROXY.replace("backend: b}", "backend: b, servers: {x: s, y: s}}"))])),
        "pools.chat.levers.breaker.actuator.pools.chat.servers.x: s stands for another replica too; a server is one",
    ),
    "two replicas have one address": (
        written(chat(levers=[tripped(envoy("127.0.0.1:1", TWICE))])),
        "replicas.r: a:80 is q too; write where it listens",
    ),
    "the way out of a steered cluster leads to another model": (
        written(chat(levers=[tripped("a")]), code(levers=[tripped("a")]), actuators="{a: " + envoy(
            "127.0.0.1:1", f"chat: {{cluster: c, eds: d, fallback: code, {AT}}}", f"code: {{cluster: code, {AT}}}",
        ) + "}"),
        "actuators.a.pools.chat.fallback: is the cluster of code; name one with the same replicas",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_what_belongs_to_one_alone_is_not_given_to_two(name: str) -> None:
    text, expected = ALONE[name]
    (found,) = said(text)
    assert expected in found


def test_what_looks_like_it_and_is_none_is_taken() -> None:
    """Ports of two hosts, keys of two levers in one described file, a page for each replica."""
    pages = "{kind: direct, replicas: {chat: ['http://a/metrics', 'http://b/metrics']}}"
    good = [
        written(chat(levers=[moved("a")]), code(levers=[moved("a")]), actuators=f"{{a: {file('path: /tmp/x')}}}"),
        written(chat(levers=[tripped(envoy("127.0.0.1:8080"))]), http="{listen: '10.0.0.1:8080'}"),
        written(chat(), source=pages),
    ]
    for text in good:
        assert refused(loads(text)) == []
