"""Write docs/evidence.md: what was seen when real recordings were rehearsed.

make evidence
"""

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks import recorded
from benchmarks.recorded import Run
from controller.config import load, pool_needs
from controller.config.terms import pool_specs
from controller.core.meter import Meter
from controller.core.model import PoolReadings
from controller.core.signals import Signal
from sources.recording import RecordingConfig, RecordingSource
from tests.support.vllm_clients import RECORDING, phases

PAGE = recorded.ROOT / "docs" / "evidence.md"

HEAD = """\
# Evidence

What Governor says of recordings of real fleets. This page is written by `make evidence` from the same code as the tests
in `tests/acceptance`, and a test compares the two. The public recordings are not part of the repository.

A recording does not answer back: the recorded replicas stand at every sample, whatever was proposed before. So a
proposal is judged against what was there, and sums of proposals are what was asked for, not what would have happened.
"""

VLLM = """
## A queue that the histogram does not see

vLLM 0.32 with four slots gets 48 requests at once. Engines write a request's wait when it has ended, so the p99 of
finished requests is good while it matters. "To come" is what the last request really had still to wait, from its
client's log; the estimate is queue depth over the rate of leaving the queue.

| s into the overload | waiting | to come, s | estimated, s | p99 of finished, s |
| --- | --- | --- | --- | --- |
"""

WVA = """
## 33 runs of Llama-3.1-8B that WVA scaled

One sample a minute; objectives are means, TTFT 1 s and ITL 30 ms; one config for all runs
(`tests/acceptance/llama31_8b_h100.yaml`). "Full" is the first sample with a queue or with KV usage above 0.9. "Asked"
is the sample since when, up to there, more was proposed than the pods that answered. Replicas and replica-hours compare
what WVA had asked for with the proposals. "More" and "less" count samples at which the two differ; the reasons are
those of these samples ([reasons.md](reasons.md)).
"""

HPA = """
## Three runs of the same cluster under the stock HPA

About a sample every 21 s. Latency and rates were not recorded, so nothing is known of demand but the queue and KV
usage. That is enough to raise and not enough to lower: `unsupported` holds what is there.
"""


def text() -> str:
    """The whole page. Needs shared/data beside the repository."""
    config = load(recorded.CONFIG)
    with tempfile.TemporaryDirectory() as work:
        wva = recorded.wva(config, Path(work) / "wva")
        hpa = recorded.hpa(config, Path(work) / "hpa")
    parts = [HEAD, VLLM, *_queue(), WVA, _sums(wva), *_table(wva), HPA, "\n", *_table(hpa)]
    return "".join(parts)


def _queue() -> Iterator[str]:
    config = load(recorded.ROOT / "tests" / "acceptance" / "vllm.yaml")
    source = RecordingSource(RecordingConfig(str(RECORDING)), pool_needs(config))
    meter, overload = Meter(pool_specs(config)), phases()["overload"]
    ends = overload.last.start + (overload.last.ttft or 0.0)
    begin = phases()["idle"].start
    stuck: list[float] = []
    for at in source.times():
        (seen,) = meter.update(source.observe(at, 1.0)).values()
        if seen.get(Signal.STUCK).value:
            stuck.append(at - begin)
        if 8 <= at - overload.start <= 12:
            yield _moment(at - overload.start, ends - at, seen)
    source.close()
    yield "\nLater the engine is stopped at 179.4 s and continued at 205.4 s, while its health check says 200.\n"
    yield f"It is called stuck from {stuck[0]:.1f} s to {stuck[-1]:.1f} s, and not at the next second.\n"


def _moment(second: float, to_come: float, seen: PoolReadings) -> str:
    waiting, delay = seen.get(Signal.QUEUE_DEPTH).value, seen.get(Signal.QUEUE_DELAY).value
    finished = seen.latency(Signal.QUEUE_TIME, "p99").value
    return f"| {second:.1f} | {_short(waiting)} | {to_come:.0f} | {_short(delay)} | {_short(finished, 3)} |\n"


def _sums(runs: Sequence[Run]) -> str:
    hot = [run for run in runs if run.first_full is not None]
    calm = [run for run in runs if run.first_full is None]
    by_then = sum(run.ahead is not None for run in hot)
    early = sum((run.ahead or 0) >= 1 for run in hot)
    raised = [(to, to / math.ceil(run.peak / recorded.PER_REPLICA)) for run in calm for _, to in run.raises()]
    highest, most = (max(column) for column in zip(*raised, strict=True))
    lowered = sum(by < 0 for run in runs for sample, by, _ in run.differences() if sample.waiting > 0)
    stretches = [(run, stretch) for run in runs for stretch in run.steady()]
    turned = sum(run.turns(stretch) > 0 for run, stretch in stretches)
    fell_back = sum(run.steps_back(stretch) > 1 for run, stretch in stretches)
    return f"""
- {len(hot)} runs became full. In {by_then} of them more was proposed by that sample, in {early} a sample or more
  before.
- {len(calm)} stayed calm. The highest raise there was to {highest:g} replicas, at most {most:g} times
  what the peak of that run needs at {recorded.PER_REPLICA:,.0f} requests a minute each.
- While requests waited, {lowered} proposals lowered replicas.
- There are {len(stretches)} stretches of constant load (five samples or more within ±15 %, the same replicas).
  In {turned} of them a proposal turned from above what was recorded to below it, or back. In {fell_back} the bare
  number changed its direction more than once: it went below what was recorded and fell back to it.

"""


def _table(runs: Iterable[Run]) -> Iterator[str]:
    heads = ("run", "peak/min", "full", "asked", "most replicas", "replica-hours", "more", "less", "why")
    yield f"| {' | '.join(heads)} |\n| {' | '.join('---' for _ in heads)} |\n"
    for run in runs:
        yield _row(run)


def _row(run: Run) -> str:
    by = [more for _, more, _ in run.differences()]
    reasons = Counter(why.value for _, _, why in run.differences())
    was, would = run.hours()
    cells = (
        run.name.removeprefix("model-based-"),
        f"{run.peak:.0f}" if run.peak else "",
        _minute(run, run.first_full),
        _minute(run, run.standing_since),
        f"{max(s.wanted for s in run.samples)} → {max(d.final or 0 for d in run.decisions):.0f}",
        f"{was:.2f} → {would:.2f}",
        str(sum(more > 0 for more in by) or ""),
        str(sum(more < 0 for more in by) or ""),
        ", ".join(f"{name} {times}" for name, times in reasons.most_common()),
    )
    return f"| {' | '.join(cells)} |\n"


def _minute(run: Run, sample: int | None) -> str:
    return "" if sample is None else f"{(run.samples[sample].at - run.samples[0].at) / 60:.1f} min"


def _short(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    if not recorded.RECORDINGS.exists():
        sys.exit(f"{recorded.RECORDINGS} is not there; the public recordings are not part of the repository")
    PAGE.write_text(text(), encoding="utf-8")
    print(f"wrote {PAGE}")
