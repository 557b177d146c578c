"""What the seven levers are to a config: unit, members, and the limits that hold where a file says nothing.

The one source of these facts: the models take their defaults from here, and the docs print this table. Bounds of
replicas are nowhere given, because nobody but their owner knows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from controller.config.units import format_duration, format_rate, format_ratio
from controller.core.model import Lever
from controller.core.rest import AT_REST, NO_LIMIT
from controller.core.rules import PER_REPLICA, RELAX_DOWN, Rate

AFFINITY = "affinity"  # the one set-point of routing
SetPoint = Literal["concurrency", "longest_prompt", "deadline", "priority"]  # of admission
SETPOINTS: tuple[SetPoint, ...] = ("concurrency", "longest_prompt")  # unless the file names others
ONE_VERSION = 0.5  # largest part of the replicas that may be out where all of them run one bad version
EVERY_SETPOINT: tuple[SetPoint, ...] = (*SETPOINTS, "deadline", "priority")


@dataclass(frozen=True, slots=True)
class LeverDefaults:
    """What holds for a lever unless the file says otherwise; bounds that are None must be written. Durations are in
    seconds, a rate of None is no limit. `ceiling` is the largest `max` that means something."""

    unit: str
    members: str
    quantum: float
    min: float | None = None
    max: float | None = None
    ceiling: float = 1e9
    rate_up: Rate | None = None
    rate_down: Rate | None = None
    cooldown_up: float = 0.0
    cooldown_down: float = 0.0
    stabilise: float = 0.0
    settle: float = 0.0
    expiry: float = 0.0
    group: float = 0.2

    def written(self) -> dict[str, Any]:
        """As plain values of the config file. Bounds that must be written are left out."""
        bounds = {name: value for name, value in (("min", self.min), ("max", self.max)) if value is not None}
        return {
            **bounds,
            "quantum": self.quantum,
            "rate": {"up": _rate(self.rate_up), "down": _rate(self.rate_down)},
            "cooldown": {"up": format_duration(self.cooldown_up), "down": format_duration(self.cooldown_down)},
            "stabilise": format_duration(self.stabilise),
            "settle": format_duration(self.settle),
            "expiry": format_duration(self.expiry),
            "group": format_ratio(self.group),
        }


# A lever that relaxes upwards is not held back from falling: protection does not wait. What sheds or degrades comes
# back slowly and expires soon, because the fleet without a Governor must come to rest where it serves everybody.
DEFAULTS: Mapping[Lever, LeverDefaults] = MappingProxyType(
    {
        Lever.REPLICAS: LeverDefaults(
            "replicas", "the pool", 1.0,
            rate_up=Rate(1.0, 60.0, relative=True), rate_down=Rate(0.25, 60.0, relative=True),
            cooldown_down=60.0, stabilise=180.0,
        ),
        Lever.WEIGHT: LeverDefaults(
            "factor of a full share", "replicas that are seen", 0.01, 0.05, 1.0, 1.0,
            rate_up=Rate(0.2, 15.0), expiry=300.0, group=1.0,
        ),
        Lever.BREAKER: LeverDefaults(
            "factor: 0 out, 1 in rotation", "replicas that are seen", 0.05, 0.0, 1.0, 1.0, expiry=120.0,
        ),
        Lever.TENANT_CAP: LeverDefaults(
            "tokens/s, prompt and answer", "`tenants` of the pool", 1.0, 0.0, NO_LIMIT, NO_LIMIT,
            # A cap that stays when capacity has come refuses critical requests before idle replicas: two looks
            # are enough.
            rate_up=Rate(1.0, 15.0, relative=True), stabilise=15.0, expiry=300.0,
        ),
        Lever.ADMISSION: LeverDefaults(
            "requests in flight per replica; tokens; factor; rank",
            "`setpoints`: `concurrency`, `longest_prompt`; `deadline`, `priority`",
            1.0, 1.0, NO_LIMIT, NO_LIMIT,
            rate_up=Rate(1.0, 15.0, relative=True), stabilise=60.0, expiry=300.0,
        ),
        Lever.DOWNGRADE: LeverDefaults(
            "share of the requests that may go", "`receivers`: pools", 0.01, 0.0, 1.0, 1.0,
            rate_up=Rate(0.1, 15.0), rate_down=Rate(0.05, 30.0), stabilise=120.0, expiry=120.0,
        ),
        Lever.ROUTING: LeverDefaults(
            # Below a half the caches hold the same everywhere, and that is capacity lost (docs/routing.md).
            "share of the router's affinity that counts", "`affinity`", 0.05, 0.5, 1.0, 1.0,
            rate_up=Rate(0.05, 60.0), stabilise=60.0, expiry=300.0,
        ),
    }
)  # fmt: skip


def with_defaults(levers: Mapping[Any, Any]) -> dict[Any, Any]:
    """Plain data of `levers` with what the file leaves open. What is no lever, or no mapping, is left to be refused."""
    filled: dict[Any, Any] = {}
    for name, body in levers.items():
        known = isinstance(name, str) and name in set(Lever)
        filled[name] = _over(DEFAULTS[Lever(name)].written(), body) if known and isinstance(body, Mapping) else body
    return filled


def table() -> str:
    """The defaults as a Markdown table, one lever a column."""
    rows: dict[str, list[str]] = {}
    for lever, one in DEFAULTS.items():
        cells = {
            "unit": one.unit,
            "members": one.members,
            "neutral": _neutral(lever),
            "relaxes": "down" if RELAX_DOWN[lever] else "up",
            "`min`": _bound(one.min),
            "`max`": _bound(one.max),
            "`quantum`": f"`{one.quantum:g}`",
            "`rate.up`": f"`{_rate(one.rate_up)}`",
            "`rate.down`": f"`{_rate(one.rate_down)}`",
            "`cooldown.up`": f"`{format_duration(one.cooldown_up)}`",
            "`cooldown.down`": f"`{format_duration(one.cooldown_down)}`",
            "`stabilise`": f"`{format_duration(one.stabilise)}`",
            "`settle`": f"`{format_duration(one.settle)}`",
            "`expiry`": f"`{format_duration(one.expiry)}`" if lever is not Lever.REPLICAS else "",
            "`group`": f"`{format_ratio(one.group)}`" if lever in PER_REPLICA else "",
        }
        for name, cell in cells.items():
            rows.setdefault(name, []).append(cell)
    names = [f"`{lever}`" for lever in DEFAULTS]
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


def _over(base: Mapping[str, Any], own: Mapping[Any, Any]) -> dict[Any, Any]:
    merged = {**base, **own}
    for part in ("rate", "cooldown"):
        if isinstance(own.get(part), Mapping):
            merged[part] = {**base[part], **own[part]}
    return merged


def _rate(rate: Rate | None) -> str:
    return "none" if rate is None else format_rate(rate)


def _neutral(lever: Lever) -> str:
    value = AT_REST.get(lever)
    if value is None:
        return "none"
    return "`max`" if value == NO_LIMIT else f"{value:g}"


def _bound(value: float | None) -> str:
    if value is None:
        return "required"
    return f"`{value:g}` (no limit)" if value == NO_LIMIT else f"`{value:g}`"
