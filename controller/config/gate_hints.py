"""What stands before or beside a lever and leaves it nothing to move: no mistake, and hardly meant."""

from collections.abc import Iterator

from controller import registry
from controller.config.errors import Finding, Path
from controller.config.models import GovernorConfig, LeverConfig, PoolConfig
from controller.core.facts import Fact
from controller.core.model import Lever, Mode
from controller.core.operating import CONCURRENCY
from controller.core.setpoints import OWN
from controller.registry import PluginError

_LONGEST = "longest_prompt"


def left_nothing(config: GovernorConfig) -> Iterator[Finding]:
    """Every such lever."""
    for name, pool in config.pools.items():
        levers = {one: body for one, body in pool.levers.items() if body.mode is not Mode.OFF}
        at: Path = ("pools", name, "levers")
        gate, less = levers.get(Lever.ADMISSION), levers.get(Lever.DOWNGRADE)
        if gate is not None:
            yield from _nobody_waits((*at, Lever.ADMISSION.value), gate)
        if less is not None and less.prompt is not None:
            yield from _untold((*at, Lever.DOWNGRADE.value, "prompt"), pool)
            least = less.prompt.min
            if gate is not None and least is not None and _LONGEST in gate.setpoints and least > gate.max:
                yield Finding(
                    (*at, Lever.DOWNGRADE.value, "prompt", "min"),
                    f"the gate lets in prompts of up to {gate.max:g} tokens, and those of {least} and more may be "
                    "downgraded, so nobody is",
                    f"raise levers.admission.max above it, or remove {_LONGEST} from its setpoints",
                )


def _nobody_waits(at: Path, gate: LeverConfig) -> Iterator[Finding]:
    own = [one for one in gate.setpoints if one in OWN]
    if own and CONCURRENCY not in gate.setpoints:
        works = "works" if len(own) == 1 else "work"
        yield Finding(
            (*at, "setpoints"),
            f"{' and '.join(own)} {works} on requests that wait at the gateway, and none waits where nothing limits "
            "those in flight",
            f"add {CONCURRENCY}, unless the gateway has a limit of its own",
        )


def _untold(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    asked = [pool.engine] if pool.gateway is None else [pool.engine, pool.gateway.engine]
    try:
        contracts = [registry.tool("contract")(one) for one in asked]
        able = [one for one in registry.engines() if _tells(registry.tool("contract")(one))]
    except (PluginError, KeyError, ValueError):
        return  # an engine that there is not is told elsewhere
    if not any(map(_tells, contracts)):
        yield Finding(
            at,
            f"{' and '.join(asked)} {'tell' if len(asked) > 1 else 'tells'} no lengths of prompts, so nothing is sent",
            f"remove it; {', '.join(able)} tell them",
        )


def _tells(contract: object) -> bool:
    return Fact.PROMPT_LENGTHS in getattr(contract, "candidates", ())
