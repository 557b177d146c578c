"""What a scenario says of an engine is what the engine is made of."""

import pytest

from simulator import library
from simulator.engines import engine_spec, profile
from simulator.spec import EngineLimits, LibraryEngine, PoolSpec, ProfileEngine


def test_an_engine_of_the_library_has_its_coefficients_and_its_kv_cache() -> None:
    made = engine_spec(PoolSpec(replicas=1, engine=LibraryEngine(model="Llama-3.1-8B", gpu="H100")))
    assert made.profile == library.profile("Llama-3.1-8B", "H100")


def test_arguments_overrule_the_profile() -> None:
    pool = PoolSpec(
        replicas=1,
        engine=ProfileEngine(max_num_seqs=256, kv_tokens=None),
        limits=EngineLimits(max_num_seqs=16, kv_tokens=9000, max_wait=3.0, max_queue=7, block=32),
    )
    made = engine_spec(pool)
    assert (made.profile.max_num_seqs, made.profile.kv_tokens) == (16.0, 9000.0)
    assert (made.max_wait, made.max_queue, made.block) == (3.0, 7, 32)
    assert profile(PoolSpec(replicas=1, engine=pool.engine)).kv_tokens is None


def test_another_version_is_slower_in_every_term_and_in_nothing_else() -> None:
    pool = PoolSpec(replicas=1)
    usual, slower = engine_spec(pool).profile, engine_spec(pool, 1.5).profile
    for name in "abcde":
        assert getattr(slower, name) == pytest.approx(1.5 * getattr(usual, name))
    assert (slower.max_num_seqs, slower.kv_tokens) == (usual.max_num_seqs, usual.kv_tokens)


def test_a_step_holds_a_token_of_each_sequence_however_many_they_are() -> None:
    pool = PoolSpec(replicas=1, limits=EngineLimits(max_num_seqs=1024, max_batched_tokens=512))
    assert engine_spec(pool).max_batched_tokens == 1024
