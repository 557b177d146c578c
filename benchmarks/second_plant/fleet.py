"""The hands of the bench: replicas as processes, let in after a cold start, and ended by their pid.

A replica is paid for from the moment that it is asked for until its process is gone. Its process is started at once and
waits for a line on its standard input, so that what starting costs this machine lies within the cold start; it gets the
line so that it serves about a cold start after it was asked for. Who is ended gets SIGTERM and finishes what it has
begun.
"""

import itertools
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock

Spawn = Callable[[str, int], "subprocess.Popen[bytes]"]


@dataclass(slots=True)
class Replica:
    """One replica. Times are unix seconds, None = not yet."""

    name: str
    port: int
    asked: float
    process: "subprocess.Popen[bytes]"
    at_once: bool = False
    let_in: bool = False
    ready: float | None = None
    ending: float | None = None
    gone: float | None = None


class Fleet:
    """Replicas by number. `spawn` starts the process of a replica at a port, `serves` says whether it answers there;
    `lead` is how many seconds it takes from being let in to serving, which are part of the cold start."""

    def __init__(
        self, spawn: Spawn, serves: Callable[[int], bool], port: Callable[[], int], *, cold_start: float, lead: float
    ) -> None:
        self._spawn, self._serves, self._port = spawn, serves, port
        self._wait = max(0.0, cold_start - lead)
        self._replicas: list[Replica] = []
        self._numbers = itertools.count()
        self._history: list[tuple[float, int, int]] = []
        self._lock = RLock()

    def want(self, count: int, now: float, *, at_once: bool = False) -> None:
        """Ask for so many replicas; `at_once` lets them in without a cold start. What does not serve yet, and then the
        newest, is ended first."""
        with self._lock:
            have = self._wanted()
            for _ in range(count - len(have)):
                name, port = f"{next(self._numbers):03d}", self._port()
                asked = now - self._wait if at_once else now
                self._replicas.append(Replica(name, port, asked, self._spawn(name, port), at_once))
            for replica in sorted(have, key=lambda one: (one.ready is None, one.asked, one.name))[count:]:
                self._end(replica, now)
            self._note(now)

    def poll(self, now: float) -> None:
        """Let in who is due, and see who serves and who is gone."""
        with self._lock:
            for replica in self._replicas:
                if replica.gone is not None:
                    continue
                if replica.process.poll() is not None:
                    replica.gone = now
                elif replica.ending is None and replica.ready is None:
                    self._further(replica, now)
            self._note(now)

    def count(self) -> tuple[int, int, int]:
        """Replicas wanted, ready, and on their way."""
        with self._lock:
            wanted = self._wanted()
            ready = sum(one.ready is not None for one in wanted)
            return len(wanted), ready, len(wanted) - ready

    def coming(self) -> list[float]:
        """When each of those on their way was asked for."""
        with self._lock:
            return [one.asked for one in self._wanted() if one.ready is None]

    def serving(self) -> list[Replica]:
        """Replicas with a page: ready, and not gone."""
        with self._lock:
            return [one for one in self._replicas if one.ready is not None and one.gone is None and one.ending is None]

    def everybody(self) -> list[Replica]:
        """Replicas that were ever asked for."""
        with self._lock:
            return list(self._replicas)

    def cold_starts(self) -> list[float]:
        """Seconds from asking to serving, of those that came and were not there from the start."""
        with self._lock:
            return [one.ready - one.asked for one in self._replicas if one.ready is not None and not one.at_once]

    def history(self) -> list[tuple[float, int, int]]:
        """(since, replicas that are paid for, replicas that are ready)."""
        with self._lock:
            return list(self._history)

    def paid(self, begin: float, end: float) -> float:
        """Replica-seconds between two times."""
        with self._lock:
            spans = [(one.asked, end if one.gone is None else one.gone) for one in self._replicas]
        return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in spans)

    def close(self, patience: float = 5.0) -> None:
        """End every process that is left, at once where it does not go by itself."""
        with self._lock:
            left = [one.process for one in self._replicas if one.process.poll() is None]
        for process in left:
            process.terminate()
        for process in left:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _wanted(self) -> list[Replica]:
        return [one for one in self._replicas if one.ending is None and one.gone is None]

    def _further(self, replica: Replica, now: float) -> None:
        if not replica.let_in and now >= replica.asked + self._wait:
            replica.let_in = True
            if replica.process.stdin is not None:
                # A process that died before is found to be gone at the next look.
                with suppress(OSError):
                    replica.process.stdin.write(b"\n")
                    replica.process.stdin.close()
        elif replica.let_in and self._serves(replica.port):
            replica.ready = now

    def _end(self, replica: Replica, now: float) -> None:
        replica.ending = now
        replica.process.terminate()

    def _note(self, now: float) -> None:
        row = (sum(one.gone is None for one in self._replicas), len(self.serving()))
        if not self._history or self._history[-1][1:] != row:
            self._history.append((now, *row))
