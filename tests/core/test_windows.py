"""The past of a pool: what windows reach is whole, what they do not reach is thin, and nobody can tell."""

from controller.core.facts import Fact
from controller.core.observation import HistogramIncrement
from controller.core.queueing import oldest_wait
from controller.core.windows import NEWEST, Entry, History, ReplicaEntry

TTFT = HistogramIncrement((1.0, 2.0), (1.0, 2.0), 3.0, 4.0)


def entry(number: int, replicas: tuple[str, ...] = ("a", "b"), seconds: float = 15.0) -> Entry:
    told = {name: ReplicaEntry({Fact.GENERATION_TOKENS: 9.0}, {Fact.WAITING: 1.0 + number}) for name in replicas}
    at = seconds * number
    return Entry(at - seconds, at, {Fact.TTFT: TTFT}, {Fact.FINISHED: 3.0}, {Fact.WAITING: 2.0}, told)


def filled(ticks: int, reach: float, seconds: float = 15.0) -> History:
    history = History(900.0, reach)
    for number in range(1, ticks + 1):
        history.push(entry(number, seconds=seconds))
    return history


def whole(history: History) -> int:
    return sum(1 for one in history.entries if one.histograms)


def test_a_quarter_of_an_hour_of_every_replica_is_most_of_the_memory() -> None:
    history = filled(100, 60.0)
    assert len(history.entries) == 60
    assert whole(history) <= 7
    thin = [one for one in history.entries if not one.histograms]
    assert all(one.replicas is thin[0].replicas for one in thin)


def test_a_window_that_reaches_a_thinned_entry_would_lose_its_buckets() -> None:
    for seconds in (1.0, 7.0, 15.0, 25.0, 60.0):
        history = filled(80, 60.0, seconds)
        now = 80 * seconds
        inside = list(history.within(now, 60.0))
        total = history.histogram(Fact.TTFT, now, 60.0)
        assert total is not None
        assert total.edges == TTFT.edges
        assert total.count == 3.0 * len(inside)
        ends = history.ends(now, 60.0)
        assert ends is not None
        assert all(one.histograms for one in ends)


def test_a_wait_of_ten_minutes_is_not_forgotten_with_the_buckets() -> None:
    """The queue of 900 s is thinned where no window reaches: the oldest wait must be the same as if it were not."""
    for counters in (
        {Fact.ADMITTED: 1.0, Fact.FINISHED: 2.0},
        {Fact.RESPONSES: 3.0, Fact.FINISHED: 1.0, Fact.ERRORS: 1.0},
        {Fact.FINISHED: 1.0, Fact.ABORTED: 2.0},
    ):
        for observed in ({Fact.TTFT: HistogramIncrement((1.0,), (1.0,), 1.0, 1.0)}, {}):
            thin, plain = History(900.0, 60.0), History(900.0, 900.0)
            for number in range(1, 61):
                one = Entry(15.0 * (number - 1), 15.0 * number, observed, counters, {Fact.WAITING: 80.0}, {})
                thin.push(one)
                plain.push(one)
            assert oldest_wait(list(thin.entries), 900.0) == oldest_wait(list(plain.entries), 900.0) > 300.0


def test_a_stuck_engine_is_told_by_the_last_scrapes_however_long_the_ticks() -> None:
    assert whole(filled(20, 60.0, seconds=100.0)) >= NEWEST


def test_a_replica_that_is_gone_for_ten_minutes_is_no_new_one() -> None:
    history = History(900.0, 60.0)
    history.push(entry(1, ("a", "old")))
    for number in range(2, 50):
        history.push(entry(number, ("a",)))
    assert history.knew("old", 40 * 15.0)
    assert history.had("old", Fact.WAITING)
    assert not history.had("old", Fact.KV_USAGE)
    assert not history.knew("new", 40 * 15.0)


def test_a_reload_with_a_longer_window_counts_no_thinned_entry() -> None:
    history = filled(100, 60.0)
    history.stretch(900.0, 300.0)
    assert whole(history) == len(history.entries)
    assert not history.full(1500.0, 300.0)
    for number in range(101, 130):
        history.push(entry(number))
    assert history.full(129 * 15.0, 300.0)
    total = history.histogram(Fact.TTFT, 129 * 15.0, 300.0)
    assert total is not None
    assert total.edges == TTFT.edges


def test_a_reload_with_a_shorter_window_loses_nothing() -> None:
    history = filled(100, 300.0)
    before = history.entries[0]
    history.stretch(900.0, 60.0)
    assert history.entries[0] is before
    assert history.full(1500.0, 60.0)
