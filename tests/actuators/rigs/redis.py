"""Rigs of ``redis``: a real Redis behind a wire that can be cut."""

from contextlib import ExitStack
from pathlib import Path

from actuators.redis import Redis, RedisConfig
from controller.core.model import Lever, Target
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.redis_server import real_redis
from tests.support.relay import relay

A, B, C = (Target("chat", Lever.TENANT_CAP, tenant) for tenant in ("acme", "bert", "carl"))
START = {A: 400.0, B: 600.0, C: 200.0}


def key(target: Target) -> str:
    return f"governor:{{chat}}:tenant_cap:{target.member}"


def redis_rig(folder: Path, stack: ExitStack) -> Rig:
    real = stack.enter_context(real_redis(folder))
    wire = stack.enter_context(relay(real.port))
    for target, value in START.items():
        real.admin.hset(key(target), mapping={"value": value, "by": "governor", "generation": 1})
    real.admin.set("governor:{chat}:generation", 1)
    real.admin.save()
    config = RedisConfig(f"redis://127.0.0.1:{wire.port}/0", timeout=2.0)
    return Rig(
        Redis(config, Binding(tuple(START), "governor")),
        Redis.describe(config)[Lever.TENANT_CAP],
        START,
        up=500,
        down=300,
        other=700,
        values=lambda: {t: float(real.admin.hget(key(t), "value")) for t in START},
        touched=lambda: int(real.admin.get("governor:{chat}:generation")) - 1,
        edit=lambda value: real.admin.hset(key(A), "value", value),
        fail=lambda: real.admin.config_set("maxmemory", "1"),
        refuse=lambda: real.admin.execute_command("ACL", "SETUSER", "default", "-hset"),
        lose=lambda: wire.lose.append(b"EVAL"),
        forget=real.restart,
    )


RIGS = {"redis": redis_rig}
