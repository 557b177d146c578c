"""A rename between two releases must not blind Governor, and must not be taken for the same thing when it is not.

The tables are written from the release notes in ``research/metrics.md`` and the pages themselves, not from the
contracts: (first version, last version or None, metric). Outside every range the fact is unsupported.
"""

import pytest

from controller.core.facts import Fact
from sources.contracts import Candidate, load
from sources.contracts.resolve import resolve
from tests.support.dumps import matrix, needs_dumps, number, page, pages

Ranges = list[tuple[str, str | None, str]]

VLLM: dict[Fact, Ranges] = {
    Fact.TTFT: [("0.4.0", None, "vllm:time_to_first_token_seconds")],
    Fact.TPOT: [("0.11.0", None, "vllm:request_time_per_output_token_seconds")],
    Fact.ITL: [
        ("0.4.0", "0.10.1", "vllm:time_per_output_token_seconds"),
        ("0.10.2", None, "vllm:inter_token_latency_seconds"),
    ],
    Fact.E2E: [("0.4.0", None, "vllm:e2e_request_latency_seconds")],
    Fact.QUEUE_TIME: [("0.6.6", None, "vllm:request_queue_time_seconds")],
    Fact.PROMPT_LENGTHS: [("0.4.2", None, "vllm:request_prompt_tokens")],
    Fact.ADMITTED: [("0.4.0", None, "vllm:time_to_first_token_seconds_count")],
    Fact.FINISHED: [("0.5.4", None, "vllm:request_success_total")],
    Fact.PROMPT_TOKENS: [("0.4.0", None, "vllm:prompt_tokens_total")],
    Fact.GENERATION_TOKENS: [("0.4.0", None, "vllm:generation_tokens_total")],
    Fact.PREEMPTIONS: [("0.5.4", None, "vllm:num_preemptions_total")],
    Fact.RUNNING: [("0.4.0", None, "vllm:num_requests_running")],
    Fact.WAITING: [("0.4.0", None, "vllm:num_requests_waiting")],
}
VLLM_V0: dict[Fact, Ranges] = {
    **VLLM,
    Fact.KV_USAGE: [("0.4.0", None, "vllm:gpu_cache_usage_perc")],
    # hidden by default from 0.8 on
    Fact.PREFIX_HIT_RATIO: [("0.6.0", "0.7.3", "vllm:gpu_prefix_cache_hit_rate")],
    Fact.LORA_LOADED: [("0.6.6", None, "vllm:lora_requests_info")],
}
VLLM_V1: dict[Fact, Ranges] = {
    **VLLM,
    Fact.KV_USAGE: [("0.7.3", "0.9.1", "vllm:gpu_cache_usage_perc"), ("0.9.2", None, "vllm:kv_cache_usage_perc")],
    Fact.PREFIX_HITS: [
        ("0.7.3", "0.9.1", "vllm:gpu_prefix_cache_hits_total"),
        ("0.9.2", None, "vllm:prefix_cache_hits_total"),
    ],
    Fact.PREFIX_QUERIES: [
        ("0.7.3", "0.9.1", "vllm:gpu_prefix_cache_queries_total"),
        ("0.9.2", None, "vllm:prefix_cache_queries_total"),
    ],
    Fact.PREEMPTIONS: [("0.8.0", None, "vllm:num_preemptions_total")],  # V1 was young in 0.7.3
}
# What the sources of a release create, V0 and V1 together, LoRA and hidden metrics too.
VLLM_SOURCE: dict[Fact, Ranges] = {
    **VLLM_V1,
    Fact.KV_USAGE: [("0.4.0", "0.9.1", "vllm:gpu_cache_usage_perc"), ("0.9.2", None, "vllm:kv_cache_usage_perc")],
    Fact.PREFIX_HIT_RATIO: [("0.6.0", "0.9.0", "vllm:gpu_prefix_cache_hit_rate")],
    Fact.PREEMPTIONS: VLLM[Fact.PREEMPTIONS],
    Fact.LORA_LOADED: [("0.6.6", None, "vllm:lora_requests_info")],
}
SGLANG: dict[Fact, Ranges] = {
    Fact.TTFT: [("0.4.0", None, "sglang:time_to_first_token_seconds")],
    Fact.TPOT: [("0.5.22", None, "sglang:request_time_per_output_token_seconds")],
    Fact.ITL: [
        ("0.4.0", "0.4.3", "sglang:time_per_output_token_seconds"),
        ("0.4.4", None, "sglang:inter_token_latency_seconds"),
    ],
    Fact.E2E: [("0.4.0", None, "sglang:e2e_request_latency_seconds")],
    Fact.QUEUE_TIME: [("0.5.2", "0.5.2", "sglang:queue_time_s"), ("0.5.3", None, "sglang:queue_time_seconds")],
    Fact.PROMPT_LENGTHS: [("0.5.12", None, "sglang:prompt_tokens_histogram")],  # on a page; created before
    # born with the first request; proven by a gauge of the same releases
    Fact.ARRIVED: [("0.5.10", None, "sglang:http_requests_total")],
    Fact.ERRORS: [("0.5.10", None, "sglang:http_responses_total")],
    Fact.ADMITTED: [("0.4.0", None, "sglang:time_to_first_token_seconds_count")],
    Fact.FINISHED: [("0.4.3", None, "sglang:num_requests_total")],
    Fact.ABORTED: [("0.4.7", None, "sglang:num_aborted_requests_total")],
    Fact.PROMPT_TOKENS: [
        ("0.4.0", "0.5.6", "sglang:prompt_tokens_total"),
        ("0.5.7", None, "sglang:realtime_tokens_total"),
    ],
    Fact.GENERATION_TOKENS: [
        ("0.4.0", "0.5.6", "sglang:generation_tokens_total"),
        ("0.5.7", None, "sglang:realtime_tokens_total"),
    ],
    Fact.PREFIX_HITS: [
        ("0.4.4", "0.5.6", "sglang:cached_tokens_total"),
        ("0.5.7", None, "sglang:realtime_tokens_total"),
    ],
    Fact.PREFIX_QUERIES: [
        ("0.4.0", "0.5.6", "sglang:prompt_tokens_total"),
        ("0.5.7", None, "sglang:realtime_tokens_total"),
    ],
    Fact.PREEMPTIONS: [
        ("0.4.10", "0.5.2", "sglang:total_retracted_reqs"),
        ("0.5.5", "0.5.6", "sglang:num_retractions_sum"),
        ("0.5.7", None, "sglang:num_retracted_requests_total"),
    ],
    Fact.RUNNING: [("0.4.0", None, "sglang:num_running_reqs")],
    Fact.WAITING: [("0.4.0", None, "sglang:num_queue_reqs")],
    Fact.KV_USAGE: [("0.4.0", None, "sglang:token_usage")],
    Fact.PREFIX_HIT_RATIO: [("0.4.0", None, "sglang:cache_hit_rate")],
}
# LoRA gauges are created with LoRA alone, so no replay shows them.
SGLANG_SOURCE: dict[Fact, Ranges] = {
    **SGLANG,
    Fact.PROMPT_LENGTHS: [("0.4.7", None, "sglang:prompt_tokens_histogram")],
    Fact.LORA_LOADED: [("0.5.7", None, "sglang:lora_pool_slots_used")],
}


def expected(table: dict[Fact, Ranges], version: str) -> dict[Fact, str]:
    found: dict[Fact, str] = {}
    for fact, ranges in table.items():
        for first, last, metric in ranges:
            if number(first) <= number(version) and (last is None or number(version) <= number(last)):
                found[fact] = metric
    return found


def resolved(engine: str, names: frozenset[str]) -> dict[Fact, str]:
    choices = resolve(load(engine), names)
    for fact, choice in choices.items():
        assert isinstance(choice, Candidate) or choice, f"{fact} is unsupported without a reason"
    return {fact: choice.metric for fact, choice in choices.items() if isinstance(choice, Candidate)}


@needs_dumps
@pytest.mark.parametrize("name", pages("contracts/vllm-*.prom"))
def test_every_vllm_release_on_file_resolves_to_its_own_metrics(name: str) -> None:
    _, version, generation = name.removesuffix(".prom").split("-")
    table = VLLM_V0 if generation == "v0" else VLLM_V1
    assert resolved("vllm", page(name).names) == expected(table, version)


@needs_dumps
@pytest.mark.parametrize("name", pages("contracts/sglang-*.prom"))
def test_every_sglang_release_on_file_resolves_to_its_own_metrics(name: str) -> None:
    version = name.removesuffix(".prom").split("-")[1]
    assert resolved("sglang", page(name).names) == expected(SGLANG, version)


@needs_dumps
@pytest.mark.parametrize("version", matrix("vllm"))
def test_vllm_releases_without_a_page_come_out_right_too(version: str) -> None:
    assert resolved("vllm", matrix("vllm")[version]) == expected(VLLM_SOURCE, version)


@needs_dumps
@pytest.mark.parametrize("version", matrix("sglang"))
def test_sglang_releases_without_a_page_come_out_right_too(version: str) -> None:
    assert resolved("sglang", matrix("sglang")[version]) == expected(SGLANG_SOURCE, version)


@needs_dumps
def test_the_folder_holds_the_releases_that_these_tests_claim_to_cover() -> None:
    assert len(pages("contracts/vllm-*.prom")) >= 20
    assert len(pages("contracts/sglang-*.prom")) >= 13
    assert len(matrix("vllm")) >= 38
    assert len(matrix("sglang")) >= 33
