"""Names of keys, and what stands in them: the contract with gateways, see docs/actuators/redis.md."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from controller.core.model import Target
from controller.core.rest import NO_LIMIT, at_rest

FIELDS = ("value", "generation", "by", "expires_at")
SCRIPT = files("actuators.redis").joinpath("bucket.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Entry:
    """One target's hash. `value` is None when there is none; `broken` when what stands there is no number."""

    value: float | None
    generation: int
    by: str
    broken: str = ""


def kept(target: Target, value: float) -> bool:
    """Whether this value has a hash of its own; a neutral one is the absence of it."""
    return value != at_rest(target) and value < NO_LIMIT


class Keys:
    """All keys of a pool lie in one slot of a cluster, by the braces."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def target(self, target: Target) -> str:
        return f"{self._prefix}{{{target.pool}}}:{target.lever.value}:{target.member}"

    def bucket(self, pool: str, tenant: str) -> str:
        return f"{self._prefix}{{{pool}}}:bucket:{tenant}"

    def standing(self, pool: str, tenant: str) -> str:
        return f"{self._prefix}{{{pool}}}:standing:{tenant}"

    def generation(self, pool: str) -> str:
        return f"{self._prefix}{{{pool}}}:generation"


def entry(fields: Sequence[str | None]) -> Entry:
    """From the answer to HMGET of ``FIELDS``."""
    text, generation, by = fields[0], fields[1], fields[2] or ""
    number = int(generation) if generation is not None and generation.isdigit() else 0
    if text is None:
        return Entry(None, number, by)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        return Entry(None, number, by, broken=text[:40])
    return Entry(value, number, by)


def run_id(info: object) -> str:
    """Of INFO's text, "" where the user has no right to it: that is no reason to stop."""
    if not isinstance(info, str):
        return ""
    return next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("run_id:")), "")
