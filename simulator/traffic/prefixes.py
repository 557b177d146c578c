"""Prefix hashes: what two prompts share, block by block.

A prompt is a system prompt (perhaps) and then the text of one conversation (or of one request), which only grows at its
end. So a block is identified by whose text it ends in and by its place, and the hash of these two is chained by
construction: equal hashes mean that all before is equal too.
"""

import numpy as np

from simulator.traffic import chance
from simulator.traffic.cast import pick, zipf
from simulator.traffic.chance import Ints, Keys
from simulator.traffic.spec import Prefix
from simulator.traffic.traces import Trace

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TABLE = 4096  # lengths drawn for system prompts; the key of a system prompt picks one


def keys(root: int, numbers: Ints) -> Keys:
    """One key of 64 bits for each number, of the family `root`."""
    return chance.mix(np.uint64(root) + (numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def with_answers(
    prompt: Ints, answer: Ints, block: int, own: Keys, system: Ints, shared: Keys
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """As `hashes`, and those of the blocks that the answers fill."""
    key, ends = _keys((prompt + answer) // block, block, own, system, shared)
    bounds = np.column_stack((ends - (prompt + answer) // block + prompt // block, ends)).ravel()
    pieces = _cut(key, bounds)
    return pieces[0::2], pieces[1::2]


def hashes(prompt: Ints, block: int, own: Keys, system: Ints, shared: Keys) -> list[tuple[int, ...]]:
    """The hashes of all full blocks of each prompt. The first `system` tokens are those of the system prompt `shared`,
    the rest belongs to the text `own`."""
    return _cut(*_keys(prompt // block, block, own, system, shared))


def _keys(counts: Ints, block: int, own: Keys, system: Ints, shared: Keys) -> tuple[Keys, Ints]:
    """Of `counts` blocks of each text, one after the other, and where each text ends."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    place = np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)
    key = np.where(place < np.repeat(system // block, counts), np.repeat(shared, counts), np.repeat(own, counts))
    return key + place.astype(np.uint64) * _GOLDEN, ends


def recorded(trace: Trace, row: Ints, prompt: Ints, block: int, own: Keys) -> list[tuple[int, ...]]:
    """The hashes of the full blocks of requests of a trace, which names its blocks by numbers; the numbers mean
    something within the text `own` alone. `prompt` and `block` are tokens after scaling."""
    start = trace.bounds[row]
    counts = np.minimum(trace.bounds[row + 1] - start, prompt // block)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    place = np.arange(total, dtype=np.int64) - np.repeat(ends - counts - start, counts)
    key = np.repeat(own, counts) + trace.ids[place].astype(np.uint64) * _GOLDEN
    return _cut(key, ends)


def _cut(key: Keys, ends: Ints) -> list[tuple[int, ...]]:
    flat = (chance.mix(key) >> np.uint64(1)).tolist()
    bounds = ends.tolist()
    return [tuple(flat[start:end]) for start, end in zip([0, *bounds], bounds, strict=False)]


class SystemPrompts:
    """The system prompts of a stream, drawn for its requests."""

    def __init__(self, law: Prefix | None, seed: int, stream: str) -> None:
        self._law = law
        self._root = chance.number(seed, stream, "system prompts")
        if law is not None:
            self._use = chance.stream(seed, stream, "system prompt")
            self._popularity = zipf(law.prompts, law.zipf)
            self._lengths = law.tokens.draw(chance.stream(seed, stream, "system prompt lengths"), _TABLE)

    def draw(self, tenant: Ints) -> tuple[Ints, Keys]:
        """Tokens and key of the system prompt of each of these tenants' requests; no tokens where there is none."""
        count = len(tenant)
        law = self._law
        if law is None:
            return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.uint64)
        dice = self._use.random(count) < law.share
        number = pick(self._popularity, self._use, count)
        if not law.common:
            number = number + tenant * law.prompts
        key = keys(self._root, number)
        tokens = self._lengths[(key % np.uint64(_TABLE)).astype(np.int64)]
        return np.where(dice, tokens, 0), key
