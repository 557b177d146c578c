"""Rigs of ``litellm``: the plugin's document in a file, with its status, and in Redis; and the API of a database.

The plugin runs in the tests' process here; ``tests/actuators/test_litellm_proxy.py`` has it in the real proxy. The API
is a fake that says so: the real one's database mode does not run here.
"""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from actuators.litellm import LiteLLM, LiteLLMConfig, LiteLLMPool
from actuators.litellm import governor_litellm as plugin
from actuators.redis.server import RedisServer
from controller.core.model import Lever, Target
from controller.core.params import SecretRef
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.litellm_db import litellm_database
from tests.support.plugin_status import plugin_status
from tests.support.redis_server import real_redis
from tests.support.relay import relay

A, B, C = (Target("chat", Lever.WEIGHT, name) for name in ("a", "b", "c"))
START = {A: 0.4, B: 0.6, C: 0.2}
POOLS = {"chat": LiteLLMPool("chat")}
BOUND = Binding((), "governor", (("chat", Lever.WEIGHT),))


def begun() -> str:
    values = {target.member: {"value": value, "expires_at": None} for target, value in START.items()}
    return json.dumps({"version": 1, "generation": 1, "by": "governor",
                       "pools": {"chat": {"model": "chat", "weight": values}}})  # fmt: skip


def told(text: str) -> dict[Target, float]:
    """What the plugin makes of a document."""
    values = plugin.parse(text).pools["chat"].values["weight"]
    return {t: one.now(time.time()) or 0.0 if (one := values.get(t.member)) else 1.0 for t in START}


def edited(text: str, value: float) -> str:
    document: dict[str, Any] = json.loads(text)
    document["pools"]["chat"]["weight"]["a"]["value"] = value
    return json.dumps(document)


def plugin_rig(folder: Path, stack: ExitStack) -> Rig:
    path = folder / "governor.json"
    path.write_text(begun())
    status = stack.enter_context(plugin_status(plugin.Reader(path=str(path))))
    config = LiteLLMConfig(POOLS, document=str(path), status=(status.url,), timeout=1.0)

    def lose() -> None:
        status.drop = 1

    return Rig(
        LiteLLM(config, BOUND),
        LiteLLM.describe(config)[Lever.WEIGHT],
        START,
        up=0.5,
        down=0.3,
        other=0.7,
        values=lambda: told(path.read_text()),
        touched=lambda: int(json.loads(path.read_text())["generation"]) - 1,
        edit=lambda value: path.write_text(edited(path.read_text(), value)),
        fail=None,
        lose=lose,
        cannot={
            "fail": "nothing refuses root a file; test_litellm.py has the disk that is full",
            "refuse": "a file has nobody who could refuse",
        },
    )


def redis_rig(folder: Path, stack: ExitStack) -> Rig:
    real = stack.enter_context(real_redis(folder))
    wire = stack.enter_context(relay(real.port))
    real.admin.set("governor:litellm", begun())
    real.admin.save()
    config = LiteLLMConfig(POOLS, redis=RedisServer(f"redis://127.0.0.1:{wire.port}/0", timeout=2.0))
    return Rig(
        LiteLLM(config, BOUND),
        LiteLLM.describe(config)[Lever.WEIGHT],
        START,
        up=0.5,
        down=0.3,
        other=0.7,
        values=lambda: told(real.admin.get("governor:litellm")),
        touched=lambda: int(json.loads(real.admin.get("governor:litellm"))["generation"]) - 1,
        edit=lambda value: real.admin.set("governor:litellm", edited(real.admin.get("governor:litellm"), value)),
        fail=lambda: real.admin.config_set("maxmemory", "1"),
        refuse=lambda: real.admin.execute_command("ACL", "SETUSER", "default", "-set"),
        lose=lambda: wire.lose.append(b"EVAL"),
        forget=real.restart,
    )


def api_rig(folder: Path, stack: ExitStack) -> Rig:
    data = stack.enter_context(litellm_database())
    for target, value in START.items():
        mark = {"by": "governor", "generation": 1, "weight": None, "values": {"weight": value}}
        data.model(target.member, "chat", value, governor=mark)
    secret = folder / "key"
    secret.write_text(data.master_key)
    config = LiteLLMConfig(POOLS, mode="api", url=data.url, master_key=SecretRef(file=str(secret)), timeout=1.0)

    def edit(value: float) -> None:
        data.models["a"]["litellm_params"]["weight"] = value

    return Rig(
        LiteLLM(config, BOUND),
        LiteLLM.describe(config)[Lever.WEIGHT],
        START,
        up=0.5,
        down=0.3,
        other=0.7,
        values=lambda: {t: float(data.models[t.member]["litellm_params"]["weight"]) for t in START},
        touched=lambda: len(data.writes),
        edit=edit,
        fail=lambda: data.script.append(429),
        refuse=lambda: data.script.append(403),
        lose=lambda: data.script.append("lost"),
    )


RIGS = {"litellm-api": api_rig, "litellm-plugin": plugin_rig, "litellm-redis": redis_rig}
