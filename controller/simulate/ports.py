"""Ports: what this room asks of the twin and of a scenario. Types only; both are found by entry point.

Times are unix seconds of the twin's clock, and seconds after its start where it says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from controller.core.model import Target
from controller.core.ports import Actuator
from controller.core.rules import PoolRules
from controller.core.sizes import Band


class Promise(Protocol):
    """What makes an answer good, seconds; None where nothing is promised."""

    @property
    def ttft(self) -> float | None: ...
    @property
    def tpot(self) -> float | None: ...
    @property
    def e2e(self) -> float | None: ...


class Event(Protocol):
    """A stretch of the scenario that is scored on its own, seconds after the start."""

    @property
    def name(self) -> str: ...
    @property
    def begin(self) -> float: ...
    @property
    def end(self) -> float: ...


class Against(Protocol):
    """Whom the controller is compared with."""

    @property
    def none(self) -> bool: ...
    @property
    def static(self) -> bool: ...
    @property
    def oracle(self) -> bool: ...
    @property
    def peers(self) -> Mapping[str, Any]: ...


class Jobs(Protocol):
    """Attempts at requests as columns, one row each, with the truth about them. `ending` holds places in `endings`,
    `klass` and `tenant` in `classes` and `tenants`, `pool` a number for each pool; `first_token` and `ended` are NaN
    where it has not come."""

    @property
    def endings(self) -> Sequence[str]: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def tenants(self) -> Sequence[str]: ...
    def column(self, name: str) -> NDArray[Any]: ...


class Move(Protocol):
    """A value that an actuator changed."""

    @property
    def at(self) -> float: ...
    @property
    def target(self) -> Target: ...
    @property
    def before(self) -> float: ...
    @property
    def after(self) -> float: ...


class Need(Protocol):
    """What the traffic of one pool will need: `replicas[i]` replica-equivalents from `i * step` seconds after the start
    on; `lead` seconds from asking for a replica to a warm one."""

    @property
    def step(self) -> float: ...
    @property
    def replicas(self) -> Sequence[float]: ...
    @property
    def lead(self) -> float: ...


class World(Actuator, Protocol):
    """The twin of one scenario with one seed: it is the actuator of all levers, and what a Prometheus would see."""

    def advance(self, until: float) -> None: ...
    def pages(self, at: float) -> Iterable[Any]:
        """All pages that an instant query at `at` would see, in virtual time after letting it pass until then."""

    def jobs(self) -> Jobs:
        """All attempts that have arrived so far, also those that are under way."""

    def replicas(self) -> Mapping[str, tuple[int, int, int]]:
        """By pool: replicas wanted, ready, and on their way."""

    def waiting(self) -> int:
        """Requests that wait, at gateways and engines."""

    def gpu_seconds(self, begin: float, end: float) -> float:
        """GPU-seconds of all pools between two times: starting, ready and draining."""

    def history(self, pool: str) -> Sequence[tuple[float, int, int]]:
        """(since, replicas that are paid for, replicas that are ready) of a pool, in order of time."""

    def moves(self) -> Sequence[Move]:
        """What its actuators changed, in order of time."""


class Scenario(Protocol):
    """A scenario, as a person wrote it."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def duration(self) -> float: ...
    @property
    def warm_up(self) -> float: ...
    @property
    def cool_down(self) -> float: ...
    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def promises(self) -> Mapping[str, Promise]: ...
    @property
    def good_minute(self) -> float: ...
    @property
    def governor(self) -> Any: ...
    @property
    def against(self) -> Against: ...
    @property
    def seeds(self) -> int: ...
    @property
    def start(self) -> float: ...
    @property
    def pools(self) -> Mapping[str, int]:
        """Replicas at the start, by pool."""

    @property
    def classes(self) -> Sequence[str]:
        """The classes that its traffic has."""

    def within(self, folder: str) -> "Scenario":
        """The same with the files that it names taken relative to `folder`."""

    def contradictions(self) -> Iterable[tuple[tuple[str | int, ...], str, str]]:
        """(path, mistake, mend) of everything in it that does not go together."""

    def warnings(self) -> Iterable[str]:
        """Sentences on what is allowed, but works nowhere, as `place: what; mend`."""

    def misfits(self, rules: PoolRules, targets: Sequence[Target], band: Band) -> Iterable[str]:
        """The same on what would be moved at the gateway of a pool, and that has not or takes for something else, as
        `target: what; mend`; `band` are the prompts of a downgrade."""

    def world(
        self, seed: int, replicas: Mapping[str, int] | None = None, *, start: float = ..., traffic: bool = True
    ) -> World:
        """The twin; `replicas` at the start in place of the scenario's own; it begins at `start`, unix seconds; without
        `traffic` nobody asks it anything."""

    def needs(self, seed: int) -> Mapping[str, Need]:
        """What a clairvoyant knows of the traffic with this seed, by pool."""
