"""What one look at HAProxy tells of targets. Pure."""

from dataclasses import dataclass

from actuators.haproxy.look import Server, View
from actuators.haproxy.names import SHARES, Names, live, weight_of
from controller.core.model import Lever, Target
from controller.core.ports import Binding
from controller.core.rest import at_rest


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads targets off a view. A server shows one weight alone, the lesser of what weight and breaker ask for; the map
    remembers both. Where the server disagrees with the map, somebody else moved it, and weight explains what it can."""

    names: Names
    binding: Binding

    def value(self, target: Target, view: View, now: float, expected: float | None) -> float:
        """Raises LookupError, in words for people, where nothing tells."""
        if reason := self.names.unfit(target):
            raise LookupError(reason)
        if target.lever in SHARES:
            return self.names.value(target, self.share(target, view, now), expected)
        if target.lever is Lever.ADMISSION:
            limits = self._limits(target, view)
            return self.names.value(target, min(limits, default=0), expected)
        count = live(view.map, self.names.key(target, view), now)
        return at_rest(target) if count is None else self.names.value(target, count, expected)

    def found(self, target: Target, view: View) -> Server:
        """The server of a weight or a breaker; raises LookupError."""
        server = self.names.server(target, view)
        if server is None:
            backend = self.names.pool(target).backend
            raise LookupError(
                f"backend {backend} of HAProxy has no server for {target.member}; name it so, or set "
                f"pools.{target.pool}.servers"
            )
        if server.initial == 0:
            raise LookupError(f"server {backend_of(server)} has weight 0 in HAProxy's configuration; write weight 100")
        return server

    def asked(self, server: Server, target: Target, view: View, now: float) -> dict[Lever, int]:
        """Percents that weight and breaker ask for of a server, by the map."""
        twins = {lever: Target(target.pool, lever, target.member) for lever in SHARES}
        told = {lever: live(view.map, self.names.key(twin, view), now) for lever, twin in twins.items()}
        return {lever: 100 if percent is None else percent for lever, percent in told.items()}

    def share(self, target: Target, view: View, now: float) -> int:
        """Percent that a weight or a breaker stands at."""
        server = self.found(target, view)
        asked = self.asked(server, target, view, now)
        has = 0 if server.out else server.weight
        if has == weight_of(min(asked.values()), server.initial):
            return asked[target.lever]
        seen = max(1, round(has * 100 / server.initial)) if has else 0
        weighed = (target.pool, Lever.WEIGHT) in self.binding.scopes
        if target.lever is Lever.BREAKER and weighed and seen <= asked[Lever.BREAKER]:
            return asked[Lever.BREAKER]
        return seen

    def settled(self, target: Target, view: View, now: float) -> bool:
        """Whether a server has what weight and breaker ask for together; always for what has no such twin. A breaker
        that is let back reads as done while the weight is lower, also before anything moved."""
        if target.lever not in SHARES:
            return True
        server = self.found(target, view)
        has = 0 if server.out else server.weight
        return has == weight_of(min(self.asked(server, target, view, now).values()), server.initial)

    def _limits(self, target: Target, view: View) -> list[int]:
        servers = view.of(self.names.pool(target).backend)
        if not servers:
            raise LookupError(f"HAProxy has no backend {self.names.pool(target).backend} with servers")
        return [server.maxconn for server in servers if server.maxconn]


def backend_of(server: Server) -> str:
    """backend/server, as HAProxy's commands want it."""
    return f"{server.backend}/{server.name}"
