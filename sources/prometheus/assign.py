"""Which pools a row belongs to: dictionary look-ups for equal labels, regular expressions where a pool needs one. Pure.

With a thousand pools of one row per replica, trying every matcher on every row would be the most of a tick.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from controller.core.ports import Matcher, PoolNeeds
from sources.prometheus.promql import one_of

_REMEMBER = 100_000
_Test = Callable[[Mapping[str, str]], bool]


class Assignment:
    """The pools of a family, by their matchers; matchers on labels in `blind` are left out."""

    def __init__(self, pools: Sequence[PoolNeeds], blind: Collection[str] = ()) -> None:
        self._equal: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[PoolNeeds, _Test]]]] = {}
        used = {m.label for pool in pools for m in pool.matchers} - set(blind)
        self.labels = tuple(sorted(used))
        self._seen: dict[tuple[str | None, ...], tuple[tuple[PoolNeeds, ...], Mapping[str, PoolNeeds]]] = {}
        for pool in pools:
            matchers = [m for m in pool.matchers if m.label in used]
            equal = {m.label: m.value for m in matchers if m.op == "="}
            names = tuple(sorted(equal))
            by_value = self._equal.setdefault(names, defaultdict(list))
            by_value[tuple(equal[name] for name in names)].append((pool, _test(matchers)))

    def pools(self, row: Mapping[str, str]) -> tuple[PoolNeeds, ...]:
        """The pools that select this row; an absent label is an empty one, as in PromQL."""
        return self._known(row)[0]

    def by_name(self, row: Mapping[str, str]) -> Mapping[str, PoolNeeds]:
        """The same pools by their names."""
        return self._known(row)[1]

    def _known(self, row: Mapping[str, str]) -> tuple[tuple[PoolNeeds, ...], Mapping[str, PoolNeeds]]:
        """Both, which are found once for all rows with these labels."""
        key = tuple(map(row.get, self.labels))
        found = self._seen.get(key)
        if found is None:
            if len(self._seen) > _REMEMBER:
                self._seen.clear()
            pools = self._search(row)
            found = self._seen[key] = pools, {pool.pool: pool for pool in pools}
        return found

    def _search(self, row: Mapping[str, str]) -> tuple[PoolNeeds, ...]:
        return tuple(
            pool
            for names, by_value in self._equal.items()
            for pool, test in by_value.get(tuple(row.get(name, "") for name in names), ())
            if test(row)
        )


def common_matchers(pools: Sequence[PoolNeeds], blind: Collection[str] = ()) -> tuple[Matcher, ...]:
    """Matchers that every pool's series pass: all of a single pool's, else the values of labels on which every pool
    tests for equality."""
    if len(pools) == 1:
        return tuple(m for m in pools[0].matchers if m.label not in blind)
    values: dict[str, set[str]] = defaultdict(set)
    testers: dict[str, set[str]] = defaultdict(set)
    for pool in pools:
        for m in pool.matchers:
            if m.op == "=" and m.label not in blind:
                values[m.label].add(m.value)
                testers[m.label].add(pool.pool)
    names = {pool.pool for pool in pools}
    return tuple(m for label in sorted(values) if testers[label] == names for m in one_of(label, values[label]))


def _test(matchers: Sequence[Matcher]) -> _Test:
    """The rest of a pool's matchers. Raises ValueError on an invalid regular expression."""
    tests: list[tuple[str, bool, re.Pattern[str]]] = []
    for m in matchers:
        if m.op == "=":
            continue
        pattern = m.value if m.op in ("=~", "!~") else re.escape(m.value)
        try:
            # RE2 and Prometheus match the whole value, and let a dot match a line break.
            tests.append((m.label, m.op == "=~", re.compile(pattern, re.DOTALL)))
        except re.error as error:
            raise ValueError(f"{m.label}{m.op}{m.value!r} is not a regular expression: {error}") from error
    return lambda row: all((p.fullmatch(row.get(label, "")) is not None) is wanted for label, wanted, p in tests)
