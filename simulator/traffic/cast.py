"""Who asks: tenants and classes drawn for a stream's requests, and the rows that become jobs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.core.errors import InputError
from simulator.traffic import chance
from simulator.traffic.audience import Audience, Class, Tenant
from simulator.traffic.chance import Floats, Ints, Keys

SHEDDABLE = "sheddable"

# When (unix seconds), the stream's place in the list, a running number, the answer's length, the patience, and the
# hashes of the blocks after the prompt's, and the fields of Request after `id`, in order. The first three make rows of
# several streams comparable.
Row: TypeAlias = tuple[float, int, int, int, float | None, tuple[int, ...], tuple[object, ...]]


def zipf(count: int, exponent: float) -> Floats:
    """Shares of `count` ranks in proportion to rank^-exponent, cumulated to 1."""
    shares = np.cumsum(np.arange(1, count + 1, dtype=float) ** -exponent)
    return np.asarray(shares / shares[-1])


def pick(cumulated: Floats, rng: np.random.Generator, count: int) -> Ints:
    """Indices drawn by cumulated shares."""
    return _at(cumulated, rng.random(count))


def _at(cumulated: Floats, dice: Floats) -> Ints:
    return np.minimum(np.searchsorted(cumulated, dice, side="right"), len(cumulated) - 1)


def cumulated(shares: Sequence[float]) -> Floats:
    total = math.fsum(shares)
    return np.cumsum(np.array(shares, dtype=float) / total)


@dataclass(slots=True)
class Batch:
    """Requests in order of time, as columns. `at` in unix seconds; `tenant` and `kind` are indices into the cast;
    `prefix`, `after` (what the answer adds to it) and `session` are None where the stream has none."""

    at: Floats
    prompt: Ints
    answer: Ints
    tenant: Ints
    kind: Ints
    prefix: list[tuple[int, ...]] | None = None
    session: list[str] | None = None
    after: list[tuple[int, ...]] | None = None


class Cast:
    """The tenants and classes of one stream."""

    def __init__(
        self, stream: Audience, index: int, seed: int, longest: int, block: int | None = None, named: Sequence[str] = ()
    ) -> None:
        """`longest` is the longest answer that can be drawn, `block` the tokens of a block where a trace sets them, and
        `named` the tenants that a trace names."""
        self._stream = stream
        self._index = index
        self.most = longest if stream.max_tokens is None else stream.max_tokens  # longest answer, tokens
        self.block = stream.block if block is None else block
        self._serial = 0
        self._of_tenant = chance.stream(seed, stream.name, "tenant")
        self._of_class = chance.stream(seed, stream.name, "class")
        self._of_shed = chance.stream(seed, stream.name, "sheddable")
        self._of_patience = chance.stream(seed, stream.name, "patience")
        entries = _those(stream, named) if named else stream.tenants or (Tenant(name=""),)
        self._classes = stream.classes or (Class(name=""),)
        shares: list[float] = []
        entry_of: list[int] = []
        names: list[str] = []
        for number, entry in enumerate(entries):
            parts = np.diff(zipf(entry.count, entry.zipf), prepend=0.0)
            shares.extend((entry.share * parts).tolist())
            entry_of.extend(repeat(number, entry.count))
            names.extend([entry.name] if entry.count == 1 else [f"{entry.name}-{i}" for i in range(entry.count)])
        self._tenant_shares = cumulated(shares)
        self._entry = np.array(entry_of)
        self._class_shares = np.array(
            [cumulated([t.classes.get(c.name, 0.0) if t.classes else c.share for c in self._classes]) for t in entries]
        )
        last = max(entry.priority for entry in self._classes) + 1
        kinds = [(c.name, c.priority, c) for c in self._classes] + [(SHEDDABLE, last, c) for c in self._classes]
        self._kind_names = _objects([name for name, _, _ in kinds])
        self._priorities = _objects([priority for _, priority, _ in kinds])
        self._deadlines = np.array([math.nan if c.deadline is None else c.deadline for _, _, c in kinds])
        self._patience = np.array([math.nan if c.patience is None else c.patience for _, _, c in kinds])
        self._spread = np.array([math.sqrt(math.log1p(c.patience_cv**2)) for _, _, c in kinds])
        self._names = _objects(names)
        self._models = _objects([entries[e].model or stream.model for e in entry_of])
        self._adapters = _objects([entries[e].adapter or stream.adapter for e in entry_of])
        self._regions = _objects([entries[e].region or stream.region for e in entry_of])

    def draw(self, count: int) -> tuple[Ints, Ints]:
        """Tenants, and a kind for each."""
        tenant = self.tenants(count)
        return tenant, self.kinds(tenant)

    def tenants(self, count: int) -> Ints:
        if len(self._tenant_shares) == 1:
            return np.zeros(count, dtype=np.int64)
        return pick(self._tenant_shares, self._of_tenant, count)

    def assign(self, keys: Keys) -> Ints:
        """The tenant that each key stands for, by the shares."""
        return _at(self._tenant_shares, (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def kinds(self, tenant: Ints) -> Ints:
        """The class of each of these tenants' requests, and whether it may be shed first."""
        kind = np.zeros(len(tenant), dtype=np.int64)
        if len(self._classes) > 1:
            dice = self._of_class.random(len(tenant))
            kind = (self._class_shares[self._entry[tenant]] <= dice[:, None]).sum(axis=1)
            kind = np.minimum(kind, len(self._classes) - 1)
        if self._stream.sheddable:
            kind = kind + len(self._classes) * (self._of_shed.random(len(tenant)) < self._stream.sheddable)
        return kind

    def rows(self, batch: Batch) -> Iterator[Row]:
        """The batch, ready to be merged with other streams'."""
        count = len(batch.at)
        stream = self._stream
        serial, self._serial = self._serial, self._serial + count
        args = zip(
            batch.prompt.tolist(),
            repeat(self.most),
            repeat(()) if batch.prefix is None else batch.prefix,
            repeat(self.block),
            repeat("") if batch.session is None else batch.session,
            self._names[batch.tenant].tolist(),
            self._kind_names[batch.kind].tolist(),
            self._priorities[batch.kind].tolist(),
            _optional(batch.at + self._deadlines[batch.kind]),
            self._models[batch.tenant].tolist(),
            repeat(stream.version),
            self._adapters[batch.tenant].tolist(),
            repeat(stream.precision),
            repeat(stream.hardware),
            self._regions[batch.tenant].tolist(),
            repeat(stream.zone),
            strict=False,
        )
        return zip(
            batch.at.tolist(),
            repeat(self._index),
            range(serial, serial + count),
            np.minimum(batch.answer, self.most).tolist(),
            self._patiences(batch.kind),
            repeat(()) if batch.after is None else batch.after,
            args,
            strict=False,
        )

    def _patiences(self, kind: Ints) -> list[float | None]:
        mean = self._patience[kind]
        if not self._spread.any():
            return _optional(mean)
        spread = self._spread[kind]
        return _optional(mean * np.exp(spread * self._of_patience.standard_normal(len(kind)) - spread**2 / 2))


def _those(stream: Audience, named: Sequence[str]) -> Sequence[Tenant]:
    """The tenants of a trace, each as the stream describes it, or as any other."""
    known = {tenant.name: tenant for tenant in stream.tenants}
    if stranger := next((name for name in known if name not in named), None):
        some = ", ".join(sorted(named)[:10])
        raise InputError(
            f"traffic {stream.name!r}: tenant {stranger!r} is not in the trace; it has {some}"
            + (f" and {len(named) - 10} more" if len(named) > 10 else "")
        )
    return [known.get(name) or Tenant(name=name) for name in named]


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    """An array of Python objects, so that picking by an index array gives the very objects."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _optional(values: Floats) -> list[float | None]:
    """None for NaN."""
    missing = np.isnan(values)
    if missing.all():
        return [None] * len(values)
    if not missing.any():
        return list(values.tolist())
    return [None if none else value for value, none in zip(values.tolist(), missing.tolist(), strict=True)]
