"""Pages: what one scrape of one target brings home."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Labels = tuple[tuple[str, str], ...]
SeriesKey = tuple[str, Labels]
Values = NDArray[np.float64]


def labels(**pairs: str) -> Labels:
    """Sorted label pairs; an empty value is the same as an absent label."""
    return tuple(sorted((name, value) for name, value in pairs.items() if value))


class Page(NamedTuple):
    """`keys` are the series; pages with the same series share one tuple, so that a reader numbers them only once. `at`
    is when it was scraped, unix seconds, where a Prometheus holds it."""

    keys: tuple[SeriesKey, ...]
    values: Values
    at: float | None = None

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Name, labels and value of each series."""
        for (name, pairs), value in zip(self.keys, self.values.tolist(), strict=True):
            yield name, pairs, value
