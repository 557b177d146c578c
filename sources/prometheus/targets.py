"""Targets: which (job, instance) serves which pool as which replica, remembered so that a pod that stops answering is
seen as down and not forgotten."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.core.ports import PoolNeeds
from sources.prometheus.family import ByLabels, Family
from sources.prometheus.plan import role
from sources.prometheus.transport import Row

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Seat:
    """What a target is to one pool."""

    replica: str
    role: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One scrape target. `seen` is the time of its newest sample; `up` None while its health is unknown; `since` when
    it was first seen serving, if we saw that, else when its process started, where known."""

    seats: Mapping[str, Seat]
    seen: float
    up: bool | None = None
    since: float | None = None


@dataclass(slots=True)
class Targets:
    """All targets of all families."""

    known: dict[Key, Endpoint] = field(default_factory=dict)
    has_up: bool = False

    def sight(self, family: Family, named: bool, rows: Iterable[Row], first: bool) -> bool:
        """Take in the answer to `sightings`. True when there is a target that was not there before. `first` says that
        nothing was known before, so a new target is not a newly started one."""
        place = ByLabels(family, () if named else (family.contract.model_label,))
        found: dict[Key, tuple[dict[str, Seat], float]] = {}
        for row, stamp in rows:
            pools = place.pools(row)
            if not pools:
                continue
            seats, newest = found.get(key := _key(row), ({}, 0.0))
            for pool in pools:
                seats[pool.pool] = _seat(pool, family, row)
            found[key] = (seats, max(newest, stamp))
        new = False
        for key, (seats, stamp) in found.items():
            old = self.known.get(key)
            new |= old is None
            since = old.since if old is not None else (None if first else stamp)
            self.known[key] = Endpoint(seats, stamp, old.up if old else None, since)
        return new

    def health(self, rows: Iterable[Row], at: float, forget_after: float) -> None:
        """Take in ``up`` and ``process_start_time_seconds``. A target without health that was not sighted for
        `forget_after` seconds is gone: it left service discovery."""
        up: dict[Key, bool] = {}
        started: dict[Key, float] = {}
        for row, value in rows:
            if row.get("__name__") == "up":
                up[_key(row)] = value > 0
            else:
                started[_key(row)] = value
        self.has_up = bool(up)
        for key, target in list(self.known.items()):
            if key in up:
                # A restart begins a new life of the same target.
                since = max((t for t in (target.since, started.get(key)) if t is not None), default=None)
                self.known[key] = replace(target, up=up[key], since=since)
            elif self.has_up or at - target.seen > forget_after:
                del self.known[key]
            else:
                self.known[key] = replace(target, up=None)

    def pool_of(self, row: Mapping[str, str]) -> Mapping[str, Seat]:
        """The seats of the target that a row comes from."""
        target = self.known.get(_key(row))
        return target.seats if target is not None else {}

    def by_pool(self) -> dict[str, dict[str, list[tuple[Seat, Endpoint]]]]:
        """Endpoints by pool and replica."""
        found: dict[str, dict[str, list[tuple[Seat, Endpoint]]]] = {}
        for target in self.known.values():
            for pool, seat in target.seats.items():
                found.setdefault(pool, {}).setdefault(seat.replica, []).append((seat, target))
        return found


def _key(row: Mapping[str, str]) -> Key:
    return row.get("job", ""), row.get("instance", "")


def _seat(pool: PoolNeeds, family: Family, row: Mapping[str, str]) -> Seat:
    # A gateway's pods are not the replicas that it routes to.
    replica = "" if family.contract.scope == "gateway" else row.get(pool.replica_label) or row.get("instance", "")
    return Seat(replica, row.get(role(pool, family), ""), row.get(pool.zone_label, ""))
