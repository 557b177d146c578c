"""What a gateway does with Governor's keys in Redis. Copy it, with `bucket.lua` of the package beside it.

Whatever goes wrong with Redis, requests pass: a limit that cannot be read is no reason to refuse anybody.
"""

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

BUCKET = Path(__file__).with_name("bucket.lua").read_text(encoding="utf-8")


def connect(host: str, port: int = 6379, password: str | None = None) -> "redis.Redis":
    """Short waits and no retries: by default the client would hold a request for seconds when Redis is gone."""
    return redis.Redis(
        host=host, port=port, username="gateway" if password else None, password=password, decode_responses=True,
        socket_timeout=0.1, socket_connect_timeout=0.1, retry=Retry(NoBackoff(), 0),
    )  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """Whether a request passes, and if not when one of its size would."""

    passes: bool
    retry_after: float | None  # seconds; None: never, the request is larger than the bucket is deep


class Gateway:
    """The gateway in front of one pool."""

    def __init__(self, client: "redis.Redis", pool: str) -> None:
        self.client, self.pool = client, pool
        self.bucket = client.register_script(BUCKET)

    def keys(self, tenant: str) -> list[str]:
        return [f"governor:{{{self.pool}}}:{kind}:{tenant}" for kind in ("tenant_cap", "bucket", "standing")]

    def admit(self, tenant: str, prompt: int, expected: int) -> Verdict:
        """Before a request: its prompt and the answer that is expected, in tokens."""
        try:
            passes, wait, _, _ = self.bucket(keys=self.keys(tenant), args=["take", prompt + expected])
        except redis.RedisError:
            return Verdict(True, None)
        return Verdict(bool(passes), wait / 1000 if wait >= 0 else None)

    def done(self, tenant: str, expected: int, answer: int) -> None:
        """After it: what was taken too much comes back, what was too little is taken."""
        with contextlib.suppress(redis.RedisError):
            self.bucket(keys=self.keys(tenant), args=["give", expected - answer])

    def set_point(self, lever: str, member: str) -> float | None:
        """`admission` and `concurrency` (requests in flight per replica), `longest_prompt`, `deadline` (factor on the
        deadlines of classes) or `priority` (highest rank that comes in while others wait), None is no limit; `routing`
        and `affinity` (how much the router's affinity counts against load), None is 1."""
        try:
            value = self.client.hget(f"governor:{{{self.pool}}}:{lever}:{member}", "value")
        except redis.RedisError:
            return None
        return None if value is None else float(value)

    def goes_to(self, receiver: str, *, consents: bool) -> bool:
        """Whether this request goes to the smaller model of the pool `receiver`. Who consents is for you to say, and so
        are the sizes of prompts that may go, where the config has `prompt`."""
        return consents and random.random() < (self.set_point("downgrade", receiver) or 0.0)
