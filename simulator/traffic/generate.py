"""The requests of a generated stream, single ones or conversations, a batch at a time."""

from collections.abc import Iterator

import numpy as np

from simulator.traffic import chance, prefixes
from simulator.traffic.arrivals import Gaps, Rate, arrival_times
from simulator.traffic.cast import Batch, Cast
from simulator.traffic.chance import Floats
from simulator.traffic.conversations import Talk
from simulator.traffic.lengths import Sizes
from simulator.traffic.overlap import Columns, in_order, slices
from simulator.traffic.spec import Conversations, Generated

SLICE = 512  # requests whose prefix hashes exist at once


def generate(stream: Generated, cast: Cast, sizes: Sizes, seed: int, begin: float, end: float) -> Iterator[Batch]:
    """The stream's requests in order, from `begin` to `end`."""
    if stream.conversations is not None:
        return _conversations(stream, stream.conversations, cast, sizes, seed, begin, end)
    return _singles(stream, cast, sizes, seed, begin, end)


def _times(stream: Generated, per_start: float, seed: int, begin: float, end: float) -> Iterator[Floats]:
    gaps = Gaps(stream.arrivals, chance.stream(seed, stream.name, "arrivals"))
    return arrival_times(Rate(stream.rate / per_start, stream.shapes), gaps, begin, end)


def _singles(stream: Generated, cast: Cast, sizes: Sizes, seed: int, begin: float, end: float) -> Iterator[Batch]:
    system_prompts = prefixes.SystemPrompts(stream.prefix, seed, stream.name)
    root = chance.number(seed, stream.name, "text")
    done = 0
    for at in _times(stream, 1.0, seed, begin, end):
        count = len(at)
        tenant, kind = cast.draw(count)
        prompt, answer = sizes.draw(count)
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


def _conversations(
    stream: Generated, law: Conversations, cast: Cast, sizes: Sizes, seed: int, begin: float, end: float
) -> Iterator[Batch]:
    root = chance.number(seed, stream.name, "text")
    drawn = _drawn(stream, law, cast, sizes, seed, begin, end)
    for columns in in_order(drawn, begin, end):
        for part in slices(columns, SLICE):
            prompt, answer, own = part["prompt"], part["answer"], prefixes.keys(root, part["number"])
            prefix, after = prefixes.with_answers(prompt, answer, stream.block, own, part["system"], part["shared"])
            session = [f"{stream.name}-{number}" for number in part["number"].tolist()]
            yield Batch(part["at"], prompt, answer, part["tenant"], part["kind"], prefix, session, after)


def _drawn(
    stream: Generated, law: Conversations, cast: Cast, sizes: Sizes, seed: int, begin: float, end: float
) -> Iterator[tuple[float, Columns]]:
    talk = Talk(law, sizes, cast.most, seed, stream.name)
    system_prompts = prefixes.SystemPrompts(stream.prefix, seed, stream.name)
    since = begin
    if begin == 0:  # a stream that is there from the start has conversations that began before it
        _, answers = Sizes(stream.prompt, stream.answer, stream.pairs, 0, "").draw(1000)
        since -= talk.lasting(float(np.minimum(answers, cast.most).mean()))
    done = 0
    for starts in _times(stream, law.turns, seed, since, end):
        tenant, kind = cast.draw(len(starts))
        system, shared = system_prompts.draw(tenant)
        number = np.arange(done, done + len(starts))
        done += len(starts)
        turns = talk.turns(starts, system)
        who = turns.owner
        yield (
            float(starts[-1]),
            {
                "at": turns.at,
                "prompt": turns.prompt,
                "answer": turns.answer,
                "tenant": tenant[who],
                "kind": kind[who],
                "system": system[who],
                "shared": shared[who],
                "number": number[who],
            },
        )
