"""The closed loop on a recorded past: would it have helped?

A twin in the recording's image (``mirror``) gets the recorded demand twice: once with the recorded replicas, once with
Governor. Both are run with the fitted step times and with step times that are off by as much as the fit was on samples
that it had not seen, with several seeds each. Compared is pair by pair, so that what the twin gets wrong is wrong on
both sides; the spread over the pairs is the error band.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from controller.config import GovernorConfig
from controller.core.model import Lever, Mode
from controller.simulate import mirror
from controller.simulate.load import Study, study_with
from controller.simulate.mirror import Image, Likeness
from controller.simulate.pilots import Governor, Schedule, Scheduled
from controller.simulate.ports import World
from controller.simulate.run import Run, drive

RECORDED, GOVERNOR = "recorded", "governor"
FAR_OFF, HALF = 0.25, 0.5  # of ITL, and of the recorded queue, beyond which a twin is another fleet
_LEAST_ERROR, _MOST_ERROR = 0.02, 0.3  # of the step times; no fit is better than the one, and one off by more is none


@dataclass(frozen=True, slots=True)
class Pair:
    """The recorded replicas and Governor on one twin: its step times are `slower` times the fitted ones."""

    slower: float
    seed: int
    recorded: Run
    governor: Run

    @property
    def gain(self) -> float | None:
        """What Governor adds to the share of good answers; None when nothing was offered."""
        was, would = self.recorded.score.all.attainment, self.governor.score.all.attainment
        return None if was is None or would is None else would - was

    @property
    def cost(self) -> float | None:
        """Governor's GPU-hours over the recorded ones, less one."""
        return (
            self.governor.score.gpu_hours / self.recorded.score.gpu_hours - 1 if self.recorded.score.gpu_hours else None
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it. `likeness` by pool; `error` is by how much the step times were varied, `assumed` the share of
    the time whose demand was not recorded."""

    study: Study
    images: tuple[Image, ...]
    likeness: Mapping[str, tuple[Likeness, ...]]
    pairs: tuple[Pair, ...]
    error: float
    assumed: float

    @property
    def unlike(self) -> tuple[str, ...]:
        """Why the twin may not answer for the fleet: what it is too far off in, in words."""
        found = []
        for image in self.images:
            for one in self.likeness[image.pool]:
                if one.signal == "itl" and abs(one.bias) > FAR_OFF:
                    found.append(f"the twin of {image.pool} has an ITL that is off by {one.bias:+.0%}")
                if one.signal == "waiting":
                    real = fmean(seen.waiting for seen in image.intervals if seen.waiting is not None)
                    if abs(one.bias) > max(1.0, HALF * real):
                        queue = f"{max(0.0, real + one.bias):.0f} requests waiting on average"
                        found.append(f"the twin of {image.pool} has {queue}, the fleet had {real:.0f}")
        return tuple(found)


def ask(
    config: GovernorConfig,
    images: Sequence[Image],
    *,
    seeds: int,
    done: Callable[[int, int], None] = lambda _, __: None,
) -> Answer:
    """Run all pairs. Raises InputError when the recording or the config does not allow it."""
    acting = _acting(config)
    error = error_of(images)
    factors = (1.0, 1.0 + error, 1.0 / (1.0 + error))
    total = 1 + 2 * len(factors) * seeds
    alike = _likeness(acting, images)
    done(1, total)
    pairs: list[Pair] = []
    nominal: Study | None = None
    for factor in factors:
        studies = mirrored(acting, images, factor, None), mirrored(acting, images, factor, 0.0)
        nominal = nominal or studies[0]
        schedules = tuple(_schedule(image, studies[1].scenario.start) for image in images)
        for seed in range(1, seeds + 1):
            governor = _run(studies[0], seed, GOVERNOR, partial(Governor, config=acting))
            done(len(pairs) * 2 + 2, total)
            recorded = _run(studies[1], seed, RECORDED, partial(Scheduled, schedules=schedules))
            pairs.append(Pair(factor, seed, recorded, governor))
            done(len(pairs) * 2 + 1, total)
    spans = [(part.end - part.begin, part.assumed) for image in images for part in image.demand]
    assumed = sum(span for span, unknown in spans if unknown) / sum(span for span, _ in spans)
    if nominal is None:
        raise AssertionError("unreachable: there are three factors")
    return Answer(nominal, tuple(images), alike, tuple(pairs), error, assumed)


def _acting(config: GovernorConfig) -> GovernorConfig:
    """The same with levers that only observe made to act: nothing real can be moved here."""
    pools = {
        name: pool.model_copy(
            update={
                "levers": {
                    lever: own.model_copy(update={"mode": Mode.AUTO}) if own.mode is Mode.OBSERVE else own
                    for lever, own in pool.levers.items()
                    if lever is Lever.REPLICAS
                }
            }
        )
        for name, pool in config.pools.items()
    }
    return config.model_copy(update={"pools": pools})


def error_of(images: Sequence[Image]) -> float:
    """By how much step times are varied, as a share."""
    return min(_MOST_ERROR, max(_LEAST_ERROR, *(_off(image) for image in images)))


def _off(image: Image) -> float:
    """By how much the fitted step time is off on samples that were held out."""
    return max((float(one.typical) for one in image.fit.errors if one.signal == "itl"), default=_MOST_ERROR)


def mirrored(config: GovernorConfig, images: Sequence[Image], factor: float, cold_start: float | None) -> Study:
    """The study of the twin with step times `factor` times the fitted ones. See ``mirror.scenario``."""
    plain = mirror.scenario(config, images, cold_start=cold_start, slower=factor)
    return study_with(mirror.text(plain), "the closed loop", config)


def _likeness(config: GovernorConfig, images: Sequence[Image]) -> dict[str, tuple[Likeness, ...]]:
    study = mirrored(config, images, 1.0, 0.0)
    seen = mirror.reflect(config, images, study.scenario.world(1), study.scenario.start)
    return {image.pool: mirror.likeness(image.intervals, seen[image.pool]) for image in images}


def _schedule(image: Image, start: float) -> Schedule:
    return Schedule(image.pool, tuple((start + at, count) for at, count in image.replicas))


def _run(study: Study, seed: int, name: str, pilot: Callable[[World], Governor | Scheduled]) -> Run:
    world = study.scenario.world(seed)
    return drive(study.scenario, world, pilot(world), contender=name, seed=seed, interval=study.config.interval)
