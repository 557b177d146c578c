"""How a value of Governor is called and counted in HAProxy. Pure.

HAProxy knows whole numbers alone: percents of a full share, requests in a window, connections. In the map, a key is
backend/lever/member by HAProxy's own names, and the same with @until is when it ends, in unix seconds.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from actuators.haproxy.config import HAProxyConfig, HAProxyPool
from actuators.haproxy.look import Server, View
from controller.core.model import Lever, Target
from controller.core.rest import NO_LIMIT

_MOST = 2**31 - 1  # of connections, in HAProxy
CONCURRENCY = "concurrency"
SHARES = (Lever.WEIGHT, Lever.BREAKER)
MAPPED = (Lever.TENANT_CAP, Lever.DOWNGRADE)
QUANTA = {Lever.WEIGHT: 0.01, Lever.BREAKER: 0.01, Lever.DOWNGRADE: 0.01, Lever.TENANT_CAP: 1.0, Lever.ADMISSION: 1.0}
HIGHEST = {
    Lever.WEIGHT: 1.0,
    Lever.BREAKER: 1.0,
    Lever.DOWNGRADE: 1.0,
    Lever.TENANT_CAP: NO_LIMIT,
    Lever.ADMISSION: NO_LIMIT,
}
_KEY = re.compile(r"[^\s\\;#\"'<>]+")


@dataclass(frozen=True, slots=True)
class Names:
    """The names and the numbers of one HAProxy."""

    config: HAProxyConfig

    def pool(self, target: Target) -> HAProxyPool:
        return self.config.pools[target.pool]

    def server(self, target: Target, view: View) -> Server | None:
        """The server of a weight or a breaker."""
        pool = self.pool(target)
        called = pool.servers.get(target.member)
        if called is None and pool.by == "address":
            return view.addresses.get((pool.backend, target.member))
        return view.servers.get((pool.backend, called or target.member))

    def key(self, target: Target, view: View) -> str:
        """The key in the map; of a replica only where its server is there."""
        member = target.member
        if target.lever in SHARES and (server := self.server(target, view)) is not None:
            member = server.name
        return f"{self.pool(target).backend}/{target.lever.value}/{member}"

    def unfit(self, target: Target) -> str:
        """Why a target cannot be moved at all."""
        if target.pool not in self.config.pools:
            return f"pools.{target.pool}: is missing; tell its backend"
        if target.lever is Lever.ADMISSION and target.member != CONCURRENCY:
            return f"HAProxy cannot hold {target.member}, for it does not count tokens; write setpoints: [concurrency]"
        if target.lever is Lever.TENANT_CAP and self.pool(target).tokens_per_request is None:
            return f"pools.{target.pool}.tokens_per_request: is missing; HAProxy counts requests and no tokens"
        if target.lever in MAPPED and not _KEY.fullmatch(target.member):
            return f"{target.member!r} cannot be a key of a map in HAProxy: white space, quotes and ; end one"
        if target.lever in MAPPED and target.member.endswith("@until"):
            return f"{target.member!r} is where the end of another key is told; call it differently"
        return ""

    def counted(self, target: Target, value: float) -> int:
        """Governor's value as HAProxy counts it. A cap is never more than what was decided, and one that is not 0 lets
        one request through: HAProxy has no half ones."""
        if target.lever is Lever.TENANT_CAP:
            per = self.pool(target).tokens_per_request or 1.0
            count = math.floor(min(value, NO_LIMIT) / per * self.config.window * (1 + 1e-12))
            return max(1, count) if value > 0 else 0
        if target.lever is Lever.ADMISSION:
            return round(value) if value < _MOST else 0  # which is no limit
        return round(value * 100)

    def value(self, target: Target, count: int, expected: float | None) -> float:
        """The way back. What was asked for, where it is counted so; else the value of the count."""
        if expected is not None and self.counted(target, expected) == count:
            return expected
        if target.lever is Lever.TENANT_CAP:
            return count * (self.pool(target).tokens_per_request or 1.0) / self.config.window
        if target.lever is Lever.ADMISSION:
            return float(count) if count else NO_LIMIT
        return count / 100


def weight_of(percent: int, initial: int) -> int:
    """HAProxy's weight for a share of the initial one, cut as HAProxy cuts; but a share that is not 0 never becomes
    nothing."""
    return max(1, initial * percent // 100) if percent > 0 else 0


def live(entries: Mapping[str, str], key: str, now: float) -> int | None:
    """The count under a key of the map; None where there is none, or its time is over."""
    told, until = entries.get(key, ""), entries.get(f"{key}@until", "")
    if not told.isdigit() or (until.isdigit() and int(until) <= now):
        return None
    return int(told)
