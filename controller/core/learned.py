"""What is known of a pool beforehand, and what was learned of it: the estimator's spec and memory. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from controller.core import burn
from controller.core import forecast as ahead_of
from controller.core.parts import Done
from controller.core.signals import Signal
from controller.core.sizes import Band
from controller.core.slo import Objective, passing
from controller.core.slots import Slots
from controller.core.step_model import Profile, Shape
from controller.core.stretch import Stretch
from controller.core.tilt import Tilt

PRIOR = Profile()  # of a pool that has none of its own


@dataclass(frozen=True)
class EstimatorSpec:
    """What the estimator must know of a pool. `profile` None means the default prior; `cold_start` is the prior for the
    seconds from asking for a replica to its first answer; `lead` what a decision loses on top (a tick, a window);
    `budget_period` the seconds over which failures may add up; `band` the prompts that a downgrade may take, None for
    all; `max_num_seqs` the largest batch of the engine, where it is told without a profile."""

    pool: str
    objectives: tuple[Objective, ...]
    profile: Profile | None = None
    cold_start: float = 180.0
    lead: float = 30.0
    budget_period: float = burn.PERIOD
    give_up: float = 900.0
    band: Band | None = None
    max_num_seqs: float | None = None

    @cached_property
    def itl_target(self) -> float | None:
        """Seconds per output token that the strictest objective allows."""
        targets = [o.target for o in self.objectives if o.signal in (Signal.ITL, Signal.TPOT)]
        return min(targets) if targets else None

    @cached_property
    def passing(self) -> float:
        """Seconds of wait that are no queue."""
        return passing(self.objectives)

    @cached_property
    def prior(self) -> Profile:
        """The step-time model before anything was learned."""
        if self.profile is not None or self.max_num_seqs is None:
            return self.profile or PRIOR
        return replace(PRIOR, max_num_seqs=self.max_num_seqs)

    @property
    def kappa_bounds(self) -> tuple[float, float]:
        # A profile that the user gave may be wrong in scale by two; the default prior is for another model altogether.
        return (0.5, 2.0) if self.profile is not None else (0.1, 20.0)


class Crowd(NamedTuple):
    """Requests wait while the batch does not grow: `since`, unix seconds, and the `batch` then, sequences."""

    since: float
    batch: float


class OfReplica(NamedTuple):
    """What was learned of replicas that run one thing, which were last looked `at`, unix seconds. `kappa` is how far
    the step-time model is off, `tilt` how it is bent, `samples` and `trained` how many samples and how many seconds of
    them are behind both, and `stretch` what there is of the next one; `batch` the sequences per replica of the last
    sample, `seen` the most so far; `kv_sequences` how many sequences fill the KV cache of one replica; `slots` what
    single replicas show of a limit of the batch; `full` the batch at which requests had to wait, where that was seen,
    `full_for` how many seconds of that, and `crowd` what may become it; `replicas` how many there were, and
    `stragglers` how many of them are slow by themselves. An `heir` came after others, with what was known of them."""

    at: float | None = None
    kappa: float = 1.0
    samples: int = 0
    trained: float = 0.0
    stretch: Stretch = Stretch()
    tilt: Tilt = Tilt()
    batch: float | None = None
    seen: float | None = None
    kv_sequences: float | None = None
    slots: Slots = Slots()
    full: float | None = None
    full_for: float = 0.0
    replicas: float | None = None
    crowd: Crowd | None = None
    stragglers: int = 0
    heir: bool = False


class EstimatorState(NamedTuple):
    """What was learned of a pool that was last looked `at`, unix seconds: of one `replica`, and of the `shape` of its
    requests, which last became longer when they `jumped` and `changed` in either direction, beyond chance, unix
    seconds. `asked` is capacity that was asked for and is awaited: (replicas, unix seconds); `lags` seconds that
    capacity took to come, newest last; `cache_told` whether KV usage was ever read. Where versions are told apart,
    `replica` is of the `version` that most of them run, `versions` has what was learned of each (``versions``), and
    `blamed` is when one of them failed far more than the rest, unix seconds. `fitting` is the share of the work that a
    downgrade may take by the size of its prompts; `tenants` what was done for each."""

    at: float | None = None
    replica: OfReplica = OfReplica()
    shape: Shape | None = None
    jumped: float | None = None
    changed: float | None = None
    forecast: ahead_of.ForecastState = ahead_of.ForecastState()
    accepted: float | None = None
    asked: tuple[tuple[float, float], ...] = ()
    lags: tuple[float, ...] = ()
    cache_told: bool = False
    version: str = ""
    blamed: float | None = None
    fitting: float | None = None
    versions: Mapping[str, OfReplica] = {}
    tenants: Mapping[str, Done] = {}

    @property
    def stragglers(self) -> int:
        """How many replicas are slow by themselves, of any version that serves."""
        serve = [one for one in self.versions.values() if one.at == self.at]
        return sum(one.stragglers for one in serve or [self.replica])
