"""The actuator ``haproxy``: what it can do, and the way in which it is done."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from actuators.haproxy.by_agent import ByAgent
from actuators.haproxy.by_socket import BySocket
from actuators.haproxy.config import HAProxyConfig
from actuators.haproxy.doctor import diagnose
from actuators.haproxy.names import CONCURRENCY
from controller.core.model import Applied, Decision, Lever, Target, TargetState
from controller.core.ports import Binding, Capability, Finding, Reach
from controller.core.rest import NO_LIMIT


class HAProxy:
    """Weights, breakers, limits, caps and shares of one HAProxy."""

    Config = HAProxyConfig
    place = ("socket", "pools.backend")

    def __init__(self, config: HAProxyConfig, binding: Binding) -> None:
        self._config, self._binding = config, binding
        self._hands: BySocket | ByAgent
        self._hands = BySocket(config, binding) if config.mode == "socket" else ByAgent(config, binding)

    @classmethod
    def describe(cls, config: HAProxyConfig | None = None) -> Mapping[Lever, Capability]:
        agent = config is not None and config.mode == "agent"
        base = Capability(
            "share of the initial weight",
            high=1.0,
            quantum=0.01,
            settle=1.0 if agent else 0.0,
            persistent=config is None or config.persistent,
            expiry=not agent and (config is None or config.expires),
            reach=Reach.FLEET if agent else Reach.PROCESS,
            note="weight of a server, the lesser of weight and breaker; 0 drains it and keeps what is in flight",
        )
        queue = "maxconn of each server, beyond which requests queue in HAProxy; set-point concurrency alone"
        named = config is None or any(pool.by == "name" or pool.servers for pool in config.pools.values())
        can = {
            Lever.WEIGHT: replace(base, zones=named),  # no zone is called as an address is
            Lever.BREAKER: base,
            Lever.ADMISSION: replace(
                _with(base, "connections per server", 1.0, NO_LIMIT, 1.0, queue), setpoints=(CONCURRENCY,)
            ),
        }
        if not agent:  # neither file holds a limit
            can[Lever.ADMISSION] = replace(can[Lever.ADMISSION], persistent=False)
            cap = "requests per tenant, in a map; tokens become requests by tokens_per_request"
            can[Lever.TENANT_CAP] = _with(base, "tokens/s, counted as requests", 0.0, NO_LIMIT, 1.0, cap, atomic=True)
            share = "share of the consenting requests, in a map; the receiving engine must answer to the model's name"
            can[Lever.DOWNGRADE] = _with(base, "share of requests", 0.0, 1.0, 0.01, share, atomic=True)
        return can

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        return self._hands.read(targets, now)

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return self._hands.apply(decisions, now)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return self._hands.verify(decisions, now)

    def diagnose(self, now: float) -> Sequence[Finding]:
        return diagnose(self._config, self._binding)

    def close(self) -> None:
        self._hands.close()


def _with(
    base: Capability, unit: str, low: float, high: float, quantum: float, note: str, *, atomic: bool = False
) -> Capability:
    return Capability(
        unit, low, high, quantum, settle=base.settle, atomic=atomic, persistent=base.persistent, expiry=base.expiry,
        reach=base.reach, ack=base.ack, note=note,
    )  # fmt: skip
