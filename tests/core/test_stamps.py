"""After Prometheus was gone, what was counted meanwhile comes all at once. Taken as the growth of one tick, a load of
9/s looked like 30/s, and a pool was raised to its maximum for minutes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.core.facts import Fact
from controller.core.meter import GatewaySpec, Meter, PoolSpec
from controller.core.model import PoolReadings
from controller.core.observation import HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.stamps import GAP, Stamps

POOL, START, TICK = "llm", 1_000_000.0, 15.0
RATE = 1.0  # requests/s of each replica


@dataclass
class Fleet:
    """Replicas at a constant load, each scraped at its own phase; Prometheus is away in `outages`. Replica 0 is started
    anew at `restart`, and counts from nothing then. Gauges grow by a tenth of what comes."""

    phases: Sequence[float]
    outages: Sequence[tuple[float, float]] = ()
    scrape: float = 15.0
    stamped: bool = True
    restart: float | None = None
    told: bool = True  # when the process began
    gateway: bool = False
    meter: Meter = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        spec = GatewaySpec("gate") if self.gateway else None
        self.meter = Meter([PoolSpec(POOL, 60.0, gateway=spec)])
        self._before: dict[int, float] | None = None
        self._since: float | None = None

    def away(self, at: float) -> bool:
        return any(begin <= at < end for begin, end in self.outages)

    def stamp(self, number: int, at: float) -> float:
        """The newest scrape of a replica that an answer at `at` shows."""
        found = self.phases[number] + self.scrape * ((at - self.phases[number]) // self.scrape)
        while self.away(found):
            found -= self.scrape
        return found

    def counted(self, number: int, at: float) -> float:
        begun = self.restart if number == 0 and self.restart is not None and at >= self.restart else -3600.0
        return RATE * (at - begun)

    def begin_anew(self) -> None:
        """The source forgets what it read."""
        self._since, self._before = None, None

    def see(self, at: float) -> PoolReadings:
        """The tick at `at`, seconds."""
        if self.away(at):
            return self.meter.update(Observation(START + at, self._since, error="refused"))[POOL]
        stamps = {number: round(self.stamp(number, at), 3) for number in range(len(self.phases))}
        values = {number: self.counted(number, stamp) for number, stamp in stamps.items()}
        old = self._before
        added = {n: v - old[n] if v >= old[n] else v for n, v in values.items()} if old is not None else {}
        facts = self.facts(at, stamps, added)
        pools = {POOL: facts}
        if self.gateway:
            count = {Fact.ARRIVED: fsum(added.values())} if added else {}
            pools["gate"] = PoolFacts(counters=count, gauges={Fact.HELD: 0.0}, front_age=at - stamps[0])
        seen = self.meter.update(Observation(START + at, self._since, pools, stamped=self.stamped))[POOL]
        self.total += fsum(added.values())
        self._before, self._since = values, START + at
        return seen

    def facts(self, at: float, stamps: Mapping[int, float], added: Mapping[int, float]) -> PoolFacts:
        replicas = {
            f"r{number}": ReplicaFacts(
                counters={Fact.FINISHED: added[number]} if added else {},
                gauges={Fact.RUNNING: 100.0 + RATE / 10 * stamp, Fact.WAITING: 0.0},
                age=at - stamp if self.stamped else 0.0,
                started_at=START + self.restart
                if self.told and number == 0 and self.restart is not None and stamp >= self.restart
                else None,
            )
            for number, stamp in stamps.items()
        }
        every = fsum(added.values())
        first = HistogramIncrement((1.0,), (every,), every, every / 2)
        running = fsum(one.gauges[Fact.RUNNING] for one in replicas.values())
        return PoolFacts(
            histograms={Fact.TTFT: first} if added else {},
            counters={Fact.FINISHED: every, Fact.ADMITTED: every} if added else {},
            gauges={Fact.RUNNING: running, Fact.WAITING: 0.0},
            replicas=replicas,
        )

    def kept(self, fact: Fact = Fact.FINISHED) -> float:
        return fsum(entry.counters.get(fact, 0.0) for entry in self.meter.pools[POOL].history.entries)


def run(fleet: Fleet, end: float, tick: float = TICK) -> list[tuple[float, PoolReadings]]:
    return [(tick * number, fleet.see(tick * number)) for number in range(1, int(end / tick) + 1)]


def worst(rows: Sequence[tuple[float, PoolReadings]], signal: Signal, after: float) -> float:
    return max((seen.get(signal).value or 0.0) for at, seen in rows if at >= after)


PHASES = (1.0, 3.5, 5.0, 7.0, 9.5, 11.0, 12.0, 13.0, 14.0, 14.5)


def test_a_minute_without_prometheus_looks_like_no_flash_after_it() -> None:
    rows = run(Fleet(PHASES, [(185.0, 250.0)]), 500)

    assert worst(rows, Signal.FINISHED_RATE, 180.0) <= 10.0 * 1.05
    assert worst(rows, Signal.ADMITTED_RATE, 180.0) <= 10.0 * 1.05
    assert worst(rows, Signal.OFFERED_RATE, 180.0) <= 11.0 * 1.05  # and a tenth stays in flight
    assert rows[-1][1].get(Signal.OFFERED_RATE).value == pytest.approx(11.0)
    assert rows[-1][1].get(Signal.OFFERED_RATE).state == State.OK


def test_the_first_answer_after_an_outage_is_no_evidence_that_demand_fell() -> None:
    """It still shows the samples from before, as if nothing had come since: no reason to lower anything."""
    for length in (35.0, 50.0, 65.0, 200.0):
        rows = run(Fleet(PHASES, [(185.0, 185.0 + length)]), 600)
        for _, seen in rows[12:]:
            reading = seen.get(Signal.FINISHED_RATE)
            assert not reading.trusted or (reading.value or 0.0) >= 10.0 * 0.9


def test_what_was_counted_over_a_restart_in_the_gap_is_not_from_before_it() -> None:
    """Replica 0 came back 10 s before the end: what it counts is of these seconds, and no more than that."""
    told = Fleet(PHASES[:1], [(185.0, 305.0)], restart=290.0)
    rows = run(told, 400)
    assert dict(rows)[330.0].get(Signal.FINISHED_RATE).value == pytest.approx(RATE, rel=0.35)
    assert worst(rows, Signal.ADMITTED_RATE, 300.0) <= RATE * 1.05
    untold = Fleet(PHASES[:1], [(185.0, 305.0)], restart=290.0, told=False)
    assert worst(run(untold, 400), Signal.ADMITTED_RATE, 300.0) <= RATE * 1.05


def test_a_replica_that_counts_late_does_not_move_the_others() -> None:
    """Per-replica counters keep their own dates: after the outage each shows its own load."""
    fleet = Fleet((1.0, 14.0), [(185.0, 240.0)])
    fleet.meter = Meter([PoolSpec(POOL, 60.0, singles=True)])
    for at, seen in run(fleet, 400):
        for name in ("r0", "r1"):
            reading = seen.replicas[name].get(Signal.FINISHED_RATE) if name in seen.replicas else None
            if at >= 255.0:
                assert reading is not None
                assert reading.value == pytest.approx(RATE, rel=0.35)


def test_without_stamps_the_growth_of_a_gap_is_of_no_shorter_time_than_the_gap() -> None:
    rows = run(Fleet(PHASES, [(185.0, 250.0)], stamped=False), 500)

    assert worst(rows, Signal.FINISHED_RATE, 180.0) <= 10.0 * 1.05
    assert worst(rows, Signal.ADMITTED_RATE, 180.0) <= 10.0 * 1.05
    assert rows[-1][1].get(Signal.FINISHED_RATE).value == pytest.approx(10.0)


def test_without_stamps_a_second_outage_right_after_the_first_is_one_too() -> None:
    for outages in ([(201.0, 451.0), (467.0, 482.0)], [(202.0, 452.0), (466.0, 526.0)]):
        rows = run(Fleet((1.0,), outages, stamped=False), 800)
        assert worst(rows, Signal.FINISHED_RATE, 180.0) <= RATE * 1.25


def test_a_gateway_that_nobody_scraped_brings_no_flash_either() -> None:
    rows = run(Fleet(PHASES, [(185.0, 230.0)], gateway=True), 500)

    assert worst(rows, Signal.OFFERED_RATE, 180.0) <= 10.0 * 1.1


def test_an_outage_longer_than_counting_bridges_is_forgotten_and_not_crowded() -> None:
    """The source begins anew, and its first increments still are those of the whole outage."""
    fleet = Fleet(PHASES, [(185.0, 605.0)])
    rows = []
    for number in range(1, 60):
        if TICK * number == 615.0:
            fleet.begin_anew()
        rows.append((TICK * number, fleet.see(TICK * number)))
    assert worst(rows, Signal.FINISHED_RATE, 600.0) <= 10.0 * 1.05


def test_ticks_quicker_than_scrapes_are_no_gap() -> None:
    for tick, scrape in ((5.0, 15.0), (15.0, 30.0), (15.0, 15.0), (60.0, 15.0)):
        fleet = Fleet(PHASES, scrape=scrape)
        rows = run(fleet, 900, tick)
        value = rows[-1][1].get(Signal.FINISHED_RATE)
        assert value.state == State.OK, (tick, scrape)
        assert value.value == pytest.approx(10.0, rel=0.01)


def test_a_replica_that_is_scraped_more_rarely_holds_nothing_up_for_ever() -> None:
    """Another job scrapes it every minute. Overdue for most of each, it kept its pool at its size for good."""
    stamps, told = Stamps(60.0), []
    for number in range(1, 41):
        at = START + TICK * number
        ages = {f"r{i}": 1.0 for i in range(3)} | {"rare": 1.0 + TICK * (number % 4)}
        facts = PoolFacts(replicas={name: ReplicaFacts(age=age) for name, age in ages.items()})
        told.append(stamps.read(facts, at, at - TICK, stamped=True))
    assert any(one.overdue for one in told[:16]), "nobody knows yet that this is how it is scraped"
    assert not any(one.overdue for one in told[16:])
    assert told[35].replicas["rare"].seconds == 4 * TICK, "and its growth is of the whole minute"

    quiet = PoolFacts(replicas={"rare": ReplicaFacts(age=121.0), "r0": ReplicaFacts(age=1.0)})
    at = START + TICK * 48
    assert stamps.read(quiet, at, at - TICK, stamped=True).overdue == 1, "a second missed scrape is one all the same"


def test_a_constant_lag_of_the_store_is_no_outage() -> None:
    """Mimir and Thanos may show every sample half a minute late, at every tick."""
    stamps = Stamps(60.0)
    for number in range(1, 20):
        at = TICK * number
        facts = PoolFacts(replicas={"a": ReplicaFacts(age=37.0)})
        dating = stamps.read(facts, at, at - TICK if number > 1 else None, stamped=True)
        assert (dating.overdue, dating.late, dating.together) == (0, False, False)


def test_one_query_that_timed_out_for_minutes_is_no_flash_when_it_answers() -> None:
    """The others answered at every tick, so that the pool had no outage: the finished of two minutes came as those of
    15 s."""
    meter = Meter([PoolSpec(POOL, 60.0)])
    since: float | None = None
    for number in range(1, 31):
        at, out = START + TICK * number, 12 <= number < 20
        back = START + TICK * 11 if number == 20 else at - TICK
        failed = {Fact.FINISHED: "timed out"} if out else {}
        counters = {Fact.ARRIVED: 150.0} | ({} if out else {Fact.FINISHED: 10.0 * (at - back)})
        facts = PoolFacts(
            counters=counters if since is not None else {},
            gauges={Fact.RUNNING: 5.0, Fact.WAITING: 0.0},
            replicas={"a": ReplicaFacts(gauges={Fact.RUNNING: 5.0}, age=4.0)},
            failed=failed,
            since={Fact.FINISHED: back} if number == 20 else {},
        )
        seen = meter.update(Observation(at, since, {POOL: facts}, stamped=True))[POOL]
        since = at
        for signal in (Signal.FINISHED_RATE, Signal.OFFERED_RATE):
            reading = seen.get(signal)
            assert reading.value is None or reading.value == pytest.approx(10.0), number
        if number >= 20:
            assert seen.get(Signal.FINISHED_RATE).state == State.OK


# A scrape at the very moment of a tick would fall before or after it by how floats are rounded.
BETWEEN_TICKS = st.floats(0.0, 14.9).filter(lambda phase: 0.01 < phase % 5.0 < 4.99)


@given(
    phases=st.lists(BETWEEN_TICKS, min_size=1, max_size=6),
    outages=st.lists(st.tuples(st.floats(100.0, 700.0), st.floats(5.0, 250.0)), min_size=1, max_size=2),
    scrape=st.sampled_from([5.0, 15.0]),
    stamped=st.booleans(),
    whole=st.booleans(),
)
# Two outages with a single scrape between them: what it shows is old when it is seen.
@example([0.5], [(100.0, 81.0), (196.0, 30.0)], 15.0, True, False)
@example([0.5], [(100.0, 81.0), (196.0, 60.0)], 15.0, True, False)
@example([5.5], [(376.0, 250.0), (631.0, 10.0)], 5.0, True, False)
@example([5.5], [(611.0, 15.0), (631.0, 15.0)], 5.0, True, False)
def test_counts_are_conserved_and_never_exceed_the_truth_by_more_than_jitter(
    phases: list[float], outages: list[tuple[float, float]], scrape: float, stamped: bool, whole: bool
) -> None:
    fleet = Fleet(phases, [(begin, begin + length) for begin, length in outages], scrape=scrape, stamped=stamped)
    if whole:
        fleet.meter.pools[POOL].history.stretch(900.0, 900.0)  # nothing is thinned
    truth = RATE * len(phases)
    # However many seconds a window holds, it may hold one scrape more than belongs there, since samples are that old,
    # and half a step, which is not taken for a gap. Who tells no stamps cannot tell of an outage between two ticks that
    # were both answered.
    more = truth * (scrape + (GAP - 1.0) * TICK if stamped else max(scrape, TICK))
    for at, seen in run(fleet, 880.0):
        for signal in (Signal.FINISHED_RATE, Signal.ADMITTED_RATE):
            reading = seen.get(signal)
            if reading.value is not None and reading.window and at > 60.0:
                assert reading.value * reading.window <= truth * reading.window + more + 1e-6, (at, signal)
    assert not whole or fleet.kept() == pytest.approx(fleet.total)
    assert fleet.kept(Fact.ADMITTED) == pytest.approx(fleet.total)
