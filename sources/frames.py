"""Samples and frames: raw series as a scrape, a Prometheus range or a recording gives them.

All frames of one stream share one ``Layout``, which gives each series a number and only ever grows. A frame is then one
array, and increments of a fleet are array arithmetic instead of dictionary look-ups.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Labels = tuple[tuple[str, str], ...]
SeriesKey = tuple[str, Labels]
Values = NDArray[np.float64]


class Sample(NamedTuple):
    """One sample as on the wire: `labels` sorted by name, without ``__name__`` and without empty values."""

    name: str
    labels: Labels
    value: float


def labels(pairs: Iterable[tuple[str, str]]) -> Labels:
    """Sorted label pairs; an empty value is the same as an absent label, as in Prometheus."""
    return tuple(sorted((name, value) for name, value in pairs if value and name != "__name__"))


class Layout:
    """The numbers of the series of one stream, in the order in which they were first seen."""

    __slots__ = ("_index", "keys")

    def __init__(self, keys: Iterable[SeriesKey] = ()) -> None:
        self.keys: list[SeriesKey] = []
        self._index: dict[SeriesKey, int] = {}
        for key in keys:
            self.number(key)

    def __len__(self) -> int:
        return len(self.keys)

    def number(self, key: SeriesKey) -> int:
        """The number of a series, given to it now if it is new."""
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.keys)
            self.keys.append(key)
        return found

    def frame(self, at: float, samples: Iterable[Sample]) -> "Frame":
        """The frame of one scrape. The last sample of a series wins; values that are not finite count as absent, since
        a NaN or an infinity says nothing that could be added up."""
        numbered = [(self.number((name, pairs)), value) for name, pairs, value in samples if math.isfinite(value)]
        values = np.full(len(self.keys), np.nan)
        if numbered:
            where, what = zip(*numbered, strict=True)
            values[list(where)] = what
        return Frame(at, self, values)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Everything seen at `at` (unix seconds). ``values[i]`` belongs to ``layout.keys[i]``; NaN says that the series was
    absent. A layout may have grown since: series beyond the end of `values` were absent too.

    Whether a target was up is told by its ordinary series ``up{job, instance}``, in the same frame.
    """

    at: float
    layout: Layout
    values: Values

    def samples(self) -> Iterator[Sample]:
        """The samples that are present, in the order of the layout."""
        for number in np.flatnonzero(~np.isnan(self.values)).tolist():
            name, pairs = self.layout.keys[number]
            yield Sample(name, pairs, float(self.values[number]))
