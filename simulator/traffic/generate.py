"""The requests of a generated stream, single ones or conversations, a batch at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.traffic import chance, prefixes
from simulator.traffic.arrivals import Gaps, Rate, arrival_times
from simulator.traffic.cast import Batch, Cast, Row
from simulator.traffic.chance import Floats
from simulator.traffic.conversations import Talk
from simulator.traffic.spec import Generated

SLICE = 512  # requests whose prefix hashes exist at once


def rows(stream: Generated, index: int, seed: int, start: float, duration: float) -> Iterator[Row]:
    """The stream's requests in order, as rows; `index` is its place among the streams."""
    cast = Cast(stream, index, seed, stream.answer.most)
    begin, end = stream.start, duration if stream.end is None else min(stream.end, duration)
    if begin >= end:
        return
    batches = _conversations(stream, cast, seed, begin, end) if stream.conversations else None
    for batch in batches or _singles(stream, cast, seed, begin, end):
        batch.at = batch.at + start
        yield from cast.rows(batch)


def _times(stream: Generated, seed: int, begin: float, end: float) -> Iterator[Floats]:
    each = stream.conversations.turns if stream.conversations else 1.0
    gaps = Gaps(stream.arrivals, chance.stream(seed, stream.name, "arrivals"))
    return arrival_times(Rate(stream.rate / each, stream.shapes), gaps, begin, end)


def _singles(stream: Generated, cast: Cast, seed: int, begin: float, end: float) -> Iterator[Batch]:
    of_prompt = chance.stream(seed, stream.name, "prompt")
    of_answer = chance.stream(seed, stream.name, "answer")
    system_prompts = prefixes.SystemPrompts(stream.prefix, seed, stream.name)
    root = chance.number(seed, stream.name, "text")
    done = 0
    for at in _times(stream, seed, begin, end):
        count = len(at)
        tenant, kind = cast.draw(count)
        prompt, answer = stream.prompt.draw(of_prompt, count), stream.answer.draw(of_answer, count)
        if stream.prefix is None:
            yield Batch(at, prompt, answer, tenant, kind)
            continue
        system, shared = system_prompts.draw(tenant)
        own = prefixes.keys(root, np.arange(done, done + count))
        done += count
        prompt = prompt + system
        for low in range(0, count, SLICE):
            part = slice(low, low + SLICE)
            hashed = prefixes.hashes(prompt[part], stream.block, own[part], system[part], shared[part])
            yield Batch(at[part], prompt[part], answer[part], tenant[part], kind[part], hashed)


def _conversations(stream: Generated, cast: Cast, seed: int, begin: float, end: float) -> Iterator[Batch]:
    law = stream.conversations
    assert law is not None  # noqa: S101 - the caller has looked
    talk = Talk(stream, law, seed)
    system_prompts = prefixes.SystemPrompts(stream.prefix, seed, stream.name)
    root = chance.number(seed, stream.name, "text")
    # A stream that is there from the start has conversations that began before it.
    since = begin - talk.lasting if begin == 0 else begin
    pending: dict[str, NDArray[Any]] = {}
    done = 0
    for starts in _times(stream, seed, since, end):
        count = len(starts)
        tenant, kind = cast.draw(count)
        system, shared = system_prompts.draw(tenant)
        number = np.arange(done, done + count)
        done += count
        turns = talk.turns(starts, system)
        owner = turns.owner
        fresh = {
            "at": turns.at, "prompt": turns.prompt, "answer": turns.answer, "tenant": tenant[owner],
            "kind": kind[owner], "system": system[owner], "shared": shared[owner], "number": number[owner],
        }  # fmt: skip
        inside = (turns.at >= begin) & (turns.at < end)
        merged = {name: column[inside] for name, column in fresh.items()}
        if pending:
            merged = {name: np.concatenate((pending[name], column)) for name, column in merged.items()}
        order = np.argsort(merged["at"], kind="stable")
        ripe = int(np.searchsorted(merged["at"][order], starts[-1], side="right"))
        yield from _slices(stream, root, {name: column[order[:ripe]] for name, column in merged.items()})
        pending = {name: column[order[ripe:]] for name, column in merged.items()}
    if pending:
        yield from _slices(stream, root, pending)


def _slices(stream: Generated, root: int, columns: dict[str, NDArray[Any]]) -> Iterator[Batch]:
    for low in range(0, len(columns["at"]), SLICE):
        part = {name: column[low : low + SLICE] for name, column in columns.items()}
        own = prefixes.keys(root, part["number"])
        hashed = prefixes.hashes(part["prompt"], stream.block, own, part["system"], part["shared"])
        session = [f"{stream.name}-{number}" for number in part["number"].tolist()]
        yield Batch(part["at"], part["prompt"], part["answer"], part["tenant"], part["kind"], hashed, session)


__all__ = ["SLICE", "rows"]
