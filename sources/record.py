"""Record from a Prometheus range what the pools need, into one file."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from controller.core.ports import PoolNeeds
from sources.frames import Layout
from sources.imported import Imported, ImportFailed
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.history import read_range
from sources.recording_file import Header, RecordingWriter


def record(
    config: PrometheusConfig,
    needs: Sequence[PoolNeeds],
    start: float,
    end: float,
    step: float,
    out: Path,
    *,
    progress: Callable[[int, int], None] | None = None,
    comment: str = "",
) -> Imported:
    """Write the recording `out` of start, start + step, ... up to `end` (unix seconds). `progress` gets the steps done
    and all steps. Raises ImportFailed when there is nothing in the range, and PrometheusError.

    Where Prometheus has nothing at all it was not scraping: such steps are left out, which is a hole, and not a fleet
    without traffic.
    """
    if not (step > 0 and end > start):
        raise ImportFailed(
            f"a recording needs a step above 0 and an end after its start, not {start} to {end} by {step}"
        )
    layout = Layout()
    engines = tuple(sorted({need.engine for need in needs}))
    span = " to ".join(datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") for at in (start, end))
    seen: list[float] = []
    empty = 0
    with RecordingWriter(
        out, Header("series", step, source=f"prometheus, {span}", comment=comment, engines=engines)
    ) as writer:
        for at, samples in read_range(config, needs, start, end, step, progress):
            if not samples:
                empty += 1
                continue
            writer.write(layout.frame(at, samples))
            seen.append(at)
        if not seen:
            raise ImportFailed(
                f"{config.url} has nothing of pools {', '.join(need.pool for need in needs)} from {span}; check the "
                "range and the selectors"
            )
    notes = (f"at {empty} step{'' if empty == 1 else 's'} there was nothing at all, which is a hole",) if empty else ()
    return Imported(out, "", len(seen), len(layout), seen[0], seen[-1], step, notes)
