"""A file with several mistakes was mended as many times: whoever judges parameters by hand told the first one alone."""

from collections.abc import Collection

import pytest

from controller.config import ConfigError, loads
from tests.support.written import SOURCE, pool, written

FREE = "replicas: {min: 1, max: 8, policy: {kind: capacity}}"


def mistakes(*levers: str, keys: Collection[str] = (), source: str = SOURCE) -> list[str]:
    """Of a pool with these levers; in the order of their places, for all of a lever stands in one line."""
    with pytest.raises(ConfigError) as caught:
        loads(written(pool("chat", *keys, levers=levers or [FREE]), source=source))
    return [f"{one.path.removeprefix('pools.chat.levers.')}: {one.mistake}" for one in caught.value.problems]


def law(text: str) -> str:
    return f"replicas: {{min: 1, max: 8, policy: {{{text}}}}}"


FLOOR = "{replicas: 4, begin: '8:00', end: noon, days: weekdays, zone: CET}"
OF_A_FLOOR = (
    "begin: '8:00' is no time of day", "days: 'weekdays' are no days", "end: 'noon' is no time of day",
    "zone: 'CET' is no offset",
)  # fmt: skip


def test_all_that_is_wrong_with_a_floor_is_told_at_once() -> None:
    wrong = law(f"kind: capacity, floors: [{FLOOR}]")
    assert mistakes(wrong) == [f"replicas.policy.floors[0].{one}" for one in OF_A_FLOOR]


def test_a_floor_is_judged_beside_whatever_else_is_wrong() -> None:
    """A number out of bounds kept the times of all floors from being looked at, its own among them."""
    wrong = law(f"kind: capacity, spare: -1, spore: 2, floors: [{{replicas: 0, begin: '9', end: '10:00'}}, {FLOOR}]")
    here = "replicas.policy"

    assert mistakes(wrong, keys=["window: 5"]) == [
        "pools.chat.window: 5 has no unit",
        f"{here}.floors[0].begin: '9' is no time of day",
        f"{here}.floors[0].replicas: 0 is out of bounds",
        *(f"{here}.floors[1].{one}" for one in OF_A_FLOOR),
        f"{here}.spare: -1 is out of bounds",
        f"{here}.spore: is not a known key",
    ]


@pytest.mark.parametrize(
    ("lever", "said"),
    [
        (law("kind: threshold, signal: load, upper: 2, lower: 3"), [
            "replicas.policy.lower: must be below upper (3 >= 2)", "replicas.policy.signal: unknown signal 'load'",
        ]),
        (law("kind: pid, signal: load"), [
            "replicas.policy.signal: unknown signal 'load'", "replicas.policy.target: is missing",
        ]),
        ("breaker: {policy: {kind: breaker, open_time: 1h}}", [
            "breaker.policy.open_max: is shorter than", "breaker.policy.open_max_slow: is shorter than",
        ]),
        ("weight: {policy: {kind: weights, router: fast, capacity: {b: 0, a: -1}}}", [
            "weight.policy.capacity: a has -1", "weight.policy.capacity: b has 0", "weight.policy.router: unknown",
        ]),
    ],
)  # fmt: skip
def test_laws_tell_all_that_contradicts_itself(lever: str, said: list[str]) -> None:
    agree(mistakes(lever), said)


def agree(told: list[str], said: list[str]) -> None:
    """Whether each begins as it should, and none is missing or too many."""
    assert [one[: len(expected)] for one, expected in zip(told, said, strict=False)] == said
    assert len(told) == len(said)


def acting(actuator: str) -> list[str]:
    lever = f"breaker: {{mode: auto, policy: {{kind: breaker}}, actuator: {{{actuator}}}}}"
    return [one.removeprefix("breaker.actuator.") for one in mistakes(lever)]


ONE = "pools: {chat: {backend: b}}"
TWO = "pools: {chat: {backend: b, servers: {x: s, y: s, v: t, w: t}}}"
ROUTED = "pools: {chat: {routers: [a, 'http://b', 'http://b'], metrics: [c]}}"
SHARED = "pools: {chat: {model: m, tokens_per_request: 1}, code: {model: m, tokens_per_request: 1}}"
STEERED = "pools: {chat: {cluster: c, fallback: c}}"


@pytest.mark.parametrize(
    ("actuator", "said"),
    [
        ("kind: file, path: here, template: there", [
            "output: is missing", "path: is relative", "template: is relative",
        ]),
        ("kind: webhook, url: nowhere", ["read_url: nothing tells which", "url: nowhere does not begin"]),
        (f"kind: haproxy, socket: 'far:1', {ONE}, map_file: m, state_file: s", [
            "map: is missing", "map_file: is relative", "socket: far is not this machine", "state_file: is relative",
        ]),
        (f"kind: haproxy, mode: agent, socket: /s, map: /m, {ONE}", [
            "listen: is missing", "mode: an agent writes nothing",
        ]),
        (f"kind: haproxy, socket: /s, map: /m, {TWO}", [
            "pools.chat.servers.v: t stands for another", "pools.chat.servers.x: s stands for another",
        ]),
        ("kind: router, make: vllm, pools: {}, api_key: {env: A}, worker_key: {env: B}", [
            "api_key: vllm-router asks for no key", "pools: is empty", "worker_key: is the --api-key of",
        ]),
        (f"kind: router, make: vllm, {ROUTED}", [
            "pools.chat.metrics: has not as many URLs", "pools.chat.metrics[0]: c does not begin",
            "pools.chat.routers: names one twice", "pools.chat.routers[0]: a does not begin",
        ]),
        ("kind: litellm, pools: {chat: {model: m}}, document: here, tenant: header, klass: x", [
            "document: is relative", "klass: 'x' names nothing", "tenant: 'header' names nothing",
        ]),
        (f"kind: envoy, transport: {{kind: grpc}}, {STEERED}, admin: [a, b]", [
            "admin[0]: a does not begin", "admin[1]: b does not begin", "pools.chat.fallback: is the cluster that is",
        ]),
        ("kind: redis, url: nowhere, user: ann", ["password: is missing", "url: nowhere does not begin"]),
        (f"kind: dynamo, frontends: [a, 'http://b', 'http://b'], {SHARED}", [
            "frontends: names one twice", "frontends[0]: a does not begin", "pools: two have one model",
        ]),
    ],
)  # fmt: skip
def test_actuators_tell_all_that_is_wrong_with_them(actuator: str, said: list[str]) -> None:
    agree(acting(actuator), said)


@pytest.mark.parametrize(
    ("actuator", "said"),
    [
        ("kind: envoy, transport: {kind: grpc, listen: nowhere}, pools: {chat: {cluster: c}}", "transport.listen: "),
        (
            "kind: envoy, transport: {kind: grpc, listen: '0.0.0.0:1', key: k}, pools: {chat: {cluster: c}}",
            "transport.certificate: ",
        ),
        ("kind: router, make: vllm, pools: {chat: {routers: [], metrics: ['http://a']}}", "pools.chat.routers: is "),
        ("kind: file, path: /a, output: /b, check: [cat, '{file}']", "template: is missing"),
        ("kind: redis, url: 'redis://ann:b@c?d'", "url: credentials in the URL"),
    ],
)
def test_what_only_follows_from_a_mistake_is_none(actuator: str, said: str) -> None:
    agree(acting(actuator), [said])


def test_sources_tell_all_that_is_wrong_with_them() -> None:
    wrong = "url: nowhere, username: ann, key: k, insecure: true, ca: c, headers: {a b: c, d: ' e'}"
    assert [one.partition(" ")[0] for one in mistakes(source=f"{{kind: prometheus, {wrong}}}")] == [
        "source.headers:", "source.headers:", "source.insecure:", "source.key:", "source.url:", "source.username:",
    ]  # fmt: skip


def test_all_that_keeps_a_pool_asleep_is_told() -> None:
    sleeps = "replicas: {min: 0, max: 8, policy: {kind: threshold, signal: kv_usage, upper: 0.8, lower: 0.2}}"
    always = "replicas.min: 0 would be for ever: "
    agree(mistakes(sleeps), [f"{always}without a replica nothing tells", f"{always}threshold goes by kv_usage"])
