"""Worse: whether the replicas of one version fail or lag, where those of all others do not. Pure.

    fails   share of errors >= max(20 %, min(5 * rest, half way from rest to all)), of at least 20 requests that ended
            here and there; the rest is the median of the replicas of all other versions
    slow    1.5 times as long a step as the version that most replicas run (or that one, as the others), at one batch

A version is judged by all its replicas together: a canary of three that fails a third of its few requests shows it
sooner so than each of them does, and its siblings are no excuse for it. Nor is another one that fails: what answers
errors looks idle to a router, so a few such replicas may have most of all requests, and their mean is no usual share.
Five times the rest alone would be more than all from 20 % on, and whoever fails everything would be well.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from controller.core.model import PoolReadings, Scope
from controller.core.ranked import middle, middle_of_others
from controller.core.signals import Signal

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every replica.
_ERRORS, _WAITING = Signal.ERROR_RATIO, Signal.QUEUE_DEPTH
LEAST_ENDED = 20.0  # requests that make a share of errors
LIMIT = 0.2  # share of errors that is too much
REST = 5.0  # times the share of errors of all others that is far more
CLEAR = 2.0  # times the same that a version fails at least, where nearly all fails everywhere
FULL = 0.25  # waiting per running request at which an engine may be refusing, which engines tell as errors
SLOW = 1.5  # times as long a step that is worth telling


class Worse(NamedTuple):
    """The version that is worse than the rest of its pool: its share of `errors`, of `ended` requests, and that of the
    `rest`; and how many times as `slow` it is, 0 where that is not what is wrong."""

    version: str
    errors: float = 0.0
    ended: float = 0.0
    rest: float = 0.0
    slow: float = 0.0

    def told(self, pool: str) -> str:
        """In one sentence, with the evidence."""
        of = f"version {self.version or '?'} of {pool} is worse"
        if self.slow > 1:
            return f"{of}: its steps take {self.slow:.1f} times as long"
        if not self.ended:
            return of
        many = f"{100 * self.errors:.0f} % of its {self.ended:.0f} requests failed"
        return f"{of}: {many}, of the others' {100 * self.rest:.1f} %"


def ended(scope: Scope) -> tuple[float, float]:
    """Share of errors and requests that ended, where that says something of the replica."""
    reading = scope.get(_ERRORS)
    share = reading.usable
    if share is None or not reading.count or _full(scope):
        return 0.0, 0.0
    return share if 0.0 <= share <= 1.0 else min(max(share, 0.0), 1.0), reading.count


def far_more(limit: float, rest: float) -> float:
    """The share of errors from which one fails where the rest fails `rest`."""
    return max(limit, min(REST * rest, (1.0 + rest) / 2))


def usual(others: Sequence[tuple[float, float]]) -> float:
    """The share of errors of all others, by the share and the number that ended of each: their median, or the mean
    where most have too few for a share of their own."""
    enough = [share for share, count in others if count >= LEAST_ENDED]
    return median(enough) if 2 * len(enough) > len(others) else _mean(others)[0]


def usual_of_others(ends: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """For each replica what is ``usual`` of all others."""
    ranked = sorted(share for share, count in ends.values() if count >= LEAST_ENDED)
    if len(ranked) == len(ends) > 1 and ranked[0] == ranked[-1]:
        return dict.fromkeys(ends, ranked[0])  # nearly always: nobody errs
    found = {}
    for name, (share, count) in ends.items():
        tells = count >= LEAST_ENDED
        if 2 * (len(ranked) - tells) > len(ends) - 1:
            found[name] = middle_of_others(ranked, share) if tells else middle(ranked)
        else:
            found[name] = _mean(one for other, one in ends.items() if other != name)[0]
    return found


def failing(pool: PoolReadings, limit: float = LIMIT) -> tuple[Worse, ...]:
    """The versions that fail where the others do not, the worst first; `rest` is what those fail together."""
    if not pool.versions:
        return ()
    ends: dict[str, list[tuple[float, float]]] = {}
    for name, scope in sorted(pool.replicas.items()):
        ends.setdefault(pool.versions.get(name, ""), []).append(ended(scope))
    found = dict[str, tuple[float, float]]()
    for version, own in ends.items():
        errors, count = _mean(own)
        others = [one for other, some in ends.items() if other != version for one in some]
        if count >= LEAST_ENDED <= _mean(others)[1] and errors >= far_more(limit, usual(others)):
            found[version] = errors, count
    rest, count = _mean(one for version, some in ends.items() if version not in found for one in some)
    if count < LEAST_ENDED:
        return ()  # nobody is well: whose fault it is cannot be told
    made = [Worse(version, errors, of, rest) for version, (errors, of) in found.items() if errors >= CLEAR * rest]
    return tuple(sorted(made, key=lambda one: (one.errors, one.version), reverse=True))


def slow(steps: Mapping[str, float], main: str) -> Worse | None:
    """The version whose step takes longest, by the seconds of a step of each at one batch."""
    if main not in steps or len(steps) < 2:
        return None
    others = {version: step for version, step in steps.items() if version != main}
    version = max(others, key=lambda one: (others[one], one))
    if others[version] >= SLOW * steps[main]:
        return Worse(version, slow=others[version] / steps[main])
    quickest = max(others.values())
    return Worse(main, slow=steps[main] / quickest) if steps[main] >= SLOW * quickest else None


def siblings(versions: Mapping[str, str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Names by what they run, sorted; empty where no version is told."""
    found: dict[str, list[str]] = {}
    for name in sorted(names) if versions else ():
        found.setdefault(versions.get(name, ""), []).append(name)
    return {version: tuple(some) for version, some in sorted(found.items())}


def _mean(ends: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Share of errors of all together, and how many ended."""
    all_of = list(ends)
    count = math.fsum(of for _, of in all_of)
    return (math.fsum(share * of for share, of in all_of) / count if count else 0.0), count


def _full(scope: Scope) -> bool:
    waiting = scope.usable(_WAITING) or 0.0
    return waiting >= 1.0 and waiting >= FULL * (scope.usable(Signal.RUNNING) or 0.0)
