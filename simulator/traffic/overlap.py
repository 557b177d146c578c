"""Requests that belong to something longer, put in order of time: each conversation or session is drawn whole when it
begins, and its later requests wait for their time among those of the ones that began after it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Columns: TypeAlias = dict[str, NDArray[Any]]


def in_order(drawn: Iterable[tuple[float, Columns]], begin: float, end: float) -> Iterator[Columns]:
    """What is drawn, from `begin` to `end`, in order of its column `at`. Each piece comes with the time before which
    nothing can come any more."""
    waiting: Columns = {}
    for passed, fresh in drawn:
        inside = (fresh["at"] >= begin) & (fresh["at"] < end)
        merged = {name: column[inside] for name, column in fresh.items()}
        if waiting:
            merged = {name: np.concatenate((waiting[name], column)) for name, column in merged.items()}
        order = np.argsort(merged["at"], kind="stable")
        ripe = int(np.searchsorted(merged["at"][order], passed, side="right"))
        if ripe:
            yield {name: column[order[:ripe]] for name, column in merged.items()}
        waiting = {name: column[order[ripe:]] for name, column in merged.items()}
    if waiting:
        yield waiting


def slices(columns: Mapping[str, NDArray[Any]], size: int) -> Iterator[Columns]:
    """At most `size` rows at a time."""
    for low in range(0, len(columns["at"]), size):
        yield {name: column[low : low + size] for name, column in columns.items()}
