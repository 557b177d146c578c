"""A page of a running server must yield what that server really tells, signal by signal."""

import pytest

from controller.core.facts import Fact
from controller.core.needs import way_for
from controller.core.signals import Signal
from sources.contracts import Candidate, load
from sources.contracts.resolve import identify, resolve
from tests.support.dumps import needs_dumps, page, pages

VLLM_CPU = {
    Fact.TTFT: "vllm:time_to_first_token_seconds",
    Fact.TPOT: "vllm:request_time_per_output_token_seconds",
    Fact.ITL: "vllm:inter_token_latency_seconds",
    Fact.E2E: "vllm:e2e_request_latency_seconds",
    Fact.QUEUE_TIME: "vllm:request_queue_time_seconds",
    Fact.PROMPT_LENGTHS: "vllm:request_prompt_tokens",
    Fact.ADMITTED: "vllm:time_to_first_token_seconds_count",
    Fact.FINISHED: "vllm:request_success_total",
    Fact.RESPONSES: "http_requests_total",
    Fact.ERRORS: "http_requests_total",
    Fact.PROMPT_TOKENS: "vllm:prompt_tokens_total",
    Fact.GENERATION_TOKENS: "vllm:generation_tokens_total",
    Fact.PREFIX_HITS: "vllm:prefix_cache_hits_total",
    Fact.PREFIX_QUERIES: "vllm:prefix_cache_queries_total",
    Fact.PREEMPTIONS: "vllm:num_preemptions_total",
    Fact.RUNNING: "vllm:num_requests_running",
    Fact.WAITING: "vllm:num_requests_waiting",
    Fact.KV_USAGE: "vllm:kv_cache_usage_perc",
}
DYNAMO_FRONTEND = {
    Fact.PROMPT_LENGTHS: "dynamo_frontend_input_sequence_tokens",
    Fact.TTFT: "dynamo_frontend_time_to_first_token_seconds",
    Fact.ITL: "dynamo_frontend_inter_token_latency_seconds",
    Fact.E2E: "dynamo_frontend_request_duration_seconds",
    Fact.ARRIVED: "dynamo_frontend_requests_started_total",
    Fact.ADMITTED: "dynamo_frontend_time_to_first_token_seconds_count",
    Fact.FINISHED: "dynamo_frontend_requests_total",
    Fact.ABORTED: "dynamo_frontend_requests_total",
    Fact.ERRORS: "dynamo_frontend_requests_total",
    Fact.REJECTED: "dynamo_frontend_requests_total",
    Fact.TIMEOUTS: "dynamo_frontend_requests_total",
    Fact.PROMPT_TOKENS: "dynamo_frontend_input_sequence_tokens_sum",
    Fact.GENERATION_TOKENS: "dynamo_frontend_output_tokens_total",
    Fact.PREFIX_HITS: "dynamo_frontend_cached_tokens_sum",
    Fact.PREFIX_QUERIES: "dynamo_frontend_input_sequence_tokens_sum",
    Fact.RUNNING: "dynamo_frontend_active_requests",
}
DYNAMO_WORKER = {
    Fact.RUNNING: "vllm:num_requests_running",
    Fact.WAITING: "vllm:num_requests_waiting",
    Fact.KV_USAGE: "vllm:kv_cache_usage_perc",
}
RAY = {
    Fact.E2E: "ray_serve_deployment_processing_latency_ms",
    Fact.ARRIVED: "ray_serve_num_router_requests_total",
    Fact.FINISHED: "ray_serve_deployment_request_counter_total",
    Fact.ERRORS: "ray_serve_num_deployment_http_error_requests_total",
    Fact.RUNNING: "ray_serve_num_ongoing_requests_at_replicas",
    Fact.WAITING: "ray_serve_deployment_queued_queries",
    Fact.READY_REPLICAS: "ray_serve_deployment_replica_healthy",
    Fact.WANTED_REPLICAS: "ray_serve_autoscaling_target_replicas",
}
TRITON = {
    Fact.RUNNING: "nv_trt_llm_request_metrics",
    Fact.WAITING: "nv_trt_llm_request_metrics",
    Fact.KV_USAGE: "nv_trt_llm_kv_cache_block_metrics",
}
SGLANG_DOCS = {
    Fact.TTFT: "sglang:time_to_first_token_seconds",
    Fact.ITL: "sglang:time_per_output_token_seconds",
    Fact.E2E: "sglang:e2e_request_latency_seconds",
    Fact.ADMITTED: "sglang:time_to_first_token_seconds_count",
    Fact.PROMPT_TOKENS: "sglang:prompt_tokens_total",
    Fact.GENERATION_TOKENS: "sglang:generation_tokens_total",
    Fact.PREFIX_QUERIES: "sglang:prompt_tokens_total",
    Fact.RUNNING: "sglang:num_running_reqs",
    Fact.WAITING: "sglang:num_queue_reqs",
    Fact.KV_USAGE: "sglang:token_usage",
    Fact.PREFIX_HIT_RATIO: "sglang:cache_hit_rate",
}


def resolved(engine: str, names: frozenset[str]) -> dict[Fact, Candidate]:
    return {fact: c for fact, c in resolve(load(engine), names).items() if isinstance(c, Candidate)}


@needs_dumps
@pytest.mark.parametrize(
    ("engine", "pattern", "expected"),
    [
        ("vllm", "vllm-0.32.0-cpu_*.prom", VLLM_CPU),
        ("dynamo", "dynamo-1.6.1_frontend_after.prom", DYNAMO_FRONTEND),
        ("dynamo", "dynamo-1.6.1_frontend_busy.prom", DYNAMO_FRONTEND),
        ("dynamo", "dynamo-1.6.1_worker_mocker.prom", DYNAMO_WORKER),
        ("ray_serve", "ray-serve-2.60.0_busy.prom.gz", RAY),
        ("triton", "triton-trtllm_readme_example.prom", TRITON),
        ("sglang", "sglang-0.4.0_docs_llama31-8b_overloaded.prom", SGLANG_DOCS),
    ],
)
def test_a_real_page_yields_what_the_server_tells_and_nothing_else(
    engine: str, pattern: str, expected: dict[Fact, str]
) -> None:
    names = pages(pattern)
    assert names
    for name in names:
        found = {fact: choice.metric for fact, choice in resolved(engine, page(name).names).items()}
        assert found == expected, name


@needs_dumps
def test_an_idle_dynamo_frontend_is_not_taken_for_one_that_cannot_count() -> None:
    """Nearly all its series are born with the first request; an idle page still has to resolve its counters."""
    found = resolved("dynamo", page("dynamo-1.6.1_frontend_idle.prom").names)
    assert {fact: one.metric for fact, one in found.items()} == DYNAMO_FRONTEND
    assert all(one.born_with for one in found.values())


@needs_dumps
def test_an_idle_vllm_counts_responses_though_the_series_is_not_born() -> None:
    """As Prometheus sees it: names of series, without those that are declared and have none yet."""
    born = frozenset(sample.name for sample in page("vllm-0.32.0-cpu_idle.prom").samples)
    assert "http_requests_total" not in born
    found = resolved("vllm", born)
    assert found[Fact.RESPONSES].born_with == ("http_request_duration_highr_seconds_count",)
    assert found[Fact.ERRORS].metric == "http_requests_total"


@needs_dumps
def test_an_engine_behind_another_frontend_does_not_report_zero_responses_for_ever() -> None:
    """A vLLM worker of Dynamo has no HTTP layer: responses are unsupported there, not zero."""
    found = resolve(load("vllm"), page("dynamo-1.6.1_worker_mocker.prom").names)
    assert "HTTP layer" in str(found[Fact.RESPONSES])
    assert "HTTP layer" in str(found[Fact.ERRORS])
    assert isinstance(found[Fact.FINISHED], str)


@needs_dumps
def test_what_waits_behind_a_dynamo_frontend_is_not_read_as_zero() -> None:
    """24 requests were in flight while queued_requests and router_queue_pending_requests read 0."""
    busy = page("dynamo-1.6.1_frontend_busy.prom")
    values = {s.name: s.value for s in busy.samples if ("model", "M1-Mixed") in s.labels}
    assert values["dynamo_frontend_active_requests"] == 24
    assert values["dynamo_frontend_queued_requests"] == 0
    assert "workers" in str(resolve(load("dynamo"), busy.names)[Fact.WAITING])


@needs_dumps
def test_vllm_0_32_supports_exactly_these_signals() -> None:
    available = resolved("vllm", page("vllm-0.32.0-cpu_final.prom").names)
    missing = {signal for signal in Signal if way_for(signal, available.keys()) is None}
    assert missing == {
        Signal.GPU_MEMORY, Signal.GPU_UTILISATION, Signal.RETRY_SHARE, Signal.TIMEOUTS, Signal.OOM_RESTARTS,
        Signal.CRASH_RESTARTS, Signal.READY_REPLICAS, Signal.LORA_LOADED, Signal.REJECTED_RATE, Signal.XID_ERRORS,
        Signal.RECENT_RATE,  # vLLM counts who ended, not who came
    }  # fmt: skip


@needs_dumps
@pytest.mark.parametrize(
    ("name", "engines"),
    [
        ("vllm-0.32.0-cpu_idle.prom", ("vllm",)),
        ("contracts/vllm-0.5.4-v0.prom", ("vllm",)),
        ("contracts/sglang-0.5.23.prom", ("sglang",)),
        ("dynamo-1.6.1_frontend_idle.prom", ("dynamo",)),
        ("dynamo-1.6.1_worker_mocker.prom", ("dynamo", "vllm")),
        ("ray-serve-2.60.0_busy.prom.gz", ("ray_serve",)),
        ("triton-trtllm_readme_example.prom", ("triton",)),
    ],
)
def test_a_page_is_known_by_its_marks(name: str, engines: tuple[str, ...]) -> None:
    assert identify(page(name).names) == engines
