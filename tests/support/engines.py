"""Short notation for engines and the jobs that they are given."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import inf

from controller.core.step_model import Profile
from routing.model import Request
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from simulator.job import Job

# No step lasts what a bucket edge says, so that float noise moves no sample across one.
PROFILE = Profile(a=6.1713e-3, b=15.351e-6, c=13.817e-6, d=41.53e-9, e=1.413e-9, max_num_seqs=64.0, kv_tokens=32_000)
# Easy sums: a step lasts 10 ms, and 1 ms more for each prefill token.
EASY = Profile(a=0.010, b=0.001, c=0.0, d=0.0, e=0.0, max_num_seqs=4.0, kv_tokens=1600)


def spec(profile: Profile = EASY, **changes: object) -> EngineSpec:
    """An engine of easy sums, unless told otherwise."""
    return replace(EngineSpec(profile), **changes)  # type: ignore[arg-type]


def job(
    number: int, prompt: int = 32, output: int = 4, *, at: float = 0.0, prefix: tuple[int, ...] = (), block: int = 16,
    priority: int = 0, adapter: str = "", limit: int | None = None, after: tuple[int, ...] = (),
) -> Job:  # fmt: skip
    """One request; `limit` is its max_tokens, the output itself unless told."""
    request = Request(
        number, prompt, output if limit is None else limit, prefix=prefix, block=block, priority=priority,
        adapter=adapter,
    )  # fmt: skip
    return Job(request, output, at, after=after)


def settle(engine: Engine) -> list[Job]:
    """Run until nothing is left to happen."""
    ended: list[Job] = []
    while engine.next_at < inf:
        ended += engine.advance(engine.next_at)
    return ended


def drive(engine: Engine, jobs: Iterable[Job]) -> list[Job]:
    """Submit each at its arrival, and run to the end; the jobs in the order in which they ended."""
    ended: list[Job] = []
    for one in jobs:
        while engine.next_at <= one.arrived:
            ended += engine.advance(engine.next_at)
        engine.submit(one, one.arrived)
    ended += settle(engine)
    times = [one.ended_at for one in ended]
    assert all(before is not None and after is not None and before <= after for before, after in pairwise(times))
    return ended
