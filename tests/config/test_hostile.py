"""What a tired or hostile person writes: each contradiction passed `governor check`, and was found out at night."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from controller.config import ConfigError, hints, loads
from controller.config.errors import dotted
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


GAIE = "gateway: {engine: gaie, selector: {model_name: chat}}"
CONSENT = ("labels: {tenant: user}", "tenants: {ann: {consents: true}}")
PROFILE = "profile: {base: 50ms, prefill_token: 0.01ms, sequence: 0.1ms, kv_token: 0.00001ms}"
ITL = "objectives: [{signal: itl, percentile: p95, target: 20ms}]"
SCALED = moved("{kind: kubernetes, namespace: ml, name: qwen}")
LESS = "downgrade: {%s, policy: {kind: downgrade}}"


def law(more: str, least: int = 1) -> str:
    return f"replicas: {{min: {least}, max: 8, policy: {{kind: capacity, {more}}}}}"


THRESHOLD = "replicas: {min: 1, max: 8, policy: {kind: threshold, %s}}"
BY = "replicas: {{min: {}, max: {}, quantum: {}, policy: {{kind: capacity}}}}"
NEVER = {
    "capacity is given up before it can come": (
        written(chat("cold_start: 20m")),
        "levers.replicas.give_up: 15m is not longer than the cold_start of 20m: each replica would be given up before",
    ),
    "no replica fits into the budget": (
        written(chat("gpus_per_replica: 8", GAIE, levers=[law("spare: 0", 0)]), budgets="{g: {max: 4}}"),
        "budgets.g.max: 4 GPUs hold no replica of chat, which takes 8; write at least 8, or leave chat out of it",
    ),
    "a floor is above the budget": (
        written(chat(levers=[law('floors: [{replicas: 6, begin: "08:00", end: "09:00"}]')]), budgets="{g: {max: 4}}"),
        "policy.floors[0].replicas: 6 replicas take 6 GPUs, and the budget g allows 4; lower it or raise the budget",
    ),
    "the warm spares are above the budget": (
        written(chat(levers=[law("spare: 6")]), budgets="{g: {max: 4}}"),
        "policy.spare: 6 replicas take 6 GPUs, and the budget g allows 4; lower it or raise the budget",
    ),
    "the smallest pair is above the budget": (
        written(chat(levers=[REPLICAS.replace("min: 1", "min: 4")]), code(), budgets="{g: {max: 8}}",
                pairs="{p: {prefill: chat, decode: code, ratio: [0.4, 0.6]}}"),
        "pairs.p.ratio: the smallest pair, 4 prefill and 7 decode replicas, takes 11 GPUs, and the budget g allows 8",
    ),
    "no step of the engine is as short as the promise": (
        written(chat(PROFILE, promise=ITL)),
        "objectives[0].target: 20ms is not longer than a step of the engine with one request, which by its profile",
    ),
    "one label tells who asks and what is asked": (
        written(chat("labels: {tenant: x, class: x}", "tenants: {a: {}}", "classes: {b: {}}")),
        "labels.class: x cannot tell the class and the tenant; write the label that tells the class, or leave the key",
    ),
    "each replica is a zone": (
        written(chat("labels: {zone: pod}", levers=["weight: {by: zone, policy: {kind: weights}}"])),
        "labels.zone: pod cannot tell the zone and the replica; write the label that tells the zone",
    ),
    "a pool without a selector is sized for all the others": (
        written(chat(selector="{}"), code()),
        "pools.chat.selector: selects all series of pool code too, so that both would be sized for its load; add a",
    ),
    "one workload is counted and another is scaled": (
        written(chat("workload: {namespace: ml, name: llama}", levers=[SCALED])),
        "pools.chat.workload: counts the replicas of ml/llama, and the actuator scales ml/qwen; write the same one",
    ),
    "a breaker never ends when Governor is dead": (
        written(chat(levers=[tripped(HAPROXY, "mode: auto, expiry: 0s, ")])),
        "levers.breaker.expiry: 0s never ends, so breaker would stay as it is when every Governor is dead; leave",
    ),
    "a weight can only be 1": (
        written(chat(levers=["weight: {min: 1, policy: {kind: weights}}"])),
        "levers.weight.min: weight can only be 1, at which it does nothing; change one of the bounds",
    ),
    "a downgrade can only be 0": (
        written(chat(*CONSENT, levers=[LESS % "max: 0, receivers: [code]"]), code()),
        "levers.downgrade.max: downgrade can only be 0, at which it does nothing",
    ),
    "more than all of the requests are sent away": (
        written(chat(*CONSENT, levers=[LESS % "min: 0.6, receivers: [code, more]"]), code(), pool("more", levers=[])),
        "levers.downgrade.min: 0.6 for each of 2 receivers is more than all of the requests; write at most 0.5",
    ),
    "servers are zones and replicas": (
        written(chat("labels: {zone: region}", levers=[
            "weight: {by: zone, policy: {kind: weights}, actuator: a}", tripped("a")]), actuators=f"{{a: {HAPROXY}}}"),
        "levers.breaker: takes out replicas, and to its actuator the servers of this pool are zones, by the weights",
    ),
    "no two sizes of a pair are on their quanta": (
        written(chat(levers=[BY.format(4, 8, 4)]), code(levers=[BY.format(3, 9, 3)]),
                pairs="{p: {prefill: chat, decode: code, ratio: [1, 1]}}"),
        "pairs.p.ratio: no 4 to 8 prefill replicas (chat) are 1 to 1 times 3 to 9 decode replicas (code)",
    ),
    "a budget of nobody": (
        written(chat(), budgets="{g: {max: 8, pools: []}}"),
        "budgets.g.pools: names no pool, and holds nothing; write all, or [name, name]",
    ),
    "a first token that nobody waits for": (
        written(chat(promise=PROMISE.replace("2s", "5h"))),
        "objectives[0].target: 5h of ttft is longer than anybody waits; write at most 1h",
    ),
    "an engine that takes no time": (
        written(chat("profile: {base: 0s, prefill_token: 0s, sequence: 0s, kv_token: 0s}")),
        "pools.chat.profile: a step that takes no time is served without end, and nothing would ever be too much",
    ),
    "two sizes of one batch": (
        written(chat("profile: {base: 10ms, prefill_token: 0s, sequence: 1ms, kv_token: 0s}", "max_num_seqs: 16")),
        "pools.chat.max_num_seqs: the profile says how large a batch is; write it into the profile alone",
    ),
    "no source answers in so short a time": (
        written(chat(), deadline="1ms"), "deadline: no source answers within 1ms; write at least 50ms",
    ),
    "a promise is on what no metric tells": (
        written(pool("chat", ITL, levers=[REPLICAS], engine="litellm")),
        "objectives[0].signal: itl is told by no metric of litellm, and would never be known; name another signal, or",
    ),
    "replicas follow their own number": (
        written(chat(levers=[THRESHOLD % "signal: ready_replicas, upper: 5, lower: 1"])),
        "policy.signal: ready_replicas is what this lever moves: it would follow itself to a bound; name a signal of",
    ),
    "the longer the queue the fewer the replicas": (
        written(chat(levers=[THRESHOLD % "signal: queue_depth, upper: 5, lower: 1, raise_when_high: false"])),
        "raise_when_high: a lower value of replicas makes queue_depth higher, which makes the value lower again",
    ),
    "the slower a replica the more it gets": (
        written(chat(levers=["weight: {policy: {kind: pid, signal: itl, target: 0.05, raise_when_high: true}}"])),
        "raise_when_high: a higher value of weight makes itl higher, which makes the value higher again; remove it",
    ),
    "what is decided on is an hour old": (
        written(chat(), source="{kind: prometheus, url: 'http://a', delay: 1h}"),
        "source.delay: 1h is not shorter than the shortest window of a pool, 1m: what is decided on would be",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEVER)
def test_what_contradicts_itself_is_refused(name: str) -> None:
    text, expected = NEVER[name]
    (found,) = said(text)
    assert expected in found


BOTH = "objectives: [{signal: ttft, percentile: p99, target: 2s}, {signal: ttft, percentile: p95, target: 5s}]"
E2E = "objectives: [{signal: ttft, percentile: p95, target: 5s}, {signal: e2e, percentile: p95, target: 1s}]"
PIN = "pin: {{value: {}, until: 2030-01-01T00:00:00Z, reason: launch}}"
HARDLY = {
    "a promise that another implies": (
        written(chat(promise=BOTH)), "objectives[1]: ttft_p95 is kept whenever ttft_p99 is, so it promises nothing",
    ),
    "a first token that may be later than the last": (
        written(chat(promise=E2E)), "objectives[0]: ttft_p95 is kept whenever e2e_p95 is, so it promises nothing more",
    ),
    "a breaker of one replica": (
        written(chat(levers=[REPLICAS.replace("8", "1"), "breaker: {policy: {kind: breaker}}"])),
        "levers.breaker: the pool has one replica at most, and the last one is never taken out; raise",
    ),
    "a pool that never goes to zero": (
        written(chat(GAIE, levers=[law("spare: 1", 0)])),
        "policy.spare: keeps 1 when nobody asks for anything, so the pool never goes to zero; write spare: 0",
    ),
    "a floor that is below the minimum": (
        written(chat(levers=[law('floors: [{replicas: 2, begin: "08:00", end: "09:00"}]', 4)])),
        "levers.replicas.policy.floors[0]: 2 replicas are there at all times, by min 4; write more, or remove it",
    ),
    "a smaller model for ever": (
        written(chat(*CONSENT, levers=[LESS % "min: 0.5, receivers: [code]"]), code()),
        "levers.downgrade.min: 50% of those that consent get the smaller model also while all goes well; write",
    ),
    "pins that are no pair": (
        written(*(
            pool(name, PROMISE, levers=[REPLICAS.replace("}}", f"}}, {PIN.format(value)}}}")])
            for name, value in (("chat", 8), ("code", 2))
        ), pairs="{p: {prefill: chat, decode: code, ratio: [0.4, 0.6]}}"),
        "pools.code.levers.replicas.pin.value: with 8 replicas pinned in chat the ratio of the pair p is 4, and 0.4",
    ),
    "a breaker that takes out and never lets back": (
        written(chat(levers=["breaker: {mode: protect, fail_static: true, expiry: 0s, policy: {kind: breaker}}"])),
        "pools.chat.levers.breaker.mode: goes one way in protect",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARDLY)
def test_what_is_hardly_meant_is_told(name: str) -> None:
    text, expected = HARDLY[name]
    (found,) = hints(loads(text), datetime(2026, 11, 30, tzinfo=UTC))
    assert expected in f"{dotted(found.path)}: {found.mistake}; {found.mend}"


MEANT = {
    "a cold start that was never said": written(chat(levers=[REPLICAS.replace("policy", "give_up: 20s, policy")])),
    "zones seen by a pool that is not sized": written(
        chat("labels: {zone: region}", selector="{}", levers=["weight: {by: zone, policy: {kind: weights}}"]), code()
    ),
    "a pool of the same model and another GPU": written(
        chat(selector="{model: m, gpu: h100}"),
        pool("code", PROMISE, levers=[REPLICAS], selector="{model: m, gpu: a100}"),
    ),
    "a breaker that is accepted for good": written(
        chat(levers=[tripped(HAPROXY, "mode: auto, expiry: 0s, fail_static: true, ")])
    ),
    "a promise that the gateway tells": written(pool("chat", ITL, GAIE, levers=[REPLICAS], engine="tgi")),
    "a pair on its quanta": written(
        chat(levers=[BY.format(4, 8, 4)]), code(levers=[BY.format(2, 8, 2)]),
        pairs="{p: {prefill: chat, decode: code, ratio: [1, 1]}}",
    ),
    "replicas that are only added": written(chat(levers=[REPLICAS.replace("policy", "mode: protect, policy")])),
    "a size that is fixed": written(chat(levers=["replicas: {min: 4, max: 4, policy: {kind: capacity}}"])),
    "promises of which none implies the other": written(
        chat(promise=BOTH.replace("5s", "1s").replace("p95", "p50"))
    ),
    "a budget that just holds": written(chat(levers=[law("spare: 4")]), budgets="{g: {max: 4}}"),
    "a workload that is scaled by its owner": written(
        chat("workload: {namespace: ml, name: llama}", levers=[
            moved("{kind: kubernetes, namespace: ml, name: set, workload_kind: LeaderWorkerSet, api_version: l.io/v1}")
        ])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_what_is_near_to_a_contradiction_and_meant_is_taken_without_a_word(name: str) -> None:
    assert hints(loads(MEANT[name]), datetime(2026, 11, 30, tzinfo=UTC)) == ()
