"""Metric contracts: which metric yields which fact, one TOML file per engine, checked against real exposition.

Chosen by which names exist; versions only break ties. What an engine cannot tell is unsupported, with the reason.
"""

from functools import cache
from importlib.resources import files

from sources.contracts.contract import Candidate, Contract
from sources.contracts.toml import parse

__all__ = ["Candidate", "Contract", "engines", "load"]


@cache
def engines() -> tuple[str, ...]:
    """Names of the contracts that are shipped, sorted."""
    names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


@cache
def load(engine: str) -> Contract:
    """The contract of `engine`, by its name or an alias. Raises ValueError naming the known engines."""
    if engine in engines():
        return parse(engine, (files(__name__) / f"{engine}.toml").read_text(encoding="utf-8"))
    for name in engines():
        if engine in load(name).aliases:
            return load(name)
    raise ValueError(f"no metric contract for engine {engine!r}; there are {', '.join(engines())}")
