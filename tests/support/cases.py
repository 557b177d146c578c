"""Cases for guards and decisions: a healthy pool with one thing wrong at a time."""

from dataclasses import fields, replace

from controller.core.case import Case, Common
from controller.core.guard_state import GuardState
from controller.core.model import Lever, PoolReadings, Target, TargetState, Tick
from controller.core.ports import Estimate, Limits
from controller.core.reading import Reading, State, ok
from controller.core.rules import LeverRules, Rate
from controller.core.signals import Signal

NOW = 1_000_000.0
TARGET = Target("llm", Lever.REPLICAS)
RULES = LeverRules(
    Lever.REPLICAS,
    "capacity",
    "kubernetes",
    limits=Limits(1, 20),
    cooldown_down=60.0,
    rate_up=Rate(1.0, 60.0, relative=True),
    rate_down=Rate(0.1, 60.0, relative=True),
    stabilise=300.0,
)


def healthy(**signals: Reading) -> PoolReadings:
    """Fresh, whole and unbroken for an hour, nobody waiting."""
    readings = {
        Signal.OFFERED_RATE: ok(5.0),
        Signal.QUEUE_DEPTH: ok(0.0),
        Signal.KV_USAGE: ok(0.1),
        Signal.STUCK: ok(0.0),
        **{Signal(name): reading for name, reading in signals.items()},
    }
    return PoolReadings(signals=readings, filled_since=NOW - 3600.0)


def estimate(demand: float = 1.0, **changes: object) -> Estimate:
    """An estimate that is sure of itself."""
    made = Estimate(
        offered=5.0, demand=demand, forecast=demand, unit_rate=5.0, trusted=True,
        evidence={"serving": 10.0, "proven_rate": 5.0},
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def case(current: float = 10.0, **changes: object) -> Case:
    """A case in which lowering is fine."""
    common = Common(RULES, Tick(100, NOW, 15.0), healthy(), estimate(), window=60.0)
    state = GuardState(position=(NOW - 15.0, current))
    return but(Case(common, TargetState(current, current), state, (), current), **changes)


def but(made: Case, **changes: object) -> Case:
    """The same case with something else in it, or in what its lever has in common. A state brings its changes."""
    shared = {name: value for name, value in changes.items() if name in {one.name for one in fields(Common)}}
    own = {name: value for name, value in changes.items() if name not in shared}
    state = changes.get("state", made.state)
    assert isinstance(state, GuardState)
    common = replace(made.common, **shared)  # type: ignore[arg-type]
    return made._replace(common=common, changes=state.changes, **own)  # type: ignore[arg-type]


def bad(state: State) -> Reading:
    """A reading in a state, with a number where the state allows one."""
    silent = state in (State.MISSING, State.UNSUPPORTED, State.NO_TRAFFIC)
    return Reading(state, value=None if silent else 0.0)
