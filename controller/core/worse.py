"""Worse: whether the replicas of one version fail or lag, where those of all others do not. Pure.

    fails   share of errors >= max(20 %, 5 * the share of all others), of at least 20 requests that ended here and there
    slow    1.5 times as long a step as the version that most replicas run (or that one, as the others), at one batch

A version is judged by all its replicas together: a canary of three that fails a third of its few requests shows it
sooner so than each of them does, and its siblings are no excuse for it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from controller.core.model import PoolReadings, Scope
from controller.core.signals import Signal

LEAST_ENDED = 20.0  # requests that make a share of errors
LIMIT = 0.2  # share of errors that is too much
REST = 5.0  # times the share of errors of all others that is far more
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
    reading = scope.get(Signal.ERROR_RATIO)
    if reading.usable is None or not reading.count or _full(scope):
        return 0.0, 0.0
    return min(max(reading.usable, 0.0), 1.0), reading.count


def failing(pool: PoolReadings, limit: float = LIMIT) -> Worse | None:
    """The version that fails most, where one does and the rest does not."""
    if not pool.versions:
        return None
    failed: dict[str, float] = {}
    count: dict[str, float] = {}
    for name, scope in sorted(pool.replicas.items()):
        share, of = ended(scope)
        version = pool.versions.get(name, "")
        failed[version] = failed.get(version, 0.0) + share * of
        count[version] = count.get(version, 0.0) + of
    all_failed, all_ended = math.fsum(failed.values()), math.fsum(count.values())
    found = []
    for version, own in count.items():
        others = all_ended - own
        if own < LEAST_ENDED or others < LEAST_ENDED:
            continue
        errors, rest = failed[version] / own, max(0.0, all_failed - failed[version]) / others
        if errors >= max(limit, REST * rest):
            found.append(Worse(version, errors, own, rest))
    return max(found, key=lambda one: (one.errors, one.version), default=None)


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


def _full(scope: Scope) -> bool:
    waiting = scope.get(Signal.QUEUE_DEPTH).usable or 0.0
    return waiting >= max(1.0, FULL * (scope.get(Signal.RUNNING).usable or 0.0))
