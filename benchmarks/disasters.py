"""Six disasters of inference fleets, each a scenario in examples/scenarios/: what happens when nobody acts, and what
becomes of it when one thing is changed. docs/scenarios.md and tests/simulate/test_disasters.py are made of these runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from controller.simulate.load import Origin, Study
from controller.simulate.pilots import Governor, Nobody, Pilot, Schedule, Scheduled
from controller.simulate.run import Run, drive
from controller.simulate.score import InEvent
from simulator.job import Ending
from simulator.scenario import Scenario
from simulator.truth import ENDINGS
from simulator.world import World

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "scenarios"
POOL = "chat"  # the pool of each of them
GATEWAY = f"fleet.pools.{POOL}.gateway"
KNOBS = f"{GATEWAY}.knobs"
NONE = "no controller"
REPLICAS = "Governor, with replicas alone"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to meet a disaster. `changes` are values by their place in the scenario's plain data; `ask` is a schedule
    of replicas, (seconds after the start, replicas), in place of nobody; `governor` lets the scenario's config act."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    ask: tuple[tuple[float, int], ...] = ()
    governor: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run, and the world at its end."""

    run: Run
    world: World
    begins: Mapping[str, tuple[float, float]]  # events, unix seconds

    def event(self, name: str) -> InEvent:
        return self.run.score.events[name]

    def attained(self, event: str, klass: str | None = None) -> float:
        """Attainment in an event, of a class or over all; requests must have come."""
        there = self.event(event)
        found = (there.all if klass is None else there.classes[klass]).attainment
        if found is None:
            raise ValueError(f"{event}: no request came")
        return found

    def fair_share(self, tenants: Sequence[str]) -> float:
        """The least share of its max-min share that one of them got; 1 when none was served less than it asked for."""
        return min(self.run.score.fairness.get(tenant, 1.0) for tenant in tenants)

    @property
    def asked(self) -> float:
        """How often a request was sent, its retries included."""
        return self.run.score.attempts / self.run.score.all.offered

    @property
    def restarts(self) -> int:
        """Containers started again, as kube-state-metrics counts them."""
        return sum(server.life.restarts for server in self.world.fleet.cluster.pools[POOL].servers.values())

    @property
    def lost(self) -> int:
        """Attempts that ended with their replica."""
        return int((self.world.truth.jobs.column("ending") == ENDINGS.index(Ending.FAILED)).sum())

    @property
    def fewest(self) -> int:
        """Replicas that were ready at the worst moment."""
        return min(ready for _, _, ready in self.run.series.replicas[POOL])

    def answers(self, event: str) -> float:
        """Answers given in an event, per second; late ones and those to retries too."""
        jobs = self.world.truth.jobs
        begin, end = self.begins[event]
        ended = jobs.column("ended")
        given = (jobs.column("ending") == ENDINGS.index(Ending.FINISHED)) & (ended >= begin) & (ended < end)
        return int(given.sum()) / (end - begin)

    def busiest(self, event: str) -> float:
        """Share of one replica of the requests sent in an event."""
        jobs = self.world.truth.jobs
        begin, end = self.begins[event]
        arrived, replica = jobs.column("arrived"), jobs.column("replica")
        sent = np.bincount(replica[(arrived >= begin) & (arrived < end)], minlength=len(jobs.replicas.words))
        counts = [int(sent[number]) for number, name in enumerate(jobs.replicas.words) if name]
        return max(counts) / sum(counts)


@dataclass(frozen=True, slots=True)
class Measure:
    """One number that shows a disaster; `percent` of a share, else as it is."""

    title: str
    value: Callable[[Outcome], float]
    percent: bool = True


@dataclass(frozen=True, slots=True)
class Disaster:
    """A scenario, what can be done, and the numbers to look at. `about` is a paragraph for the page, `lesson` another
    below the table."""

    name: str
    about: str
    lesson: str
    measures: tuple[Measure, ...]
    ways: tuple[Way, ...]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.yaml"

    def way(self, name: str) -> Way:
        return next(way for way in self.ways if way.name == name)


def study(disaster: Disaster, way: Way) -> Study:
    """The scenario with the changes of a way. Raises ConfigError."""
    data = yaml.safe_load(disaster.path.read_text(encoding="utf-8"))
    for place, value in way.changes.items():
        *above, last = place.split(".")
        at = data
        for key in above:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        at[last] = value
    return Origin(yaml.safe_dump(data, sort_keys=False), str(disaster.path), str(FOLDER)).load()


@cache
def _outcome(disaster: str, way: str, seed: int) -> Outcome:
    chosen = DISASTERS[disaster]
    return _run(study(chosen, chosen.way(way)), chosen.way(way), seed)


def outcome(disaster: Disaster, way: str, seed: int) -> Outcome:
    """What comes of it; a run that was made is not made again."""
    return _outcome(disaster.name, way, seed)


def _run(found: Study, way: Way, seed: int) -> Outcome:
    scenario = found.scenario
    if not isinstance(scenario, Scenario):
        raise TypeError(f"{scenario.name} is no scenario of the twin")
    world = scenario.world(seed)
    pilot: Pilot = Nobody(world)
    if way.governor:
        pilot = Governor(world, found.config)
    elif way.ask:
        steps = tuple((scenario.start + at, count) for at, count in way.ask)
        pilot = Scheduled(world, (Schedule(POOL, steps),))
    run = drive(scenario, world, pilot, contender=way.name, seed=seed, interval=found.config.interval)
    begins = {one.name: (scenario.start + one.begin, scenario.start + one.end) for one in scenario.events}
    return Outcome(run, world, begins)


# --- the six ----------------------------------------------------------------------------------------------------------

_CAP = {f"{KNOBS}.concurrency.per_slot": 1}  # what the engines cannot run waits where it can be put in order
_FAIR = {**_CAP, f"{KNOBS}.queue.fair": True}
_GOVERNOR = Way(REPLICAS, governor=True)
_HOURS = Measure("GPU-hours", lambda one: one.run.score.gpu_hours, percent=False)
MEMBERS = ("acme", "birch", "cedar")

FLOOD = Disaster(
    "tenant-flood",
    """\
Three tenants use less than half of a fleet. A fourth sends four times what all of them send. Requests are served in the
order in which they come, so the fourth gets most of the fleet, and the others wait behind it until their clients go
away. What shows it: the members' attainment, and what the worst off of them was served, over its max-min share (100 %
is fair, even when it is less than it asked for).""",
    """\
A fair queue gives each tenant what it asks for up to an equal part; it needs the concurrency cap, else the engines'
own queues are where requests wait. The newcomer's own requests still queue behind each other for as long as their
clients wait, so nearly all that are served are late. A cap refuses them at once instead, and those that it lets in are
in time. Replicas come when half of the flood is over, and whoever pays for the fleet pays for the flood.""",
    (
        Measure("members in the flood", lambda one: one.attained("flood", "member")),
        Measure("newcomer in the flood", lambda one: one.attained("flood", "newcomer")),
        Measure("a member's share of its max-min share", lambda one: one.fair_share(MEMBERS)),
        _HOURS,
    ),
    (
        Way(NONE),
        Way("fair queue", _FAIR),
        Way("cap of 1.5 requests/s on each tenant", {f"{KNOBS}.other_tenants.requests_per_s": 1.5}),
        _GOVERNOR,
    ),
)

_RANKS = {"critical": {"rank": 0}, "standard": {"rank": 1, "wait": "12s"}}
STARVING = Disaster(
    "starving-low-priority",
    """\
Critical, standard and batch requests share a fleet, and engines serve by priority. The standard ones double, and with
the critical ones they fill the fleet just so. Both keep their promises, so nothing that is usually watched looks bad.
Batch requests get what is left, which is next to nothing, and go away after two minutes. What shows it: the
attainment of class batch.""",
    """\
A fair queue with strict ranks is no better: it does the same in another place. A floor of 10 % gives batch that
part of the service whenever some of it waits. Somebody pays: standard requests, of which those that would be late are
dropped after 12 s. Critical ones do not notice. Here the lever replicas helps, because the load stays.""",
    (
        Measure("critical while busy", lambda one: one.attained("busy", "critical")),
        Measure("standard while busy", lambda one: one.attained("busy", "standard")),
        Measure("batch while busy", lambda one: one.attained("busy", "batch")),
        _HOURS,
    ),
    (
        Way(NONE),
        Way("fair queue without a floor", {**_FAIR, f"{KNOBS}.queue.wait": "2m",
                                           f"{KNOBS}.classes": {**_RANKS, "batch": {"rank": 2}}}),
        Way("fair queue, floor of 10 %", {**_FAIR, f"{KNOBS}.queue.wait": "2m",
                                          f"{KNOBS}.classes": {**_RANKS, "batch": {"rank": 2, "floor": "10%"}}}),
        _GOVERNOR,
    ),
)  # fmt: skip

DEATH = Disaster(
    "long-prompt-oom",
    """\
Prompts that are being computed need memory beside the KV cache. One prompt of 100,000 tokens is more than a replica
has, and its process dies with all requests that it ran. The client tries again, and the next replica dies. A killed
replica is away for a minute and a half, longer each time; meanwhile the rest is overloaded, or there is none. What
shows it: restarts and lost requests, and the attainment of the chats, which did nothing wrong.""",
    """\
The gateway refuses prompts above `longest_prompt`, and nothing else happens. Who needs long prompts needs a pool that
has the memory. More replicas are more victims: the same few prompts kill nearly twice as many. Governor, which can only
move replicas here, asks for hardly any: those that were killed are on their way back.""",
    (
        Measure("chats meanwhile", lambda one: one.attained("contracts", "chat")),
        Measure("restarts", lambda one: one.restarts, percent=False),
        Measure("requests lost with a replica", lambda one: one.lost, percent=False),
        Measure("fewest replicas ready", lambda one: one.fewest, percent=False),
        _HOURS,
    ),
    (
        Way(NONE),
        Way("longest prompt of 32,000", {f"{KNOBS}.longest_prompt": 32000}),
        Way("twice the replicas", {f"fleet.pools.{POOL}.replicas": 6}),
        _GOVERNOR,
    ),
)

_DEADLINES = {
    **_CAP,
    f"{KNOBS}.classes": {"question": {"target": "6s"}},
    f"{KNOBS}.admission": {"deadlines": True, "prefill_rate": 30000},
}
STORM = Disaster(
    "retry-storm",
    """\
Clients wait 6 s for the first token, go away and ask again, up to five times. For one minute three times the usual
requests come. Then the rate of new requests is what it was, three quarters of what the fleet can do, and still it does
not recover. The queue is as long as the patience of the clients, and a request that comes to its head has little of it
left. Many clients go away while their prompt is being computed; that work is thrown away, and they are back at the end
of the queue. Most answers that are given are given to retries, too late. This is a metastable failure: the trigger is
over, and its effect keeps itself alive. What shows it: the attainment from two minutes after the trigger on, fewer
answers per second than the fleet gives when it is well, and how often each request was asked.""",
    """\
Without retries the minute of the trigger is bad too, and all is well after it, so it is the retries that keep the
storm alive. A budget lets in one retry for ten requests, whatever clients do. Deadlines refuse at once what would be
late, before a prompt is computed for nobody, and say when to come again. Replicas end it too, since they can do more
than all retries ask for; that costs more than twice the GPUs.""",
    (
        Measure("in the trigger", lambda one: one.attained("trigger")),
        Measure("from two minutes after it on", lambda one: one.attained("after")),
        Measure("answers/s then", lambda one: one.answers("after"), percent=False),
        Measure("times asked", lambda one: one.asked, percent=False),
        _HOURS,
    ),
    (
        Way(NONE),
        Way("clients that never retry", {f"traffic.{POOL}.0.retry": None}),
        Way("retry budget of 10 %", {f"{KNOBS}.retries.client_budget": "10%"}),
        Way("deadlines", _DEADLINES),
        _GOVERNOR,
    ),
)

HOT = Disaster(
    "hot-prefix",
    """\
Prefix affinity sends requests with the same system prompt to the replica whose cache has it. Then one of the system
prompts becomes popular. Its home gets more than half of all requests and queues; the other three have time. What shows
it: the attainment in the launch, and the busiest replica's share of the requests (a quarter is even).""",
    """\
A strategy that looks at the load as well sends the popular prompt elsewhere as soon as its home is busy; the prompt is
then in several caches, and hits are as frequent as before. Replicas do not help: the hot prefix still has one home.
Governor looks at the latency of the pool and buys up to twice the fleet for nothing. This is a fault of routing, and
only routing mends it.""",
    (
        Measure("in the launch", lambda one: one.attained("launch")),
        Measure("busiest replica", lambda one: one.busiest("launch")),
        Measure("hit rate", lambda one: one.run.score.hit_rate or 0.0),
        _HOURS,
    ),
    (
        Way(NONE),
        Way("strategy hybrid", {f"{GATEWAY}.strategy": "hybrid"}),
        Way("strategy bounded-load", {f"{GATEWAY}.strategy": "bounded-load"}),
        _GOVERNOR,
    ),
)

_JUMP = 240.0  # seconds: when the load of the gap jumps
_ENOUGH = ((_JUMP, 6),)
_CLASSES = {
    "critical": {"rank": 0, "target": "3s", "delay_lo": 1.6, "delay_hi": 2.4, "load_lo": 1.05, "load_hi": 1.25},
    "sheddable": {"rank": 1, "target": "3s", "delay_lo": 0.25, "delay_hi": 1.0, "load_lo": 0.85, "load_hi": 1.0},
}
GAP = Disaster(
    "cold-start-gap",
    """\
The load jumps above what the fleet can serve. A replica takes three minutes from request to service, so whoever scales
the fleet, and however well, the fleet of the gap is the fleet of before. The queue grows until clients go away, and all
that are served are late. What shows it: the attainment in the three minutes after the jump, even when enough
replicas are asked for in the very second of the jump.""",
    """\
With a cold start of nothing the perfect scaler has no gap. Asking three minutes ahead, as a forecast of a jump that
comes every day could, is as good and costs the replicas of these minutes. Without either, somebody must go: class
admission refuses most of the sheddable requests before they queue, and the critical ones do not notice the jump.""",
    (
        Measure("critical in the gap", lambda one: one.attained("gap", "critical")),
        Measure("sheddable in the gap", lambda one: one.attained("gap", "sheddable")),
        Measure("from a minute after it on", lambda one: one.attained("later")),
        _HOURS,
    ),
    (
        Way(NONE),
        Way("replicas asked for at the jump", ask=_ENOUGH),
        Way("the same, no cold start",
            {f"fleet.pools.{POOL}.life.{stage}": "0s" for stage in ("provision", "pull", "load", "warm")}, ask=_ENOUGH),
        Way("replicas asked for three minutes ahead", ask=((_JUMP - 180.0, 6),)),
        Way("at the jump, and class admission", {**_FAIR, f"{KNOBS}.classes": _CLASSES}, ask=_ENOUGH),
        _GOVERNOR,
    ),
)  # fmt: skip

DISASTERS = {one.name: one for one in (FLOOD, STARVING, DEATH, STORM, HOT, GAP)}
