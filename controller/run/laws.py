"""Laws: all that decides, made from one config, for whoever decides recorded ticks again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from controller.config import GovernorConfig, loads
from controller.config.terms import estimator_specs, fleet_rules
from controller.core.decide import DecideState, decide
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import Plan
from controller.core.ports import Policy
from controller.core.rules import FleetRules
from controller.run.apart import learn
from controller.run.ledger import Record

Known = Mapping[str, EstimatorState]


@dataclass(frozen=True, slots=True)
class Laws:
    """Estimators by pool, rules, and policies by "pool/lever"."""

    specs: Mapping[str, EstimatorSpec]
    rules: FleetRules
    policies: Mapping[str, Policy[Any]]

    @classmethod
    def of(cls, config: GovernorConfig) -> "Laws":
        return cls({spec.pool: spec for spec in estimator_specs(config)}, fleet_rules(config), policies(config))

    def again(self, record: Record, state: DecideState, learned: Known) -> tuple[Plan, DecideState, Known]:
        """A recorded tick decided again: the plan, and what is remembered and learned after it."""
        estimates, after, _ = learn(self.specs, record.snapshot, learned)
        plan, state = decide(
            record.snapshot, estimates, self.rules, self.policies, state, ledger_ok=record.ledger_ok
        )  # fmt: skip
        return plan, state, after


def recorded(config: Mapping[str, Any], place: object) -> GovernorConfig:
    """A config as a ledger has it; `place` is where it stands. Raises ConfigError where this version refuses it."""
    return loads(yaml.safe_dump(dict(config), sort_keys=False), origin=f"{place}: recorded config")


def policies(config: GovernorConfig) -> dict[str, Policy[Any]]:
    """The configured policies by "pool/lever"."""
    return {
        f"{pool}/{lever}": settings.policy.cls(settings.policy.settings)
        for pool, body in config.pools.items()
        for lever, settings in body.levers.items()
    }
