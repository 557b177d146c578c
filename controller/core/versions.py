"""Versions: what is learned of replicas that run different things, each by its own. Pure.

Where a label tells what each replica runs, a rollout or a canary is no change of one fleet but two fleets behind one
router. The step-time model, the largest batch and the KV cache are learned of each version from its own replicas, and

    unit rate of the pool = sum over versions of replicas * rate of one / all replicas

so it moves with the mix, and what was learned of the old version is there again after a rollback. The shape of requests
is the pool's: who asks does not know who answers. Replicas that a breaker holds out carry nothing and do not count.

A version that was never seen begins with what is known of the one that most replicas run, and with the confidence of a
prior: the first samples move it far. Until it was watched under load for a while it counts as that one, because a bad
canary is taken out meanwhile, and capacity that was asked for on its account would come after it has gone.
"""

from collections.abc import Collection, Mapping, Sequence

from controller.core import learn as of_replica
from controller.core.learned import EstimatorSpec, EstimatorState, OfReplica
from controller.core.members import together
from controller.core.model import PoolReadings
from controller.core.pace import SAMPLE
from controller.core.shape import learn as of_requests
from controller.core.signals import Signal
from controller.core.slots import ENOUGH
from controller.core.step_model import Capacity, Shape, capacity, proven, step_time

WATCHED = 120.0  # seconds of samples after which a version counts by its own step time
KEPT = 4  # versions that are remembered; those that run now and the newest of the others
_OWN = (Signal.RUNNING, Signal.KV_USAGE, Signal.STUCK, Signal.GENERATION_TOKEN_RATE)


def serving(pool: PoolReadings, out: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Replicas that serve, by what they run, sorted: those whose page was read, without those that are held `out`.
    Empty where no label tells it; what a single replica does not tell is a version without a name."""
    found: dict[str, list[str]] = {}
    for name, scope in sorted(pool.replicas.items()) if pool.versions else ():
        read = scope.get(Signal.QUEUE_DEPTH).value is not None or scope.get(Signal.KV_USAGE).value is not None
        if read and name not in out:
            found.setdefault(pool.versions.get(name, ""), []).append(name)
    return {version: tuple(names) for version, names in sorted(found.items())}


def learn(
    spec: EstimatorSpec, pool: PoolReadings, replicas: float | None, now: float, state: EstimatorState
) -> EstimatorState:
    """The state with what is known next of the pool's requests, and of its replicas: by version where that is told,
    else, and while all run the same, of so many `replicas` alike."""
    told = serving(pool)
    groups = told or {state.version: ()}
    main = _main(groups, state.version)
    known = (dict(state.versions) if told else {}) or {main: state.replica}
    heir = _heir(known.get(state.version, known.get(main, OfReplica())))
    requests = of_requests(spec.prior, pool, state, max(one.samples for one in known.values()), now)
    served = None
    if requests is not None:
        served = requests.served
        state = state._replace(shape=requests.learned, jumped=requests.jumped, changed=requests.changed)
    after = {}
    for version, names in groups.items():
        mine, count = (pool, replicas) if len(groups) == 1 else (part(pool, names), float(len(names)))
        before = _lately(known.get(version, heir), state.at)
        after[version] = of_replica.learn(spec, mine, count, now, before, served)
    versions = _remembered({**known, **after}, told) if told else state.versions
    return state._replace(at=now, replica=after[main], version=main, versions=versions)


def part(pool: PoolReadings, names: Sequence[str]) -> PoolReadings:
    """The readings of some of a pool's replicas, as if they were a pool. Of what waits at a gateway they have their
    share by number."""
    own = together([pool.replicas[name] for name in names])
    signals = {**pool.signals, **{signal: own.get(signal) for signal in _OWN}}
    depth = pool.get(Signal.QUEUE_DEPTH)
    if depth.value is not None:
        inside = {name: one.get(Signal.QUEUE_DEPTH).value or 0.0 for name, one in sorted(pool.replicas.items())}
        held = max(0.0, depth.value - sum(inside.values()))
        mine = sum(inside[name] for name in names) + held * len(names) / len(inside)
        signals[Signal.QUEUE_DEPTH] = depth._replace(value=mine, lo=None, hi=None)
    return PoolReadings(
        signals=signals,
        latencies=own.latencies,
        replicas={name: pool.replicas[name] for name in names},
    )


def mixed(
    spec: EstimatorSpec, state: EstimatorState, shape: Shape, thinner: Shape, groups: Mapping[str, Sequence[str]]
) -> tuple[Capacity, float, dict[str, float]]:
    """What one replica serves on average over the versions that serve, the rate of it that was shown with the `thinner`
    shape, and the rate by version."""
    counted = {version: names for version, names in groups.items() if version in state.versions}
    counted = counted or {state.version: ("",)}
    each: dict[str, tuple[int, Capacity, float]] = {}
    for version, names in counted.items():
        one = _counts(state, version)
        profile = of_replica.bent(spec.prior, one)
        most = [limit for limit in (one.full, one.slots.limit) if limit is not None]
        at = capacity(profile, shape, one.kappa, spec.itl_target, one.kv_sequences, min(most, default=None))
        own = state.versions.get(version)
        each[version] = len(names), at, proven(profile, thinner, one.kappa, at, own.seen if own else one.seen)
    total = sum(count for count, _, _ in each.values())
    first = each.get(state.version) or next(iter(each.values()))
    made = Capacity(
        sum(count * at.sequences for count, at, _ in each.values()) / total,
        sum(count * at.rate for count, at, _ in each.values()) / total,
        first[1].limit,
    )
    shown = sum(count * rate for count, _, rate in each.values()) / total
    return made, shown, {version: at.rate for version, (_, at, _) in each.items()}


def steps(spec: EstimatorSpec, state: EstimatorState, groups: Collection[str]) -> dict[str, float]:
    """Seconds of a step of each version that serves and was watched for long enough, at the batch of the one that most
    replicas run."""
    if state.shape is None:
        return {}
    batch = max(state.replica.batch or 0.0, 1.0)
    found = {}
    for version in sorted(groups):
        own = state.versions.get(version)
        if own is not None and (version == state.version or own.trained >= WATCHED):
            found[version] = step_time(of_replica.bent(spec.prior, own), state.shape, batch, own.kappa)
    return found


def unproven(state: EstimatorState) -> bool:
    """Whether what most replicas run came after something else: what its replicas can do has to be shown by them."""
    return state.version in state.versions and state.versions[state.version].heir


def _counts(state: EstimatorState, version: str) -> OfReplica:
    """What a version counts by: its own, once it was watched for long enough; the one that most run always does."""
    own = state.versions[version]
    if version == state.version or own.trained >= WATCHED:
        return own
    return state.versions[state.version]


def _main(groups: Mapping[str, Sequence[str]], before: str) -> str:
    """What most replicas run; of as many, what did before."""
    most = max(len(names) for names in groups.values())
    first = [version for version, names in groups.items() if len(names) == most]
    return before if before in first else first[0]


def _heir(known: OfReplica) -> OfReplica:
    """What a version begins with after another one: the same values as a prior. What the other one has shown that it
    carries, or how its parts were bent, is no proof for this one."""
    slots = known.slots._replace(same=min(known.slots.same, ENOUGH), below=min(known.slots.below, ENOUGH), near=0)
    return OfReplica(kappa=known.kappa, kv_sequences=known.kv_sequences, slots=slots, full=known.full, heir=True)


def _remembered(
    versions: Mapping[str, OfReplica], groups: Mapping[str, Sequence[str]]
) -> dict[str, OfReplica]:  # fmt: skip
    gone = [version for version in versions if version not in groups]
    newest = sorted(gone, key=lambda version: (-(versions[version].at or 0.0), version))
    kept = {*groups, *newest[: max(0, KEPT - len(groups))]}
    return {version: one for version, one in sorted(versions.items()) if version in kept}


def _lately(known: OfReplica, at: float | None) -> OfReplica:
    """One that was not there `at` the last tick, and for longer than a page may be missed, begins anew with its
    batch."""
    away = known.at is None or at is None or at - known.at >= SAMPLE
    return known._replace(batch=None) if away else known
