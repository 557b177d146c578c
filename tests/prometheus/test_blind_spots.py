"""What one part of a pool does not tell: numbers that are none, targets that nobody sees, counters that were not read.
None of it may pass for a pool that is well and idle."""

from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from tests.support.query_api import Api, Rows, failure, query_api, vector

START = 1000.0
PODS = ("p0", "p1", "p2", "p3")
DOWN = failure(503, "down")
Answer = tuple[int, str, bytes]


def need(model: str) -> PoolNeeds:
    return PoolNeeds(
        pool=model,
        engine="vllm",
        matchers=(Matcher("model_name", "=", model),),
        facts=frozenset({Fact.RUNNING, Fact.WAITING, Fact.FINISHED, Fact.TTFT}),
        replica_facts=frozenset({Fact.WAITING}),
    )


def target(pod: str, model: str = "m") -> dict[str, str]:
    return {"job": "vllm", "instance": pod, "pod": pod, "model_name": model}


class Fleet:
    """Answers as Prometheus would for pods that each have 5 requests waiting. `serves` is what each pod shows, `odd`
    the value of a pod's gauges, `broken` words of queries that fail, `mute` a gauge and the pods that lack it."""

    def __init__(self) -> None:
        self.serves: dict[str, tuple[str, ...]] = dict.fromkeys(PODS, ("m",))
        self.up = dict.fromkeys(PODS, "1")
        self.odd: dict[str, str] = {}
        self.broken: Sequence[str] = ()
        self.mute: tuple[str, frozenset[str]] = ("-", frozenset())
        self.histogram: Rows = [({"le": "1.0"}, "6"), ({"le": "+Inf"}, "8"), ({}, "9")]
        self.at = START

    def rows(self, value: str) -> Rows:
        return [(target(pod, model), value) for pod, models in self.serves.items() for model in models]

    def __call__(self, query: str) -> Answer:
        if any(word in query for word in self.broken) and not query.startswith("count by"):
            return DOWN
        if "__name__" in query and query.startswith("count by"):
            names = ("num_requests_running", "num_requests_waiting", "request_success_total",
                     "time_to_first_token_seconds_count")  # fmt: skip
            return vector([({"__name__": f"vllm:{name}", **row}, "1") for name in names for row, _ in self.rows("1")])
        if "process_start_time_seconds" in query:
            return vector([({"__name__": "up", "job": "vllm", "instance": pod}, up) for pod, up in self.up.items()])
        if query.startswith("max by") and "timestamp" in query:
            return vector(self.rows(str(self.at)))
        if "time_to_first_token" in query:
            return vector([({"model_name": "m", **labels}, value) for labels, value in self.histogram])
        if "request_success" in query:
            return vector([({"model_name": "m"}, self.odd.get("all", "7"))])
        silent = self.mute[1] if self.mute[0] in query else ()
        return vector([(r, self.odd.get(r["pod"], value)) for r, value in self.rows("5") if r["pod"] not in silent])


@pytest.fixture
def api() -> Iterator[Api]:
    with query_api() as served:
        served.behave = Fleet()
        yield served


class Watch:
    """One source, asked every 15 s."""

    def __init__(self, api: Api, *models: str) -> None:
        needs = [need(model) for model in models or ("m",)]
        self.source = PrometheusSource(PrometheusConfig(url=api.url), needs, clock=lambda: START + 1e6)
        self.fleet = api.behave
        assert isinstance(self.fleet, Fleet)
        self.ticks = count()

    def observe(self) -> Observation:
        at = START + 15.0 * next(self.ticks)
        assert isinstance(self.fleet, Fleet)
        self.fleet.at = at
        seen = self.source.observe(at, 5.0)
        assert seen.error == ""
        return seen

    def pool(self, name: str = "m") -> PoolFacts:
        return self.observe().pools[name]


@pytest.fixture
def fleet(api: Api) -> Fleet:
    assert isinstance(api.behave, Fleet)
    return api.behave


@pytest.fixture
def watch(api: Api) -> Iterator[Watch]:
    made = Watch(api)
    yield made
    made.source.close()


# --- numbers that are none ---


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_two_of_four_queues_without_a_number_are_no_short_queue(watch: Watch, fleet: Fleet, value: str) -> None:
    assert (watch.pool().partial, watch.pool().gauges[Fact.WAITING]) == ("", 20.0)
    fleet.odd = {"p2": value, "p3": value}
    pool = watch.pool()
    assert "vllm:num_requests_waiting of p2, p3 is not a number" in pool.partial
    assert (pool.gauges[Fact.WAITING], pool.failed) == (10.0, {})
    fleet.odd = {}
    assert watch.pool().partial == ""


def test_no_number_of_any_replica_is_a_failed_fact(watch: Watch, fleet: Fleet) -> None:
    fleet.odd = dict.fromkeys(PODS, "NaN")
    pool = watch.pool()
    assert Fact.WAITING not in pool.gauges
    assert pool.failed[Fact.WAITING] == "vllm:num_requests_waiting of p0, p1, p2 and 1 more is not a number"


def test_a_counter_without_a_number_is_a_failed_fact_and_not_nothing(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    fleet.odd = {"all": "NaN"}
    pool = watch.pool()
    assert Fact.FINISHED not in pool.counters
    assert pool.failed[Fact.FINISHED] == "vllm:request_success_total is not a number"


def test_a_histogram_that_lacks_a_bucket_for_want_of_a_number_is_none(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    assert watch.pool().histograms[Fact.TTFT].count == 8.0
    fleet.histogram = [({"le": "1.0"}, "NaN"), ({"le": "+Inf"}, "8"), ({}, "9")]
    pool = watch.pool()
    assert Fact.TTFT not in pool.histograms
    assert pool.failed[Fact.TTFT] == "vllm:time_to_first_token_seconds is not a number"


def test_the_number_that_another_pool_lacks_makes_no_doubt(api: Api, fleet: Fleet) -> None:
    fleet.serves = {"p0": ("m",), "p1": ("other",)}
    watch = Watch(api, "m", "other")
    fleet.odd = {"p1": "NaN"}
    seen = watch.observe()
    watch.source.close()
    assert seen.pools["m"].partial == ""
    assert Fact.WAITING in seen.pools["other"].failed


# --- nothing where something was ---


@pytest.mark.parametrize("metric", ["num_requests_running", "num_requests_waiting"])
def test_queues_that_vanished_are_no_short_queue_before_their_age_tells(
    watch: Watch, fleet: Fleet, metric: str
) -> None:
    assert watch.pool().partial == ""
    fleet.mute = (metric, frozenset({"p2", "p3"}))
    for _ in range(20):
        assert watch.pool().partial == f"vllm:{metric}: nothing from p2, p3, which told it before"
    assert watch.pool().partial == "", "what was never going to come back is not waited for"


def test_a_replica_that_left_or_is_down_is_not_called_silent(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    del fleet.serves["p2"], fleet.up["p2"]
    fleet.serves["p3"], fleet.up["p3"] = (), "0"
    pool = watch.pool()
    assert (pool.partial, pool.targets_down) == ("", 1)


# --- counters that were not read ---


def test_a_counter_that_comes_back_after_its_gap_is_not_read_as_no_events(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    assert watch.pool().counters[Fact.FINISHED] == 7.0
    fleet.broken = ["request_success"]
    for _ in range(20):
        assert "503" in watch.pool().failed[Fact.FINISHED]
    fleet.broken = []
    back = watch.pool()  # 315 s after the last count
    assert Fact.FINISHED not in back.counters
    assert "counting starts anew" in back.failed[Fact.FINISHED]
    pool = watch.pool()
    assert (pool.counters[Fact.FINISHED], pool.failed) == (7.0, {})


def test_a_first_observation_fails_nothing(watch: Watch) -> None:
    assert watch.pool().failed == {}


# --- targets that nobody sees ---


@pytest.mark.parametrize(
    ("word", "said"), [("timestamp", "which samples are stale could not be read"), ("process_start", "targets are up")]
)
def test_without_sight_of_the_targets_a_pool_is_in_doubt(watch: Watch, fleet: Fleet, word: str, said: str) -> None:
    assert watch.pool().partial == ""
    fleet.broken = [word]
    assert said in watch.pool().partial
    assert "503" in watch.pool().partial
    fleet.broken = []
    assert watch.pool().partial == ""


def test_a_target_that_no_longer_serves_the_model_ages_and_then_leaves(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    fleet.serves["p3"] = ()
    watch.pool()
    aging = watch.pool().replicas["p3"]
    assert (aging.up, aging.age) == (True, 30.0)
    for _ in range(17):
        watch.pool()
    assert watch.pool().replicas["p3"].age == 300.0
    left = watch.pool()
    assert sorted(left.replicas) == ["p0", "p1", "p2"]
    assert (left.targets_up, left.targets_down, left.partial) == (3, 0, "")


def test_a_target_that_serves_one_model_less_leaves_that_pool_alone(api: Api, fleet: Fleet) -> None:
    fleet.serves = {"p0": ("m", "other"), "p1": ("m", "other")}
    fleet.up = {"p0": "1", "p1": "1"}
    watch = Watch(api, "m", "other")
    watch.observe()
    fleet.serves["p1"] = ("m",)
    seen = watch.observe()
    assert (seen.pools["other"].replicas["p1"].age, seen.pools["m"].replicas["p1"].age) == (15.0, 0.0)
    for _ in range(20):
        seen = watch.observe()
    watch.source.close()
    assert sorted(seen.pools["other"].replicas) == ["p0"]
    assert sorted(seen.pools["m"].replicas) == ["p0", "p1"]


def test_a_target_that_is_down_stays_and_is_told_as_down(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    fleet.serves["p3"], fleet.up["p3"] = (), "0"
    for _ in range(40):
        pool = watch.pool()
        assert (pool.replicas["p3"].up, pool.targets_down) == (False, 1)


def test_a_fleet_that_left_is_forgotten_and_one_that_is_down_is_not(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    fleet.serves, fleet.up = {}, {"p0": "0"}
    for _ in range(45):
        assert Fact.WAITING not in watch.pool().gauges
    pool = watch.pool()
    assert (sorted(pool.replicas), pool.targets_up, pool.targets_down) == (["p0"], 0, 1)


def test_a_fleet_that_left_together_is_forgotten_too(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    fleet.serves, fleet.up = {}, {}
    for _ in range(45):
        assert Fact.WAITING not in watch.pool().gauges
    assert watch.pool().replicas == {}


def test_no_target_leaves_while_nobody_can_look(watch: Watch, fleet: Fleet) -> None:
    watch.pool()
    fleet.broken = ["timestamp"]
    for _ in range(40):
        watch.pool()
    replicas = watch.pool().replicas
    assert len(replicas) == len(PODS)
    assert replicas["p0"].age == 615.0
