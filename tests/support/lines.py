"""A program under test that reports in JSON lines, and the way to wait for one of them."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Program:
    """A running program. Standard output and error are one stream of JSON lines."""

    def __init__(self, args: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            args, cwd=cwd, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.seen: list[Line] = []
        self.text: list[str] = []
        self._queue: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.text.append(text)
            if text.startswith("{"):
                self._queue.put(json.loads(text))
        self._queue.put(None)

    def wait(self, event: str, within: float = 20.0, where: Callable[[Line], bool] = lambda _: True) -> Line:
        """The next line whose `event` is this one and that satisfies `where`."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self._queue.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event!r} within {within} s; so far:\n{''.join(self.text)}") from None
            if line is None:
                raise AssertionError(f"ended without {event!r}:\n{''.join(self.text)}")
            self.seen.append(line)
            if line["event"] == event and where(line):
                return line

    def say(self, text: str) -> None:
        """Writes one line to standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self, within: float = 20.0) -> int:
        """Waits for the end; the exit code. Lines not waited for are in `seen` afterwards."""
        code = self.process.wait(within)
        self._reader.join(within)
        while (line := self._queue.get()) is not None:
            self.seen.append(line)
        return code


@contextmanager
def program(args: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Program]:
    """Runs `python args`; what is still alive at the end is killed by its pid."""
    one = Program([sys.executable, *args], cwd, env)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe is not None
            pipe.close()
