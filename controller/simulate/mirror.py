"""Mirror: a twin made in the image of a recorded pool, and how like it is.

The profile is fitted to the recording's calm intervals, the demand is what was offered (``demand``), one stream of
requests for each interval. Driven with the recorded replicas, the twin shows how far its metrics are from the recorded
ones: that is what any answer of it is worth.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from controller import registry
from controller.config import GovernorConfig, pool_needs
from controller.config.fields import matchers
from controller.config.models import PoolConfig
from controller.core.errors import InputError
from controller.core.interval import Interval
from controller.core.meter import Meter, PoolSpec
from controller.core.model import Decision, Lever, Target
from controller.core.step_model import Profile
from controller.core.why import Why
from controller.rehearse.intervals import READ, interval
from controller.simulate.demand import Demand, demand
from controller.simulate.ports import World

SPREAD = 0.75  # coefficient of variation of prompts and answers, as of answers in public traces of chats
EVEN = 0.3  # the same of the gaps between arrivals: how many came is known, and Poisson's law would draw it again
TAIL = 60.0  # seconds after the last sample, in which the last requests end
_SHORTEST = 60.0
_OF_THE_TWIN = frozenset({"job", "instance", "pod", "zone", "version", "role"})  # labels that it sets by itself
_LEAST = 1e-3  # requests/s; less is nobody


@dataclass(frozen=True, slots=True)
class Image:
    """One recorded pool: its intervals, what was fitted to them (a RecordingFit of the simulator), and its demand."""

    pool: str
    intervals: tuple[Interval, ...]
    fit: Any
    demand: tuple[Demand, ...]

    @property
    def replicas(self) -> tuple[tuple[float, int], ...]:
        """(seconds after the first sample, replicas): a change lies halfway between the samples that show it."""
        known = [(one.at, int(one.replicas)) for one in self.intervals if one.replicas is not None]
        if not known:
            raise InputError(f"pool {self.pool}: the recording does not tell how many replicas there were")
        begin = self.intervals[0].at
        steps = [(0.0, known[0][1])]
        for (before, old), (now, new) in pairwise(known):
            if new != old:
                steps.append(((before + now) / 2 - begin, new))
        return tuple(steps)


@dataclass(frozen=True, slots=True)
class Likeness:
    """How far the twin's `signal` is from the recorded one over `intervals` in which both tell it: bias and median of
    the absolute error, as shares where `relative`, else in the unit of the signal."""

    signal: str
    intervals: int
    bias: float
    typical: float
    relative: bool


def image(config: GovernorConfig, pool: str, intervals: Sequence[Interval], library: str = "") -> Image:
    """Fit a pool. `library` names an entry of the library as prior. Raises InputError when the recording does not tell
    enough."""
    own = config.pools[pool]
    seats = own.profile.max_num_seqs if own.profile is not None else own.max_num_seqs
    try:
        fit = registry.tool("calibrate-recording")(tuple(intervals), entry=library, max_num_seqs=seats, spread=SPREAD)
        return Image(pool, tuple(intervals), fit, demand(intervals, fit.profile.kv_tokens, SPREAD))
    except InputError as error:
        raise InputError(f"pool {pool}: {error}") from error


def scenario(
    config: GovernorConfig, images: Sequence[Image], *, cold_start: float | None = None, slower: float = 1.0
) -> dict[str, Any]:
    """The scenario of a mirrored fleet, as plain data of a scenario file; Governor's config is to be given. A replica
    serves `cold_start` seconds after it was asked for, by default as the config says. Step times are `slower` times
    the fitted ones."""
    longest = max(one.demand[-1].end for one in images)
    return {
        "version": 1,
        "name": "closed loop",
        "duration": f"{max(_SHORTEST + 1.0, longest) + TAIL}s",
        "warm_up": "0s",
        "cool_down": f"{TAIL}s",
        "promises": {"default": promise(config)},
        "fleet": {"pools": {one.pool: _pool(config.pools[one.pool], one, cold_start, slower) for one in images}},
        "traffic": {one.pool: list(_streams(one)) for one in images},
        "governor": "",
        "against": {"none": False, "static": False, "oracle": False},
        "seeds": 1,
    }


def promise(config: GovernorConfig) -> dict[str, str]:
    """What makes an answer good, of all objectives of all pools on single requests: the strictest of each kind."""
    kinds = {"ttft": "ttft", "itl": "tpot", "tpot": "tpot", "e2e": "e2e"}
    found: dict[str, float] = {}
    for pool in config.pools.values():
        for objective in pool.to_objectives():
            kind = kinds.get(objective.signal.value)
            if kind is not None and not objective.klass:
                found[kind] = min(found.get(kind, math.inf), objective.target)
    if not found:
        raise InputError(
            "the closed loop judges single answers: no pool has an objective on ttft, itl, tpot or e2e that is for all "
            "classes; add one"
        )
    return {kind: f"{target}s" for kind, target in found.items()}


def _pool(own: PoolConfig, one: Image, cold_start: float | None, slower: float) -> dict[str, Any]:
    profile: Profile = one.fit.profile
    engine = {"kind": "profile", **{name: getattr(profile, name) * slower for name in (*"bcde", "host")}}
    engine |= {"a": f"{profile.a * slower}s", "max_num_seqs": int(profile.max_num_seqs)}
    if profile.kv_tokens is not None:
        engine["kv_tokens"] = int(profile.kv_tokens)
    lead = own.cold_start if cold_start is None else cold_start
    return {
        "replicas": one.replicas[0][1],
        "engine": engine,
        "life": {"pull": "0s", "load": f"{lead}s", "warm": "0s"},
        "gpus": max(1, own.gpus_per_replica),
        **_labels(one.pool, own),
    }


def _labels(pool: str, own: PoolConfig) -> dict[str, Any]:
    """The labels that the pool's selector asks for."""
    known: dict[str, str] = {}
    for matcher in matchers(own.selector):
        if matcher.op == "=~":
            raise InputError(
                f"pools.{pool}.selector.{matcher.label}: the twin cannot have labels by a pattern; for the closed loop "
                "write one plain value"
            )
        if matcher.op != "=" or (matcher.label, matcher.value) == ("job", pool):
            continue  # the job of a twin's pool is its name
        if matcher.label in _OF_THE_TWIN:
            raise InputError(
                f"pools.{pool}.selector.{matcher.label}: the twin sets this label itself; for the closed loop select "
                "by others, as model_name and namespace"
            )
        known[matcher.label] = matcher.value
    found: dict[str, Any] = {name: known.pop(name) for name in ("model_name", "namespace") if name in known}
    return {**found, "labels": known} if known else found


def _streams(one: Image) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(one.demand):
        if part.rate > _LEAST:
            yield {
                "kind": "generated",
                "name": f"{one.pool} {number}",
                "start": f"{part.begin}s",
                "end": f"{part.end}s",
                "rate": part.rate,
                "arrivals": {"kind": "gamma", "cv": EVEN},
                "prompt": {"kind": "lognormal", "mean": max(1.0, part.prompt), "cv": SPREAD},
                "answer": {"kind": "lognormal", "mean": max(1.0, part.output), "cv": SPREAD},
            }


def reflect(config: GovernorConfig, images: Sequence[Image], world: World, start: float) -> dict[str, list[Interval]]:
    """What the twin shows, by pool, at the times of the recorded samples, while it has the recorded replicas. `start`
    is when the world begins, unix seconds; its replicas must serve at once."""
    times = sorted({one.at - each.intervals[0].at for each in images for one in each.intervals})
    steps = sorted((at, each.pool, count) for each in images for at, count in each.replicas)
    needs = tuple(replace(need, facts=need.facts | READ) for need in pool_needs(config))
    source = registry.tool("scraped")(needs, world.pages)
    widths = {each.pool: median(b.at - a.at for a, b in pairwise(each.intervals)) for each in images}
    meter = Meter([PoolSpec(pool, width, (), stale_after=2 * width) for pool, width in widths.items()])
    found: dict[str, list[Interval]] = {each.pool: [] for each in images}
    for at in times:
        while steps and steps[0][0] <= at:
            when, pool, count = steps.pop(0)
            world.advance(max(start, start + when))
            target = Target(pool, Lever.REPLICAS)
            current = world.read([target], start + when)[target].accepted
            world.apply([Decision(target, current, float(count), Why.STEADY, send=True)], start + when)
        seen = meter.update(source.observe(start + at, math.inf))
        for pool, readings in found.items():
            readings.append(interval(start + at, seen[pool]))
    source.close()
    return found


def likeness(recorded: Sequence[Interval], twin: Sequence[Interval]) -> tuple[Likeness, ...]:
    """How far the twin's metrics are from the recorded ones, sample by sample."""
    found = []
    for signal, relative in (("itl", True), ("ttft", True), ("kv_usage", False), ("waiting", False)):
        pairs = [
            (float(theirs), float(ours))
            for one, other in zip(recorded, twin, strict=True)
            if (theirs := getattr(one, signal)) is not None and (ours := getattr(other, signal)) is not None
        ]
        errors = [ours / theirs - 1 if relative else ours - theirs for theirs, ours in pairs if theirs or not relative]
        if errors:
            found.append(Likeness(signal, len(errors), fmean(errors), median(map(abs, errors)), relative))
    return tuple(found)


def text(plain: Mapping[str, Any]) -> str:
    """A scenario file. JSON is YAML."""
    return json.dumps(plain, indent=1, allow_nan=False)
