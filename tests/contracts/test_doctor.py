"""The doctor must say what is wrong with a scrape before an objective is built on it."""

import json

import pytest

from controller.core.errors import InputError
from controller.core.facts import Fact
from controller.core.signals import Signal
from sources.diagnosis import Diagnosis, Level, Row, diagnose_exposition
from tests.support.dumps import needs_dumps, text

VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 1
vllm:num_requests_waiting{model_name="m"} 0
vllm:kv_cache_usage_perc{model_name="m"} 0.5
vllm:generation_tokens_total{model_name="m"} 10
"""


def row(found: Diagnosis, signal: Signal) -> Row:
    return next(row for row in found.rows if row.signal is signal)


def findings(found: Diagnosis, subject: str) -> list[tuple[Level, str]]:
    return [(finding.level, finding.text) for finding in found.findings if finding.subject == subject]


@needs_dumps
@pytest.mark.parametrize("name", ["vllm-0.32.0-cpu_final.prom", "contracts/sglang-0.5.23.prom"])
def test_every_signal_has_a_metric_or_a_reason(name: str) -> None:
    found = diagnose_exposition(text(name))
    assert [row.signal for row in found.rows] == list(Signal)
    assert all(row.supported or row.why for row in found.rows)
    assert not found.failed


@needs_dumps
def test_overload_beyond_the_last_bucket_is_seen() -> None:
    """The SGLang page of the documentation: 77 % of TTFT in +Inf, so every quantile says 30 s."""
    found = diagnose_exposition(text("sglang-0.4.0_docs_llama31-8b_overloaded.prom"))
    ((level, said),) = findings(found, "sglang:time_to_first_token_seconds")
    assert level is Level.WARNING
    assert said.startswith("77% of 11008 samples lie above the last edge of 30 s")
    ttft = next(histogram for histogram in found.histograms if histogram.fact is Fact.TTFT)
    assert ttft.edges[-1] == 30
    assert ttft.above == pytest.approx(0.77, abs=0.005)


@needs_dumps
@pytest.mark.parametrize(
    ("name", "metric", "edge"),
    [
        ("vllm-0.32.0-cpu_final.prom", "vllm:request_queue_time_seconds", "0.3 s"),
        ("contracts/sglang-0.5.23.prom", "sglang:time_to_first_token_seconds", "0.1 s"),
        ("dynamo-1.6.1_frontend_after.prom", "dynamo_frontend_request_duration_seconds", "2 s"),
    ],
)
def test_a_first_bucket_too_high_for_any_target_is_seen(name: str, metric: str, edge: str) -> None:
    said = [said for _, said in findings(diagnose_exposition(text(name)), metric)]
    assert any(f"the first edge is {edge}" in one for one in said)


@needs_dumps
def test_the_top_of_old_releases_is_too_low() -> None:
    found = diagnose_exposition(text("contracts/vllm-0.6.6-v0.prom"))
    assert any("the last edge is 10 s" in said for _, said in findings(found, "vllm:time_to_first_token_seconds"))


@needs_dumps
def test_milliseconds_are_reported_as_seconds() -> None:
    found = diagnose_exposition(text("ray-serve-2.60.0_busy.prom.gz"))
    e2e = next(histogram for histogram in found.histograms if histogram.fact is Fact.E2E)
    assert e2e.edges[0] == pytest.approx(0.001)


@needs_dumps
def test_two_generations_at_once_are_reported() -> None:
    found = diagnose_exposition(text("contracts/vllm-0.10.2-v1.prom"))
    ((level, said),) = findings(found, "vllm:inter_token_latency_seconds")
    assert level is Level.WARNING
    assert "vllm:time_per_output_token_seconds" in said


def test_a_percentage_read_as_a_ratio_is_an_error() -> None:
    found = diagnose_exposition(VLLM.replace("0.5\n", "87\n"))
    ((level, said),) = findings(found, "vllm:kv_cache_usage_perc")
    assert level is Level.ERROR
    assert "reads 87" in said
    assert found.failed


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("vllm:num_requests_success_total", "vllm:request_success_total"),
        ("vllm:kv_cache_usage_percent", "vllm:kv_cache_usage_perc"),
        ("vllm:http_requests_total", "http_requests_total"),
        ("vllm:request_failure_total", "http_requests_total"),
    ],
)
def test_a_name_that_no_release_ever_had_is_an_error(name: str, right: str) -> None:
    """WVA, aibrix and LLMKube queried these."""
    ((level, said),) = findings(diagnose_exposition(f"{VLLM}{name} 1\n"), name)
    assert level is Level.ERROR
    assert right in said


def test_a_typing_error_in_a_name_gets_the_nearest_one() -> None:
    ((level, said),) = findings(diagnose_exposition(f"{VLLM}vllm:num_request_swapped 1\n"), "vllm:num_request_swapped")
    assert level is Level.WARNING
    assert "did you mean vllm:num_requests_swapped?" in said


@needs_dumps
@pytest.mark.parametrize(
    "name", ["vllm-0.32.0-cpu_final.prom", "contracts/vllm-0.6.6-v0.prom", "contracts/sglang-0.5.23.prom"]
)
def test_no_real_name_is_called_a_typing_error(name: str) -> None:
    assert not [f for f in diagnose_exposition(text(name)).findings if "exists in no" in f.text]


@pytest.mark.parametrize(
    ("engine", "flag"),
    [("sglang", "--enable-metrics"), ("llamacpp", "--metrics"), ("tensorrt_llm", "return_perf_metrics")],
)
def test_a_missing_engine_flag_is_named(engine: str, flag: str) -> None:
    found = diagnose_exposition("process_start_time_seconds 1\n", engine)
    assert found.failed
    assert flag in found.findings[0].text


def test_the_wrong_engine_is_noticed() -> None:
    found = diagnose_exposition(VLLM, "sglang")
    assert "it looks like vllm" in found.findings[0].text


def test_an_unknown_page_is_an_error_with_a_guess() -> None:
    found = diagnose_exposition("vllm_num_requests_running 1\n")
    assert found.engine == ""
    assert found.failed
    assert "did you mean vllm:num_requests_running" in found.findings[0].text
    with pytest.raises(InputError, match="no metric contract for engine 'vlm'"):
        diagnose_exposition(VLLM, "vlm")


def test_an_undefined_model_name_cannot_be_selected_by() -> None:
    page = 'trtllm_num_requests_running{model_name="undefined",engine_type="undefined"} 1\n'
    ((level, said),) = findings(diagnose_exposition(page), "model_name")
    assert level is Level.WARNING
    assert "another label" in said


def test_repeated_gauges_are_pointed_out() -> None:
    page = VLLM + 'vllm:num_requests_waiting{pid="7"} 3\nvllm:num_requests_waiting{pid="8"} 3\n'
    assert findings(diagnose_exposition(page), "pid")


def test_a_switched_off_cache_is_no_error() -> None:
    found = diagnose_exposition(VLLM + "vllm:gpu_prefix_cache_hit_rate -1\n")
    ((level, said),) = findings(found, "vllm:gpu_prefix_cache_hit_rate")
    assert level is Level.INFO
    assert "switched off" in said


def test_what_the_engine_leaves_to_others_is_found_where_others_are_in_the_same_text() -> None:
    page = VLLM + 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 87\nkube_deployment_status_replicas_ready{deployment="d"} 2\n'
    found = diagnose_exposition(page)
    assert found.engine == "vllm"
    assert row(found, Signal.GPU_UTILISATION).metrics == ("DCGM_FI_DEV_GPU_UTIL",)
    assert row(found, Signal.READY_REPLICAS).metrics == ("kube_deployment_status_replicas_ready",)
    assert not found.failed, "87 % is 0.87 after its scale"


@needs_dumps
def test_text_and_json_say_the_same() -> None:
    found = diagnose_exposition(text("dynamo-1.6.1_frontend_busy.prom"))
    plain, data = found.render(), found.to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["engine"] == "dynamo"
    assert data["signals"]["tpot"] == {
        "status": "unsupported", "unit": "s", "why": "the frontend exposes inter-token latency only",
    }  # fmt: skip
    ttft = data["signals"]["ttft"]
    assert ttft["metrics"] == ["dynamo_frontend_time_to_first_token_seconds"]
    for signal, said in data["signals"].items():
        assert signal in plain
        assert said["why"] in plain if said["status"] == "unsupported" else said["metrics"][0] in plain
    assert all(finding["text"] in plain for finding in data["findings"])
