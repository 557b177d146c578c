"""How fast real routers do what was decided."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

from actuators.router import Router, RouterConfig, RouterPool
from benchmarks.actuators import Course
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.why import Why
from tests.support.routers import called, shared

_ROUNDS = 200


def _rounds(make: Literal["sglang", "vllm"]) -> Iterator[float]:
    """One of three workers goes or comes, read back, and a request is answered so."""
    real = shared(make)
    real.reset()
    actuator = Router(
        RouterConfig(make, {"chat": RouterPool((real.url,))}), Binding((), scopes=(("chat", Lever.BREAKER),))
    )
    target = Target("chat", Lever.BREAKER, called(real.engines[0]))
    real.traffic(30)
    try:
        for turn in range(_ROUNDS):
            factor = float(turn % 2)
            began = time.perf_counter()
            (applied,) = actuator.apply([Decision(target, 1.0 - factor, factor, Why.DEMAND, send=True)], 0.0)
            assert applied.outcome is Outcome.DONE, applied
            while (0 in real.traffic(1)) is not bool(factor):
                assert factor, "a request went to the worker that is out"
            yield time.perf_counter() - began
    finally:
        actuator.close()


def _all(make: Literal["sglang", "vllm"]) -> Callable[[], Sequence[float]]:
    return lambda: list(partial(_rounds, make)())


COURSES = (
    Course("router", "sglang-router", "a worker goes or comes, until a request is answered so", 0.1, _all("sglang")),
    Course("router", "vllm-router", "a worker goes or comes, until a request is answered so", 0.1, _all("vllm")),
)
