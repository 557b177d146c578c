"""A scenario: a fleet, the traffic that it meets, what counts as good, and whom to compare the controller with.

Plain frozen data, written by a person. Everything in it that varies depends on the seed alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.core.model import Target
from controller.core.params import Unit, param
from controller.core.rules import PoolRules
from controller.core.sizes import Band
from simulator.doubts import doubts
from simulator.engines import engine_spec, profile
from simulator.foresight import Need, foresee
from simulator.front.misfits import misfits
from simulator.spec import FleetSpec
from simulator.traffic import files
from simulator.traffic.build import build
from simulator.traffic.cast import SHEDDABLE
from simulator.traffic.spec import Stream
from simulator.traffic.volume import expected
from simulator.world import World

START = 1_767_571_200.0  # 2026-01-05 00:00 UTC, a Monday: when all scenarios begin
MOST_REQUESTS = 50_000_000  # of one stream; a run of more would take hours and all memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What makes an answer good. All that is given must hold; times run from the first arrival of the request, over
    all its retries."""

    ttft: float | None = param("longest time to the first token", None, unit=Unit.DURATION, gt=0)
    tpot: float | None = param("longest mean time per token after the first", None, unit=Unit.DURATION, gt=0)
    e2e: float | None = param("longest time to the last token", None, unit=Unit.DURATION, gt=0)

    def __post_init__(self) -> None:
        if self.ttft is None and self.tpot is None and self.e2e is None:
            raise ValueError("ttft: nothing is promised; write ttft, tpot or e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A stretch of the scenario that is scored on its own, by the arrivals in it."""

    name: str = param("its name in the scoreboard")
    begin: float = param("when it begins, after the start", unit=Unit.DURATION, ge=0)
    end: float = param("when it ends, after the start", unit=Unit.DURATION, gt=0)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name: is empty; write one")
        if self.end <= self.begin:
            raise ValueError("end: is not later than begin; write a later time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Whom the controller is compared with, on the same seeds."""

    none: bool = param("no controller: the replicas of the start, all the time", True)
    static: bool = param("the cheapest constant number of replicas that attains as much as the controller", True)
    oracle: bool = param("the cheapest clairvoyant schedule of replicas that attains as much as the controller", True)
    peers: Mapping[str, Any] = param(
        "other policies for the replicas, by a name of yours, each as in a config: {kind: ..., parameters}; they act "
        "alone, without Governor's guards",
        {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario file, format version 1."""

    version: int = param("format of this file: 1", ge=1, le=1)
    name: str = param("its name in reports")
    about: str = param("what it shows, for readers", "")
    duration: float = param("how long it runs", unit=Unit.DURATION, ge=60, le=31 * 86_400.0)
    warm_up: float = param("how much of the beginning is not scored", 60.0, unit=Unit.DURATION, ge=0)
    cool_down: float = param(
        "how much of the end is not scored, so that what arrived before has time to end", 60.0, unit=Unit.DURATION, ge=0
    )
    events: tuple[Event, ...] = param("stretches that are also scored on their own", ())
    promises: Mapping[str, Promise] = param(
        "what makes an answer good, by class of requests; `default` is for every class that is not named"
    )
    good_minute: float = param(
        "share of the requests of a minute that must be good, else it is a bad minute", 0.95, unit=Unit.RATIO, gt=0,
        le=1,
    )  # fmt: skip
    fleet: FleetSpec = param("the fleet")
    traffic: Mapping[str, tuple[Stream, ...]] = param("streams of requests, by the pool whose gateway they come to")
    governor: Any = param(
        "Governor's config: a path relative to this file, or the config itself (version and source may be left out)"
    )
    against: Against = param("whom it is compared with", Against())
    seeds: int = param("how many seeds are run when the command does not say", 3, ge=1, le=1000)

    def __post_init__(self) -> None:
        if not isinstance(self.governor, (str, Mapping)):
            raise ValueError("governor: is neither a path nor a config; write the path of a config file")
        if self.duration - self.warm_up - self.cool_down < 60:
            raise ValueError("duration: leaves less than a minute to score; write a longer one or a shorter warm_up")

    @property
    def start(self) -> float:
        """When it begins, unix seconds."""
        return START

    @property
    def pools(self) -> dict[str, int]:
        """Replicas at the start, by pool."""
        return {name: pool.replicas for name, pool in self.fleet.pools.items()}

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that requests have, in the order of the file; "" is none."""
        found: dict[str, None] = {}
        for stream in self._streams():
            found.update(dict.fromkeys([one.name for one in stream.classes] or [""]))
            if stream.sheddable > 0:
                found[SHEDDABLE] = None
        return tuple(found)

    def needs(self, seed: int) -> dict[str, Need]:
        """What a clairvoyant knows of the traffic with this seed, by pool that has traffic of its own."""
        promised = [promise.tpot for promise in self.promises.values() if promise.tpot is not None]
        tpot = min(promised, default=None)
        return {
            pool: foresee(
                build(streams, seed=seed, start=START, duration=self.duration), profile(self.fleet.pools[pool]),
                self.fleet.pools[pool].life, START, self.duration, tpot,
            )
            for pool, streams in self.traffic.items()
        }  # fmt: skip

    def world(
        self, seed: int, replicas: Mapping[str, int] | None = None, *, start: float = START, traffic: bool = True
    ) -> World:
        """The twin; `replicas` at the start, by pool, in place of the scenario's own; it begins at `start`, unix
        seconds; without `traffic` nobody asks it anything."""
        own = self.with_replicas(replicas) if replicas is not None else self
        return World(own.fleet, own.traffic if traffic else {}, self.duration, seed=seed, start=start)

    def with_replicas(self, replicas: Mapping[str, int]) -> "Scenario":
        """The same with other numbers of replicas at the start, by pool."""
        pools = {
            name: replace(pool, replicas=replicas.get(name, pool.replicas)) for name, pool in self.fleet.pools.items()
        }
        return replace(self, fleet=replace(self.fleet, pools=pools))

    def within(self, folder: str) -> "Scenario":
        """The same with the files that it names taken relative to `folder`."""
        traffic = {pool: tuple(files.within(one, folder) for one in streams) for pool, streams in self.traffic.items()}
        return replace(self, traffic=traffic)

    def contradictions(self) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
        """(path, mistake, mend) of everything in it that does not go together."""
        known = ", ".join(name for name, pool in self.fleet.pools.items() if not pool.behind)
        names: dict[str, str] = {}
        for pool, streams in self.traffic.items():
            if pool not in self.fleet.pools:
                yield ("traffic", pool), "is not a pool of the fleet", f"write one of {known}"
            elif self.fleet.pools[pool].behind:
                mend = f"send it to {self.fleet.pools[pool].behind}"
                yield ("traffic", pool), "has no gateway of its own", mend
            for number, stream in enumerate(streams):
                if stream.name in names:
                    what = f"{stream.name!r} is also a stream of {names[stream.name]}"
                    yield ("traffic", pool, number, "name"), what, "give each stream a name of its own"
                names.setdefault(stream.name, pool)
                for path, file in files.files(stream):
                    if not Path(file).is_file():
                        yield ("traffic", pool, number, *path), f"there is no file {file}", "check the path"
                about = expected(stream, self.duration)
                if about > MOST_REQUESTS:
                    what = f"{stream.name!r} makes about {about:,.0f} requests, more than {MOST_REQUESTS:,}"
                    yield ("traffic", pool, number), what, "lower rate, factor or duration"
                for field, at in (("start", stream.start), ("end", stream.end)):
                    if at is not None and at > self.duration:
                        yield ("traffic", pool, number, field), "is after the end of the run", "write an earlier time"
        if not names:
            yield ("traffic",), "is empty", "add a stream of requests"
        for name, spec in self.fleet.pools.items():
            try:
                engine_spec(spec)
            except ValueError as error:  # as `isolation: mistake; mend`
                field, _, said = str(error).partition(": ")
                mistake, _, mend = said.partition("; ")
                yield ("fleet", "pools", name, "limits", field), mistake, mend
        for number, disturbance in enumerate(self.fleet.disturbances):
            if disturbance.at >= self.duration:
                yield ("fleet", "disturbances", number, "at"), "is after the end of the run", "write an earlier time"

    def warnings(self) -> Iterator[str]:
        """Sentences on what is allowed, but works nowhere."""
        return doubts(self.fleet, self.traffic)

    def misfits(self, rules: PoolRules, targets: Sequence[Target], band: Band) -> Iterator[str]:
        """Sentences on what a controller would move at the gateway of a pool, and that has not or takes for something
        else; `band` are the prompts of its downgrade."""
        spec = self.fleet.pools[rules.pool]
        return iter(()) if spec.behind else misfits(spec.gateway.knobs, spec.gateway.strategy, targets, band, rules)

    def _streams(self) -> Sequence[Stream]:
        return [stream for streams in self.traffic.values() for stream in streams]
