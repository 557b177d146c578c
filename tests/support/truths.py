"""Hand-made truths: attempts at requests as a twin would tell them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENDINGS = ("finished", "rejected", "timed_out", "aborted", "failed")


@dataclass(slots=True)
class Try:
    """One attempt. `ending` "" = under way; `ttft`, `e2e` seconds from its own arrival, None = not there."""

    origin: int
    arrived: float
    ending: str = "finished"
    ttft: float | None = 0.5
    e2e: float | None = 5.0
    klass: str = ""
    tenant: str = ""
    attempt: int = 0
    retried: bool = False
    degraded: bool = False
    prompt: int = 100
    output: int = 50
    cached: int = 0
    stream: int = 0
    pool: int = 0


class Truth:
    """Implements ``controller.simulate.ports.Jobs``."""

    endings = ENDINGS

    def __init__(self, *tries: Try) -> None:
        self._tries = tries
        self.classes = tuple(dict.fromkeys(one.klass for one in tries))
        self.tenants = tuple(dict.fromkeys(one.tenant for one in tries))

    def column(self, name: str) -> NDArray[Any]:
        kind = float if name in ("arrived", "first_token", "ended", "tpot") else int
        return np.array([self._cell(one, name) for one in self._tries], dtype=kind)

    def _cell(self, one: Try, name: str) -> float:
        finished = one.ending == "finished"
        match name:
            case "first_token":
                return math.nan if one.ttft is None else one.arrived + one.ttft
            case "ended":
                return math.nan if not one.ending or one.e2e is None else one.arrived + one.e2e
            case "tpot":
                if not finished or one.e2e is None or one.ttft is None or one.output < 2:
                    return math.nan
                return (one.e2e - one.ttft) / (one.output - 1)
            case "ending":
                return ENDINGS.index(one.ending) if one.ending else -1
            case "klass":
                return self.classes.index(one.klass)
            case "tenant":
                return self.tenants.index(one.tenant)
            case _:
                return float(getattr(one, name))
