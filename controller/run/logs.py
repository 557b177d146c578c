"""Logs: JSON lines in a pipe, readable on a terminal, to standard error; and edge-triggered reporting, so that a
source that fails all night writes two lines rather than thousands."""

import logging
import os
import sys
from collections.abc import Hashable

import structlog

Value = str | int | float | bool | None


def configure(level: int = logging.INFO) -> None:
    """Sends our own and the libraries' logs one way. Call once, at the start of a process."""
    terminal = sys.stderr.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.root.handlers = [handler]
    logging.root.setLevel(level)
    # Skipped and failed jobs are counted and reported by the daemon itself, once.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # Not cached: a logger that was would go on as it was first configured, also where that was done anew.
        cache_logger_on_first_use=False,
    )


class Edges:
    """Reports a condition when it begins and when it ends. One writer thread."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._since: dict[Hashable, float] = {}

    def failing(self, key: Hashable, event: str, *, at: float, **fields: Value) -> None:
        """The condition `key` holds at `at` (unix seconds)."""
        if key not in self._since:
            self._since[key] = at
            self._log.warning(event, **fields)

    def crashed(self, key: Hashable, event: str, *, at: float, error: BaseException, **fields: Value) -> None:
        """As `failing`, with the traceback of `error`."""
        if key not in self._since:
            self._since[key] = at
            self._log.error(event, exc_info=error, **fields)

    def fine(self, key: Hashable, event: str, *, at: float, **fields: Value) -> None:
        """The condition `key` does not hold (any more)."""
        since = self._since.pop(key, None)
        if since is not None:
            self._log.info(event, after_seconds=round(at - since, 3), **fields)
