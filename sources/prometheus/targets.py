"""Targets: which (job, instance) serves which pool as which replica, remembered so that a pod that stops answering is
seen as down and not forgotten."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.core.ports import PoolNeeds
from sources.prometheus.family import ByLabels, Family
from sources.prometheus.plan import role
from sources.prometheus.transport import Row

Key = tuple[str, str]
LOOKBACK = 300.0  # seconds that Prometheus itself believes the last sample of a series


@dataclass(frozen=True, slots=True)
class Seat:
    """What a target is to one pool. `seen` is the time of the newest sample that made it so; `gone` says that by now
    the target shows other pools only."""

    replica: str
    role: str = ""
    zone: str = ""
    seen: float = 0.0
    version: str = ""
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One scrape target. `up` is None while its health is unknown; `since` when it was first seen serving, if we saw
    that, else when its process started, where known."""

    seats: Mapping[str, Seat]
    up: bool | None = None
    since: float | None = None

    @property
    def seen(self) -> float:
        """The time of its newest sample."""
        return max(seat.seen for seat in self.seats.values())


@dataclass(slots=True)
class Targets:
    """All targets of all families."""

    known: dict[Key, Endpoint] = field(default_factory=dict)
    has_up: bool = False

    def sight(self, family: Family, named: bool, rows: Iterable[Row], *, first: bool) -> bool:
        """Take in the answer to `sightings`. True when there is a target that was not there before. `first`
        says that nothing was known before, so a new target is not a newly started one."""
        place = ByLabels(family, () if named else (family.contract.model_label,))
        found: dict[Key, dict[str, Seat]] = {}
        for row, stamp in rows:
            for pool in place.pools(row):
                seats = found.setdefault(_key(row), {})
                newest = max(stamp, seats[pool.pool].seen) if pool.pool in seats else stamp
                seat = _seat(pool, family, row, newest)
                if stamp < newest:  # a pod that keeps its name runs what its newest series says
                    seat = replace(seat, version=seats[pool.pool].version)
                seats[pool.pool] = seat
        mine = {pool.pool for pool in family.pools}
        new = False
        for key, seats in found.items():
            old = self.known.get(key)
            if old is None:
                new = True
                since = None if first else max(seat.seen for seat in seats.values())
                self.known[key] = Endpoint(seats, None, since)
            elif old.seats.keys() == seats.keys():
                self.known[key] = Endpoint(seats, old.up, old.since)
            else:
                before = {pool: replace(seat, gone=seat.gone or pool in mine) for pool, seat in old.seats.items()}
                self.known[key] = Endpoint({**before, **seats}, old.up, old.since)
        return new

    def health(self, rows: Iterable[Row], at: float, sighted: Collection[str]) -> None:
        """Take in ``up`` and ``process_start_time_seconds``. A target without health is gone: it left service
        discovery. Where no target has any, it is gone when it was not sighted for as long as a series is believed; and
        so it leaves those of its pools that were `sighted` now, where it is up and shows nothing of them. (One that is
        down may come back, and until then its pool is short of it.)"""
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
                seats = target.seats
                if up[key] and any(at - seat.seen > LOOKBACK for seat in seats.values()):
                    seats = {p: seat for p, seat in seats.items() if p not in sighted or at - seat.seen <= LOOKBACK}
                if seats:
                    self.known[key] = Endpoint(seats, up[key], since)
                else:
                    del self.known[key]
            elif self.has_up or at - target.seen > LOOKBACK:
                del self.known[key]
            else:
                self.known[key] = replace(target, up=None)

    def pool_of(self, row: Mapping[str, str]) -> Mapping[str, Seat]:
        """The seats of the target that a row comes from."""
        target = self.known.get(_key(row))
        if target is None:
            return {}
        if len(target.seats) == 1:
            return target.seats
        return {pool: seat for pool, seat in target.seats.items() if not seat.gone}

    def by_pool(self) -> dict[str, dict[str, list[tuple[Seat, Endpoint]]]]:
        """Endpoints by pool and replica."""
        found: dict[str, dict[str, list[tuple[Seat, Endpoint]]]] = {}
        for target in self.known.values():
            for pool, seat in target.seats.items():
                found.setdefault(pool, {}).setdefault(seat.replica, []).append((seat, target))
        return found


def _key(row: Mapping[str, str]) -> Key:
    return row.get("job", ""), row.get("instance", "")


def _seat(pool: PoolNeeds, family: Family, row: Mapping[str, str], seen: float) -> Seat:
    # A gateway's pods are not the replicas that it routes to.
    replica = "" if family.contract.scope == "gateway" else row.get(pool.replica_label) or row.get("instance", "")
    version = row.get(pool.version_label, "") if pool.version_label else ""
    return Seat(replica, row.get(role(pool, family), ""), row.get(pool.zone_label, ""), seen, version)
