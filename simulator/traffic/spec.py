"""What a scenario's `traffic` section says: a list of streams, each with its rate, its requests and its clients."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from controller.core.params import Unit, param
from simulator.traffic.arrivals import Arrivals, Gamma, Poisson
from simulator.traffic.audience import Audience, Class, Tenant
from simulator.traffic.lengths import Length, Lognormal, Pairs
from simulator.traffic.retry import Retry
from simulator.traffic.shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """System prompts that requests of one tenant share. They come before the drawn prompt and add to its length."""

    tokens: Length = param("length of a system prompt, drawn once for each")
    prompts: int = param("how many system prompts a tenant has", 1, ge=1, le=1_000_000)
    zipf: float = param("their popularity: the i-th is used in proportion to i^-zipf", 1.0, ge=0, le=5)
    share: float = param("share of requests that begin with one", 1.0, unit=Unit.RATIO, ge=0, le=1)
    common: bool = param("all tenants share the same system prompts", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Requests come in conversations: each prompt is the one before, the answer to it and something new."""

    turns: float = param("mean number of turns; geometric", 5.0, ge=1, le=1000)
    think: float = param("mean time from the end of an answer to the next turn", 30.0, unit=Unit.DURATION, ge=0)
    think_cv: float = param("its standard deviation over its mean (gamma)", 1.0, gt=0, le=10)
    pace: float = param(
        "how long a client takes to read one token of an answer, before it thinks; open loop: it does not depend on"
        " how fast the fleet is",
        0.03,
        unit=Unit.DURATION,
        ge=0,
    )
    follow: Length | None = param("what a later turn adds, tokens; drawn as the first prompt when not given", None)
    context: int = param("a conversation ends before its prompt would be longer than this, tokens", 32768, ge=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated(Audience):
    """A stream made of laws."""

    kind: Literal["generated"] = param("the kind of stream", "generated")
    rate: float = param(
        "requests/s before the shapes; with conversations, new ones come at rate / turns, so that the requests of all"
        " turns together come at this rate",
        gt=0,
        le=1e6,
    )
    shapes: tuple[Shape, ...] = param("how the rate moves; they multiply", ())
    arrivals: Arrivals = param("gaps between arrivals (of conversations, where there are any)", Gamma(cv=1.0))
    prompt: Length = param("prompt, tokens, without a system prompt", Lognormal(mean=1024, p99=4096))
    answer: Length = param("answer, tokens", Lognormal(mean=256, p99=1024))
    pairs: Pairs | None = param(
        "prompt and answer drawn together, as rows of a trace, in place of `prompt` and `answer`", None
    )
    prefix: Prefix | None = param("system prompts that requests share", None)
    conversations: Conversations | None = param("multi-turn conversations in place of single requests", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Audience):
    """What all streams from a file have."""

    file: str = param("path of the trace, plain or gzip")
    speed: float = param("the trace's clock runs so many times faster", 1.0, gt=0, le=1000)
    prompt_factor: float = param("what prompts and the blocks of prefixes are multiplied by", 1.0, gt=0, le=100)
    answer_factor: float = param("what answers are multiplied by", 1.0, gt=0, le=100)
    longest: int | None = param("requests with a longer prompt, after scaling, are left out, tokens", None, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Recorded):
    """The requests of a trace at their own times: what `azure`, `mooncake` and `requests` have in common."""

    since: float = param("where in the trace it begins", 0.0, unit=Unit.DURATION, ge=0)
    until: float | None = param("where in the trace it ends; at its end when not given", None, unit=Unit.DURATION, gt=0)
    factor: float = param("what the rate is multiplied by", 1.0, gt=0, le=1000)
    scaling: Literal["even", "independent"] = param(
        "`even`: every stretch of the trace has `factor` times its requests, give or take one of the trace's; what is"
        " left out is evenly spaced, copies lie between a request and the next. `independent`: as if there were fewer"
        " or more independent clients; each request or copy by chance, and copies of the whole trace shifted by up to"
        " `shift`",
        "even",
    )
    shift: float = param("how far copies of the trace are shifted, with `independent`", 60.0, unit=Unit.DURATION, ge=0)
    repeat: bool = param("begin anew when the trace is over", False)

    def __post_init__(self) -> None:
        Audience.__post_init__(self)
        if self.until is not None and self.until <= self.since:
            raise ValueError("until: is not later than since; write a later time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Azure(Replay):
    """Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens."""

    kind: Literal["azure"] = param("the kind of stream", "azure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mooncake(Replay):
    """Mooncake traces: JSON lines with timestamp (ms), input_length, output_length, hash_ids (blocks of the prompt).

    Requests that share their first two blocks are kept or left out together, and copies have prefixes of their own, so
    that scaling leaves the hit rate as it is."""

    kind: Literal["mooncake"] = param("the kind of stream", "mooncake")
    trace_block: int = param("tokens that one of its hash_ids stands for", 512, ge=1, le=65536)
    quantum: float = param(
        "its time stamps are that coarse: requests of one stamp are spread up to the next, at most so far; 0s leaves"
        " them as they are",
        3.0,
        unit=Unit.DURATION,
        ge=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests(Replay):
    """Traces with tenants, as drawn from ServeGen or published with VTC: CSV with arrival_s, tenant, input_tokens,
    output_tokens."""

    kind: Literal["requests"] = param("the kind of stream", "requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeGen(Audience):
    """ServeGen's clients: CSV with client_id, t_s, rate_rps, cv and arrival_pattern for windows of time. Arrivals are
    drawn anew, each client's by its own law; the file has no lengths."""

    kind: Literal["servegen"] = param("the kind of stream", "servegen")
    file: str = param("path of the clients, plain or gzip")
    since: float = param("where in the trace it begins", 0.0, unit=Unit.DURATION, ge=0)
    speed: float = param("the trace's clock runs so many times faster; rates grow with it", 1.0, gt=0, le=1000)
    factor: float = param("what every client's rate is multiplied by", 1.0, gt=0, le=1000)
    window: float = param("how long one row of the file holds", 600.0, unit=Unit.DURATION, gt=0)
    prompt: Length = param("prompt, tokens", Lognormal(mean=1024, p99=4096))
    answer: Length = param("answer, tokens", Lognormal(mean=256, p99=1024))
    pairs: Pairs | None = param(
        "prompt and answer drawn together, as rows of a trace, in place of `prompt` and `answer`", None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Agentic(Recorded):
    """Sessions of coding agents: JSON lines, one session each, with requests of t, in, out and hash_ids that are local
    to the session. Sessions begin by chance and are drawn with replacement; each time with a prefix of its own."""

    kind: Literal["agentic"] = param("the kind of stream", "agentic")
    rate: float = param(
        "requests/s before the shapes; sessions begin at this rate over the requests in a mean session", gt=0, le=1e6
    )
    shapes: tuple[Shape, ...] = param("how the rate moves; they multiply", ())
    arrivals: Arrivals = param("gaps between the beginnings of sessions", Poisson())
    pause: float | None = param(
        "longer pauses in a session are cut to this; null leaves them, and sessions may last for hours",
        600.0,
        unit=Unit.DURATION,
        gt=0,
    )


Stream: TypeAlias = Generated | Azure | Mooncake | Requests | ServeGen | Agentic

__all__ = [
    "Agentic", "Audience", "Azure", "Class", "Conversations", "Generated", "Mooncake", "Prefix", "Recorded", "Replay",
    "Requests", "Retry", "ServeGen", "Stream", "Tenant",
]  # fmt: skip
