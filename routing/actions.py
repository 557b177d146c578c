"""What a gateway tells its host to do. Ids are those of requests, `reason` comes from `Reason`, times are seconds."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a request was not served. At once the metric label and what its client is told."""

    NO_MATCH = "no_match"  # no replica here could ever serve it
    NO_CAPACITY = "no_capacity"  # those that could are gone, draining or broken
    PROMPT_TOO_LONG = "prompt_too_long"
    TENANT_REQUESTS = "tenant_requests"  # over its requests per second
    TENANT_TOKENS = "tenant_tokens"  # over its tokens per second
    TENANT_BURST = "tenant_burst"  # larger than its whole bucket; coming again will not help
    CLIENT_RETRIES = "client_retries"  # its client's retries are over the budget
    SHED = "shed"  # its class is being shed
    DEADLINE = "deadline"  # its deadline cannot be met
    QUEUE_FULL = "queue_full"
    WAITED = "waited"  # longest wait in the queue
    LATE = "late"  # its deadline passed before the first token
    FAILED = "failed"  # every try that it was allowed failed


@dataclass(frozen=True, slots=True)
class Send:
    """Give the request to `replica`; prefill at `prefill` first where that is not empty. `attempt` counts from 0; the
    host names the replica when it reports how this went, so that news of an earlier attempt is recognised."""

    id: int
    replica: str
    prefill: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Redirect:
    """Give the request to the gateway of `pool`, a smaller model with the consent of tenant and class."""

    id: int
    pool: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Refused on arrival. `retry_after` in seconds; None where coming again will not help."""

    id: int
    reason: Reason
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Given up while it waited in the gateway's queue."""

    id: int
    reason: Reason
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Given up after it was sent: `replica` is to stop working on it."""

    id: int
    replica: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Fail:
    """Its last attempt failed and there will be no other; `kind` is what the host said of it."""

    id: int
    kind: str
    retry_after: float | None = None


Action = Send | Redirect | Reject | Drop | Cancel | Fail
