"""The memory of the pure laws, as plain data and back."""

from collections.abc import Callable, Mapping
from typing import Any

from controller.core.decide import DecideState
from controller.core.drain import Drain
from controller.core.fleet import FleetHold
from controller.core.guard_state import GuardState
from controller.core.hindsight import Hindsight
from controller.core.learned import EstimatorState
from controller.core.own import Own
from controller.core.ports import Policy
from controller.run import codec


def encode_states(decided: DecideState, learned: Mapping[str, EstimatorState]) -> dict[str, Any]:
    """All memory of the pure laws as plain data."""
    return {
        "policies": {key: codec.encode(state) for key, state in decided.policies.items() if state is not None},
        "guards": {str(target): codec.encode(state) for target, state in decided.guards.items()},
        "fleet": codec.encode(decided.fleet) if decided.fleet is not None else None,
        "releases": codec.encode(decided.releases) if decided.releases is not None else None,
        "hindsight": {pool: codec.encode(seen) for pool, seen in decided.hindsight.items()},
        "drains": {pool: codec.encode(held) for pool, held in decided.drains.items()},
        "own": {pool: codec.encode(one) for pool, one in decided.own.items()},
        "learned": {pool: codec.encode(state) for pool, state in learned.items()},
    }


def restore(
    states: Mapping[str, Any], laws: Mapping[str, Policy[Any]],
    learned_of: Callable[[Any], EstimatorState] | None = None,
) -> tuple[DecideState, dict[str, EstimatorState]]:  # fmt: skip
    """The states of a full record, for the laws at hand; a law without a recorded state starts anew. `learned_of`
    reads what was learned of a pool, where that may be of another version. Raises one of ``codec.FOREIGN`` for states
    of another version."""
    policies = {
        key: codec.decode(type(laws[key].initial()), data) for key, data in states["policies"].items() if key in laws
    }
    guards = {codec.target_of(text): codec.decode(GuardState, data) for text, data in states["guards"].items()}
    read = learned_of or (lambda data: codec.decode(EstimatorState, data))
    learned = {pool: read(data) for pool, data in states["learned"].items()}
    fleet = codec.decode(FleetHold, states["fleet"]) if states["fleet"] is not None else None
    seen = {pool: codec.decode(Hindsight, data) for pool, data in states.get("hindsight", {}).items()}
    releases = codec.decode(FleetHold, states["releases"]) if states.get("releases") is not None else None
    drains = {pool: codec.decode(Drain, data) for pool, data in states.get("drains", {}).items()}
    own = {pool: codec.decode(Own, data) for pool, data in states.get("own", {}).items()}
    return DecideState(policies, guards, fleet, seen, releases, drains, own), learned
