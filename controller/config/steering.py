"""What a policy steers by, in the units of its signal. Parameters called `signal`, `statistic`, `upper`, `lower` and
`target` mean in every policy what they mean in ours."""

from collections.abc import Iterator, Sequence

from controller.config.errors import Finding, Path
from controller.config.models import ObjectiveConfig
from controller.config.plugins import Plugin
from controller.core.latency import STATS
from controller.core.model import Lever
from controller.core.rules import PER_REPLICA
from controller.core.signals import INFO, Signal

# Engines take the memory at their start, and one request keeps a GPU busy: neither tells load.
_OF_REPLICAS = (Signal.TTFT, Signal.ITL, Signal.TPOT)  # latencies that are read of single replicas, as means
_SHOWN_ONLY = (Signal.GPU_MEMORY, Signal.GPU_UTILISATION)


def steering(at: Path, lever: Lever, policy: Plugin, objectives: Sequence[ObjectiveConfig]) -> Iterator[Finding]:
    """Contradictions between a policy's parameters, its signal, and the promises of the pool at path `at`."""
    here: Path = (*at, "levers", lever.value, "policy")
    name = getattr(policy.settings, "signal", None)
    promises: tuple[Path, ...] = ((*at, "objectives"),)
    latencies = [one for one in objectives if INFO[one.signal].latency]
    if name == "" and not any(not one.klass for one in latencies):
        yield Finding(
            (*here, "signal"),
            "is not given, and the pool promises no latency for all requests to take instead",
            "name a signal and its target, or promise for example a ttft",
            promises,
        )
    if name == "" and latencies:
        name = next((one.signal for one in latencies if not one.klass), None)
    yield from _whose(here, lever, policy)
    if not isinstance(name, str) or name not in set(Signal):
        return
    signal = Signal(name)
    if _own(lever, policy) and INFO[signal].latency and not (lever in PER_REPLICA and signal in _OF_REPLICAS):
        whose = "replica" if lever in PER_REPLICA else "tenant"
        mend = (
            f"write one of {', '.join(_OF_REPLICAS)}, or scope: pool" if lever in PER_REPLICA else "write scope: pool"
        )
        yield Finding((*here, "signal"), f"{signal} of a single {whose} is not read", mend, promises)
    if signal in _SHOWN_ONLY:
        mistake = f"{signal} does not tell load and may not steer"
        yield Finding((*here, "signal"), mistake, "use kv_usage or queue_delay")
        return
    if INFO[signal].unit == "ratio":
        yield from _ratios(here, signal, policy)
    statistic = getattr(policy.settings, "statistic", None)
    if INFO[signal].latency and isinstance(statistic, str) and statistic:
        promised = (one.to_objective().stat for one in latencies if one.signal is signal)
        known = dict.fromkeys((*(f"p{share * 100:g}" for share in STATS), "mean", *promised))
        if statistic not in known:
            yield Finding(
                (*here, "statistic"),
                f"{statistic!r} of {signal} is not measured",
                f"write one of {', '.join(known)}, or promise it to have it measured",
                promises,
            )


def _own(lever: Lever, policy: Plugin) -> bool:
    """Whether each member is steered by its own signals."""
    scope = getattr(policy.settings, "scope", None)
    return (scope == "by_lever" and lever in PER_REPLICA) or (
        scope == "member" and lever in PER_REPLICA | {Lever.TENANT_CAP}
    )


def _whose(here: Path, lever: Lever, policy: Plugin) -> Iterator[Finding]:
    """Members whose own signals are asked for where there are none."""
    if getattr(policy.settings, "per_replica", None) is True and lever is not Lever.REPLICAS:
        mistake = f"divides by the number of replicas, which the value of {lever} is not"
        yield Finding((*here, "per_replica"), mistake, "remove it, or name a signal that is per replica")
    if getattr(policy.settings, "scope", None) == "member" and lever not in PER_REPLICA | {Lever.TENANT_CAP}:
        mistake = f"nothing is read of the members of {lever} one by one"
        yield Finding((*here, "scope"), mistake, "write pool, or remove it")


def _ratios(here: Path, signal: Signal, policy: Plugin) -> Iterator[Finding]:
    for key in ("upper", "lower", "target"):
        value = getattr(policy.settings, key, None)
        if isinstance(value, (int, float)) and value > 1:
            meant = f"write {value / 100:g}" if value <= 100 else "write a share between 0 and 1"
            yield Finding((*here, key), f"{value:g} is above 1, and {signal} is a ratio", meant)
