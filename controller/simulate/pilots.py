"""Pilots: who moves the fleet in a run. The controller under test, a policy alone, a schedule, or nobody."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from controller import registry
from controller.config import GovernorConfig, Plugin, pool_needs
from controller.config.fields import matchers
from controller.core import guards
from controller.core.errors import InputError
from controller.core.merge import merge
from controller.core.model import Decision, Lever, Mode, Plan, Snapshot, Step, Target, Tick
from controller.core.ports import Balance, Brief, Estimate, Source, View
from controller.core.why import Why
from controller.run.apart import learn
from controller.run.assembly import RunMode, assemble
from controller.run.loop import ControlLoop
from controller.simulate.ports import World

_PATIENCE = 10  # ticks without a single replica seen, after which the selector is to blame


class Pilot(Protocol):
    """Acts on a world, tick by tick."""

    def tick(self, at: float) -> Plan:
        """What was decided at `at`, unix seconds; done already."""

    def close(self) -> None: ...


class Nobody:
    """No controller."""

    def __init__(self, world: World) -> None:
        self._world = world

    def tick(self, at: float) -> Plan:
        self._world.advance(at)
        return Plan(at)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Schedule:
    """Replicas of a pool by time: (unix seconds, replicas), ascending."""

    pool: str
    steps: tuple[tuple[float, int], ...]


class Scheduled:
    """Follows schedules that were made beforehand, to the second."""

    def __init__(self, world: World, schedules: Sequence[Schedule]) -> None:
        self._world = world
        rows = [(at, schedule.pool, count) for schedule in schedules for at, count in schedule.steps]
        self._left = sorted(rows)[::-1]

    def tick(self, at: float) -> Plan:
        while self._left and self._left[-1][0] <= at:
            when, pool, count = self._left.pop()
            self._world.advance(when)
            target = Target(pool, Lever.REPLICAS)
            current = self._world.read([target], when)[target].accepted
            if current != count:
                self._world.apply([Decision(target, current, float(count), Why.STEADY, send=True)], when)
        self._world.advance(at)
        return Plan(at)

    def close(self) -> None:
        pass


class Governor:
    """The loop as it runs in production; only its ends are the twin. `ledger` is a folder for its ledger, if one is to
    be kept."""

    def __init__(self, world: World, config: GovernorConfig, ledger: Path | None = None) -> None:
        self._world, self._config = world, config
        self._loop = _loop(world, config, ledger)
        self._blind = dict.fromkeys(config.pools, 0)

    def tick(self, at: float) -> Plan:
        result = self._loop.tick(at)
        self._look(result.snapshot)
        return result.plan

    def close(self) -> None:
        self._loop.close()

    def _look(self, snapshot: Snapshot) -> None:
        """A pool whose selector matches nothing would be steered by nothing, and the score would be about that."""
        for pool, ticks in list(self._blind.items()):
            seen = snapshot.pools.get(pool)
            if seen is not None and seen.replicas:
                del self._blind[pool]
                continue
            self._blind[pool] = ticks + 1
            if ticks + 1 >= _PATIENCE and self._world.replicas().get(pool, (0, 0, 0))[1]:
                asked = ", ".join(f'{m.label}{m.op}"{m.value}"' for m in matchers(self._config.pools[pool].selector))
                raise InputError(
                    f"governor: pool {pool}: not one replica was seen in {_PATIENCE} ticks; its selector {{{asked}}} "
                    "or its replica label matches no series of the fleet, which are labelled namespace, pod and "
                    "model_name as the scenario says"
                )


class Alone:
    """A policy for replicas without Governor's guards: what it proposes is done, within the hard bounds."""

    def __init__(self, world: World, config: GovernorConfig, peer: Plugin) -> None:
        self._world = world
        self._parts = _loop(world, _with_policy(config, peer)).parts
        self._states: dict[str, Any] = {}
        self._learned: dict[str, Any] = {}
        self._ticks = 0

    def tick(self, at: float) -> Plan:
        parts = self._parts
        observation = parts.source.observe(at, parts.deadline)
        readings = parts.meter.update(observation)
        mine = {pool.pool: Target(pool.pool, Lever.REPLICAS) for pool in parts.rules.pools}
        targets = self._world.read(list(mine.values()), at)
        snapshot = Snapshot(Tick(self._ticks, at), readings, targets, observation.error)
        estimates, self._learned, failed = learn(parts.estimators, snapshot, self._learned)
        for error in failed.values():
            raise error
        decisions = []
        for pool in parts.rules.pools:
            decision = self._decide(pool.pool, snapshot, estimates.get(pool.pool, Estimate()))
            if decision is not None:
                decisions.append(decision)
        self._world.apply([d for d in decisions if d.send], at)
        self._ticks += 1
        return Plan(at, tuple(decisions))

    def close(self) -> None:
        self._parts.source.close()

    def _decide(self, pool: str, snapshot: Snapshot, estimate: Estimate) -> Decision | None:
        target, key = Target(pool, Lever.REPLICAS), f"{pool}/{Lever.REPLICAS}"
        rules = next(one for one in self._parts.rules.pools if one.pool == pool)
        limits, owner = rules.of(target).limits, snapshot.targets[target]
        if pool not in snapshot.pools or owner.accepted is None:
            return None
        policy = self._parts.policies[key]
        view = View(snapshot.tick, snapshot.pools[pool], {target: owner}, {target: limits}, estimate)
        brief = Brief(Balance(estimate.demand or 0.0, owner.ready or 0.0), 0.0)
        proposals, self._states[key] = policy.propose(
            view, rules.objectives, brief, self._states.get(key, policy.initial())
        )
        current = owner.accepted
        merged = merge(tuple(proposals), current, relax_down=True)
        wish = current if merged.value is None else merged.value
        final, why = guards.bounds(limits, wish)
        steps = [Step(merged.by, current, wish, merged.why)] if wish != current else []
        if final != wish and why is not None:
            steps.append(Step("bounds", wish, final, why))
        return Decision(
            target, current, final, steps[-1].why if steps else merged.why, tuple(steps), merged.evidence,
            send=final != current,
        )  # fmt: skip


def _loop(world: World, config: GovernorConfig, ledger: Path | None = None) -> ControlLoop:
    make = cast("Callable[[Any, Callable[[float], Iterable[Any]]], Source]", registry.tool("scraped"))
    source = make(pool_needs(config), world.pages)
    return assemble(config, mode=RunMode.SIMULATE, source=source, actuator=world, ledger_path=ledger)


def _with_policy(config: GovernorConfig, peer: Plugin) -> GovernorConfig:
    """The same pools with the peer on the replicas and no other lever."""
    pools: Mapping[str, Any] = {
        name: pool.model_copy(
            update={
                "levers": {
                    Lever.REPLICAS: pool.levers[Lever.REPLICAS].model_copy(
                        update={"policy": peer, "mode": Mode.AUTO, "pin": None}
                    )
                }
            }
        )
        for name, pool in config.pools.items()
        if Lever.REPLICAS in pool.levers
    }
    return config.model_copy(update={"pools": pools})
