"""What a client does after a bad ending."""

from dataclasses import dataclass

from controller.core.params import Unit, param


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential back-off with jitter, at most so many attempts."""

    attempts: int = param("how often a client asks in all, the first time included", 3, ge=1, le=100)
    share: float = param("share of clients that retry at all", 1.0, unit=Unit.RATIO, ge=0, le=1)
    backoff: float = param(
        "pause before the second attempt; doubled for each further one", 1.0, unit=Unit.DURATION, ge=0
    )
    longest: float = param("longest pause by back-off", 60.0, unit=Unit.DURATION, ge=0)
    jitter: float = param("share of the pause that chance may take off", 0.5, unit=Unit.RATIO, ge=0, le=1)
    honours: float = param("share of clients that wait for a Retry-After", 1.0, unit=Unit.RATIO, ge=0, le=1)
    impatient: bool = param("a client that went away because it had waited too long comes again too", False)
