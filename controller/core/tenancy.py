"""Who asks: what tenants and request classes were promised, and what they agreed to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TenantRules:
    """What a tenant was promised and agreed to. `guarantee` tokens/s (prompt and answer) while it asks for them,
    `weight` its share of what is left, `consents` whether its requests may go to a smaller model."""

    guarantee: float = 0.0
    weight: float = 1.0
    consents: bool = False


@dataclass(frozen=True, slots=True)
class ClassRules:
    """What a class of requests stands for. `rank` 0 is served first; `sheddable` whether it may be refused before the
    promises of others break; `consents` whether it may go to a smaller model."""

    rank: int = 0
    sheddable: bool = False
    consents: bool = False
