"""What one replica is: step-time coefficients, limits of the scheduler, and how long and short prompts share it."""

from dataclasses import dataclass, field

from controller.core.params import Unit, param
from controller.core.step_model import Profile

UNBOUNDED = 1 << 40  # tokens of a KV cache that never limits


@dataclass(frozen=True, slots=True)
class Isolation:
    """Long and short prompts wait in lanes of their own. Each lane has seats that the other cannot take; the rest of
    `max_num_seqs` is shared."""

    long_prompt: int = param("a prompt of more tokens than this is long", 8192, ge=1)
    short_seqs: int = param("sequences of the batch that long prompts cannot take", 0, ge=0)
    long_seqs: int = param("sequences of the batch that short prompts cannot take", 0, ge=0)
    long_kv: float = param("the most of the KV cache that long prompts may hold", 1.0, unit=Unit.RATIO, gt=0, le=1)
    long_chunk: int | None = param("the most tokens of a long prompt in one step", None, ge=1)


@dataclass(frozen=True, slots=True)
class Adapters:
    """LoRA adapters of one replica."""

    slots: int = param("adapters that the running batch may use at once", 4, ge=1)
    load: float = param("seconds that loading one adapter holds up the step", 0.2, unit=Unit.DURATION, ge=0)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One replica. Times in seconds, sizes in tokens. The names are vLLM's where it has one."""

    profile: Profile = field(default_factory=Profile)
    max_batched_tokens: int = param("tokens of one step, decode and prefill together", 8192, ge=1)
    max_context: int | None = param("longest prompt and answer together, tokens; none: the KV cache", None, ge=2)
    block: int = param("tokens of a KV block", 16, ge=1)
    prefix_cache: bool = param("keep the blocks of ended prompts until their place is needed", True)
    watermark: float = param("share of the KV blocks that admission leaves free", 0.0, unit=Unit.RATIO, ge=0, lt=1)
    max_wait: float | None = param("longest wait for the first place in a batch", None, unit=Unit.DURATION, gt=0)
    max_queue: int | None = param("requests that may wait; more are refused", None, ge=0)
    isolation: Isolation | None = param("lanes for long and short prompts", None)
    adapters: Adapters | None = param("LoRA; none: every adapter is free", None)

    def __post_init__(self) -> None:
        if self.max_num_seqs > self.max_batched_tokens:
            raise ValueError(
                f"max_batched_tokens ({self.max_batched_tokens}) is less than max_num_seqs ({self.max_num_seqs}): "
                "a step could not hold one token of each sequence; raise the first or lower the second"
            )
        lanes = self.isolation
        if lanes is not None and lanes.short_seqs + lanes.long_seqs >= self.max_num_seqs:
            raise ValueError(
                f"isolation: short_seqs and long_seqs together leave nothing of max_num_seqs ({self.max_num_seqs}) to "
                "share; lower one of them"
            )

    @property
    def max_num_seqs(self) -> int:
        """Sequences of the batch at most."""
        return int(self.profile.max_num_seqs)

    @property
    def kv_blocks(self) -> int:
        """Blocks of the KV cache."""
        tokens = self.profile.kv_tokens
        return (UNBOUNDED if tokens is None else int(tokens)) // self.block
