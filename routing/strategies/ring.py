"""A hash ring: each replica stands at many points of a circle, and a key belongs to the next one after it. When one
comes or goes, only the keys next to its points move."""

from bisect import bisect, insort
from collections.abc import Iterator

from routing.hashing import mix, text_hash


class Ring:
    """The circle; `points` is how many each replica has. More points, a more even share and a dearer change."""

    def __init__(self, points: int) -> None:
        self.points = points
        self._circle: list[tuple[int, str]] = []
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """A replica takes its places."""
        if name not in self._names:
            self._names.add(name)
            seed = text_hash(name)
            for number in range(self.points):
                insort(self._circle, (mix(seed + number), name))

    def remove(self, name: str) -> None:
        """A replica leaves them."""
        if name in self._names:
            self._names.remove(name)
            self._circle = [point for point in self._circle if point[1] != name]

    def resize(self, points: int) -> None:
        """Other places for all."""
        if points != self.points:
            names, self.points = sorted(self._names), points
            self._names, self._circle = set(), []
            for name in names:
                self.add(name)

    def walk(self, key: int) -> Iterator[str]:
        """The replicas in the order in which the key would have them, each once."""
        start = bisect(self._circle, (mix(key), ""))
        seen: set[str] = set()
        for index in range(start, start + len(self._circle)):
            name = self._circle[index % len(self._circle)][1]
            if name not in seen:
                seen.add(name)
                yield name
