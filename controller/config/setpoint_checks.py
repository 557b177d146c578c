"""Set-points of admission: which bounds they have, who may drive them, and what they need."""

from collections.abc import Iterator

from controller.config.errors import Finding, Path
from controller.config.levers import DEFAULTS, EVERY_SETPOINT
from controller.config.models import LeverConfig, PoolConfig
from controller.core.model import Lever
from controller.core.operating import GROWS_WITH_WAIT, ON_FIRST_TOKEN
from controller.core.ports import Limits
from controller.core.setpoints import DEADLINE, EVERY_RANK, OWN, PRIORITY

BY_STEPS = frozenset({"pid", "threshold"})  # laws that move from where the value stands


def limits_of(lever: Lever, settings: LeverConfig, member: str) -> Limits:
    """Bounds and quantum of one member of a lever: those of the lever, unless it has its own."""
    own = OWN.get(member) if lever is Lever.ADMISSION else None
    return own or Limits(float(settings.min), float(settings.max), float(settings.quantum))


def set_points(at: Path, pool: PoolConfig, settings: LeverConfig) -> Iterator[Finding]:
    """Every contradiction of the set-points of the admission lever at `at`."""
    here: Path = (*at, "setpoints")
    names = settings.setpoints
    if len(set(names)) != len(names):
        yield Finding(here, "names one set-point twice", "remove one")
    if not names:
        yield Finding(here, "names no set-point", f"write one of {', '.join(EVERY_SETPOINT)}, or remove the key")
    yield from _bounds(at, settings)
    own = [name for name in names if name in OWN]
    if own and settings.policy.kind in BY_STEPS:
        yield from _by_steps(here, settings)
    elif DEADLINE in own and not any(one.signal in ON_FIRST_TOKEN and not one.klass for one in pool.objectives):
        yield Finding(
            here,
            f"{DEADLINE} follows how late first tokens are, and no promise to all classes is on "
            f"{' or '.join(sorted(ON_FIRST_TOKEN))}",
            "add an objective on ttft without a class, or remove it",
            ((*at[:-2], "objectives"),),
        )
    if PRIORITY in own and len({one.rank for one in pool.classes.values()}) < 2:
        yield Finding(
            here,
            f"{PRIORITY} keeps low ranks out, and no class is below another",
            "write classes: {name: {rank: 1}} in the pool, or remove it",
            ((*at[:-2], "classes"),),
        )
    for name, one in pool.classes.items() if PRIORITY in own else ():
        if one.rank >= EVERY_RANK:
            yield Finding(
                (*at[:-2], "classes", name, "rank"),
                f"{one.rank} is out of reach of {PRIORITY}, which at {EVERY_RANK:g} stands for every rank",
                f"write ranks below {EVERY_RANK:g}, as 0, 1, 2, here and in the gateway",
                ((*at, "setpoints"),),
            )


def _bounds(at: Path, settings: LeverConfig) -> Iterator[Finding]:
    usual = DEFAULTS[Lever.ADMISSION]
    wrong = [key for key in ("max", "min", "quantum") if getattr(settings, key) != getattr(usual, key)]
    shared = [name for name in settings.setpoints if name not in OWN]
    if wrong and len(shared) > 1:
        yield Finding(
            (*at, wrong[0]),
            f"would hold for {' and '.join(shared)} alike, which are not counted in the same unit",
            f"write setpoints: [{shared[0]}] beside it, or remove it",
        )
    elif wrong and settings.setpoints and not shared:
        name = settings.setpoints[0]
        yield Finding(
            (*at, wrong[0]),
            f"means nothing for {name}, which goes from {OWN[name].min:g} to {OWN[name].max:g}",
            "remove it",
            ((*at, "setpoints"),),
        )


def _by_steps(here: Path, settings: LeverConfig) -> Iterator[Finding]:
    kind = settings.policy.kind
    uses: tuple[Path, ...] = ((*here[:-1], "policy"),)
    if PRIORITY in settings.setpoints:
        mend = "remove it, or write policy: {kind: gate}"
        yield Finding(here, f"{kind} knows no ranks and cannot drive {PRIORITY}", mend, uses)
    elif len(settings.setpoints) > 1:
        yield Finding(
            here,
            f"{kind} would move {' and '.join(settings.setpoints)} alike, which are not counted in the same unit",
            f"write setpoints: [{DEADLINE}], or policy: {{kind: gate}}",
            uses,
        )
    elif getattr(settings.policy.settings, "raise_when_high", None):
        signal = getattr(settings.policy.settings, "signal", "")
        if not signal or signal in GROWS_WITH_WAIT:
            yield Finding(
                (*here[:-1], "policy", "raise_when_high"),
                f"a longer {DEADLINE} makes those that wait wait longer, which raises it again",
                "remove it",
                ((*here[:-1], "policy", "signal"),),
            )
