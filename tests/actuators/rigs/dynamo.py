"""Rig of ``dynamo``: a real frontend with three models, behind a wire."""

from contextlib import ExitStack
from pathlib import Path

from actuators.dynamo import Dynamo, DynamoConfig, DynamoPool
from controller.core.model import Lever, Target
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.dynamo import BLOCKS, PROMPT, shared
from tests.support.relay import relay

START = {Target(model, Lever.ADMISSION, "concurrency"): 4.0 for model in "abc"}


def dynamo_rig(folder: Path, stack: ExitStack) -> Rig:
    _, front = shared()
    for model in "abc":
        front.set(model, 3.5 * 2 / BLOCKS)
    wire = stack.enter_context(relay(front.port))
    wire.counts = (b"POST /busy_threshold",)
    pools = {model: DynamoPool(model, float(PROMPT)) for model in "abc"}
    config = DynamoConfig((f"http://127.0.0.1:{wire.port}",), pools)
    return Rig(
        Dynamo(config, Binding(tuple(START))),
        Dynamo.describe(config)[Lever.ADMISSION],
        START,
        up=6,
        down=3,
        other=9,
        values=lambda: {target: (front.threshold(target.pool) or 0.0) * BLOCKS / 2 + 0.5 for target in START},
        touched=lambda: wire.counted,
        edit=lambda value: front.set("a", (value - 0.5) * 2 / BLOCKS),
        fail=lambda: wire.lose.append(b"GET /busy_threshold"),
        lose=lambda: wire.lose.append(b"POST /busy_threshold"),
        forget=lambda: front.restart(*"abc"),
        cannot={"refuse": "it takes every number that the formula can give; unknown models are in test_dynamo.py"},
    )


RIGS = {"dynamo": dynamo_rig}
