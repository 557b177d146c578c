"""What a counter, a gauge and a histogram mean between two scrapes. Each test is a way in which a controller was once
told a number that nobody measured."""

import pytest

from controller.core.facts import Fact
from controller.core.observation import HistogramIncrement
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Layout
from sources.increments import Increments
from tests.support.streams import between, feed, needs, run

UP = 'up{job="j",instance="a"} 1;'
A = 'job="j",instance="a",pod="a",model_name="m"'
B = 'job="j",instance="b",pod="b",model_name="m"'
UP_B = 'up{job="j",instance="b"} 1;'


def tokens(value: float, labels: str = A) -> str:
    return f"vllm:generation_tokens_total{{{labels}}} {value};"


def ttft(counts: dict[str, float], labels: str = A, total: float = 0.0) -> str:
    name = "vllm:time_to_first_token_seconds"
    rows = "".join(f'{name}_bucket{{{labels},le="{edge}"}} {count};' for edge, count in counts.items())
    return f"{rows}{name}_count{{{labels}}} {max(counts.values())};{name}_sum{{{labels}}} {total};"


def test_the_first_observation_carries_no_increments() -> None:
    first = run({0: UP + tokens(500)})[0]
    assert first.since is None
    assert first.pools["p"].counters == {}


def test_a_counter_reset_counts_the_new_process_and_never_goes_below_zero() -> None:
    assert between({0: UP + tokens(500), 15: UP + tokens(30)}).counters[Fact.GENERATION_TOKENS] == 30


def test_a_reset_of_one_bucket_resets_the_whole_histogram() -> None:
    # The new process has already more samples in the first bucket than the old one had: bucket by bucket this would
    # look like 3 new samples there and a reset elsewhere.
    pool = between({0: UP + ttft({"1": 2, "2": 50, "+Inf": 100}), 15: UP + ttft({"1": 5, "2": 5, "+Inf": 6})})
    assert pool.histograms[Fact.TTFT] == HistogramIncrement((1.0, 2.0), (5.0, 5.0), 6.0, 0.0)


def test_a_series_born_while_its_target_was_up_starts_at_zero() -> None:
    pool = between(
        {0: UP + tokens(0), 15: UP + tokens(0) + f'vllm:request_success_total{{{A},finished_reason="stop"}} 7;'}
    )
    assert pool.counters[Fact.FINISHED] == 7


def test_an_error_counter_that_was_never_born_is_zero_while_its_target_is_healthy() -> None:
    healthy = (
        f"vllm:num_requests_running{{{A}}} 1;"
        'http_request_duration_highr_seconds_count{job="j",instance="a",pod="a"} 0;'
    )
    assert between({0: UP + healthy, 15: UP + healthy}).counters[Fact.ERRORS] == 0


def test_a_finished_counter_without_its_reason_is_missing_and_not_zero() -> None:
    """A proxy that drops labels made a busy pool look idle, and that was trusted."""
    told = 'vllm:request_success_total{model_name="m",instance="a",pod="a"%s} %d'
    born = 'up{instance="a"} 1;vllm:request_generation_tokens_count{model_name="m",instance="a",pod="a"} %d;'
    bare = between({0: born % 1 + told % ("", 10), 15: born % 9 + told % ("", 50)})

    assert Fact.FINISHED not in bare.counters
    assert Fact.FINISHED not in bare.replicas["a"].counters
    assert bare.failed[Fact.FINISHED] == "vllm:request_success_total does not carry the label finished_reason"
    whole = ',finished_reason="stop"'
    assert between({0: born % 1 + told % (whole, 10), 15: born % 9 + told % (whole, 50)}).counters[Fact.FINISHED] == 40
    assert between({0: born.strip(";") % 1, 15: born.strip(";") % 1}).counters[Fact.FINISHED] == 0


def test_one_pod_without_the_label_makes_what_the_others_count_partial() -> None:
    text = (
        'up{instance="a"} 1;up{instance="b"} 1;vllm:request_success_total{model_name="m",instance="b",pod="b"} 70;'
        'vllm:request_success_total{model_name="m",instance="a",pod="a",finished_reason="stop"} %d'
    )
    seen = between({0: text % 10, 15: text % 50})

    assert seen.counters[Fact.FINISHED] == 40
    assert "finished_reason" in seen.partial


def test_a_pod_seen_for_the_first_time_does_not_bring_its_whole_life_as_one_burst() -> None:
    pool = between({0: UP + tokens(10), 15: UP + tokens(20) + UP_B + tokens(9000, B)})
    assert pool.counters[Fact.GENERATION_TOKENS] == 10


def test_a_pod_whose_scrape_failed_before_does_not_bring_its_whole_life_either() -> None:
    down = 'up{job="j",instance="b"} 0;'
    pool = between({0: UP + tokens(10) + down, 15: UP + tokens(20) + UP_B + tokens(9000, B)})
    assert pool.counters[Fact.GENERATION_TOKENS] == 10


def test_a_vanished_pod_takes_nothing_back() -> None:
    pool = between({0: UP + tokens(10) + UP_B + tokens(900, B), 15: UP + tokens(25)})
    assert pool.counters[Fact.GENERATION_TOKENS] == 15
    assert set(pool.replicas) == {"a"}


def test_a_replica_that_is_up_but_no_longer_serves_the_model_ages_and_then_leaves() -> None:
    scrapes = {at: UP + tokens(at) + UP_B + (tokens(5, B) if at == 0 else "") for at in range(0, 331, 15)}
    seen = {int(one.at): one.pools["p"] for one in run(scrapes)}
    assert (seen[300].replicas["b"].up, seen[300].replicas["b"].age, seen[300].targets_up) == (True, 300, 2)
    assert (set(seen[315].replicas), seen[315].targets_up) == ({"a"}, 1)


def test_a_replica_that_is_down_for_long_is_still_told_as_down() -> None:
    down = 'up{job="j",instance="b"} 0;'
    scrapes = {at: UP + tokens(at) + (UP_B + tokens(5, B) if at == 0 else down) for at in range(0, 601, 15)}
    pool = run(scrapes)[-1].pools["p"]
    assert (pool.replicas["b"].up, pool.targets_down) == (False, 1)


def test_a_replica_whose_scrape_fails_is_down_and_ages() -> None:
    scrapes = {0: UP + tokens(10) + UP_B + tokens(5, B), 15: UP + tokens(25) + 'up{job="j",instance="b"} 0;'}
    pool = between(scrapes)
    assert (pool.targets_up, pool.targets_down) == (1, 1)
    assert (pool.replicas["b"].up, pool.replicas["b"].age) == (False, 15)
    assert (pool.replicas["a"].up, pool.replicas["a"].age) == (True, 0)
    assert pool.replicas["b"].counters == {}


def test_api_server_processes_that_repeat_a_gauge_are_not_added_up() -> None:
    # vLLM with several API servers exposes each gauge once per pid.
    text = UP + "".join(f'vllm:num_requests_waiting{{{A},engine="0",pid="{pid}"}} 40;' for pid in (1, 2, 3))
    assert between({0: text, 15: text}).gauges[Fact.WAITING] == 40


def test_data_parallel_engines_are_added_up() -> None:
    text = UP + "".join(f'vllm:num_requests_waiting{{{A},engine="{rank}"}} 10;' for rank in (0, 1))
    assert between({0: text, 15: text}).gauges[Fact.WAITING] == 20


def test_tensor_parallel_ranks_repeat_and_are_not_added_up() -> None:
    def scrape(value: float) -> str:
        rows = (
            f'sglang:num_queue_reqs{{{A},tp_rank="{tp}",dp_rank="{dp}"}} {value};' for tp in (0, 1) for dp in (0, 1)
        )
        return UP + "".join(rows)

    assert between({0: scrape(3), 15: scrape(4)}, needs(Fact.WAITING, engine="sglang")).gauges[Fact.WAITING] == 8


def test_both_spellings_of_a_bucket_edge_are_one_edge() -> None:
    grids = {"1.0": 1.0, "10.0": 3.0, "+Inf": 4.0}, {"1": 1.0, "10": 3.0, "+Inf": 4.0}
    before = UP + UP_B + ttft(dict.fromkeys(grids[0], 0.0)) + ttft(dict.fromkeys(grids[1], 0.0), B)
    pool = between({0: before, 15: UP + UP_B + ttft(grids[0]) + ttft(grids[1], B)})
    assert pool.histograms[Fact.TTFT] == HistogramIncrement((1.0, 10.0), (2.0, 6.0), 8.0, 0.0)


def test_pods_with_different_grids_are_added_on_their_common_edges() -> None:
    before = UP + UP_B + ttft({"1": 0, "5": 0, "+Inf": 0}) + ttft({"1": 0, "8": 0, "+Inf": 0}, B)
    now = UP + UP_B + ttft({"1": 1, "5": 2, "+Inf": 3}) + ttft({"1": 10, "8": 20, "+Inf": 30}, B)
    assert between({0: before, 15: now}).histograms[Fact.TTFT] == HistogramIncrement((1.0,), (11.0,), 33.0, 0.0)


def test_a_scrape_torn_in_the_middle_of_a_write_gives_no_bucket_above_the_next() -> None:
    now = UP + ttft({"1": 5, "2": 4, "+Inf": 5})
    increment = between({0: UP + ttft({"1": 0, "2": 0, "+Inf": 0}), 15: now}).histograms[Fact.TTFT]
    assert increment.cumulative == (5.0, 5.0)


def test_a_bucket_without_a_readable_edge_is_left_out_and_stops_nothing() -> None:
    def scrape(count: float) -> str:
        name = "vllm:time_to_first_token_seconds_bucket"
        return UP + ttft({"1": count, "+Inf": count}) + f'{name}{{{A},le="many"}} {count};{name}{{{A}}} {count};'

    assert between({0: scrape(0), 15: scrape(2)}).histograms[Fact.TTFT] == HistogramIncrement((1.0,), (2.0,), 2.0, 0.0)


def test_a_sum_that_is_not_exposed_is_taken_from_the_middles_of_the_buckets() -> None:
    def scrape(low: float, high: float) -> str:
        name = "vllm:time_to_first_token_seconds_bucket"
        return UP + "".join(
            f'{name}{{{A},le="{edge}"}} {count};' for edge, count in (("1", low), ("2", high), ("+Inf", high))
        )

    increment = between({0: scrape(0, 0), 15: scrape(4, 6)}).histograms[Fact.TTFT]
    assert (increment.count, increment.sum) == (6, 4 * 0.5 + 2 * 1.5)


def test_a_hit_rate_of_minus_one_means_off_and_is_no_number() -> None:
    def scrape(value: float) -> str:
        return UP + f"vllm:gpu_prefix_cache_hit_rate{{{A}}} {value};"

    assert Fact.PREFIX_HIT_RATIO not in between({0: scrape(-1), 15: scrape(-1)}).gauges
    assert between({0: scrape(-1), 15: scrape(0.25)}).gauges[Fact.PREFIX_HIT_RATIO] == 0.25


@pytest.mark.parametrize("blank", ["NaN", "+Inf"])
def test_a_value_that_is_no_number_is_absent_and_not_zero(blank: str) -> None:
    pool = between({0: UP + tokens(1), 15: UP + tokens(1) + f"vllm:kv_cache_usage_perc{{{A}}} {blank};"})
    assert Fact.KV_USAGE not in pool.gauges


def test_kv_usage_of_a_pool_is_its_mean_and_each_replica_keeps_its_own() -> None:
    text = UP + UP_B + f"vllm:kv_cache_usage_perc{{{A}}} 0.2;vllm:kv_cache_usage_perc{{{B}}} 1.0;"
    pool = between({0: text, 15: text})
    assert pool.gauges[Fact.KV_USAGE] == pytest.approx(0.6)
    assert pool.replicas["b"].gauges[Fact.KV_USAGE] == 1.0


def test_a_pool_in_the_middle_of_an_upgrade_is_read_under_both_names() -> None:
    text = UP + UP_B + f"vllm:gpu_cache_usage_perc{{{A}}} 0.2;vllm:kv_cache_usage_perc{{{B}}} 0.4;"
    pool = between({0: text, 15: text}, needs(Fact.KV_USAGE))
    assert pool.gauges[Fact.KV_USAGE] == pytest.approx(0.3)
    assert pool.sources[Fact.KV_USAGE].count("cache_usage_perc") == 2


def test_an_engine_that_exposes_old_and_new_name_at_once_is_not_counted_twice() -> None:
    # vLLM 0.10.2 to 0.14 exposed inter-token latency under both names.
    def scrape(count: float) -> str:
        names = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
        return UP + "".join(
            f'{name}_bucket{{{A},le="1"}} {count};{name}_bucket{{{A},le="+Inf"}} {count};'
            f"{name}_count{{{A}}} {count};{name}_sum{{{A}}} {count};"
            for name in names
        )

    pool = between({0: scrape(0), 15: scrape(8)})
    assert pool.histograms[Fact.ITL].count == 8
    assert Fact.TPOT not in pool.histograms
    assert "per-request" in pool.unsupported[Fact.TPOT]


def test_what_a_frontend_has_in_flight_is_not_added_to_what_its_workers_run() -> None:
    """Dynamo, scraped at the frontend and at the workers as its contract says: a batch that is read twice as large as
    it is makes the engine look faster, and capacity is then asked for too late."""
    rules = needs(Fact.RUNNING, engine="dynamo", namespace="n")
    one = 'job="f",instance="f",namespace="n",model="m"'
    front = f'up{{job="f",instance="f"}} 1;dynamo_frontend_active_requests{{{one}}} 18;'
    workers = "".join(
        f'up{{job="w",instance="{name}"}} 1;'
        f'vllm:num_requests_running{{job="w",instance="{name}",pod="{name}",namespace="n",model_name="m"}} {count};'
        for name, count in (("a", 8), ("b", 7))
    )
    both, alone = (run({0: text}, rules)[0].pools["p"] for text in (front + workers, front))
    assert both.gauges[Fact.RUNNING] == 15
    assert both.sources[Fact.RUNNING] == "vllm:num_requests_running"
    assert alone.gauges[Fact.RUNNING] == 18


def test_http_counters_without_a_model_go_to_the_pool_of_their_pod_alone() -> None:
    def scrape(count: float) -> str:
        http = 'http_requests_total{handler="/v1/completions",method="POST",status="2xx",job="j",'
        other = 'job="j",instance="b",pod="b",model_name="other"'
        return (
            UP + UP_B + f"vllm:num_requests_running{{{A}}} 1;vllm:num_requests_running{{{other}}} 1;"
            f'{http}instance="a",pod="a"}} {count};{http}instance="b",pod="b"}} {10 * count};'
        )

    assert between({0: scrape(0), 15: scrape(3)}).counters[Fact.RESPONSES] == 3


def test_restarts_for_memory_are_told_from_other_restarts_by_their_sticky_reason() -> None:
    need = PoolNeeds(
        "p",
        "vllm",
        (Matcher("model_name", "=", "m"),),
        frozenset({Fact.RESTARTS, Fact.OOM_RESTARTS, Fact.READY_REPLICAS}),
        workload=("prod", "Deployment", "llama"),
    )
    ksm = 'up{job="ksm",instance="k"} 1;'

    def scrape(restarts: float, reason: str, pod: str = "llama-7f-x") -> str:
        own = f'namespace="prod",pod="{pod}",container="vllm",job="ksm",instance="k"'
        return (
            ksm + f"kube_pod_container_status_restarts_total{{{own}}} {restarts};"
            f'kube_pod_container_status_last_terminated_reason{{{own},reason="{reason}"}} 1;'
            'kube_deployment_status_replicas_ready{namespace="prod",deployment="llama",job="ksm",instance="k"} 3;'
            'kube_deployment_status_replicas_ready{namespace="prod",deployment="llama-7f",job="ksm",instance="k"} 9;'
        )

    seen = run(
        {0: scrape(1, "OOMKilled"), 15: scrape(1, "OOMKilled"), 30: scrape(2, "OOMKilled"), 45: scrape(3, "Error")},
        need,
    )
    pools = [one.pools["p"] for one in seen[1:]]
    assert [pool.counters[Fact.RESTARTS] for pool in pools] == [0, 1, 1]
    assert [pool.counters.get(Fact.OOM_RESTARTS, 0) for pool in pools] == [0, 1, 0]
    assert pools[0].gauges[Fact.READY_REPLICAS] == 3


def test_tenants_are_split_where_a_label_says_so() -> None:
    need = PoolNeeds(
        "p",
        "vllm",
        (Matcher("model_name", "=", "m"),),
        frozenset({Fact.GENERATION_TOKENS}),
        tenant_facts=frozenset({Fact.GENERATION_TOKENS}),
        tenant_label="user",
    )

    def scrape(one: float, two: float) -> str:
        return UP + tokens(one, A + ',user="one"') + tokens(two, A + ',user="two"')

    pool = between({0: scrape(0, 0), 15: scrape(5, 7)}, need)
    assert pool.counters[Fact.GENERATION_TOKENS] == 12
    assert {name: facts.counters[Fact.GENERATION_TOKENS] for name, facts in pool.tenants.items()} == {
        "one": 5,
        "two": 7,
    }


def test_errors_that_the_engine_itself_tells_count_where_its_http_layer_is_not_scraped() -> None:
    def scrape(count: float) -> str:
        return UP + f'vllm:request_success_total{{{A},finished_reason="error"}} {count};'

    pool = between({0: scrape(1), 15: scrape(4)})
    assert pool.counters[Fact.ERRORS] == 3
    assert Fact.ERRORS not in pool.unsupported


def test_a_replica_is_as_healthy_as_the_worst_of_its_endpoints() -> None:
    def rank(port: int, up: int) -> str:
        own = f'job="j",instance="a:{port}"'
        running = f'vllm:num_requests_running{{{own},pod="a",model_name="m"}} 1;' if up else ""
        return f"up{{{own}}} {up};{running}"

    seen = run({0: rank(1, 1) + rank(2, 1), 15: rank(1, 1) + rank(2, 0)})
    assert [one.pools["p"].replicas["a"].up for one in seen] == [True, False]


def test_what_is_written_at_the_end_of_a_request_is_called_late() -> None:
    pool = between(
        {0: UP + tokens(1), 15: UP + tokens(2) + f'vllm:request_success_total{{{A},finished_reason="stop"}} 1;'}
    )
    assert Fact.FINISHED in pool.late
    assert Fact.GENERATION_TOKENS not in pool.late


def test_the_adapters_of_the_newest_list_count_not_those_of_lists_that_were_replaced() -> None:
    name = "vllm:lora_requests_info"
    text = UP + f'{name}{{{A},running_lora_adapters="x,y,z"}} 100;{name}{{{A},running_lora_adapters="x"}} 200;'
    assert between({0: text, 15: text}, needs(Fact.LORA_LOADED)).gauges[Fact.LORA_LOADED] == 1


def test_a_gap_of_more_than_five_minutes_is_no_burst() -> None:
    seen = run({0: UP + tokens(0), 15: UP + tokens(10), 615: UP + tokens(9000), 630: UP + tokens(9005)})
    assert [one.since for one in seen] == [None, 0, None, 615]
    assert Fact.GENERATION_TOKENS not in seen[2].pools["p"].counters
    assert seen[3].pools["p"].counters[Fact.GENERATION_TOKENS] == 5


def test_a_long_gap_inside_one_tick_shortens_what_the_increments_cover() -> None:
    increments, layout = Increments([needs()]), Layout()
    feed(increments, layout, {0: UP + tokens(0)})
    increments.take(0)
    feed(increments, layout, {15: UP + tokens(10), 615: UP + tokens(9000), 630: UP + tokens(9005)})
    seen = increments.take(630)
    assert (seen.since, seen.pools["p"].counters[Fact.GENERATION_TOKENS]) == (615, 5)


def test_a_pool_without_any_series_says_so_and_is_not_empty_traffic() -> None:
    pool = between({0: UP + tokens(1), 15: UP + tokens(2)}, needs(Fact.TTFT, model_name="misspelt"))
    assert pool.counters == {}
    assert pool.failed == {Fact.TTFT: "no series matches the selector of pool p"}


def test_frames_that_do_not_move_forward_are_refused() -> None:
    increments, layout = Increments([needs()]), Layout()
    feed(increments, layout, {15: UP})
    with pytest.raises(ValueError, match="not newer"):
        feed(increments, layout, {15: UP})


def test_each_outcome_reason_of_a_selector_by_regular_expression_is_anchored() -> None:
    need = PoolNeeds("p", "vllm", (Matcher("model_name", "=~", "m|n"),), frozenset({Fact.WAITING}))
    text = (
        UP
        + f"vllm:num_requests_waiting{{{A}}} 1;"
        + 'vllm:num_requests_waiting{model_name="mm",job="j",instance="b"} 5;'
    )
    assert between({0: text, 15: text}, need).gauges[Fact.WAITING] == 1


TTFT = "vllm:time_to_first_token_seconds"


def first_tokens(klass: str, fast: float, count: float, pod: str = A) -> str:
    own = f'{pod},priority="{klass}"' if klass else pod
    return (
        f'{TTFT}_bucket{{{own},le="1.0"}} {fast};{TTFT}_bucket{{{own},le="+Inf"}} {count};'
        f"{TTFT}_count{{{own}}} {count};{TTFT}_sum{{{own}}} {count};"
    )


CLASSED = PoolNeeds(
    "p", "vllm", (Matcher("model_name", "=", "m"),), frozenset({Fact.TTFT, Fact.GENERATION_TOKENS}),
    tenant_facts=frozenset({Fact.GENERATION_TOKENS}), tenant_label="user",
    class_facts=frozenset({Fact.TTFT}), class_label="priority",
)  # fmt: skip


def test_classes_and_tenants_are_split_at_once_and_neither_takes_from_the_pool() -> None:
    def scrape(high: float, low: float, bare: float) -> str:
        text = UP + first_tokens("high", high, high) + first_tokens("low", 0, low) + first_tokens("", bare, bare)
        return text + tokens(high, A + ',user="one",priority="high"')

    pool = between({0: scrape(0, 0, 0), 15: scrape(5, 7, 2)}, CLASSED)
    assert pool.histograms[Fact.TTFT].count == 14
    first = {name: f.histograms[Fact.TTFT] for name, f in pool.classes.items()}
    found = {name: (*h.cumulative, h.count) for name, h in first.items()}
    assert found == {"high": (5, 5), "low": (0, 7)}, "what names no class is of no class"
    assert {name: dict(f.counters) for name, f in pool.tenants.items()} == {"one": {Fact.GENERATION_TOKENS: 5.0}}
    assert all(not f.counters for f in pool.classes.values()), "only what an objective names is kept by class"


def test_the_first_requests_of_a_class_that_is_born_late_count_for_it() -> None:
    quiet = UP + first_tokens("high", 3, 3)
    seen = run({0: quiet, 15: quiet, 30: quiet + first_tokens("low", 1, 4)}, CLASSED)
    pools = [one.pools["p"] for one in seen]
    assert [sorted(pool.classes) for pool in pools[1:]] == [["high"], ["high", "low"]]
    assert pools[2].classes["low"].histograms[Fact.TTFT].count == 4
    assert pools[2].histograms[Fact.TTFT].count == 4
