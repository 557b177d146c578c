"""Replica counts through the scale subresource of any workload: Deployment, StatefulSet, or a custom resource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actuators.batch import decreases_first, invalid, reject, wanted
from actuators.kubernetes_scale.api import Access, Fault, Json, Workload, connect, release, replicas_of
from actuators.kubernetes_scale.leaving import costs
from actuators.kubernetes_scale.owners import bound_to, controlling_parent, last_writer
from actuators.kubernetes_scale.pods import ready_and_pending
from actuators.memory import Memory
from controller.core.model import Applied, Decision, Lever, Outcome, Pending, Phase, Target, TargetState
from controller.core.params import Unit, param
from controller.core.ports import ActuatorError, Binding, Capability

_PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "ReplicaSet": "replicasets"}
_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KubernetesScaleConfig:
    """Which workload, and how to reach its cluster."""

    namespace: str = param("Namespace of the workload.")
    name: str = param("Name of the workload; by default the name of the pool.", "")
    workload_kind: str = param(
        "Kind of the workload: Deployment, StatefulSet, or any kind with a scale subresource.", "Deployment"
    )
    api_version: str = param("Its apiVersion, such as leaderworkerset.x-k8s.io/v1.", "apps/v1")
    plural: str = param("Its resource name in the API; asked from the cluster when empty.", "")
    kubeconfig: str = param("Path of a kubeconfig; by default the pod's service account, else ~/.kube/config.", "")
    context: str = param("Context in the kubeconfig; by default the current one.", "")
    timeout: float = param("Longest wait for one API call.", 5.0, unit=Unit.DURATION, gt=0, le=3600)
    settle: float = param("Time until a new count can show an effect.", 0.0, unit=Unit.DURATION, ge=0)
    yield_for: float = param("How long a count set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)
    allow_owned: bool = param("Scale a workload that another object manages and may scale back.", False)

    def __post_init__(self) -> None:
        if "/" not in self.api_version:
            raise ValueError("api_version: no group in it; write group/version, such as apps/v1")


class KubernetesScale:
    """Compare-and-swap on ``…/scale``. The value that was decided on must still stand at the moment of writing, and the
    write carries the uid and resourceVersion of the read before it."""

    Config = KubernetesScaleConfig
    place = ("kubeconfig", "context", "namespace", "workload_kind", "api_version", "name")

    def __init__(self, config: KubernetesScaleConfig, binding: Binding) -> None:
        for target in binding.targets:
            if target.lever is not Lever.REPLICAS or target.member:
                raise ActuatorError(f"{target}: the kubernetes actuator moves replicas of a pool and nothing else")
        if config.name and len(binding.targets) > 1:
            raise ActuatorError(
                f"{config.workload_kind} {config.namespace}/{config.name} cannot serve {len(binding.targets)} targets"
            )
        self._config = config
        if strange := [lever for lever in binding.levers if lever is not Lever.REPLICAS]:
            raise ValueError(f"a Deployment has replicas alone, and no {strange[0]}; choose another actuator for it")
        self._owns = binding.owns
        self._identity = binding.identity
        self._memory = Memory(config.yield_for)
        self._short_since: dict[Target, float] = {}
        self._plural = config.plural or (
            _PLURALS.get(config.workload_kind, "") if config.api_version == "apps/v1" else ""
        )
        self._access = Access(config.kubeconfig, config.context, config.timeout, binding.identity)
        self._cluster = connect(self._access)

    @classmethod
    def describe(cls, config: KubernetesScaleConfig | None = None) -> Mapping[Lever, Capability]:
        settle = config.settle if config is not None else 0.0
        note = "the scale of a Deployment, a StatefulSet or any kind that has one; of a Deployment it chooses who goes"
        # A StatefulSet ends its highest ordinal, whoever that is, and what others do is their own affair.
        chooses = config is None or (
            config.workload_kind in ("Deployment", "ReplicaSet") and config.api_version == "apps/v1"
        )
        can = Capability("replicas", high=_MAX, settle=settle, cas=True, note=note, chooses=chooses)
        return {Lever.REPLICAS: can}

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        """A target that cannot be read has no accepted value and says why; it does not stop the others."""
        self._cluster.at(now)
        return {target: self._read_one(target, now) for target in targets}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = invalid(decisions, self._owns, quantum=1.0, high=_MAX)
        if problems:
            return reject(decisions, problems)
        self._cluster.at(now)
        return tuple(self._apply_one(decision, now) for decision in decreases_first(decisions))

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        self._cluster.at(now)
        return tuple(self._verify_one(decision, now) for decision in decisions)

    def close(self) -> None:
        release(self._access)

    # --- one target ---------------------------------------------------------------------------------------------

    def _read_one(self, target: Target, now: float) -> TargetState:
        try:
            work, scale = self._scale(target)
            parent = self._cluster.workload(work)
        except Fault as fault:
            return self._memory.state(target, None, now, error=str(fault))
        value = replicas_of(scale)
        self._note_writer(target, value, parent, now)
        owner, problems = "", []
        try:
            owner = self._owner(work, parent)
        except Fault as fault:
            problems.append(str(fault))
        ready: int | None = None
        pending: tuple[Pending, ...] = ()
        try:
            ready, pending = self._pods(work, scale, target, value, now)
        except Fault as fault:
            problems.append(str(fault))
        return self._memory.state(
            target, float(value), now, ready=ready, pending=pending, owner=owner, error="; ".join(problems)
        )

    def _apply_one(self, decision: Decision, now: float) -> Applied:
        target, value = decision.target, int(wanted(decision))
        try:
            work, scale = self._scale(target)
            before = replicas_of(scale)
            if before == value:
                return self._record(decision, Outcome.DONE, f"{work} already has {value}", now, moved=False)
            if before != decision.current:
                seen = "an unknown count" if decision.current is None else f"{decision.current:g}"
                return self._record(
                    decision, Outcome.FAILED, f"{work} has {before}, the decision was made on {seen}", now
                )
            owner = self._owner(work, self._cluster.workload(work))
            if owner:
                mend = "delete it, or set this lever to observe"
                return self._record(decision, Outcome.REFUSED, f"{owner} also scales {work}: {mend}", now)
            if decision.leaving and value < before and (trouble := self._point_out(decision, work, scale)):
                return self._record(decision, Outcome.FAILED, trouble, now)
            got = replicas_of(self._cluster.replace_scale(work, scale, value))
        except Fault as fault:
            return self._record(decision, fault.outcome, str(fault), now)
        if got != value:
            self._memory.settled(target, float(got))
            return self._record(decision, Outcome.REFUSED, f"{work} was asked for {value} and took {got}", now)
        return self._record(decision, Outcome.DONE, f"{work} {before} → {value}", now)

    def _point_out(self, decision: Decision, work: Workload, scale: Json) -> str:
        """Tell the ReplicaSet whom to end first; why that cannot be, "" where it was done. Raises Fault."""
        pods = self._cluster.pods(work.namespace, scale.get("status", {}).get("selector") or "-")
        names = {str(pod["metadata"]["name"]) for pod in pods}
        if names.isdisjoint(decision.leaving):
            return (
                f"no pod of {work} is called {' or '.join(decision.leaving)}, which have finished; labels.replica of "
                "the pool must be the name of the pod"
            )
        for name, cost in costs(pods, decision.leaving).items():
            self._cluster.set_cost(work.namespace, name, cost)
        return ""

    def _verify_one(self, decision: Decision, now: float) -> Applied:
        value = wanted(decision)
        try:
            work, scale = self._scale(decision.target)
        except Fault as fault:
            return Applied(decision.target, Outcome.UNKNOWN, f"still not known: {fault}")
        got = replicas_of(scale)
        if got == value:
            return self._record(decision, Outcome.DONE, f"{work} has {got}", now)
        # A late arrival of the lost write cannot overtake the next one: both carry a resourceVersion, one will lose.
        return self._record(decision, Outcome.FAILED, f"{work} has {got}, not {value:g}", now)

    def _record(self, decision: Decision, outcome: Outcome, detail: str, now: float, *, moved: bool = True) -> Applied:
        self._memory.sent(decision.target, wanted(decision), outcome, now, moved=moved)
        return Applied(decision.target, outcome, detail)

    # --- what the cluster says ----------------------------------------------------------------------------------

    def _scale(self, target: Target) -> tuple[Workload, Json]:
        config = self._config
        group, _, version = config.api_version.rpartition("/")
        if not self._plural:
            self._plural = self._cluster.plural(group, version, config.workload_kind)
        work = Workload(
            group, version, self._plural, config.workload_kind, config.namespace, config.name or target.pool
        )
        return work, self._cluster.scale(work)

    def _owner(self, work: Workload, parent: Json) -> str:
        """Who else scales this workload by standing order, "" when nobody does."""
        for kind, scalers in self._cluster.autoscalers(work.namespace).items():
            name = bound_to(scalers, work.group, work.kind, work.name)
            if name:
                return f"{kind}/{name}"
        return "" if self._config.allow_owned else controlling_parent(parent)

    def _pods(
        self, work: Workload, scale: Json, target: Target, wanted_now: int, now: float
    ) -> tuple[int | None, tuple[Pending, ...]]:
        selector = scale.get("status", {}).get("selector", "")
        if not selector:
            return None, ()  # a CRD without labelSelectorPath; an empty selector would match every pod there is
        pods = self._cluster.pods(work.namespace, selector)
        since = self._short_since.setdefault(target, now)
        ready, pending = ready_and_pending(pods, wanted_now, since)
        if not any(p.phase is Phase.REQUESTED for p in pending):
            del self._short_since[target]
        return ready, pending

    def _note_writer(self, target: Target, value: int, parent: Json, now: float) -> None:
        writer = last_writer(parent)
        name = writer.name if writer and writer.name != self._identity else ""
        if target not in self._memory and writer and name and writer.scaled:
            # We just started and somebody scaled by hand: theirs, unless it is so old that nobody waits for it. A
            # manifest that was applied is no such sign, every workload starts with one.
            self._memory.interfered(target, name, writer.at)
        self._memory.saw(target, value, now, name)
