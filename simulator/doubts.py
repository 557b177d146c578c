"""What a fleet and its traffic may be, but what seldom is meant: parts of them that work nowhere."""

from collections.abc import Iterator, Mapping, Sequence

from simulator.cluster.disturbances import Victims
from simulator.spec import FleetSpec
from simulator.traffic.spec import Stream


def doubts(fleet: FleetSpec, traffic: Mapping[str, Sequence[Stream]]) -> Iterator[str]:
    """A sentence on each, as `place: what; mend`."""
    for number, one in enumerate(fleet.disturbances):
        if not isinstance(one, Victims) or one.share is not None:
            continue
        there = fleet.pools[one.pool].replicas
        if one.replica >= there:
            yield (
                f"fleet.disturbances[{number}].replica: pool {one.pool} has {there} replicas at the start, counted from"
                f" 0; {one.replica} is nobody unless there are more by then"
            )
    for front in (name for name, pool in fleet.pools.items() if not pool.behind):
        served = {name: pool for name, pool in fleet.pools.items() if front in (name, pool.behind)}
        roles = {pool.role for pool in served.values()}
        if roles == {"prefill"}:
            yield (
                f"fleet.pools.{front}.role: all replicas of this gateway only compute prompts, so that no request is "
                f"answered; put a pool with role decode behind {front} or write role: both"
            )
        if roles == {"decode"}:
            yield (
                f"fleet.pools.{front}.role: nobody computes prompts for the replicas of this gateway, so that they do "
                f"it themselves as with role both; put a pool with role prefill behind {front} or write role: both"
            )
        if fleet.pools[front].gateway.knobs.concurrency.limit == 0:
            yield f"fleet.pools.{front}.gateway.knobs.concurrency.limit: 0 lets no request through; write 1 or more"
        models = {pool.model_name or name for name, pool in served.items()}
        for number, stream in enumerate(traffic.get(front, ())):
            for place, model in _models(stream):
                if model and model not in models:
                    yield (
                        f"traffic.{front}[{number}]{place}.model: no pool behind this gateway serves {model!r}; "
                        f"write one of {', '.join(sorted(models))}"
                    )


def _models(stream: Stream) -> Iterator[tuple[str, str]]:
    yield "", stream.model
    for number, tenant in enumerate(stream.tenants):
        yield f".tenants[{number}]", tenant.model
