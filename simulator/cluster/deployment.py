"""Deployment: which replicas of a pool are made and which are ended, as Kubernetes' Deployment controller does it.

Pure. A rollout makes one replica more than wanted (maxSurge 1) and ends an old one only when enough others serve
(maxUnavailable 0). On scaling down those go first that lose the least: see ``loss``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.cluster.life import Life, Stage

SURGE = 1


class Pod(Protocol):
    """What is looked at of a replica. `number` counts the replicas of a pool in the order of their making, `cost` is
    their deletion cost, 0 unless somebody set it."""

    @property
    def life(self) -> Life: ...
    @property
    def version(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def cost(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many replicas of the newest version to make, and the numbers of those to end."""

    make: int
    end: tuple[int, ...]


def active(pods: Sequence[Pod]) -> list[Pod]:
    """Those that Kubernetes counts: neither being deleted nor gone."""
    return [pod for pod in pods if pod.life.stage not in (Stage.DRAINING, Stage.GONE)]


def loss(pod: Pod) -> tuple[bool, bool, int, float, int, int]:
    """What a ReplicaSet sorts by before it deletes, first to go first: unscheduled, not ready, of the lowest deletion
    cost, ready for the shortest time, restarted most often, newest."""
    life = pod.life
    ready = life.stage is Stage.READY
    scheduled = life.stage not in (Stage.REQUESTED, Stage.PROVISIONING)
    since = life.ready_since if ready and life.ready_since is not None else math.inf
    return (scheduled, ready, pod.cost, -since, -life.restarts, -pod.number)


def reconcile(pods: Sequence[Pod], wanted: int, version: str) -> Verdict:
    """What to do so that `wanted` replicas of `version` come to be."""
    alive = active(pods)
    old = sorted((pod for pod in alive if pod.version != version), key=loss)
    if not old:
        spare = sorted(alive, key=loss)[: max(0, len(alive) - wanted)]
        return Verdict(max(0, wanted - len(alive)), tuple(pod.number for pod in spare))
    ready = sum(pod.life.stage is Stage.READY for pod in alive)
    ended: list[int] = []
    for pod in old:
        serves = pod.life.stage is Stage.READY
        if serves and ready <= wanted:
            break
        ready -= serves
        ended.append(pod.number)
    left = len(alive) - len(ended)
    new = sum(pod.version == version for pod in alive)
    make = max(0, min(wanted + SURGE - left, wanted - new))
    if left > wanted + SURGE:  # scaled down in the middle of a rollout
        gone = set(ended)
        rest = sorted((pod for pod in alive if pod.number not in gone), key=loss)
        ended += [pod.number for pod in rest[: left - wanted - SURGE]]
    return Verdict(make, tuple(ended))
