"""Small plug-ins for tests of the config and the registry, named as `tests.support.plugins:Class`."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar, Literal

from controller.core.facts import Fact
from controller.core.model import Lever
from controller.core.params import SecretRef, Unit, param
from controller.core.ports import Capability
from controller.core.signals import Signal


class StillSource:
    """A source whose config has every kind of parameter."""

    @dataclass(frozen=True)
    class Limits:
        """A nested part."""

        burst: int = param("requests at once", 4, ge=1)
        pause: float = param("rest between bursts", 1.0, unit=Unit.DURATION)

    @dataclass(frozen=True)
    class Config:
        """Parameters of the still source."""

        url: str = param("where it is")
        timeout: float = param("longest wait", 2.0, unit=Unit.DURATION, gt=0, le=60)
        share: float = param("part that is read", 0.5, unit=Unit.RATIO, ge=0, le=1)
        retries: int = param("attempts after the first", 0, ge=0, le=3)
        headers: dict[str, str] = param("extra headers", {})
        pauses: tuple[float, ...] = param("rests", (), unit=Unit.DURATION, gt=0)
        method: Literal["GET", "POST"] = param("HTTP method", "POST")
        token: SecretRef | None = param("bearer token", None)
        verify: bool = param("check certificates", True)
        nap: float | None = param("rest between reads", None, unit=Unit.DURATION)
        limits: "StillSource.Limits | None" = param("limits", None)


class Steady:
    """A policy that reads one signal and has a check over two fields."""

    levers: ClassVar[tuple[Lever, ...]] = (Lever.REPLICAS,)

    @dataclass(frozen=True)
    class Config:
        """Parameters of the steady policy."""

        signal: Signal = param("what is read", Signal.QUEUE_TIME)
        low: float = param("lower threshold", 0.2, unit=Unit.RATIO)
        high: float = param("upper threshold", 0.8, unit=Unit.RATIO)
        horizon: float = param("how far ahead", 60.0, unit=Unit.DURATION, gt=0)

        def __post_init__(self) -> None:
            if self.low >= self.high:
                raise ValueError(f"low: {self.low:g} is not below high {self.high:g}; leave a gap between them")

    def __init__(self, config: "Steady.Config") -> None:
        self.config = config


class Wheel:
    """A policy for another lever than replicas."""

    levers: ClassVar[tuple[Lever, ...]] = (Lever.WEIGHT,)

    @dataclass(frozen=True)
    class Config:
        """Nothing to set."""

    def __init__(self, config: "Wheel.Config") -> None:
        self.config = config


class Knob:
    """A policy for every lever."""

    levers: ClassVar[tuple[Lever, ...]] = tuple(Lever)

    @dataclass(frozen=True)
    class Config:
        """Nothing to set."""

    def __init__(self, config: "Knob.Config") -> None:
        self.config = config


class Hand:
    """An actuator."""

    @dataclass(frozen=True)
    class Config:
        """Parameters of the hand."""

        path: str = param("file it writes")

    @classmethod
    def describe(cls, config: object = None) -> Mapping[Lever, Capability]:
        return {Lever.REPLICAS: Capability("replicas")}


class Broken:
    """A policy whose constructor fails."""

    @dataclass(frozen=True)
    class Config:
        """Nothing to set."""

    def __init__(self) -> None:
        self.config = None


class Bare:
    """No Config: not a plug-in."""


def engines() -> tuple[str, ...]:
    """The tool that names the metric contracts."""
    return ("dcgm", "gaie", "sglang", "vllm")


def contract(name: str) -> SimpleNamespace:
    """The tool that gives a contract, as far as the config looks at it."""
    scope = {"dcgm": "platform", "gaie": "gateway"}.get(name, "engine")
    return SimpleNamespace(scope=scope, candidates={Fact.ARRIVED: ()} if scope == "gateway" else {})


KNOBS = ("not", "a", "class")
