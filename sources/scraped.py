"""Scraped pages as a source: what a world in this process (the fleet twin) would show to Prometheus.

The numbers pass through the same contracts and the same increments as those of a recording or a direct scrape, so the
loop cannot tell the twin from a fleet by anything but its values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.core.observation import Observation
from controller.core.ports import PoolNeeds
from sources.frames import Frame, Layout, SeriesKey, Values
from sources.increments import Increments
from sources.selection import Target


class Page(Protocol):
    """The series of one target and their values. `keys` is the same object from scrape to scrape as long as the series
    are the same: labels sorted by name, without empty ones. `at` is when it was scraped, unix seconds; None when that
    is not known."""

    @property
    def keys(self) -> tuple[SeriesKey, ...]: ...
    @property
    def values(self) -> Values: ...
    @property
    def at(self) -> float | None: ...


class ScrapedSource:
    """Implements ``ports.Source``. `scrape` gives all pages that an instant query at a time (unix seconds) would see,
    in virtual time after letting it pass until then; an OSError of it is what a Prometheus that does not answer is."""

    def __init__(self, needs: Sequence[PoolNeeds], scrape: Callable[[float], Iterable[Page]]) -> None:
        self._scrape = scrape
        self._increments = Increments(needs)
        self._wanted = self._increments.names
        self._layout = Layout()
        self._columns: dict[int, _Columns] = {}  # by the identity of the keys

    def observe(self, at: float, deadline: float) -> Observation:
        """See ``Source``. `deadline` is not needed: virtual time waits."""
        try:
            pages = tuple(self._scrape(at))
        except OSError as error:
            return Observation(at, self._increments.base, error=f"the scrape of {at:.3f} failed: {error}")
        if self._increments.newest is not None and at <= self._increments.newest:
            return Observation(
                at, self._increments.base, error=f"the tick of {at:.3f} is not later than the one before"
            )
        self._increments.feed(self._frame(at, pages), stamps=_stamps(pages))
        return self._increments.take(at)

    def close(self) -> None:
        self._columns.clear()

    def _frame(self, at: float, pages: Sequence[Page]) -> Frame:
        known, used = self._columns, {}
        parts: list[tuple[_Columns, Page]] = []
        for page in pages:
            columns = known.get(id(page.keys))
            if columns is None or columns.keys is not page.keys:
                columns = self._number(page.keys)
            used[id(page.keys)] = columns
            parts.append((columns, page))
        self._columns = used
        values = np.full(len(self._layout), np.nan)
        for columns, page in parts:
            values[columns.numbers] = page.values[columns.places]
        values[np.isinf(values)] = np.nan
        return Frame(at, self._layout, values)

    def _number(self, keys: tuple[SeriesKey, ...]) -> "_Columns":
        places = [place for place, key in enumerate(keys) if key[0] in self._wanted]
        numbers = [self._layout.number(keys[place]) for place in places]
        return _Columns(keys, np.array(places, dtype=np.intp), np.array(numbers, dtype=np.intp))


def _stamps(pages: Sequence[Page]) -> Mapping[Target, float] | None:
    """When each target was scraped; None when a page does not tell it."""
    stamps: dict[Target, float] = {}
    for page in pages:
        if page.at is None:
            return None
        if page.keys:
            pairs = dict(page.keys[0][1])
            stamps[pairs.get("job", ""), pairs.get("instance", "")] = page.at
    return stamps


class _Columns:
    """Where the wanted series of one set of keys lie in a page and in the layout. Holds the keys, so that their
    identity is not given to another tuple."""

    __slots__ = ("keys", "numbers", "places")

    def __init__(self, keys: tuple[SeriesKey, ...], places: NDArray[np.intp], numbers: NDArray[np.intp]) -> None:
        self.keys, self.places, self.numbers = keys, places, numbers
