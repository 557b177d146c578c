"""The actuator ``litellm``: what it can do, and the way in which it is done."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from actuators.batch import invalid, reject
from actuators.litellm.by_api import ByApi
from actuators.litellm.by_plugin import ByPlugin
from actuators.litellm.config import LiteLLMConfig
from controller.core.model import Applied, Decision, Lever, Target, TargetState
from controller.core.ports import Ack, Binding, Capability, Finding

_SHARE = Capability("share of its own weight", high=1.0, quantum=0.01, zones=False)
_PLUGIN = {
    Lever.WEIGHT: replace(_SHARE, note="weight of a deployment in LiteLLM's router, the lesser of weight and breaker"),
    Lever.BREAKER: replace(_SHARE, note="the same; 0 leaves the deployment out, but never all of a model"),
    Lever.TENANT_CAP: Capability(
        "tokens/s", note="a token bucket in each proxy process, before the request; answers 429 with retry-after"
    ),
    Lever.DOWNGRADE: Capability(
        "share of requests", high=1.0, quantum=0.01, note="another model name for those that consent"
    ),
}  # fmt: skip
_API = {
    Lever.WEIGHT: replace(_SHARE, note="weight of a deployment in the database"),
    Lever.BREAKER: replace(_SHARE, note="the same; the last one that has weight is never taken out"),
    Lever.TENANT_CAP: Capability(
        "tokens/s", low=1.0, note="tpm_limit of the tenant's key, counted by whole minutes after each answer"
    ),
}


class LiteLLM:
    """Weights, breakers, caps and downgrades in LiteLLM's proxy."""

    Config = LiteLLMConfig
    place = ("url", "document", "redis.url", "key", "pools.model")
    asks_consent = True  # the proxy picks the requests

    def __init__(self, config: LiteLLMConfig, binding: Binding) -> None:
        unknown = [pool for pool in binding.pools if pool not in config.pools]
        if unknown:
            raise ValueError(f"pools: {unknown[0]} is missing; write its model group")
        self._can = self.describe(config)
        self._owns = binding.owns
        self._hands = ByPlugin(config, binding) if config.mode == "plugin" else ByApi(config, binding)

    @classmethod
    def describe(cls, config: LiteLLMConfig | None = None) -> Mapping[Lever, Capability]:
        if config is not None and config.mode == "api":
            return {lever: replace(one, settle=config.settle) for lever, one in _API.items()}
        ack = Ack.VERSION if config is None or config.status else Ack.VALUE
        redis = config is not None and config.redis is not None  # it may forget, and can compare and swap
        return {
            lever: replace(one, atomic=True, persistent=not redis, expiry=True, cas=redis, ack=ack)
            for lever, one in _PLUGIN.items()
        }

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        return self._hands.read(targets, now)

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems: dict[Target, str] = {}
        for lever in {decision.target.lever for decision in decisions}:
            can = self._can.get(lever, Capability("?"))
            mine = [decision for decision in decisions if decision.target.lever is lever]
            problems |= invalid(mine, self._owns, quantum=can.quantum, low=can.low, high=can.high)
        if problems:
            return reject(decisions, problems)
        return self._hands.apply(decisions, now) if decisions else ()

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return self._hands.verify(decisions, now)

    def diagnose(self, now: float) -> Sequence[Finding]:
        return self._hands.diagnose(now)

    def close(self) -> None:
        self._hands.close()
