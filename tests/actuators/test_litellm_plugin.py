"""The plugin of LiteLLM by itself: its logic needs neither the proxy nor Governor."""

import ast
import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.litellm import governor_litellm as plugin
from actuators.redis.schema import SCRIPT
from tests.support.redis_server import RealRedis, real_redis
from tests.support.relay import relay
from tests.support.repository import ROOT

NOW = 1000.0
DEPLOYMENTS: list[dict[str, Any]] = [
    {"model_info": {"id": name}, "litellm_params": {"api_base": f"http://10.0.0.{i}:8000/v1"}}
    for i, name in enumerate("abc", start=1)
]


def document(generation: int = 1, processes: int = 1, consents: Any = None, burst: float = 100, **levers: Any) -> str:
    """Levers as {name: value} or {name: (value, end)}, of one pool."""
    body: dict[str, Any] = {"model": "chat", "burst": burst, "burst_seconds": 0, "consents": consents or {}}
    for lever, values in levers.items():
        body[lever] = {}
        for name, one in values.items():
            value, until = one if isinstance(one, tuple) else (one, None)
            body[lever][name] = {"value": value, "expires_at": until, "model": f"chat-{name}"}
    return json.dumps({"version": 1, "generation": generation, "by": "governor", "tenant": "header:X-Tenant",
                       "class": "header:x-class", "processes": processes, "pools": {"chat": body}})  # fmt: skip


def weighed(text: str, deployments: Any = None, now: float = NOW) -> dict[str, float | None]:
    found = plugin.Rules().weighed(plugin.parse(text), "chat", DEPLOYMENTS if deployments is None else deployments, now)
    return {one["model_info"]["id"]: one["litellm_params"].get("weight") for one in found}


def hook(folder: Path, text: str) -> "plugin.Hook":
    path = folder / "governor.json"
    path.write_text(text)
    return plugin.Hook(plugin.Reader(path=str(path)))


def call(hook: "plugin.Hook", tenant: str = "", number: int = 0, **data: Any) -> dict[str, Any]:
    request = {"model": "chat", "litellm_call_id": str(number), "messages": [{"role": "user", "content": "x" * 40}],
               "max_tokens": 10, "proxy_server_request": {"headers": {"x-tenant": tenant}}, **data}  # fmt: skip
    return asyncio.run(hook.async_pre_call_hook(None, None, request, "completion"))


def test_it_imports_nothing_of_governor() -> None:
    tree = ast.parse((ROOT / "actuators" / "litellm" / "governor_litellm.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.split(".")[0] in ("actuators", "controller", "tests", "routing")}


# --- weights -----------------------------------------------------------------------------------------------------


def test_weight_and_breaker_meet_in_the_lower_one() -> None:
    assert weighed(document(weight={"a": 0.5}, breaker={"a": 0.25, "b": 0.05})) == {"a": 0.25, "b": 0.05, "c": 1.0}


def test_a_replica_is_known_by_its_id_or_its_address() -> None:
    assert weighed(document(weight={"10.0.0.1:8000": 0.5, "10.0.0.2": 0.2})) == {"a": 0.5, "b": 0.2, "c": 1.0}


def test_the_owners_own_weights_are_multiplied_and_not_replaced() -> None:
    owned = [{**one, "litellm_params": {"weight": own}} for one, own in zip(DEPLOYMENTS, (6, 2, 2), strict=True)]
    assert weighed(document(weight={"a": 0.5}), owned) == {"a": 3.0, "b": 2.0, "c": 2.0}
    by_rpm = [{**one, "litellm_params": {"rpm": own}} for one, own in zip(DEPLOYMENTS, (60, 20, 20), strict=True)]
    assert weighed(document(weight={"a": 0.5}), by_rpm) == {"a": 30.0, "b": 20.0, "c": 20.0}


def test_what_is_out_is_left_out_and_never_everything() -> None:
    assert weighed(document(breaker={"a": 0, "b": 0})) == {"c": 1.0}
    assert set(weighed(document(breaker={"a": 0, "b": 0, "c": 0}))) == {"a", "b", "c"}
    assert weighed(document(breaker={"a": 0}), DEPLOYMENTS[:1]) == {"a": None}


def test_what_the_router_holds_is_never_changed_itself() -> None:
    before = json.dumps(DEPLOYMENTS)
    weighed(document(weight={"a": 0.5}))
    assert json.dumps(DEPLOYMENTS) == before


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_no_values_leave_a_model_without_a_deployment(weights: list[float], breakers: list[float]) -> None:
    found = weighed(
        document(weight=dict(zip("abc", weights, strict=True)), breaker=dict(zip("abc", breakers, strict=True)))
    )
    assert found
    assert all(weight is None or weight > 0 for weight in found.values())


# --- shares ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 100), st.integers(1, 500))
def test_a_share_is_met_to_the_request(percent: int, count: int) -> None:
    rules, told = (
        plugin.Rules(),
        plugin.parse(document(consents={"tenants": ["*"]}, downgrade={"small": percent / 100})),
    )
    sent = sum(bool(rules.receiver(told, "chat", "acme", "", NOW)) for _ in range(count))
    assert abs(sent - count * percent / 100) < 1


@pytest.mark.parametrize(
    ("consents", "tenant", "klass", "goes"),
    [
        ({}, "acme", "low", False),
        ({"tenants": ["acme"]}, "acme", "", True),
        ({"tenants": ["acme"]}, "other", "", False),
        ({"classes": ["low"]}, "anybody", "low", True),
        ({"tenants": ["acme"], "classes": ["low"]}, "acme", "high", False),
        ({"tenants": ["*"], "classes": ["low"]}, "acme", "low", True),
        ({"tenants": []}, "acme", "low", False),
    ],
)
def test_nobody_is_downgraded_who_did_not_consent(consents: Any, tenant: str, klass: str, goes: bool) -> None:
    told = plugin.parse(document(consents=consents, downgrade={"small": 1.0}))
    assert plugin.Rules().receiver(told, "chat", tenant, klass, NOW) == ("chat-small" if goes else "")


# --- caps --------------------------------------------------------------------------------------------------------


def test_a_new_rate_counts_from_the_change_on() -> None:
    rules = plugin.Rules()

    def passes(rate: float, cost: float, now: float) -> bool:
        return rules.pay(plugin.parse(document(tenant_cap={"acme": rate})), "chat", "acme", "", cost, 0, now)[0]

    assert passes(1, 100, 0)
    assert not passes(100, 11, 10)  # 10 s at 1 token/s
    assert passes(100, 59, 10.5)


def test_renewing_a_cap_hands_out_nothing() -> None:
    rules = plugin.Rules()
    for generation in range(20):
        told = plugin.parse(document(generation, tenant_cap={"acme": (1, NOW + 60)}))
        passes, _ = rules.pay(told, "chat", "acme", "", 100, 0, NOW)
        assert passes == (generation == 0)


def test_each_of_several_processes_gets_its_part_of_a_cap() -> None:
    rules, told = plugin.Rules(), plugin.parse(document(processes=4, tenant_cap={"acme": 40}))
    rules.pay(told, "chat", "acme", "", 100, 0, NOW)
    passes, wait = rules.pay(told, "chat", "acme", "", 30, 0, NOW)
    assert (passes, wait) == (False, 3.0)


def test_the_truth_is_settled_when_the_answer_is_there(tmp_path: Path) -> None:
    one = hook(tmp_path, document(tenant_cap={"acme": 0}))
    call(one, "acme", number=1)  # 10 of prompt and 10 of answer
    response = type("Response", (), {"usage": {"prompt_tokens": 30, "completion_tokens": 50}})()
    asyncio.run(one.async_log_success_event({"litellm_call_id": "1"}, response, None, None))
    assert one.rules.buckets["chat", "acme"].level == 20


def test_a_request_that_fails_gets_its_tokens_back(tmp_path: Path) -> None:
    one = hook(tmp_path, document(tenant_cap={"acme": 0}))
    call(one, "acme", number=1)
    asyncio.run(one.async_post_call_failure_hook({"litellm_call_id": "1"}, ValueError(), None))
    assert one.rules.buckets["chat", "acme"].level == 100
    assert not one.rules.debits


def test_a_request_that_may_be_larger_than_the_bucket_waits_until_it_is_full() -> None:
    rules, told = plugin.Rules(), plugin.parse(document(tenant_cap={"acme": 10}))
    assert rules.pay(told, "chat", "acme", "", 90, 500, 0)[0]
    assert rules.pay(told, "chat", "acme", "", 90, 500, 0) == (False, 10.0)
    assert rules.pay(told, "chat", "acme", "", 90, 500, 10)[0]


def test_requests_that_never_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "MANY", 5)
    rules, told = plugin.Rules(), plugin.parse(document(tenant_cap={"acme": 1e9}))
    for number in range(50):
        rules.pay(told, "chat", "acme", str(number), 1, 0, NOW)
    assert len(rules.debits) == 5


def test_who_is_above_his_cap_is_refused_with_the_time_to_come_again(tmp_path: Path) -> None:
    one = hook(tmp_path, document(tenant_cap={"acme": 10}))
    call(one, "acme", messages=[{"content": "x" * 360}])
    with pytest.raises(plugin.Refused) as caught:
        call(one, "acme", messages=[{"content": "x" * 160}])
    assert caught.value.status_code == 429
    assert (caught.value.headers or {})["retry-after"] == "5"


def test_a_cap_of_another_tenant_or_of_nobody_stops_nobody(tmp_path: Path) -> None:
    one = hook(tmp_path, document(tenant_cap={"acme": 0}))
    for number in range(20):
        assert call(one, "other", number)["model"] == "chat"
        assert call(one, "", number)["model"] == "chat"


@pytest.mark.parametrize(
    ("source", "found"),
    [("header:X-Tenant", "h"), ("team_id", "t"), ("metadata:org", "m"), ("user_id", ""), ("", ""), ("header:none", "")],
)
def test_a_tenant_is_found_where_the_document_says(source: str, found: str) -> None:
    key = type("Key", (), {"team_id": "t", "metadata": {"org": "m"}, "user_id": None})()
    assert plugin.who(source, {"proxy_server_request": {"headers": {"x-tenant": "h"}}}, key) == found
    assert plugin.who(source, {}, None) == ""


# --- ends and failures -------------------------------------------------------------------------------------------


def test_every_value_ends_at_its_time_without_anybodys_help() -> None:
    told = document(
        weight={"a": (0.5, NOW)}, breaker={"b": (0, NOW)}, consents={"tenants": ["*"]},
        downgrade={"small": (1.0, NOW)}, tenant_cap={"acme": (0, NOW)},
    )  # fmt: skip
    for now, holds in ((NOW - 0.001, True), (NOW, False)):
        rules, parsed = plugin.Rules(), plugin.parse(told)
        assert weighed(told, now=now) == ({"a": 0.5, "c": 1.0} if holds else {"a": None, "b": None, "c": None})
        assert bool(rules.receiver(parsed, "chat", "acme", "", now)) == holds
        assert rules.pay(parsed, "chat", "acme", "", 100, 0, now)[0]
        assert rules.pay(parsed, "chat", "acme", "", 100, 0, now)[0] != holds


@pytest.mark.parametrize(
    "broken",
    ["", "{", "null", "[]", '"x"', '{"version": 2}', '{"version": 1}', document()[:-1],
     document(weight={"a": float("nan")}), document(weight={"a": -1}), document(weight={"a": "lots"}),
     document(weight={"a": (1, "tomorrow")}), "[" * 100_000],
)  # fmt: skip
def test_a_broken_document_leaves_the_last_good_one(tmp_path: Path, broken: str) -> None:
    one = hook(tmp_path, document(3, breaker={"a": 0}))
    asyncio.run(one.reader.current())
    (tmp_path / "governor.json").write_text(broken)
    found = asyncio.run(one.async_filter_deployments("chat", DEPLOYMENTS, None))
    assert [item["model_info"]["id"] for item in found] == ["b", "c"]
    for _ in range(2):
        status = asyncio.run(one.status())
        assert (status["generation"], "broken document" in status["problem"]) == (3, True)


def test_a_document_that_is_gone_or_not_there_yet_fails_nobody(tmp_path: Path) -> None:
    one = plugin.Hook(plugin.Reader(path=str(tmp_path / "none.json")))
    assert call(one)["model"] == "chat"
    assert asyncio.run(one.async_filter_deployments("chat", DEPLOYMENTS, None)) is DEPLOYMENTS
    assert asyncio.run(one.status())["generation"] == 0


def test_a_document_is_read_once_and_not_at_every_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = hook(tmp_path, document())
    reads: list[str | bytes] = []
    parse = plugin.parse

    def counted(text: str | bytes) -> plugin.Document:
        reads.append(text)
        return parse(text)

    monkeypatch.setattr(plugin, "parse", counted)
    for number in range(10):
        call(one, number=number)
    assert len(reads) == 1
    new = tmp_path / "new"
    new.write_text(document(2))
    os.replace(new, tmp_path / "governor.json")
    call(one)
    assert len(reads) == 2


@pytest.mark.parametrize(
    "data", [{"messages": 7}, {"messages": [7]}, {"max_tokens": "many"}, {"proxy_server_request": 3}]
)
def test_a_request_that_it_does_not_understand_passes(tmp_path: Path, data: dict[str, Any]) -> None:
    one = hook(tmp_path, document(tenant_cap={"": 1000, "acme": 1000}))
    assert call(one, "acme", **data)["model"] == "chat"


def test_deployments_that_it_does_not_understand_stay(tmp_path: Path) -> None:
    one = hook(tmp_path, document(weight={"a": 0.5}))
    odd: Any = [7, 8]
    assert asyncio.run(one.async_filter_deployments("chat", odd, None)) is odd


# --- Redis -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRedis]:
    with real_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


def test_a_redis_that_goes_away_costs_little_and_changes_nothing(real: RealRedis) -> None:
    real.admin.set("governor:litellm", document(5, breaker={"a": 0}))
    with relay(real.port) as wire:

        async def story() -> None:
            reader = plugin.Reader(redis_url=f"redis://127.0.0.1:{wire.port}/0", key="governor:litellm")
            assert (await reader.current()).generation == 5
            real.admin.set("governor:litellm", document(6))
            assert (await reader.current()).generation == 6
            wire.mute = True
            began = time.monotonic()
            for _ in range(100):
                assert (await reader.current()).generation == 6
            assert time.monotonic() - began < 1.0
            assert reader.problem == "Redis: TimeoutError"
            await reader.close()

        asyncio.run(story())


def test_a_document_that_redis_let_go_of_is_neutral(real: RealRedis) -> None:
    async def story() -> None:
        real.admin.set("governor:litellm", document(5, breaker={"a": 0}))
        reader = plugin.Reader(redis_url=real.url, key="governor:litellm")
        assert (await reader.current()).pools
        real.admin.delete("governor:litellm")
        assert not (await reader.current()).pools
        await reader.close()

    asyncio.run(story())


def test_with_shared_buckets_two_proxies_are_one_to_a_tenant(real: RealRedis) -> None:
    """Caps by Governor's actuator `redis`; the first request finds a Redis that has never seen the script."""
    real.admin.flushall()
    real.admin.script_flush()
    real.admin.hset("governor:{chat}:tenant_cap:acme", mapping={"value": 0.001, "burst": 100})

    async def story() -> None:
        hooks = [
            plugin.Hook(plugin.Reader(), plugin.Shared(plugin.Asked(real.url), SCRIPT, "governor:")) for _ in range(2)
        ]
        passed = 0
        for number in range(20):
            one = hooks[number % 2]
            one.reader.document = plugin.parse(document())
            request = {"model": "chat", "litellm_call_id": str(number), "messages": [{"content": "x" * 40}],
                       "max_tokens": 10, "proxy_server_request": {"headers": {"x-tenant": "acme"}}}  # fmt: skip
            try:
                await one.async_pre_call_hook(None, None, request, "completion")
                passed += 1
            except plugin.Refused:
                pass
        assert passed == 5
        response = type("Response", (), {"usage": {"prompt_tokens": 5, "completion_tokens": 5}})()
        await hooks[0].async_log_success_event({"litellm_call_id": "0"}, response, None, None)
        await hooks[1].async_post_call_failure_hook({"litellm_call_id": "1"}, ValueError(), None)
        assert float(real.admin.hget("governor:{chat}:bucket:acme", "level")) == pytest.approx(30, abs=0.1)
        for one in hooks:
            assert one.shared is not None
            await one.shared.redis.close()

    asyncio.run(story())


def test_shared_buckets_that_are_gone_refuse_nobody() -> None:
    async def story() -> None:
        shared = plugin.Shared(plugin.Asked("redis://127.0.0.1:1/0"), SCRIPT, "governor:")
        began = time.monotonic()
        for _ in range(100):
            assert await shared.take("chat", "acme", 1e9) == (True, 0.0)
        await shared.give("chat", "acme", 5)
        assert time.monotonic() - began < 1.0
        await shared.redis.close()

    asyncio.run(story())
