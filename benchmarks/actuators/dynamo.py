"""How fast a real frontend of Dynamo does what was decided."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from actuators.dynamo import Dynamo, DynamoConfig, DynamoPool
from benchmarks.actuators import Course
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.rest import NO_LIMIT
from controller.core.why import Why
from tests.support.dynamo import PROMPT, shared
from tests.support.waiting import until

_ROUNDS = 30
_GATE = Target("a", Lever.ADMISSION, "concurrency")


def _rounds() -> Iterator[float]:
    """One request is in flight, the limit falls to it, and requests come every 5 ms until one is refused. A frontend
    looks at a threshold when the load of a worker changes, so that the first one still passes."""
    _, front = shared()
    actuator = Dynamo(DynamoConfig((front.url,), {"a": DynamoPool("a", float(PROMPT))}), Binding((_GATE,)))

    def send(limit: float) -> None:
        (applied,) = actuator.apply([Decision(_GATE, None, limit, Why.DEMAND, send=True)], 0.0)
        assert applied.outcome is Outcome.DONE, applied

    with ThreadPoolExecutor(64) as pool:
        try:
            for turn in range(_ROUNDS):
                send(NO_LIMIT)
                front.quiet()
                asked = [pool.submit(front.one, "a", turn, 12)]
                until(lambda: "dynamo_request_plane_inflight_requests 1\n" in front.ask("GET", "/metrics").text)
                began = time.perf_counter()
                send(1.0)
                while not any(one.done() and one.result() == 529 for one in asked):
                    asked.append(pool.submit(front.one, "a", 1000 + turn * 64 + len(asked), 1))
                    wait(asked[1:], 0.005, return_when=FIRST_COMPLETED)
                yield time.perf_counter() - began
                wait(asked)
        finally:
            actuator.close()


def _all() -> Sequence[float]:
    return list(_rounds())


COURSES = (
    Course("dynamo", "dynamo-python", "a limit falls to what is in flight, until a request gets 529", 0.1, _all),
)
