"""Traps that others fell into (``research/metrics.md`` section 16), as far as the contracts reach."""

from itertools import product

import pytest

from controller.core.facts import Fact
from sources.contracts import Candidate, engines, load
from sources.contracts.resolve import resolve
from sources.diagnosis.values import gauge_values, matches
from sources.exposition import parse
from sources.frames import Sample, labels
from tests.support.dumps import needs_dumps, page

# Metrics that promise TPOT and hold something else: a gap per step or chunk, or a mean with the prefill in it.
NOT_TPOT = {
    "vllm:time_per_output_token_seconds",
    "vllm:inter_token_latency_seconds",
    "ray_vllm_time_per_output_token_seconds",
    "ray_vllm:time_per_output_token_seconds",
    "sglang:time_per_output_token_seconds",
    "sglang:inter_token_latency_seconds",
    "dynamo_frontend_inter_token_latency_seconds",
    "tgi_request_mean_time_per_token_duration",
    "litellm_deployment_latency_per_output_token",
    "llm_d_epp_request_streaming_itl_seconds",
    "llm_d_epp_request_ntpot_seconds",
    "inference_objective_normalized_time_per_output_token_seconds",
    "inference_model_normalized_time_per_output_token_seconds",
    "maxserve_itl_milliseconds",
    "llamacpp:tokens_predicted_seconds_total",
}


def every(fact: Fact) -> list[tuple[str, Candidate]]:
    return [(engine, one) for engine in engines() for one in load(engine).candidates.get(fact, ())]


def chosen(engine: str, fact: Fact, *names: str) -> Candidate:
    found = resolve(load(engine), frozenset(names))[fact]
    assert isinstance(found, Candidate), found
    return found


def sample(name: str, value: float = 1.0, **pairs: str) -> Sample:
    return Sample(name, labels(pairs.items()), value)


@pytest.mark.parametrize("engine", engines())
def test_tpot_never_resolves_to_a_per_step_metric(engine: str) -> None:
    """Whatever is exposed, all at once or a decoy alone."""
    contract = load(engine)
    everything = {m for several in contract.candidates.values() for one in several for m in one.metrics} | NOT_TPOT
    for names in (frozenset(everything), *(frozenset({name}) for name in NOT_TPOT)):
        found = resolve(contract, names)[Fact.TPOT]
        if isinstance(found, Candidate):
            assert found.metric not in NOT_TPOT
            assert found.observed_at == "finish"
            assert found.metric not in {one.metric for one in contract.candidates.get(Fact.ITL, ())}
        else:
            assert found


def test_the_gateway_that_wrote_chunk_gaps_under_the_name_of_tpot_is_kept_apart() -> None:
    """Early Envoy AI Gateway releases used the same name for the gap of each chunk; only later ones label the original
    model."""
    tpot = chosen("envoy_ai_gateway", Fact.TPOT, "gen_ai_server_time_per_output_token_seconds_bucket")
    name = "gen_ai_server_time_per_output_token_seconds_bucket"
    assert matches(tpot, sample(name, gen_ai_original_model="m", le="1"))
    assert not matches(tpot, sample(name, gen_ai_request_model="m", le="1"))


def test_censoring_is_declared_where_waiting_requests_are_invisible() -> None:
    for fact in (Fact.QUEUE_TIME, Fact.E2E, Fact.TPOT):
        assert all(one.observed_at == "finish" for one in load("vllm").candidates[fact])
    assert all(one.observed_at == "schedule" for one in load("sglang").candidates[Fact.QUEUE_TIME])


@needs_dumps
def test_aborts_are_what_was_answered_and_not_finished() -> None:
    """16 clients went away: no counter of the engine moved, only the HTTP layer knows them."""
    before, after = page("vllm-0.32.0-cpu_after_overload.prom"), page("vllm-0.32.0-cpu_after_all_clients_aborted.prom")

    def moved(fact: Fact) -> float:
        one = chosen("vllm", fact, *before.names)
        total = [sum(s.value for s in at.samples if s.name == one.metric and matches(one, s)) for at in (before, after)]
        return total[1] - total[0]

    assert moved(Fact.RESPONSES) - moved(Fact.FINISHED) == 16


def test_answers_that_are_no_inference_are_not_counted_as_responses() -> None:
    one = chosen("vllm", Fact.RESPONSES, "http_requests_total")
    name = "http_requests_total"
    assert matches(one, sample(name, handler="/v1/chat/completions", method="POST", status="2xx"))
    assert not matches(one, sample(name, handler="/metrics", method="GET", status="2xx"))
    assert not matches(one, sample(name, handler="/v1/models", method="GET", status="2xx"))
    assert not matches(one, sample(name, handler="/v1/load_lora_adapter", method="POST", status="2xx"))
    assert not matches(one, sample(name, handler="/v1/completions", method="POST", status="4xx"))


def test_a_rejected_request_of_vllm_is_counted_once() -> None:
    """It is answered with 503: a counter of rejections beside the 5xx would count it twice."""
    found = resolve(load("vllm"), frozenset({"vllm:admission_rejections_total", "http_requests_total"}))
    assert "503" in str(found[Fact.REJECTED])
    assert matches(
        chosen("vllm", Fact.ERRORS, "http_requests_total"),
        sample("http_requests_total", handler="/v1/completions", method="POST", status="5xx"),
    )


def test_the_absent_5xx_series_is_no_errors_and_not_no_data() -> None:
    """The series is born with the first 5xx."""
    for engine, name in (("vllm", "http_request_duration_highr_seconds_count"), ("sglang", "sglang:full_token_usage")):
        assert chosen(engine, Fact.ERRORS, name).born_with


def test_labelled_counters_say_that_absence_is_zero() -> None:
    """A counter whose filter selects an outcome has no series before that outcome."""
    for fact in (Fact.ERRORS, Fact.ABORTED, Fact.REJECTED, Fact.TIMEOUTS):
        for engine, one in every(fact):
            assert one.born_with or not one.where, f"{engine} {fact} {one.metric}"


def test_two_generations_at_once_are_not_added_up() -> None:
    itl = chosen("vllm", Fact.ITL, "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
    assert itl.metrics == ("vllm:inter_token_latency_seconds",)
    names = [p + "request_total" for p in ("inference_model_", "inference_objective_", "llm_d_epp_")]
    assert chosen("gaie", Fact.ARRIVED, *names).metrics == ("llm_d_epp_request_total",)
    assert chosen("gaie", Fact.ARRIVED, *names[:2]).metrics == ("inference_objective_request_total",)
    running = chosen("dynamo", Fact.RUNNING, "dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests")
    assert running.metrics == ("dynamo_frontend_active_requests",)


def test_a_split_of_the_queue_by_reason_is_not_added_to_the_queue() -> None:
    waiting = chosen("vllm", Fact.WAITING, "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason")
    assert waiting.metrics == ("vllm:num_requests_waiting",)


def test_several_api_servers_do_not_multiply_a_gauge() -> None:
    """vLLM 0.9.2 to 0.11.0 with --api-server-count repeats gauges under a `pid` label (PR #28792)."""
    for fact in (Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE):
        assert all("pid" in one.duplicates for one in load("vllm").candidates[fact])


def test_tensor_parallel_ranks_are_one_queue_and_priorities_are_its_parts() -> None:
    for fact in (Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE):
        (one,) = load("sglang").candidates[fact]
        assert set(one.duplicates) >= {"tp_rank", "pp_rank"}
        assert "dp_rank" not in one.duplicates
        assert matches(one, sample(one.metric, tp_rank="0"))
        assert matches(one, sample(one.metric, priority=""))
        assert not matches(one, sample(one.metric, priority="5"))


def test_a_disaggregated_sglang_pool_waits_in_more_than_one_queue() -> None:
    names = (
        "sglang:num_queue_reqs",
        "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
    )
    assert chosen("sglang", Fact.WAITING, *names).metrics == names
    assert chosen("sglang", Fact.WAITING, names[0]).metrics == names[:1]


@pytest.mark.parametrize(
    ("engine", "fact", "text", "expected"),
    [
        ("vllm", Fact.KV_USAGE, 'vllm:kv_cache_usage_perc{engine="0"} 0.93\n', 0.93),
        ("dynamo", Fact.KV_USAGE, "dynamo_component_gpu_cache_usage_percent 0.4\n", 0.4),
        ("dcgm", Fact.GPU_UTILISATION, "DCGM_FI_DEV_GPU_UTIL 87\n", 0.87),
        ("dcgm", Fact.GPU_MEMORY, "DCGM_FI_DEV_FB_USED 1024\n", 2.0**30),
        (
            "triton",
            Fact.KV_USAGE,
            (
                'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used"} 3\n'
                'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 12\n'
                'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} 0.9\n'
            ),
            0.25,
        ),
        ("tgi", Fact.KV_USAGE, "tgi_batch_current_max_tokens 50\ntgi_batch_max_total_tokens 200\n", 0.25),
    ],
)
def test_percent_names_with_ratios_and_real_percents_both_end_as_ratios(
    engine: str, fact: Fact, text: str, expected: float
) -> None:
    scrape = parse(text)
    ((_, value),) = gauge_values(chosen(engine, fact, *scrape.names), scrape)
    assert value == pytest.approx(expected)


def test_milliseconds_and_microseconds_become_seconds() -> None:
    assert chosen("ray_serve", Fact.E2E, "ray_serve_deployment_processing_latency_ms").scale == 1e-3
    assert chosen("triton", Fact.TTFT, "nv_inference_first_response_histogram_ms").scale == 1e-3
    e2e = chosen("triton", Fact.E2E, "nv_inference_request_duration_us", "nv_inference_request_success")
    assert (e2e.kind, e2e.scale) == ("mean", 1e-6)
    assert chosen("modular_max", Fact.TTFT, "maxserve_time_to_first_token_milliseconds").scale == 1e-3


def test_names_without_total_are_not_taken_for_counters() -> None:
    assert isinstance(resolve(load("vllm"), frozenset({"vllm:prefix_cache_hits"}))[Fact.PREFIX_HITS], str)
    assert isinstance(resolve(load("vllm"), frozenset({"vllm:num_requests_success_total"}))[Fact.FINISHED], str)


def test_minus_one_is_a_switched_off_cache_and_not_a_hit_rate() -> None:
    scrape = parse("vllm:gpu_prefix_cache_hit_rate -1\n")
    assert list(gauge_values(chosen("vllm", Fact.PREFIX_HIT_RATIO, *scrape.names), scrape)) == []


def test_the_blank_of_dcgm_is_not_a_memory_size() -> None:
    scrape = parse("DCGM_FI_DEV_FB_USED 9223372036854775794\nDCGM_FI_DEV_GPU_UTIL 9223372036854775794\n")
    for fact in (Fact.GPU_MEMORY, Fact.GPU_UTILISATION):
        assert list(gauge_values(chosen("dcgm", fact, *scrape.names), scrape)) == []


def test_the_sticky_oom_reason_counts_only_with_a_new_restart() -> None:
    one = chosen("kube_state_metrics", Fact.OOM_RESTARTS, "kube_pod_container_status_restarts_total")
    assert one.metric == "kube_pod_container_status_restarts_total"
    assert one.only_with is not None
    assert one.on == ("namespace", "pod", "container")
    reason = "kube_pod_container_status_last_terminated_reason"
    assert matches(one.only_with, sample(reason, reason="OOMKilled"))
    assert not matches(one.only_with, sample(reason, reason="Error")), "a CUDA out-of-memory is a crash"


def test_the_last_xid_code_is_not_a_count() -> None:
    assert "sticky" in load("dcgm").unsupported[Fact.XID_ERRORS]


def test_llama_cpp_has_no_ttft_and_says_so() -> None:
    found = resolve(load("llamacpp"), frozenset({"llamacpp:requests_processing", "llamacpp:prompt_tokens_total"}))
    assert "no time to first token" in str(found[Fact.TTFT])
    assert "removed" in str(found[Fact.KV_USAGE])


def test_metrics_that_reading_resets_are_not_read() -> None:
    """Two scrapers of llama.cpp spoil each other's averages."""
    read = {m for several in load("llamacpp").candidates.values() for one in several for m in one.metrics}
    assert not read & {"llamacpp:predicted_tokens_seconds", "llamacpp:prompt_tokens_seconds"}


def test_a_client_that_goes_away_is_no_error_of_dynamo() -> None:
    one = chosen("dynamo", Fact.ERRORS, "dynamo_frontend_requests_total")
    gone = sample(one.metric, status="error", error_type="cancelled", model="m")
    assert not matches(one, gone)
    assert matches(chosen("dynamo", Fact.ABORTED, one.metric), gone)
    assert matches(one, sample(one.metric, status="error", error_type="internal", model="m"))


STATUSES = ("error", "5xx")
CODES = ("500", "503", "429", "408")
WORDS = (
    "overload", "overloaded", "cancelled", "CANCELED", "REJECTED", "timeout", "response_timeout", "dropped", "internal",
    "Internal", "generation", "ResourceExhausted", "InferencePoolResourceExhausted", "error",
)  # fmt: skip
CODED = ("exception_status", "code", "status_code", "http_code")
WORDED = ("error_type", "err", "reason", "finished_reason", "error_code")
PLACES = {"path": "/v1/x", "handler": "/v1/x", "endpoint": "/v1/x", "method": "POST"}


@pytest.mark.parametrize("engine", engines())
def test_errors_rejections_timeouts_and_aborts_are_disjoint(engine: str) -> None:
    """They are added up, so no series may fall into two of them."""
    contract = load(engine)
    facts = (Fact.ERRORS, Fact.REJECTED, Fact.TIMEOUTS, Fact.ABORTED)
    parts = [(fact, part) for fact in facts for one in contract.candidates.get(fact, ()) for part in one.parts]
    for metric, status, code, word in product({part.metric for _, part in parts}, STATUSES, CODES, WORDS):
        pairs = {**dict.fromkeys(CODED, code), **dict.fromkeys(WORDED, word), **PLACES, "status": status}
        outcome = Sample(metric, labels(pairs.items()), 1.0)
        hits = {fact for fact, part in parts if part.metric == metric and matches(part, outcome)}
        assert len(hits) <= 1, (outcome.labels, hits)
