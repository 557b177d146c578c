"""Measure ticks in a process of their own: python -m benchmarks.tick CONFIG URL TICKS, JSON on standard output.

The loop is the one of `governor run --dry-run`. Before it is measured its windows are filled: the newest observation is
told again for the quarter of an hour before it, which is as far back as the meter looks.
"""

import json
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect

from benchmarks.stand import BEGIN, SCRAPE
from controller.config import load, pool_needs
from controller.core.model import Snapshot
from controller.core.observation import Observation
from controller.core.ports import Source
from controller.core.signals import Signal
from controller.run import memory
from controller.run.assembly import RunMode, assemble
from controller.run.ledger import FileLedger

FILLED = 60  # ticks
THREADS = 4  # of both: the default of the source


@dataclass(frozen=True, slots=True)
class Measured:
    """One tick. Seconds of wall clock and of CPU time of this process, for the tick and for the same queries by a bare
    client; `phases` as the loop tells them; `peak` bytes of memory at most during the tick."""

    wall: float
    cpu: float
    bare_wall: float
    bare_cpu: float
    phases: Mapping[str, float]
    peak: int
    queries: int
    answer_bytes: int
    ledger_bytes: int


class Retold:
    """A source that repeats one observation until its time is reached, then asks the real one."""

    def __init__(self, real: Source) -> None:
        self._real = real
        real.observe(BEGIN + 2 * SCRAPE, 60.0)
        known = real.observe(BEGIN + 3 * SCRAPE, 60.0)
        if known.error or not known.pools:
            raise SystemExit(f"the first observation failed: {known.error}")
        self._until, self._frozen = known.at, pickle.dumps(known)

    def observe(self, at: float, deadline: float) -> Observation:
        if at <= self._until:
            # A new one each time, as a source gives it: what is remembered must take its memory.
            known: Observation = pickle.loads(self._frozen)
            return replace(known, at=at, since=at - SCRAPE)
        self._frozen = b""
        return self._real.observe(at, deadline)

    def close(self) -> None:
        self._real.close()


@contextmanager
def overheard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The queries that pass through the client library, with their parameters."""
    asked: list[tuple[str, dict[str, Any]]] = []
    plain = PrometheusConnect.custom_query

    def listen(self: Any, query: str, params: Any = None, timeout: Any = None) -> Any:
        asked.append((query, dict(params)))
        return plain(self, query, params=params, timeout=timeout)

    PrometheusConnect.custom_query = listen
    try:
        yield asked
    finally:
        PrometheusConnect.custom_query = plain


def measure(config_file: Path, url: str, ticks: int) -> Iterator[Measured]:
    """`ticks` ticks in a row, each followed by the bare client."""
    config = load(config_file)
    source = Retold(config.source.cls(config.source.settings, pool_needs(config)))
    with tempfile.TemporaryDirectory() as folder:
        loop = assemble(config, mode=RunMode.DRY_RUN, source=source, ledger_path=Path(folder))
        ledger = loop.parts.ledger
        assert isinstance(ledger, FileLedger)
        memory.settle()
        now = BEGIN + 3 * SCRAPE
        for back in reversed(range(FILLED)):
            loop.tick(now - back * SCRAPE)
        for number in range(1, ticks + 1):
            written = ledger.bytes_written
            _forget_peak()
            with overheard() as asked:
                wall, cpu = time.perf_counter(), time.process_time()
                result = loop.tick(now + number * SCRAPE)
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            _whole(result.snapshot)
            peak = _peak()
            bare_wall, bare_cpu, size = bare(url, asked)
            written = ledger.bytes_written - written
            yield Measured(wall, cpu, bare_wall, bare_cpu, result.seconds, peak, len(asked), size, written)
        loop.close()


def _whole(snapshot: Snapshot) -> None:
    """Whatever fails is quick, so a tick that saw less than all is no measurement."""
    blind = [name for name, pool in snapshot.pools.items() if not pool.get(Signal.OFFERED_RATE).trusted]
    if snapshot.error or blind:
        raise SystemExit(f"a tick could not tell the load of {len(blind)} pools {snapshot.error}".rstrip())


def bare(url: str, asked: list[tuple[str, dict[str, Any]]]) -> tuple[float, float, int]:
    """Wall and CPU seconds that the same queries take a bare client, as many at once, decoded and forgotten, and the
    bytes of the answers."""
    sizes: list[int] = []
    session = requests.Session()
    session.hooks["response"].append(lambda response, **_: sizes.append(len(response.content)))
    client = PrometheusConnect(url, session=session, method="POST")
    with ThreadPoolExecutor(THREADS) as pool:
        wall, cpu = time.perf_counter(), time.process_time()
        for done in [pool.submit(_ask, client, query, params) for query, params in asked]:
            done.result()
        return time.perf_counter() - wall, time.process_time() - cpu, sum(sizes)


def _ask(client: PrometheusConnect, query: str, params: dict[str, Any]) -> int:
    return len(client.custom_query(query, params=params))


def _forget_peak() -> None:
    """Begin the kernel's high-water mark of this process anew; without it a peak is that of the whole run."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak() -> int:
    """Bytes. Not ru_maxrss, which a process inherits from its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


if __name__ == "__main__":
    file, address, count = sys.argv[1:]
    json.dump([asdict(one) for one in measure(Path(file), address, int(count))], sys.stdout)
