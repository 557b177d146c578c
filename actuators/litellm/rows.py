"""What LiteLLM's management API tells of deployments and keys, with the mark that Governor leaves on them.

A mark keeps what the owner had set beside what is in force: another process can give it back, and whoever changes the
one without the other is somebody else.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.core.model import Lever
from controller.core.rest import NO_LIMIT

MARK = "governor"


class Strange(Exception):
    """An answer that is not LiteLLM's; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment. `own` is its owner's weight, None where none is set; `values` ours by lever; `foreign` when its
    weight is not what they come to."""

    id: str
    group: str
    weight: float | None
    own: float | None
    values: Mapping[Lever, float]
    by: str
    generation: int
    from_database: bool

    @property
    def wanted(self) -> float:
        return weight_of(self.own, self.values)

    @property
    def foreign(self) -> bool:
        return bool(self.by) and not math.isclose(self.weight or 0.0, self.wanted, abs_tol=1e-9)

    def value(self, lever: Lever) -> float:
        if self.foreign:
            return min(1.0, (self.weight or 0.0) / (self.own or 1.0))
        return self.values.get(lever, 1.0)

    def told(self, values: Mapping[Lever, float], by: str) -> tuple[float, dict[str, Any]]:
        """The weight with these values, and the mark that goes with it. What somebody else set is the owner's now."""
        own = self.weight if self.foreign else self.own
        kept = {lever: value for lever, value in values.items() if value != 1.0}
        mark = {"by": by, "generation": self.generation + 1, "weight": own,
                "values": {lever.value: value for lever, value in sorted(kept.items())}}  # fmt: skip
        return weight_of(own, kept), mark


def weight_of(own: float | None, values: Mapping[Lever, float]) -> float:
    """A deployment without a weight counts as one of 1, once its neighbours have weights."""
    return (1.0 if own is None else own) * min([1.0, *values.values()])


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `tpm` tokens per minute in force, `own` what its owner had set, None for no limit; `cap` ours in
    tokens/s; `metadata` all of it, for a write replaces the whole."""

    tpm: int | None
    own: int | None
    cap: float | None
    by: str
    generation: int
    metadata: Mapping[str, Any]
    foreign: bool = False

    @property
    def value(self) -> float:
        if self.foreign:
            return NO_LIMIT if self.tpm is None else self.tpm / 60
        return NO_LIMIT if self.cap is None else self.cap

    def told(self, value: float, by: str) -> tuple[int | None, dict[str, Any]]:
        """Tokens per minute and metadata with this cap, or as the owner left them. Never more than the owner gave."""
        own = self.tpm if self.foreign else self.own
        rest = {name: one for name, one in self.metadata.items() if name != MARK}
        if value >= NO_LIMIT:
            return own, rest
        tpm = int(60 * value) if own is None else min(int(60 * value), own)
        mark = {"by": by, "generation": self.generation + 1, "own": own, "tpm": tpm, "value": value}
        return tpm, {**rest, MARK: mark}


def deployments(body: Any) -> list[Deployment]:
    """From /v1/model/info."""
    try:
        return [_deployment(row) for row in body["data"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Strange(f"/v1/model/info has no deployments as LiteLLM tells them ({type(error).__name__})") from error


def _deployment(row: Mapping[str, Any]) -> Deployment:
    info, weight = row["model_info"], row["litellm_params"].get("weight")
    mark = info.get(MARK) or {}
    own = mark.get("weight") if mark else weight
    values = {Lever(name): float(value) for name, value in mark.get("values", {}).items()}
    return Deployment(
        str(info["id"]),
        str(row["model_name"]),
        None if weight is None else float(weight),
        None if own is None else float(own),
        values,
        str(mark.get("by", "")),
        int(mark.get("generation", 0)),
        bool(info.get("db_model")),
    )


def key(body: Any) -> Key:
    """From /key/info."""
    try:
        info = body["info"]
        tpm, metadata = info.get("tpm_limit"), dict(info.get("metadata") or {})
        mark = metadata.get(MARK)
        if mark is None:
            return Key(tpm, tpm, None, "", 0, metadata)
        own, value = mark["own"], float(mark["value"])
        foreign = mark["tpm"] != tpm
        return Key(tpm, own, value, str(mark["by"]), int(mark["generation"]), metadata, foreign)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Strange(f"/key/info tells no key as LiteLLM does ({type(error).__name__})") from error
