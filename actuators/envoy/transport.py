"""What both ways of telling Envoy have in common."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from actuators.envoy.resources import Key, Resource
from controller.core.model import Outcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a resource that was told: done when every Envoy took it, refused with Envoy's own words, failed
    when it reached nobody, unknown when there was no clear answer."""

    outcome: Outcome
    detail: str


class Transport(Protocol):
    """The way from the resources to Envoys. For several threads."""

    def open(self) -> None:
        """Begin; raises ActuatorError when it cannot. Repeated calls do nothing."""

    def envoys(self) -> int:
        """How many Envoys share the load, at least 1."""

    def tell(self, resources: Mapping[Key, Resource], changed: Collection[Key]) -> None:
        """All resources that there are; those in `changed` are told anew, whether Envoy has them or not."""

    def verdicts(self, keys: Collection[Key], within: float) -> dict[Key, Verdict]:
        """What became of the last telling of these, waiting `within` seconds at most."""

    def close(self) -> None: ...
