"""Coefficients of nowhere, or of another GPU than the one that was meant."""

import tomllib
from functools import cache

import pytest

from benchmarks import library as bench
from simulator import library
from tests.support.streams import shared


@cache
def rows() -> dict[bench.Key, list[bench.Row]]:
    return {key: list(some) for key, some in bench.measured().items()}


def test_names_as_their_makers_spell_them() -> None:
    entry = library.find("meta-llama/Llama-3.1-8B-Instruct", "h100_sxm")
    assert (entry.model, entry.gpu, entry.precision, entry.engine) == ("llama-3.1-8b", "h100", "bf16", "vllm")
    assert entry.profile.a == pytest.approx(6.071e-3)
    assert entry.profile.d == pytest.approx(41.5e-9)
    assert library.profile("llama-3.1-8b", "h100", 1, "bf16", "vllm") == entry.profile


def test_a_configuration_that_nobody_measured_is_not_made_up() -> None:
    with pytest.raises(library.NotInLibrary, match=r"there is llama-3\.1-8b on 1x a100, bf16, vllm; "):
        library.find("llama-3.1-8b", "h100", 3)
    with pytest.raises(library.NotInLibrary, match=r"its models are llama-3\.1-8b, "):
        library.find("gpt-2", "h100")
    with pytest.raises(library.NotInLibrary, match="its gpus are a100, "):
        library.find("llama-3.1-8b", "tpu")
    with pytest.raises(library.NotInLibrary, match="any precision, vllm is not in the library"):
        library.find("qwen3-8b", "a100")


def test_a_cache_in_memory_that_the_weights_have_taken() -> None:
    assert library.kv_tokens("llama-3.1-8b", "h100", 1, "bf16") == pytest.approx(418_000, rel=0.02)
    assert library.kv_tokens("llama-3.1-70b", "h100", 4, "bf16") == pytest.approx(422_000, rel=0.05)
    # What a compressed cache holds does not grow with the heads: each GPU has all of it.
    assert library.kv_tokens("deepseek-r1", "h200", 8, "fp8") < library.kv_tokens("deepseek-r1", "h200", 16, "fp8")
    with pytest.raises(library.NotInLibrary, match="leaves no memory for a KV cache on 1x h100; take more GPUs"):
        library.kv_tokens("llama-3.1-70b", "h100", 1, "bf16")
    with pytest.raises(library.NotInLibrary, match="known in bf16, fp8, fp4, not in int4"):
        library.kv_tokens("llama-3.1-70b", "h100", 1, "int4")


def test_an_entry_that_could_not_serve() -> None:
    for entry in library.entries():
        assert entry.profile.a > 0, entry
        assert entry.profile.b > 0, entry
        assert min(entry.profile.c, entry.profile.d, entry.profile.e) >= 0, entry
        assert (entry.profile.kv_tokens or 0) > 8192, entry
        assert 0 < entry.error <= 0.10, entry
        assert entry.source, entry


def test_fits_that_cannot_be_made_again() -> None:
    shared("perf/aiconfigurator_silicon_sample.csv.gz")
    good, _ = bench.fits(rows())
    shipped, fitted = (tomllib.loads(text)["entries"] for text in (bench.FITS.read_text("utf-8"), bench.toml(good)))
    assert len(shipped) == len(fitted)
    for one, other in zip(shipped, fitted, strict=True):
        # Another build of the linear algebra may round a last digit otherwise.
        assert one.pop("coefficients") == pytest.approx(other.pop("coefficients"), rel=2e-3)
        assert one.pop("error") == pytest.approx(other.pop("error"), abs=0.002)
        assert one == other, "run `python -m benchmarks.library`"


def test_a_server_that_answers_at_another_speed_than_the_library_says() -> None:
    """Done when 1: at most 15 % off in the median, for every configuration that is in both."""
    shared("perf/aiconfigurator_silicon_sample.csv.gz")
    some = {key: every[::3] for key, every in rows().items()}  # the page has them all
    off = {str(entry): tpot for entry, _, tpot, _ in bench.held_against(some)}
    assert len(off) >= 50
    assert {name: tpot for name, tpot in off.items() if tpot > 0.15} == {}
    page = bench.PAGE.read_text(encoding="utf-8")
    assert all(f"| {name} |" in page for name in off)
