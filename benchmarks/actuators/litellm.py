"""Whether a real LiteLLM proxy does on the next request what was decided, and how long that takes."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actuators.litellm import LiteLLM, LiteLLMConfig, LiteLLMPool
from benchmarks.actuators import Course
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.why import Why
from tests.support.litellm_proxy import configured, litellm_proxy
from tests.support.openai_upstream import upstreams

_ROUNDS = 100
_NAMES = ("vllm-0", "vllm-1")


def _swap() -> Sequence[float]:
    """Two replicas change places. What the answer took without Governor is not taken off: LiteLLM needs some 15 ms."""
    out = []
    with (
        tempfile.TemporaryDirectory(prefix="governor-bench-") as name,
        upstreams(3) as engines,
        litellm_proxy(Path(name), configured(engines)) as proxy,
    ):
        config = LiteLLMConfig({"chat": LiteLLMPool("chat")}, document=str(proxy.document))
        hands = LiteLLM(config, Binding((), "governor", (("chat", Lever.BREAKER),)))
        for turn in range(_ROUNDS):
            comes, goes = _NAMES[turn % 2], _NAMES[(turn + 1) % 2]
            moves = [(Target("chat", Lever.BREAKER, comes), 1.0), (Target("chat", Lever.BREAKER, goes), 0.0)]
            began = time.perf_counter()
            applied = hands.apply([Decision(t, None, v, Why.DEMAND, send=True) for t, v in moves], 0.0)
            answered = proxy.ask().replica
            out.append(time.perf_counter() - began)
            assert {one.outcome for one in applied} == {Outcome.DONE}, applied
            assert answered == comes, "not the next request"
        hands.close()
    return out


COURSES = (
    Course("litellm", "litellm", "two replicas change places, and the very next request is answered so", 0.1, _swap),
)
