"""Rig of ``webhook``: an endpoint of the tests."""

from contextlib import ExitStack
from pathlib import Path

from actuators.webhook import Webhook, WebhookConfig
from controller.core.model import Lever
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.decisions import replicas
from tests.support.endpoint import endpoint

A, B, C = replicas("a"), replicas("b"), replicas("c")
START = {A: 4.0, B: 6.0, C: 2.0}


def webhook_rig(_: Path, stack: ExitStack) -> Rig:
    end = stack.enter_context(endpoint())
    end.values = {(t.pool, "replicas", ""): value for t, value in START.items()}
    config = WebhookConfig(url=end.url, read_url=end.url, timeout=0.3, retries=0)
    return Rig(
        Webhook(config, Binding(tuple(START), "governor")),
        Webhook.describe(config)[Lever.REPLICAS],
        START,
        up=5,
        down=3,
        other=7,
        values=lambda: {replicas(pool): value for (pool, _, _), value in end.values.items()},
        touched=lambda: len(end.posts),
        edit=lambda value: end.values.update({("a", "replicas", ""): value}),
        fail=lambda: end.script.append(("POST", 503)),
        refuse=lambda: end.script.append(("POST", 403)),
        lose=lambda: end.script.append(("POST", "lost")),
    )


RIGS = {"webhook": webhook_rig}
