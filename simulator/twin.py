"""The twin: a fleet in virtual time as the loop sees one. It is the actuator; its pages feed a source.

Only what a cluster and a Prometheus would tell comes out of `read`, `pages` and `scrape`. What really happened is in
`truth`. The gateway drops a set-point by itself at its `until`, so that a fleet whose controller died comes to rest.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from controller.core.model import Applied, Decision, Lever, Outcome, Pending, Phase, Target, TargetState
from simulator.cluster.cluster import Pool
from simulator.cluster.deployment import active
from simulator.cluster.life import Stage
from simulator.fleet import Clients, Fleet
from simulator.front.knobs import Setting
from simulator.job import Job
from simulator.spec import FleetSpec
from simulator.truth import Move, Truth
from simulator.watch.page import Labels, Page


class Twin:
    """Implements ``ports.Actuator``. `jobs` come in order of their arrival, by the pool that they come to; one stream
    without a pool goes to the first. Ids differ over all pools. `start` is unix seconds."""

    def __init__(
        self, spec: FleetSpec, jobs: Mapping[str, Iterable[Job]] | Iterable[Job], *, seed: int, start: float,
        clients: Clients | None = None,
    ) -> None:  # fmt: skip
        by_pool = jobs if isinstance(jobs, Mapping) else {next(iter(spec.pools)): jobs}
        self.fleet = Fleet(spec, by_pool, seed=seed, start=start, clients=clients)
        self._settings = {
            name: Setting(front.knobs, spec.pools[name].gateway.strategy) for name, front in self.fleet.fronts.items()
        }
        self._outcomes: dict[Target, Outcome] = {}
        self._moved: dict[Target, float] = {}
        self._until: dict[Target, float] = {}  # when set-points are dropped if nobody renews them

    @property
    def truth(self) -> Truth:
        """What really happened so far."""
        return self.fleet.truth

    @property
    def now(self) -> float:
        """The present, unix seconds."""
        return self.fleet.now

    @property
    def inflight(self) -> int:
        """Jobs that arrived and have not ended."""
        return self.fleet.inflight

    def advance(self, until: float) -> None:
        """Let time pass."""
        while (due := min(self._until.values(), default=math.inf)) <= until:
            self.fleet.advance(due)
            for target in [target for target, at in self._until.items() if at <= due]:
                self._drop(target, due)
        self.fleet.advance(until)

    def _drop(self, target: Target, now: float) -> None:
        del self._until[target]
        setting = self._setting(target)
        before = setting.get(target)
        self.fleet.front_of[target.pool].tune(setting.drop(target), now)
        self._moved[target] = now
        self.truth.moves.append(Move(now, target, before, setting.get(target)))

    # --- the source side ---------------------------------------------------------------------------------------------

    def pages(self, at: float) -> Iterator[Page]:
        """Let time pass until `at`, and give what an instant query sees then, a page for each target. Raises
        ConnectionError while Prometheus is down."""
        self.advance(at)
        return self.fleet.pages(at)

    def scrape(self, at: float) -> Iterator[tuple[str, Labels, float]]:
        """The same, series by series: name, labels, value."""
        for page in self.pages(at):
            yield from page.samples()

    # --- the actuator side -------------------------------------------------------------------------------------------

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        return {target: self._read(target) for target in targets}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        ordered = sorted(
            decisions, key=lambda d: (d.final or 0.0) > (d.current or 0.0)
        )  # room is made before it is used
        done = {decision.target: self._apply(decision) for decision in ordered}
        return tuple(done[decision.target] for decision in decisions)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return tuple(
            Applied(d.target, Outcome.DONE if self._read(d.target).accepted == d.final else Outcome.FAILED)
            for d in decisions
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, target: Target) -> TargetState:
        fleet = self.fleet
        try:
            if target.lever is Lever.REPLICAS:
                pool = fleet.cluster.pools[target.pool]
                state = TargetState(float(pool.wanted), float(len(pool.ready())), _pending(pool))
            else:
                state = TargetState(self._setting(target).get(target))
        except KeyError:
            return TargetState(None, error=f"{target}: the twin has no such pool")
        except ValueError as error:
            return TargetState(None, error=str(error))
        return dataclasses.replace(state, last_outcome=self._outcomes.get(target), last_change=self._moved.get(target))

    def _setting(self, target: Target) -> Setting:
        """The set-points of the gateway in front of a pool."""
        return self._settings[self.fleet.front_of[target.pool].pool]

    def _apply(self, decision: Decision) -> Applied:
        target, final = decision.target, decision.final
        state = self._read(target)
        if state.accepted is None or final is None:
            return self._told(target, Outcome.REFUSED, state.error or "no value was given")
        if decision.until is not None:
            self._until[target] = decision.until
        else:
            self._until.pop(target, None)
        if final == state.accepted:
            return self._told(target, Outcome.DONE, f"has {final:g} already")
        if decision.current is not None and decision.current != state.accepted:
            why = f"has {state.accepted:g}, the decision was made on {decision.current:g}"
            return self._told(target, Outcome.FAILED, why)
        now = self.fleet.now
        if target.lever is Lever.REPLICAS:
            if final < 0 or final != int(final):
                return self._told(target, Outcome.REFUSED, f"{final:g} is no number of replicas")
            self.fleet.cluster.scale(target.pool, int(final), now, decision.leaving)
        else:
            try:
                knobs = self._setting(target).put(target, final)
            except ValueError as error:
                return self._told(target, Outcome.REFUSED, str(error))
            self.fleet.front_of[target.pool].tune(knobs, now)
        self._moved[target] = now
        self.truth.moves.append(Move(now, target, state.accepted, final))
        return self._told(target, Outcome.DONE, f"{state.accepted:g} → {final:g}")

    def _told(self, target: Target, outcome: Outcome, detail: str) -> Applied:
        self._outcomes[target] = outcome
        return Applied(target, outcome, detail)


def _pending(pool: Pool) -> tuple[Pending, ...]:
    """Replicas on their way, as Kubernetes tells of them: by phase and by when they were asked for, with no word on
    when they will be ready. Its times are whole seconds."""
    groups: Counter[tuple[Phase, float]] = Counter()
    for server in active(list(pool.servers.values())):
        life = server.life
        if life.stage is not Stage.READY and life.phase is not None:
            groups[life.phase, float(int(life.unready_since))] += 1
    order = list(Phase)
    found = [Pending(count, phase, since) for (phase, since), count in groups.items()]
    return tuple(sorted(found, key=lambda p: (order.index(p.phase), p.since)))
