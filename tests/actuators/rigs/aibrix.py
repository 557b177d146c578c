"""Rig of ``aibrix``: its users' keys in a real Redis. Its gateway, a program in Go, does not run here."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from actuators.redis import Aibrix, AibrixConfig
from controller.core.model import Lever, Target
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.redis_server import real_redis
from tests.support.relay import relay

A, B, C = (Target("chat", Lever.TENANT_CAP, tenant) for tenant in ("acme", "bert", "carl"))
START = {A: 400.0, B: 600.0, C: 200.0}


def capped(target: Target, value: float) -> dict[str, Any]:
    """A user whose own limit is far above the cap that Governor gave it."""
    tpm = int(60 * value)
    mark = {"by": "governor", "generation": 1, "value": value, "own": 90_000, "tpm": tpm}
    return {"name": target.member, "rpm": 60, "tpm": tpm, "governor": mark}


def aibrix_rig(folder: Path, stack: ExitStack) -> Rig:
    real = stack.enter_context(real_redis(folder))
    wire = stack.enter_context(relay(real.port))

    def user(target: Target) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(real.admin.get(f"aibrix-users/{target.member}"))
        return found

    def edit(value: float) -> None:
        real.admin.set("aibrix-users/acme", json.dumps({**user(A), "tpm": int(60 * value)}))

    for target, value in START.items():
        real.admin.set(f"aibrix-users/{target.member}", json.dumps(capped(target, value)))
    real.admin.save()
    config = AibrixConfig(f"redis://127.0.0.1:{wire.port}/0", timeout=2.0)
    return Rig(
        Aibrix(config, Binding(tuple(START), "governor")),
        Aibrix.describe(config)[Lever.TENANT_CAP],
        START,
        up=500,
        down=300,
        other=700,
        values=lambda: {t: user(t)["tpm"] / 60 for t in START},
        touched=lambda: sum(user(t)["governor"]["generation"] - 1 for t in START),
        edit=edit,
        fail=lambda: real.admin.config_set("maxmemory", "1"),
        refuse=lambda: real.admin.execute_command("ACL", "SETUSER", "default", "-set"),
        lose=lambda: wire.lose.append(b"EVAL"),
        forget=real.restart,
    )


RIGS = {"aibrix": aibrix_rig}
