"""What a gateway knows: a request as it arrives, and a replica as seen from outside. Seconds, tokens, plain data.

A gateway cannot know how long an answer will be, nor what an engine did since it last told. What is not here must not
be used by a strategy.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `prefix` are the hashes of the leading blocks of the prompt, each chained to the one before, `block`
    tokens each; two requests share a prefix as far as their hashes are equal. Lower `priority` is served first, as
    in vLLM. `deadline` is when the first token is useless, unix seconds. Empty capability fields accept anything."""

    id: int
    prompt_tokens: int
    max_tokens: int
    prefix: tuple[int, ...] = ()
    block: int = 64
    session: str = ""
    tenant: str = ""
    klass: str = ""
    priority: int = 0
    deadline: float | None = None
    model: str = ""
    version: str = ""
    adapter: str = ""
    precision: str = ""
    hardware: str = ""
    region: str = ""
    zone: str = ""
    replica: str = ""  # asked for by name; the strategy `direct` alone obeys
    attempt: int = 0  # which try of its client this is, as the client says itself; 0 is the first


@dataclass(frozen=True, slots=True)
class Ability:
    """What a replica can serve, for capability match. Empty sets and strings serve anything; `context` is the longest
    prompt and answer together, tokens."""

    model: str = ""
    version: str = ""
    precision: str = ""
    hardware: str = ""
    region: str = ""
    zone: str = ""
    role: str = "both"  # both | prefill | decode
    context: int | None = None
    tenants: frozenset[str] = frozenset()
    canary: float | None = None  # the share of traffic that this version should get; None = no canary


@dataclass(slots=True)
class Replica:
    """One replica as its gateway sees it; the host keeps it up to date. The first block is the gateway's own
    book-keeping and always current, the second is what the engine last told, at `reported_at` (unix seconds)."""

    name: str
    ability: Ability = field(default_factory=Ability)
    weight: float = 1.0  # the share of its normal traffic that it should get: breaker, ramp and weight together
    draining: bool = False
    inflight: int = 0  # requests sent and not ended
    inflight_tokens: float = 0.0  # prompt tokens not yet prefilled and expected answer tokens not yet made, of those

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0  # 0..1
    kv_tokens: int | None = None  # capacity
    slots: int | None = None  # sequences that run together at most (max_num_seqs)
    adapters: frozenset[str] = frozenset()  # loaded
    reported_at: float | None = None
