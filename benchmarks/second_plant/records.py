"""What the client was told, in the columns in which the scoreboard reads the twin's jobs: one judge for both."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.second_plant.client import Told

FINISHED, FAILED = "finished", "failed"


class Records:
    """Implements ``controller.simulate.ports.Jobs``. A request arrives when it is due, not when the client gets round
    to it: what a busy machine delays counts against the plant that runs on it."""

    endings: Sequence[str] = (FINISHED, FAILED)
    classes: Sequence[str] = ("default",)
    tenants: Sequence[str] = ("",)

    def __init__(self, told: Sequence[Told]) -> None:
        count = len(told)
        self._columns: dict[str, NDArray[Any]] = {
            "arrived": np.array([one.due for one in told], dtype=np.float64),
            "first_token": np.array([one.first for one in told], dtype=np.float64),
            "ended": np.array([one.last for one in told], dtype=np.float64),
            "tpot": np.array([one.tpot for one in told], dtype=np.float64),
            "ending": np.array([-1 if one.open else 0 if one.ok else 1 for one in told], dtype=np.int64),
            "prompt": np.array([one.ask.prompt for one in told], dtype=np.int64),
            "output": np.array([one.ask.answer for one in told], dtype=np.int64),
            "origin": np.arange(count, dtype=np.int64),
        }
        for name in ("pool", "stream", "attempt", "retried", "klass", "tenant", "degraded", "cached"):
            self._columns[name] = np.zeros(count, dtype=np.int64)

    def column(self, name: str) -> NDArray[Any]:
        """See ``Jobs``."""
        return self._columns[name]
