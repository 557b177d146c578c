"""The breaker: takes out what fails, is slow or stuck; never a fleet that is merely overloaded; lets back carefully."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.breaker import Breaker, Phase
from routing.knobs import Breaker as Knobs
from routing.model import Replica

KNOBS = Knobs(on=True)
PACE = 0.03  # s per output token of a healthy replica


class Fleet:
    """Replicas that each end some requests a second, well, slowly or badly."""

    def __init__(self, count: int, knobs: Knobs = KNOBS) -> None:
        self.breaker = Breaker(knobs)
        self.names = [f"r{i}" for i in range(count)]
        self.replicas = {name: Replica(name) for name in self.names}
        self.now = 0.0
        for name in self.names:
            self.breaker.joined(self.replicas[name], 0.0)

    def run(
        self,
        seconds: int,
        *,
        failing: Iterable[str] = (),
        slow: Iterable[str] = (),
        stuck: Iterable[str] = (),
        rate: int = 5,
        errors: float = 1.0,
    ) -> None:
        """`errors` is the share of the failing ones' requests that fail; `rate` requests/s to each replica."""
        failing, slow, stuck = set(failing), set(slow), set(stuck)
        for _ in range(seconds):
            self.now += 1.0
            for name in self.names:
                for i in range(rate):
                    phase = self.breaker.phase(name)
                    if phase is Phase.OPEN or (phase is Phase.PROBING and not self.breaker.probe_due(name, self.now)):
                        continue
                    self.one(name, i < errors * rate and name in failing, name in slow, name in stuck)
            if self.now >= self.breaker.next_at:
                self.breaker.poll(self.now)

    def one(self, name: str, fails: bool, slow: bool, stuck: bool) -> None:
        replica, breaker, now = self.replicas[name], self.breaker, self.now
        replica.inflight += 1
        breaker.sent(name, now)
        if stuck:
            return
        replica.inflight -= 1
        if fails:
            breaker.failed(name, now, now)
            return
        factor = 4.0 if slow else 1.0
        breaker.first_token(name, now - 0.2 * factor, 300.0, now)  # sent before: the plant is instantaneous
        breaker.finished(name, now, PACE * factor, now)

    def out(self) -> list[str]:
        return [name for name in self.names if self.breaker.phase(name) in (Phase.OPEN, Phase.PROBING)]


def test_a_healthy_day_ejects_nobody() -> None:
    fleet = Fleet(8)
    fleet.run(600)

    assert not fleet.breaker.opened
    assert all(fleet.breaker.factor(name) == 1.0 for name in fleet.names)


def test_one_that_fails_fast_is_out_at_the_next_judgement() -> None:
    fleet = Fleet(8)
    fleet.run(20)
    fleet.run(5, failing=["r3"])

    assert fleet.out() == ["r3"]
    assert fleet.breaker.factor("r3") == 0.0


def test_a_few_errors_or_too_few_requests_open_nothing() -> None:
    fleet = Fleet(8)
    fleet.run(60, failing=["r3"], errors=0.15, rate=20)
    assert not fleet.out()
    quiet = Fleet(8, Knobs(on=True, least=50))
    quiet.run(20, failing=["r3"], rate=1)
    assert not quiet.out()


def test_one_that_is_slow_though_alive_is_out_after_its_windows() -> None:
    fleet = Fleet(8)
    fleet.run(20)
    fleet.run(10, slow=["r5"])
    assert not fleet.out()
    fleet.run(10, slow=["r5"])
    assert fleet.out() == ["r5"]


def test_a_fleet_that_is_slow_as_a_whole_ejects_nobody() -> None:
    fleet = Fleet(8)
    fleet.run(60)
    fleet.run(120, slow=fleet.names)

    assert not fleet.breaker.opened


def test_a_fleet_that_fails_as_a_whole_ejects_nobody() -> None:
    """Fewer replicas make an overload worse: shedding is for that."""
    fleet = Fleet(8)
    fleet.run(20)
    fleet.run(120, failing=fleet.names)

    assert not fleet.breaker.opened


@pytest.mark.parametrize(("count", "cap"), [(2, 1), (4, 1), (8, 1), (10, 2), (20, 4)])
def test_half_the_fleet_slow_ejects_no_more_than_the_cap(count: int, cap: int) -> None:
    fleet = Fleet(count)
    fleet.run(20)
    worst = 0
    for _ in range(60):
        fleet.run(5, slow=fleet.names[: count // 2])
        worst = max(worst, len(fleet.out()))

    assert worst <= cap


def test_of_two_the_bad_one_may_go_and_a_single_one_never() -> None:
    pair = Fleet(2)
    pair.run(20)
    pair.run(20, slow=["r1"])
    assert pair.out() == ["r1"]
    single = Fleet(1)
    single.run(60, failing=["r0"])
    assert not single.out()


def test_the_last_one_left_is_let_in_whatever_it_did() -> None:
    fleet = Fleet(2)
    fleet.run(10, failing=["r1"])
    assert fleet.out() == ["r1"]
    fleet.breaker.left("r0")

    assert fleet.breaker.factor("r1") == 1.0


def test_one_that_hangs_is_found_by_its_silence() -> None:
    """Nothing ends there, so that no rate of errors ever tells."""
    fleet = Fleet(4, Knobs(on=True, stuck=20.0))
    fleet.run(20)
    fleet.run(30, stuck=["r2"])

    assert fleet.out() == ["r2"]


def test_an_idle_replica_is_not_stuck() -> None:
    fleet = Fleet(4, Knobs(on=True, stuck=20.0))
    fleet.run(20)
    fleet.run(60, rate=0)
    fleet.run(20)

    assert not fleet.breaker.opened


def test_the_way_back_is_probes_then_a_ramp() -> None:
    fleet = Fleet(8)
    fleet.run(20)
    fleet.run(5, failing=["r3"])
    factors = []
    for _ in range(60):
        fleet.run(1)
        factors.append(fleet.breaker.factor("r3"))

    assert sorted(set(factors)) == [0.0, 0.05, 0.25, 1.0]
    assert factors == sorted(factors)
    assert 8 <= factors.count(0.0) <= 12  # 10 s, give or take the jitter
    assert factors.count(0.25) == pytest.approx(10, abs=1)
    assert factors[-1] == 1.0
    assert fleet.breaker.opened == {"r3": 1}


def test_probes_are_few_and_spread_over_time() -> None:
    fleet = Fleet(8)
    fleet.run(20)
    fleet.run(5, failing=["r3"])
    while fleet.breaker.phase("r3") is Phase.OPEN:
        fleet.run(1)
    breaker, now, replica = fleet.breaker, fleet.now, fleet.replicas["r3"]
    sent = 0
    for tick in range(100):
        if breaker.probe_due("r3", now + tick / 10):
            replica.inflight += 1
            breaker.sent("r3", now + tick / 10)
            sent += 1

    assert sent == KNOBS.probes


def test_relapses_wait_longer_up_to_a_limit_and_are_forgotten() -> None:
    fleet = Fleet(8, Knobs(on=True, open_time=10.0, open_limit=60.0))
    fleet.run(20)
    opened: list[float] = []
    for _ in range(400):
        before = fleet.breaker.opened.get("r3", 0)
        fleet.run(1, failing=["r3"])
        if fleet.breaker.opened.get("r3", 0) > before:
            opened.append(fleet.now)
    gaps = [later - earlier for earlier, later in pairwise(opened)]

    assert 8 <= gaps[0] <= 14
    assert 15 <= gaps[1] <= 27
    assert all(gap <= 60 * 1.2 + 3 for gap in gaps)
    fleet.run(300)
    assert fleet.breaker.factor("r3") == 1.0
    fleet.run(5, failing=["r3"])
    start = fleet.now
    while fleet.breaker.phase("r3") is Phase.OPEN:
        fleet.run(1)
    assert fleet.now - start <= 14


def test_two_replicas_do_not_come_back_in_the_same_second() -> None:
    fleet = Fleet(20, Knobs(on=True, open_time=100.0, ejected=0.5))
    fleet.run(20)
    bad = ["r1", "r4", "r9"]
    fleet.run(5, failing=bad)
    assert fleet.out() == bad
    back: dict[str, float] = {}
    while len(back) < 3:
        fleet.run(1)
        for name in bad:
            if fleet.breaker.phase(name) is not Phase.OPEN:
                back.setdefault(name, fleet.now)

    assert max(back.values()) - min(back.values()) >= 3


def test_what_was_sent_before_it_opened_says_nothing_about_the_way_back() -> None:
    fleet = Fleet(8)
    fleet.run(20)
    fleet.run(5, failing=["r3"])
    while fleet.breaker.phase("r3") is Phase.OPEN:
        fleet.run(1)
    for _ in range(20):
        fleet.breaker.finished("r3", 22.0, PACE, fleet.now)  # old ones end well
    assert fleet.breaker.phase("r3") is Phase.PROBING
    assert not fleet.breaker.failed("r3", 22.0, fleet.now)  # and badly
    assert fleet.breaker.phase("r3") is Phase.PROBING


def test_a_request_that_hangs_blocks_no_probe_for_ever() -> None:
    fleet = Fleet(8, Knobs(on=True, stuck=15.0))
    fleet.run(20)
    fleet.run(5, failing=["r3"])
    fleet.run(60, stuck=["r3"])  # probes vanish
    assert fleet.breaker.opened["r3"] >= 2
    fleet.run(200)
    assert fleet.breaker.factor("r3") == 1.0


def test_switched_off_all_come_back() -> None:
    fleet = Fleet(8)
    fleet.run(5, failing=["r3"])
    assert fleet.breaker.tune(Knobs(), fleet.now)

    assert fleet.breaker.factor("r3") == 1.0
    assert fleet.breaker.next_at == float("inf")


def loaded(rates: list[int], inflight: list[int], factors: list[float]) -> Breaker:
    """Replicas with so many requests/s, so many in flight, and so many times the healthy pace, for a minute."""
    fleet = Fleet(len(rates))
    for _ in range(60):
        fleet.now += 1.0
        for name, rate, there, factor in zip(fleet.names, rates, inflight, factors, strict=True):
            fleet.replicas[name].inflight = there
            if fleet.breaker.phase(name) is not Phase.CLOSED:
                continue
            for _ in range(rate):
                fleet.breaker.sent(name, fleet.now)
                fleet.breaker.first_token(name, fleet.now - 0.2 * factor, 300.0, fleet.now)
                fleet.breaker.finished(name, fleet.now, PACE * factor, fleet.now)
        fleet.breaker.poll(fleet.now)
    return fleet.breaker


def test_one_that_gets_most_of_the_work_is_not_blamed_for_its_pace() -> None:
    """A hot prefix: taking that replica out would lose its cache and heat the next one."""
    assert not loaded([40, 4, 4, 4], [80, 8, 8, 8], [4.0, 1.0, 1.0, 1.0]).opened
    assert not loaded([20, 2], [60, 6], [4.0, 1.0]).opened


def test_a_straggler_is_found_whether_its_requests_pile_up_or_are_kept_away() -> None:
    assert loaded([8, 8, 8, 8], [60, 8, 8, 8], [4.0, 1.0, 1.0, 1.0]).opened == {"r0": 1}  # round robin
    assert loaded([2, 8, 8, 8], [8, 8, 8, 8], [4.0, 1.0, 1.0, 1.0]).opened == {"r0": 1}  # least-loaded


def test_a_long_prompt_is_no_slow_replica() -> None:
    """A first token after 8 000 tokens of prefill takes its time; per token it is as fast as any."""
    fleet = Fleet(4)
    for _ in range(40):
        fleet.now += 1.0
        for name in fleet.names:
            tokens = 8000.0 if name == "r1" else 500.0
            for _ in range(5):
                fleet.breaker.sent(name, fleet.now)
                fleet.breaker.first_token(name, fleet.now - (tokens + 256.0) * 5e-5, tokens, fleet.now)
                fleet.breaker.finished(name, fleet.now, PACE, fleet.now)
        fleet.breaker.poll(fleet.now)

    assert not fleet.breaker.opened


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 12),
    st.lists(
        st.tuples(
            st.integers(1, 12),
            st.frozensets(st.integers(0, 11)),
            st.frozensets(st.integers(0, 11)),
            st.frozensets(st.integers(0, 11)),
        ),
        max_size=12,
    ),
)
def test_never_more_out_than_the_cap_whatever_befalls(
    count: int, phases: list[tuple[int, frozenset[int], frozenset[int], frozenset[int]]]
) -> None:
    fleet = Fleet(count, Knobs(on=True, stuck=10.0, least=5))
    for seconds, failing, slow, stuck in phases:
        fleet.run(
            seconds,
            failing=[f"r{i}" for i in failing],
            slow=[f"r{i}" for i in slow],
            stuck=[f"r{i}" for i in stuck],
            rate=3,
        )
        assert len(fleet.out()) <= max(1, int(0.2 * count))
        probing = {name for name in fleet.out() if fleet.breaker.phase(name) is Phase.PROBING}
        assert set(fleet.breaker.probing) == probing
        assert fleet.breaker.next_at > fleet.now
