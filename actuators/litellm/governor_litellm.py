"""Governor's values inside LiteLLM's proxy: weights, breakers, caps of tenants and downgrades, on the next request.

Copy this one file beside LiteLLM's ``config.yaml`` and name it there: ``callbacks: [governor_litellm.hook]``. It needs
nothing of Governor. It reads one JSON document, named by ``GOVERNOR_DOCUMENT`` (a path, looked at before each request)
or by ``GOVERNOR_REDIS`` and ``GOVERNOR_KEY``. Each value ends at its own time, whether or not a Governor lives. What is
missing, broken or too old changes nothing, and no error of this file ever reaches a request. With ``GOVERNOR_BUCKETS``,
a Redis that Governor's actuator ``redis`` writes caps to, and ``bucket.lua`` beside this file, tenants have one bucket
for all processes and hosts instead of one in each.
"""

import asyncio
import hashlib
import json
import logging
import math
import os
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

try:
    from fastapi import HTTPException
    from litellm.integrations.custom_logger import CustomLogger
except ImportError:  # outside LiteLLM, where its logic alone is tested

    class HTTPException(Exception):  # type: ignore[no-redef]
        """What fastapi's is."""

        def __init__(self, status_code: int, detail: object = None, headers: dict[str, str] | None = None) -> None:
            super().__init__(detail)
            self.status_code, self.detail, self.headers = status_code, detail, headers

    CustomLogger = object

log = logging.getLogger("governor_litellm")
Refused = HTTPException  # what a request that is above a cap ends with

FORMAT = 1
EXPECTED = 256.0  # tokens of an answer, before any has been seen
MANY = 10_000  # requests in flight whose price is remembered
REDIS_WAIT = 0.1  # seconds; a Redis that is slower than that is not asked again for a second
LEVERS = ("weight", "breaker", "tenant_cap", "downgrade")


class Broken(ValueError):
    """The document is not what Governor writes."""


@dataclass(frozen=True)
class Value:
    """One value, and until when it holds (unix seconds, None for good). `model` is the receiver's, of a downgrade."""

    value: float
    until: float | None
    model: str = ""

    def now(self, now: float) -> float | None:
        return self.value if self.until is None or now < self.until else None


@dataclass(frozen=True)
class Pool:
    """What one model group is told."""

    name: str
    values: dict[str, dict[str, Value]]
    tenants: frozenset[str] | None  # who consents to a smaller model; None: nobody is told apart
    classes: frozenset[str] | None
    burst: float
    burst_seconds: float

    def consents(self, tenant: str, klass: str) -> bool:
        asked = [(self.tenants, tenant), (self.classes, klass)]
        told = [(who, one) for who, one in asked if who is not None]
        return bool(told) and all("*" in who or one in who for who, one in told)


@dataclass(frozen=True)
class Document:
    """All that is in force, by model group."""

    generation: int = 0
    by: str = ""
    pools: dict[str, Pool] = field(default_factory=dict)
    tenant: str = ""
    klass: str = ""
    processes: int = 1


def parse(text: str | bytes) -> Document:
    """A document, or Broken: a part of one would be worse than the last good one."""
    try:
        raw = json.loads(text)
        if raw["version"] != FORMAT:
            raise Broken(f"version {raw['version']!r} is not {FORMAT}")
        pools = {str(body["model"]): _pool(str(name), body) for name, body in raw["pools"].items()}
        processes = max(1, int(raw.get("processes", 1)))
        return Document(
            int(raw["generation"]),
            str(raw["by"]),
            pools,
            str(raw.get("tenant", "")),
            str(raw.get("class", "")),
            processes,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Broken(f"{type(error).__name__}: {error}") from error


def _pool(name: str, body: dict[str, Any]) -> Pool:
    values = {lever: {str(whose): _value(one) for whose, one in body.get(lever, {}).items()} for lever in LEVERS}
    consents = body.get("consents", {})
    who = [frozenset(map(str, consents[kind])) if kind in consents else None for kind in ("tenants", "classes")]
    return Pool(name, values, who[0], who[1], float(body.get("burst", 32768)), float(body.get("burst_seconds", 5)))


def _value(one: dict[str, Any]) -> Value:
    value, until = float(one["value"]), one.get("expires_at")
    if not math.isfinite(value) or value < 0 or not (until is None or math.isfinite(float(until))):
        raise Broken(f"{one!r} is no value")
    return Value(value, None if until is None else float(until), str(one.get("model", "")))


class Silent(Exception):
    """Redis was not asked, or did not answer in time."""


class Asked:
    """A Redis that never holds a request for long, and that is left alone for a second after it did not answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._until, self._why = 0.0, ""

    async def ask(self, *words: str | int | float) -> Any:
        if time.monotonic() < self._until:
            raise Silent(self._why)
        try:
            if self._client is None:
                import redis.asyncio  # LiteLLM brings it; a document in a file needs none

                self._client = redis.asyncio.Redis.from_url(
                    self._url, socket_timeout=REDIS_WAIT, socket_connect_timeout=REDIS_WAIT
                )
            return await asyncio.wait_for(self._client.execute_command(*words), 2 * REDIS_WAIT)
        except Exception as error:  # whatever the client finds wrong, requests go on
            if type(error).__name__ == "NoScriptError":
                raise
            self._until, self._why = time.monotonic() + 1.0, f"Redis: {type(error).__name__}"
            raise Silent(self._why) from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class Reader:
    """The last good document. Of a file, read again when it is another one; of Redis, asked for at each request."""

    def __init__(self, path: str = "", redis_url: str = "", key: str = "") -> None:
        self.document = Document()
        self._broken, self._unread = "", ""
        self._path, self._key = path, key
        self._redis = Asked(redis_url) if redis_url else None
        self._stamp: object = None

    @property
    def problem(self) -> str:
        return self._unread or self._broken

    async def current(self) -> Document:
        before, unread = self.problem, ""
        try:
            if self._path:
                self._from_file()
            elif self._redis is not None:
                await self._from_redis(self._redis)
        except Silent as error:
            unread = str(error)
        except OSError as error:
            unread = f"{type(error).__name__}: {error}"
        self._unread = unread
        if self.problem and self.problem != before:
            log.warning("the last good document, generation %s, stays: %s", self.document.generation, self.problem)
        return self.document

    def _from_file(self) -> None:
        stat = os.stat(self._path)
        stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if stamp != self._stamp:
            with open(self._path, "rb") as file:
                self._take(file.read())
            self._stamp = stamp

    async def _from_redis(self, redis: Asked) -> None:
        text = await redis.ask("GET", self._key)
        if text is None:  # Redis let go of it at its end
            self.document, self._stamp = Document(), None
        elif text != self._stamp:
            self._take(text)
            self._stamp = text

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.close()

    def _take(self, text: str | bytes) -> None:
        """A broken one is looked at once, and the last good one stays."""
        try:
            self.document, self._broken = parse(text), ""
        except Broken as error:
            self._broken = f"broken document: {error}"


class Bucket:
    """Tokens that fill at a rate. A new rate counts from its change on."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst, self.level, self.at = rate, burst, burst, now

    def settle(self, rate: float, burst: float, now: float) -> None:
        self.level = min(self.burst, self.level + self.rate * max(0.0, now - self.at), burst)
        self.rate, self.burst, self.at = rate, burst, now

    def wait(self, cost: float) -> float | None:
        """Seconds until so many tokens are there; None when they never will be."""
        return (cost - self.level) / self.rate if self.rate > 0 else None


class Shared:
    """Buckets in Redis, that all processes take from by ``bucket.lua``. A Redis that is gone refuses nobody."""

    def __init__(self, redis: Asked, script: str, prefix: str) -> None:
        self.redis = redis
        self._script, self._prefix = script, prefix
        self._sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

    async def take(self, pool: str, tenant: str, tokens: float) -> tuple[bool, float | None]:
        """Whether it passes, and else after how many seconds one of its size would; None is never."""
        try:
            passes, wait, *_ = await self._call(pool, tenant, "take", tokens)
        except Silent:
            return True, 0.0
        return bool(passes), wait / 1000 if wait >= 0 else None

    async def give(self, pool: str, tenant: str, tokens: float) -> None:
        try:
            await self._call(pool, tenant, "give", tokens)
        except Silent:
            log.debug("%g tokens of %s are not settled", tokens, tenant)

    async def _call(self, pool: str, tenant: str, word: str, tokens: float) -> Any:
        keys = [f"{self._prefix}{{{pool}}}:{kind}:{tenant}" for kind in ("tenant_cap", "bucket", "standing")]
        try:
            return await self.redis.ask("EVALSHA", self._sha, 3, *keys, word, tokens)
        except Silent:
            raise
        except Exception:  # noqa: BLE001 - Redis has not seen the script yet
            return await self.redis.ask("EVAL", self._script, 3, *keys, word, tokens)


@dataclass
class Debit:
    """What a request paid, from a bucket of this process or, where that is None, from the shared one of its tenant."""

    bucket: Bucket | None
    cost: float
    pool: str = ""
    tenant: str = ""


class Rules:
    """What the document makes of requests. Knows nothing of LiteLLM but the shape of its dictionaries."""

    def __init__(self) -> None:
        self.buckets: dict[tuple[str, str], Bucket] = {}
        self.debits: OrderedDict[str, Debit] = OrderedDict()
        self.owed: dict[tuple[str, str], float] = {}
        self.answer = EXPECTED

    def weighed(
        self, document: Document, model: str, deployments: list[dict[str, Any]], now: float
    ) -> list[dict[str, Any]]:
        """Copies with weights, without those that are out; as they are when none would be left."""
        pool = document.pools.get(model)
        if pool is None or len(deployments) < 2:
            return deployments
        factors = [_factor(pool, deployment, now) for deployment in deployments]
        if all(factor == 1.0 for factor in factors):
            return deployments
        own = _own_weights(deployments)
        left = [
            {**one, "litellm_params": {**one.get("litellm_params", {}), "weight": weight * factor}}
            for one, weight, factor in zip(deployments, own, factors, strict=True)
            if weight * factor > 0
        ]
        return left or deployments

    def receiver(self, document: Document, model: str, tenant: str, klass: str, now: float) -> str:
        """The model to send a request to instead, "" to leave it. Shares are met to the request, not by lot."""
        pool = document.pools.get(model)
        if pool is None or not pool.consents(tenant, klass):
            return ""
        for name, one in pool.values["downgrade"].items():
            share = one.now(now) or 0.0
            owed = self.owed.get((model, name), 0.0) + min(1.0, share)
            self.owed[model, name] = owed - 1.0 if owed >= 1.0 - 1e-9 else owed
            if owed >= 1.0 - 1e-9 and one.model:
                return one.model
        return ""

    def pay(
        self, document: Document, model: str, tenant: str, call: str, prompt: float, answer: float | None, now: float
    ) -> tuple[bool, float | None]:
        """Whether a tenant's request passes, and else when it would. `now` in unix seconds."""
        pool = document.pools.get(model)
        cap = pool.values["tenant_cap"].get(tenant) if pool is not None else None
        rate = cap.now(now) if cap is not None else None
        if pool is None or rate is None:
            self.buckets.pop((model, tenant), None)
            return True, 0.0
        rate /= document.processes
        burst = max(pool.burst, pool.burst_seconds * rate)
        bucket = self.buckets.setdefault((model, tenant), Bucket(rate, burst, now))
        bucket.settle(rate, burst, now)
        # An estimate is no reason to refuse for good: what may be larger than the bucket waits until it is full.
        cost = min(burst, self.price(prompt, answer))
        if bucket.level < cost:
            return False, bucket.wait(cost)
        bucket.level -= cost
        self.owe(call, Debit(bucket, cost))
        return True, 0.0

    def price(self, prompt: float, answer: float | None) -> float:
        """Tokens that a request is expected to take: few clients mean all of the maximum that they ask for."""
        return prompt + (self.answer if answer is None else min(answer, 4 * self.answer))

    def owe(self, call: str, debit: Debit) -> None:
        self.debits[call] = debit
        while len(self.debits) > MANY:
            self.debits.popitem(last=False)

    def settle(self, call: str, used: float) -> tuple[Debit, float] | None:
        """What was taken too much comes back, what was too little is taken. Of a shared bucket the caller must do it:
        so much of this debit is to be given."""
        debit = self.debits.pop(call, None)
        if debit is None:
            return None
        if debit.bucket is not None:
            debit.bucket.level = min(debit.bucket.burst, debit.bucket.level + debit.cost - used)
        return debit, debit.cost - used

    def learn(self, answer: float) -> None:
        """How long answers are lately."""
        self.answer += 0.05 * (answer - self.answer)


def _factor(pool: Pool, deployment: dict[str, Any], now: float) -> float:
    """The lower of weight and breaker of the replica that this deployment is."""
    names = _names(deployment)
    found = [pool.values[lever].get(name) for lever in ("weight", "breaker") for name in names]
    return min([1.0, *(value for one in found if one is not None and (value := one.now(now)) is not None)])


def _names(deployment: dict[str, Any]) -> list[str]:
    """What a replica may be called: the deployment's id, or host:port or host of its address."""
    parts = urlsplit(str(deployment.get("litellm_params", {}).get("api_base") or ""))
    info = deployment.get("model_info") or {}
    return [name for name in (str(info.get("id", "")), parts.netloc, parts.hostname or "") if name]


def _own_weights(deployments: list[dict[str, Any]]) -> list[float]:
    """By what LiteLLM would choose: its weights, else rpm, else tpm, else all alike."""
    for metric in ("weight", "rpm", "tpm"):
        own = [one.get("litellm_params", {}).get(metric) for one in deployments]
        numbers = [float(one) if isinstance(one, (int, float)) else 0.0 for one in own]
        if max(numbers) > 0:
            return numbers
    return [1.0] * len(deployments)


def who(source: str, data: dict[str, Any], key: object) -> str:
    """A tenant or class by `header:NAME`, or by a field of the caller's key: team_id, user_id, key_alias, end_user_id,
    metadata:NAME. "" where it is not told."""
    kind, _, name = source.partition(":")
    if kind == "header":
        headers = (data.get("proxy_server_request") or {}).get("headers") or {}
        return str(next((value for header, value in headers.items() if header.lower() == name.lower()), ""))
    if kind == "metadata":
        return str((getattr(key, "metadata", None) or {}).get(name) or "")
    return str(getattr(key, kind, None) or "") if kind else ""


def prompt_tokens(data: dict[str, Any]) -> float:
    """About four characters a token; the truth comes with the answer."""
    texts = [data.get("prompt"), data.get("input"), *(m.get("content") for m in data.get("messages") or ())]
    return max(1.0, sum(len(text if isinstance(text, str) else json.dumps(text)) for text in texts if text) / 4)


class Hook(CustomLogger):  # type: ignore[misc]
    """What LiteLLM calls. Each call is guarded: an error here must not become a request's."""

    def __init__(self, reader: Reader | None = None, shared: Shared | None = None) -> None:
        super().__init__()
        env = os.environ.get
        self.shared = shared or _shared(env("GOVERNOR_BUCKETS", ""), env("GOVERNOR_PREFIX", "governor:"))
        self.reader = reader or Reader(
            env("GOVERNOR_DOCUMENT", ""), env("GOVERNOR_REDIS", ""), env("GOVERNOR_KEY", "governor:litellm")
        )
        self.rules = Rules()
        self.started = time.time()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Caps first; what a tenant paid stays paid when its request goes to a smaller model."""
        try:
            document = await self.reader.current()
            model, now = str(data.get("model", "")), time.time()
            if model not in document.pools:
                return data
            tenant, klass = (who(source, data, user_api_key_dict) for source in (document.tenant, document.klass))
            answer = data.get("max_completion_tokens") or data.get("max_tokens")
            call, prompt = str(data.get("litellm_call_id", "")), prompt_tokens(data)
            if self.shared is None:
                passes, wait = self.rules.pay(document, model, tenant, call, prompt, answer, now)
            else:
                passes, wait = await self._take(self.shared, document.pools[model].name, tenant, call, prompt, answer)
            other = self.rules.receiver(document, model, tenant, klass, now) if passes else ""
        except Exception:
            log.exception("a request passes as if there were no Governor")
            return data
        if not passes:
            raise _refusal(tenant, wait)
        if other:
            data["model"] = other
        return data

    async def _take(
        self, shared: Shared, pool: str, tenant: str, call: str, prompt: float, answer: float | None
    ) -> tuple[bool, float | None]:
        if not tenant:
            return True, 0.0
        cost = self.rules.price(prompt, answer)
        passes, wait = await shared.take(pool, tenant, cost)
        if passes:
            self.rules.owe(call, Debit(None, cost, pool, tenant))
        return passes, wait

    async def _settle(self, call: str, used: float) -> None:
        owed = self.rules.settle(call, used)
        if owed is not None and owed[0].bucket is None and self.shared is not None:
            await self.shared.give(owed[0].pool, owed[0].tenant, owed[1])

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[dict[str, Any]],
        messages: Any,
        request_kwargs: Any = None,
        parent_otel_span: Any = None,
    ) -> list[dict[str, Any]]:
        try:
            return self.rules.weighed(await self.reader.current(), model, healthy_deployments, time.time())
        except Exception:
            log.exception("deployments stay as they are")
            return healthy_deployments

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        try:
            usage = getattr(response_obj, "usage", None) or {}
            prompt, answer = (_read(usage, name) for name in ("prompt_tokens", "completion_tokens"))
            if prompt is not None and answer is not None:
                self.rules.learn(answer)
                await self._settle(str(kwargs.get("litellm_call_id", "")), prompt + answer)
        except Exception:
            log.exception("a bucket stays as it is")

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        try:
            await self._settle(str(request_data.get("litellm_call_id", "")), 0.0)
        except Exception:
            log.exception("a bucket stays as it is")

    async def async_post_call_response_headers_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any, request_headers: Any = None
    ) -> dict[str, str]:
        return {"x-governor-generation": str(self.reader.document.generation)}

    async def status(self) -> dict[str, Any]:
        """What this process runs, after a look at the document."""
        document = await self.reader.current()
        return {
            "generation": document.generation, "by": document.by, "pid": os.getpid(), "started": self.started,
            "problem": self.reader.problem,
        }  # fmt: skip


def _shared(url: str, prefix: str) -> Shared | None:
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bucket.lua")
    if not url:
        return None
    try:
        with open(script, encoding="utf-8") as file:
            return Shared(Asked(url), file.read(), prefix)
    except OSError as error:
        log.error("GOVERNOR_BUCKETS is of no use without bucket.lua beside this file: %s", error)
        return None


def _refusal(tenant: str, wait: float | None) -> Exception:
    headers = {} if wait is None else {"retry-after": str(max(1, math.ceil(wait)))}
    said = {"error": f"the token limit of {tenant} is reached", "type": "rate_limit_error"}
    refused: Exception = Refused(status_code=429, detail=said, headers=headers)
    return refused


def _read(usage: Any, name: str) -> float | None:
    value = usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None)
    return float(value) if isinstance(value, (int, float)) else None


hook = Hook()

try:  # read-back for Governor: GET /governor/status of this process
    from litellm.proxy.proxy_server import app

    app.add_api_route("/governor/status", hook.status, methods=["GET"], include_in_schema=False)
except ImportError:
    pass
