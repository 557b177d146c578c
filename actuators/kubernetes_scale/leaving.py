"""Whom a ReplicaSet ends first. Pure; pods are the API's JSON.

When it is lowered a ReplicaSet ends pods without a node first, then those that are not ready, then those of the lowest
deletion cost, and only then by how long they have served. So it is a preference, and holds within one ReplicaSet: in
the middle of a rollout a Deployment takes some from each.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from actuators.kubernetes_scale.api import COST

Json = Mapping[str, Any]
_LEAST = -(2**31)


def costs(pods: Sequence[Json], leaving: Collection[str]) -> dict[str, int]:
    """The cost to write to each pod of `leaving` that is there and does not go first already: below all others, and
    below none, which is 0."""
    told = {str(pod["metadata"]["name"]): _cost(pod) for pod in pods}
    others = [cost for name, cost in told.items() if name not in leaving]
    lowest = max(_LEAST, min([0, *others]) - 1)
    return {name: lowest for name, cost in sorted(told.items()) if name in leaving and cost > lowest}


def _cost(pod: Json) -> int:
    """What is no number counts as none, as it does for Kubernetes."""
    text = (pod["metadata"].get("annotations") or {}).get(COST, "0")
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0
