"""From what a scenario says of an engine to the engine's own specification."""

import dataclasses

from controller.core.step_model import Profile
from simulator import library
from simulator.engine.spec import EngineSpec
from simulator.spec import LibraryEngine, PoolSpec


def profile(pool: PoolSpec) -> Profile:
    """Step-time coefficients and limits of a pool's engine."""
    engine, limits = pool.engine, pool.limits
    if isinstance(engine, LibraryEngine):
        own = library.profile(engine.model, engine.gpu, engine.tp, engine.precision, engine.engine)
    else:
        own = Profile(
            engine.a, engine.b, engine.c, engine.d, engine.e, float(engine.max_num_seqs),
            None if engine.kv_tokens is None else float(engine.kv_tokens), engine.host,
        )  # fmt: skip
    return dataclasses.replace(
        own,
        max_num_seqs=own.max_num_seqs if limits.max_num_seqs is None else float(limits.max_num_seqs),
        kv_tokens=own.kv_tokens if limits.kv_tokens is None else float(limits.kv_tokens),
    )


def engine_spec(pool: PoolSpec, factor: float = 1.0) -> EngineSpec:
    """One replica of a pool; steps take `factor` times what its profile says."""
    base, limits = profile(pool), pool.limits
    scaled = dataclasses.replace(base, **{name: getattr(base, name) * factor for name in (*"abcde", "host")})
    return EngineSpec(
        scaled,
        max_batched_tokens=max(limits.max_batched_tokens, int(base.max_num_seqs)),
        max_context=limits.max_context,
        block=limits.block,
        prefix_cache=limits.prefix_cache,
        max_wait=limits.max_wait,
        max_queue=limits.max_queue,
        isolation=limits.isolation,
        adapters=limits.adapters,
    )
