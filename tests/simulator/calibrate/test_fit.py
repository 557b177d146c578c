"""Coefficients that fit where they were fitted, and nowhere else."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from controller.core.errors import InputError
from controller.core.step_model import Profile
from simulator.calibrate.fit import Fit, fit
from simulator.calibrate.log import RequestLog
from simulator.calibrate.replay import replay
from simulator.calibrate.requests import calibrate_requests
from simulator.calibrate.score import score
from simulator.engine.spec import EngineSpec
from tests.support.requestlogs import TRUE, csv_of, lengths, made, poisson, varied

LIMITS = EngineSpec(replace(Profile(), max_num_seqs=64.0), prefix_cache=False)


@cache
def found() -> tuple[RequestLog, Fit]:
    log = varied(count=200)
    return log, fit(log, len(log) // 2, LIMITS, None)


def test_the_requests_that_were_held_out_come_as_they_came() -> None:
    log, one = found()
    run = replay(log, LIMITS, one.profile)
    for part in score(log, run, slice(len(log) // 2, None)):
        assert abs(part.mean_error) < 0.02, part
        # With no queue the 99th percentile of TTFT is a matter of single steps.
        assert abs(part.p99_error) < (0.15 if part.kind == "ttft" else 0.04), part


def test_what_a_full_step_lasts_is_known_though_single_terms_are_less_so() -> None:
    one = found()[1].profile
    for n, context, prompt in ((1, 1000, 0), (64, 900, 0), (64, 900, 800), (8, 2000, 4000)):
        told, true = (p.a + p.b * prompt + p.c * n + p.d * n * context + p.e * prompt * prompt / 2 for p in (one, TRUE))
        assert told == pytest.approx(true, rel=0.05)


def test_twice_the_same() -> None:
    log = varied(count=60)
    assert fit(log, 30, LIMITS, Profile()) == fit(log, 30, LIMITS, Profile())


def regular(count: int = 120, gap: float = 4.0) -> RequestLog:
    """One request after the other: never two at a time."""
    return made(np.arange(count, dtype=np.float64) * gap, lengths(count, 800, 0.5, 1), np.full(count, 100.0))


def test_a_log_of_single_requests_does_not_tell_the_cost_of_a_batch() -> None:
    with pytest.raises(InputError, match=r"does not tell c \(.*few requests run at a time, and one in which many do"):
        fit(regular(), 60, LIMITS, None)


def test_with_a_library_entry_such_terms_stand_and_it_is_said() -> None:
    prior = Profile()
    one = fit(regular(), 60, LIMITS, prior)
    assert {"c", "d"} <= set(one.held)
    assert one.profile.c == pytest.approx(prior.c * one.scale)
    assert one.profile.a == pytest.approx(TRUE.a, rel=0.03)


def test_one_shape_of_request_in_an_even_stream_does_not_tell_context_from_sequence() -> None:
    log = made(np.arange(160, dtype=np.float64) * 0.2, np.full(160, 800.0), np.full(160, 200.0))
    with pytest.raises(InputError, match=r"does not tell [cd] \(\d+% of a full step left open"):
        fit(log, 80, LIMITS, None)


def test_a_cache_too_small_for_the_requests_is_no_fit() -> None:
    log = varied(count=60)
    tight = replace(LIMITS, profile=replace(LIMITS.profile, kv_tokens=400.0))
    with pytest.raises(InputError, match="do not fit into this engine's KV cache of 400 tokens"):
        fit(log, 30, tight, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hold_out": 0.95}, "--hold-out 95%: leaves too little"),
        ({"entry": "llama-3.1-8b"}, "write model/gpu/tp/precision"),
        ({"entry": "llama-3.1-8b/abacus/1/bf16"}, "--library llama-3.1-8b/abacus/1/bf16: abacus is not in the library"),
        ({"max_batched_tokens": 16}, r"max_batched_tokens \(16\) is less than max_num_seqs"),
        ({"max_num_seqs": 2}, "--max-num-seqs 2: .* requests ran at once"),
    ],
)
def test_wrong_options_name_themselves(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrate_requests(csv_of(varied(count=60)), **options)  # type: ignore[arg-type]


def test_what_was_taken_for_granted_is_told() -> None:
    log = made(poisson(80, 4.0), lengths(80, 500, 0.8, 1), lengths(80, 100, 0.6, 2))
    one = calibrate_requests(csv_of(log), entry="meta-llama/Llama-3.1-8B/h100/1/bf16/vllm", max_num_seqs=64)
    assert one.prior == "llama-3.1-8b on 1x h100, bf16, vllm"
    assert (one.requests, one.fitted, one.held_out[0].requests) == (80, 40, 40)
    assert any("max_num_batched_tokens 8192 is taken for granted" in note for note in one.notes)
    assert any("KV cache of 417,710 tokens: the library's" in note for note in one.notes)
