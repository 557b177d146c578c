"""The ends that the modes swap: writes that become ``dry_run``, and targets read off the metrics themselves."""

from collections.abc import Mapping, Sequence

from controller.core.facts import Fact
from controller.core.model import Applied, Decision, Lever, Outcome, Pending, Phase, Target, TargetState
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Actuator, Source
from controller.core.rules import LeverRules, neutral


class DryRun:
    """An actuator whose reads pass and whose writes do not happen."""

    def __init__(self, real: Actuator) -> None:
        self.real = real

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        return self.real.read(targets, now)

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return tuple(Applied(d.target, Outcome.DRY_RUN) for d in decisions)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return tuple(Applied(d.target, Outcome.DRY_RUN) for d in decisions)

    def close(self) -> None:
        self.real.close()


def bare(actuator: Actuator) -> Actuator:
    """The actuator itself, without what a dry run puts around it."""
    return actuator.real if isinstance(actuator, DryRun) else actuator


class Watched:
    """A source that is watched for replicas: what a rehearsal without an actuator knows of its targets.

    The wanted number is the recorded spec where there is one, else the replicas that were seen. Of other levers no
    metric tells the value: they are taken to be at rest, by the rules of each pool and lever in `rest`. It is a source
    and an actuator, like a simulated fleet.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.rest: Mapping[tuple[str, Lever], LeverRules] = {}
        self._last: Observation | None = None
        self._pending_since: dict[str, float] = {}

    # --- the source side

    def observe(self, at: float, deadline: float) -> Observation:
        try:
            self._last = self._source.observe(at, deadline)
        except Exception as error:
            self._last = Observation(at, None, error=raised(error))
            raise
        return self._last

    def close(self) -> None:
        self._source.close()

    # --- the actuator side

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        return {
            target: self._read(target.pool, now) if target.lever is Lever.REPLICAS else self._at_rest(target)
            for target in targets
        }

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return tuple(Applied(d.target, Outcome.DRY_RUN) for d in decisions)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return tuple(Applied(d.target, Outcome.DRY_RUN) for d in decisions)

    def _at_rest(self, target: Target) -> TargetState:
        rules = self.rest.get((target.pool, target.lever))
        value = neutral(rules, target.member) if rules is not None else None
        if value is None:
            return TargetState(None, error="no metric tells the value of this lever; add an actuator")
        return TargetState(value, assumed=True)

    def _read(self, pool: str, now: float) -> TargetState:
        facts = self._last.pools.get(pool) if self._last is not None else None
        if facts is None:
            failed = self._last.error if self._last is not None else ""
            return TargetState(None, error=failed or "nothing was seen of this pool")
        ready = _ready(facts)
        wanted = facts.gauges.get(Fact.WANTED_REPLICAS, ready)
        if wanted is None:
            return TargetState(None, error="no replica was seen and no wanted number recorded")
        missing = wanted - (ready or 0.0)
        if missing <= 0:
            self._pending_since.pop(pool, None)
            return TargetState(wanted, ready)
        since = self._pending_since.setdefault(pool, now)
        return TargetState(wanted, ready, (Pending(int(missing), Phase.REQUESTED, since),))


def raised(error: Exception) -> str:
    """What a source that breaks its promise leaves in its observation."""
    return f"the source raised {type(error).__name__}: {error}"


def _ready(facts: PoolFacts) -> float | None:
    if Fact.READY_REPLICAS in facts.gauges:
        return facts.gauges[Fact.READY_REPLICAS]
    up = sum(1 for replica in facts.replicas.values() if replica.up)
    return float(up) if up else None
