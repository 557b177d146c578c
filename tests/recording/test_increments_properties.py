"""Whatever pods do between scrapes: no increment is negative, ticks only partition the sum, and the arithmetic on
arrays says what the rules say series by series."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controller.core.facts import Fact
from controller.core.observation import Observation
from sources.frames import Layout, Sample, labels
from sources.increments import Increments
from tests.support.streams import needs

EDGES = (0.5, 1.0, math.inf)
PODS = ("a", "b", "c")
NAME = "vllm:time_to_first_token_seconds"
TOKENS = "vllm:generation_tokens_total"


@dataclass(frozen=True)
class Moment:
    """What one pod did before one scrape: `events` per bucket; it may have been restarted first. `seen` tells how the
    scrape went: "ok", "down" (up is 0 and no series), or "gone" (not even up)."""

    events: tuple[int, int, int]
    restarted: bool
    seen: str


moments = st.builds(
    Moment,
    st.tuples(*[st.integers(0, 5)] * 3),
    st.sampled_from([False] * 5 + [True]),
    st.sampled_from(["ok"] * 6 + ["down", "gone"]),
)
histories = st.lists(st.tuples(*[moments] * len(PODS)), min_size=2, max_size=12)
Scrape = tuple[Sample, ...]


def scrapes(history: Sequence[Sequence[Moment]]) -> list[Scrape]:
    """The samples of each scrape. A histogram appears with its first sample, as some client libraries have it."""
    state: dict[str, list[int]] = {pod: [0, 0, 0] for pod in PODS}
    found = []
    for row in history:
        samples: list[Sample] = []
        for pod, moment in zip(PODS, row, strict=True):
            counts = state[pod] = [0, 0, 0] if moment.restarted else state[pod]
            for bucket, events in enumerate(moment.events):
                counts[bucket] += events
            samples += _exposed(pod, counts, moment.seen)
        found.append(tuple(samples))
    return found


def _exposed(pod: str, counts: Sequence[int], seen: str) -> list[Sample]:
    target = [("job", "vllm"), ("instance", pod)]
    own = [*target, ("pod", pod), ("model_name", "m")]
    samples = [] if seen == "gone" else [Sample("up", labels(target), float(seen == "ok"))]
    if seen == "ok":
        samples.append(Sample(TOKENS, labels(own), float(sum(counts))))
        if sum(counts):
            for bucket, edge in enumerate(EDGES):
                le = "+Inf" if edge == math.inf else str(edge)
                samples.append(Sample(f"{NAME}_bucket", labels([*own, ("le", le)]), float(sum(counts[: bucket + 1]))))
            samples.append(Sample(f"{NAME}_count", labels(own), float(sum(counts))))
            samples.append(Sample(f"{NAME}_sum", labels(own), float(sum(counts))))
    return samples


def observed(stream: Sequence[Scrape], ticks: set[int]) -> list[Observation]:
    """Observations after the scrapes whose numbers are ticks; the first scrape always is one."""
    increments, layout, found = Increments([needs()]), Layout(), []
    for number, samples in enumerate(stream):
        increments.feed(layout.frame(15.0 * number, samples))
        if number == 0 or number in ticks:
            found.append(increments.take(15.0 * number))
    return found


def total(observations: Sequence[Observation], replica: str = "") -> tuple[float, ...]:
    """All new tokens, and all new samples per bucket, over the observations: of the pool or of one replica."""
    tokens = 0.0
    sums = [0.0] * (len(EDGES) + 1)
    for one in observations:
        pool = one.pools["p"]
        facts = pool.replicas.get(replica) if replica else pool
        if facts is None:
            continue
        tokens += facts.counters.get(Fact.GENERATION_TOKENS, 0.0)
        if (increment := facts.histograms.get(Fact.TTFT)) is not None:
            for place, number in enumerate((*increment.cumulative, increment.count, increment.sum)):
                sums[place] += number
    return (tokens, *sums)


def by_the_rules(stream: Sequence[Scrape]) -> float:
    """New tokens by the rules of core.observation, in the plainest way."""
    found = 0.0
    for before, now in pairwise(stream):
        old = _values(before)
        for (name, pairs), value in _values(now).items():
            if name == TOKENS:
                up = ("up", tuple(pair for pair in pairs if pair[0] in ("job", "instance")))
                last = old.get((name, pairs))
                if last is not None:
                    found += value - last if value >= last else value
                elif old.get(up) == 1.0:
                    found += value
    return found


def _values(samples: Scrape) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(name, pairs): value for name, pairs, value in samples}


@given(histories)
def test_no_increment_is_ever_negative_and_no_bucket_exceeds_the_next(history: list[tuple[Moment, ...]]) -> None:
    for one in observed(scrapes(history), set(range(len(history))))[1:]:
        for facts in (one.pools["p"], *one.pools["p"].replicas.values()):
            assert all(value >= 0 for value in facts.counters.values())
            for increment in facts.histograms.values():
                ladder = (0.0, *increment.cumulative, increment.count)
                assert list(ladder) == sorted(ladder)
                assert increment.sum >= 0


@given(histories, st.sets(st.integers(1, 11)))
def test_ticks_only_partition_what_happened(history: list[tuple[Moment, ...]], ticks: set[int]) -> None:
    stream, last = scrapes(history), len(history) - 1
    coarse = observed(stream, ticks | {last})
    assert total(coarse) == total(observed(stream, set(range(len(stream)))))
    assert [one.since for one in coarse[1:]] == [one.at for one in coarse[:-1]]


@given(histories)
def test_arrays_and_rules_agree(history: list[tuple[Moment, ...]]) -> None:
    stream = scrapes(history)
    assert total(observed(stream, set(range(len(stream)))))[0] == by_the_rules(stream)


@given(histories)
def test_nothing_is_lost_while_pods_live_and_answer(history: list[tuple[Moment, ...]]) -> None:
    calm = [tuple(Moment(moment.events, restarted=False, seen="ok") for moment in row) for row in history]
    tokens, *sums = total(observed(scrapes(calm), set(range(len(calm)))))
    happened = [sum(moment.events[b] for row in calm[1:] for moment in row) for b in range(3)]
    assert tokens == sum(happened)
    assert sums == [happened[0], happened[0] + happened[1], sum(happened), sum(happened)]


@given(histories)
def test_replicas_add_up_to_their_pool_while_they_are_there(history: list[tuple[Moment, ...]]) -> None:
    calm = [tuple(Moment(moment.events, moment.restarted, "ok") for moment in row) for row in history]
    seen = observed(scrapes(calm), set(range(len(calm))))
    parts = [total(seen, pod) for pod in PODS]
    assert total(seen) == tuple(sum(column) for column in zip(*parts, strict=True))
