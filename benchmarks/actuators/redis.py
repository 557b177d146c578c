"""How fast a real Redis does what was decided."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from actuators.redis import Redis, RedisConfig
from actuators.redis.schema import SCRIPT
from benchmarks.actuators import Course
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.rest import NO_LIMIT
from controller.core.why import Why
from tests.support.redis_server import real_redis

_ROUNDS = 500
_MANY = 100


def _tenant(number: int) -> Target:
    return Target("chat", Lever.TENANT_CAP, f"t{number}")


class _Stand:
    """Governor's hands on a Redis, and a gateway that takes from it."""

    def __init__(self, url: str, client: Any) -> None:
        self._hands = Redis(RedisConfig(url), Binding(tuple(map(_tenant, range(_MANY))), "governor"))
        self._take = client.register_script(SCRIPT)
        self.close = self._hands.close

    def send(self, values: Mapping[Target, float], now: float = 0.0) -> None:
        decisions = [Decision(t, None, v, Why.DEMAND, send=True, until=now + 300.0) for t, v in values.items()]
        applied = self._hands.apply(decisions, now)
        assert {one.outcome for one in applied} == {Outcome.DONE}, applied

    def passes(self, tenant: str) -> bool:
        """Whether a request larger than any bucket passes: only where there is no cap."""
        keys = [f"governor:{{chat}}:{kind}:{tenant}" for kind in ("tenant_cap", "bucket", "standing")]
        return bool(self._take(keys=keys, args=["take", 1_000_000])[0])


@contextmanager
def _stand() -> Iterator[_Stand]:
    with (
        tempfile.TemporaryDirectory(prefix="governor-bench-") as name,
        real_redis(Path(name)) as real,
        redis.Redis(port=real.port) as client,
    ):
        stand = _Stand(real.url, client)
        try:
            yield stand
        finally:
            stand.close()


def _cap() -> Sequence[float]:
    """A tenant is capped and freed in turn, until a gateway's next take is answered so."""
    out = []
    with _stand() as stand:
        for turn in range(_ROUNDS):
            free = turn % 2 == 1
            began = time.perf_counter()
            stand.send({_tenant(0): NO_LIMIT if free else 100.0})
            passed = stand.passes("t0")
            out.append(time.perf_counter() - began)
            assert passed is free
    return out


def _many() -> Sequence[float]:
    """A hundred caps in one compare-and-swap, each with a bucket to be settled."""
    out = []
    with _stand() as stand:
        for turn in range(50):
            began = time.perf_counter()
            stand.send({_tenant(number): 100.0 + turn for number in range(_MANY)})
            out.append(time.perf_counter() - began)
            for number in range(_MANY):
                stand.passes(f"t{number}")
    return out


COURSES = (
    Course("redis", "redis-server", "a cap, until a gateway's next take is answered so", 0.002, _cap),
    Course("redis", "redis-server", "100 caps in one compare-and-swap, with their buckets", 0.02, _many),
)
