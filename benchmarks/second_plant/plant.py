"""The second plant as a world: Dynamo's frontend and mock workers, watched by their own pages, moved by processes.

It satisfies the same port as the fleet twin, so the same pilots drive it; its time is real, and `advance` therefore
does nothing. Pages are read when they are asked for, as Governor's direct scrapes do.
"""

import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import NamedTuple

import numpy as np
import requests

from benchmarks.second_plant import cases, environment
from benchmarks.second_plant.client import Told
from benchmarks.second_plant.fleet import Fleet
from benchmarks.second_plant.records import Records
from controller.core.model import Applied, Decision, Lever, Outcome, Pending, Phase, Target, TargetState
from sources.exposition import parse
from sources.frames import SeriesKey, Values, labels
from tests.support.ports import free_port

LEAD = 0.7  # seconds from letting a mock worker in to its first answer, about
PATIENCE = 90.0  # seconds until the plant must stand
MARKS = ("vllm:", "dynamo_frontend_")
FRONT = "frontend"
# Who gets no line because the bench is gone does not begin.
_WAITING = "import sys; import dynamo.mocker.main as mocker; sys.stdin.readline() or sys.exit(); mocker.main()"


class Page(NamedTuple):
    """See ``sources.scraped.Page``. All are read at the tick, so none tells when."""

    keys: tuple[SeriesKey, ...]
    values: Values
    at: float | None = None


class Moved(NamedTuple):
    """See ``controller.simulate.ports.Move``."""

    at: float
    target: Target
    before: float
    after: float


class Plant:
    """A frontend and its workers, with all their files in `folder`. Use as a context."""

    def __init__(self, python: Path, folder: Path, replicas: int, cold_start: float = cases.COLD_START) -> None:
        self._python, self._folder = python, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._model = environment.model(folder / "model")
        self._store = folder / "store"
        self._first = replicas
        self._front: subprocess.Popen[bytes] | None = None
        self._session = requests.Session()
        self._session.trust_env = False
        self._pool = ThreadPoolExecutor(8, "pages")
        self._keys: dict[tuple[SeriesKey, ...], tuple[SeriesKey, ...]] = {}
        self._moves: list[Moved] = []
        self.told: Sequence[Told] = ()
        self.port = free_port()
        self.fleet = Fleet(self._spawn, self._serves, free_port, cold_start=cold_start, lead=LEAD)

    def __enter__(self) -> "Plant":
        try:
            arguments = ("--http-host", "127.0.0.1", "--http-port", str(self.port), "--router-mode", "least-loaded")
            self._front = self._start(("-m", "dynamo.frontend", *arguments), FRONT)
            self.fleet.want(self._first, time.time(), at_once=True)
            until = time.monotonic() + PATIENCE
            while not (self.fleet.count()[1] == self._first and self._listed()):
                if time.monotonic() > until or self.fleet.count()[0] < self._first:
                    raise TimeoutError(f"the plant does not come to stand; see {self._folder}/*.log")
                self.fleet.poll(time.time())
                Event().wait(0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.fleet.close()
        if self._front is not None:
            self._front.kill()
            self._front.wait()
        self._pool.shutdown()
        self._session.close()

    # --- what is asked of a source ---------------------------------------------------------------------------------

    def pages(self, at: float) -> Iterable[Page]:
        """The frontend's page and that of every worker, each with `up`. Raises ConnectionError when none answers."""
        urls = [(FRONT, self.port), *((one.name, one.port) for one in self.fleet.serving())]
        found = list(self._pool.map(self._scrape, *zip(*urls, strict=True)))
        if all(text is None for text in found):
            raise ConnectionError("neither the frontend nor a worker answers")
        return [self.page(name, text) for (name, _), text in zip(urls, found, strict=True)]

    def _scrape(self, name: str, port: int) -> str | None:
        try:
            with requests.get(f"http://127.0.0.1:{port}/metrics", timeout=1.5, proxies={}) as answer:
                return answer.text if answer.status_code == 200 else None
        except requests.RequestException:
            return None

    def page(self, name: str, text: str | None) -> Page:
        """What `text`, the metrics of a target, says; None where it did not answer."""
        target = {"job": "workers", "instance": name, "namespace": cases.NAMESPACE, "pod": name}
        if name == FRONT:
            target |= {"job": "frontend", "pod": ""}
        rows: dict[SeriesKey, float] = {("up", labels(target.items())): 0.0 if text is None else 1.0}
        for metric, pairs, value in parse(text).samples if text is not None else ():
            if metric.startswith(MARKS):
                rows[(metric, labels({**dict(pairs), **target}.items()))] = value
        keys = tuple(rows)
        return Page(self._keys.setdefault(keys, keys), np.array(list(rows.values())))

    # --- what is asked of an actuator ------------------------------------------------------------------------------

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        return {target: self._read(target) for target in targets}

    def _read(self, target: Target) -> TargetState:
        if target != Target(cases.POOL, Lever.REPLICAS):
            return TargetState(None, error=f"{target}: this plant has the replicas of {cases.POOL} alone")
        wanted, ready, _ = self.fleet.count()
        pending = tuple(Pending(1, Phase.LOADING, asked) for asked in self.fleet.coming())
        return TargetState(
            float(wanted), float(ready), pending, Outcome.DONE, self._moves[-1].at if self._moves else None
        )

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return [self._apply(decision) for decision in decisions]

    def _apply(self, decision: Decision) -> Applied:
        state, final = self._read(decision.target), decision.final
        if state.accepted is None or final is None:
            return Applied(decision.target, Outcome.REFUSED, state.error or "no value was given")
        at = time.time()
        self.fleet.want(int(final), at)
        self._moves.append(Moved(at, decision.target, state.accepted, final))
        return Applied(decision.target, Outcome.DONE, f"{state.accepted:g} \u2192 {final:g}")

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return [
            Applied(one.target, Outcome.DONE if self._read(one.target).accepted == one.final else Outcome.FAILED)
            for one in decisions
        ]

    def close(self) -> None:
        """Pilots close what they were given; the plant outlives them, see ``__exit__``."""

    # --- what is asked of a world ----------------------------------------------------------------------------------

    def advance(self, until: float) -> None:
        """Time is real and passes by itself."""

    def jobs(self) -> Records:
        return Records(self.told)

    def replicas(self) -> Mapping[str, tuple[int, int, int]]:
        return {cases.POOL: self.fleet.count()}

    def waiting(self) -> int:
        """Not known from outside: the frontend has no queue, and workers tell on their pages."""
        return 0

    def gpu_seconds(self, begin: float, end: float) -> float:
        return self.fleet.paid(begin, end)

    def history(self, pool: str) -> Sequence[tuple[float, int, int]]:
        return self.fleet.history() if pool == cases.POOL else ()

    def moves(self) -> Sequence[Moved]:
        return tuple(self._moves)

    # --- processes -------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, port: int) -> "subprocess.Popen[bytes]":
        arguments = (
            "--model-path", str(self._model), "--model-name", cases.MODEL, "--max-num-seqs", str(cases.SEATS),
            "--num-gpu-blocks-override", str(cases.BLOCKS), "--block-size", str(cases.BLOCK),
            "--speedup-ratio", str(cases.SPEED), "--no-enable-prefix-caching",
        )  # fmt: skip
        return self._start(("-c", _WAITING, *arguments), name, {"DYN_SYSTEM_PORT": str(port)})

    def _start(
        self, arguments: Sequence[str], name: str, more: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(self._python), *arguments], env={**environment.variables(self._store), **(more or {})},
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self._folder,
            )  # fmt: skip

    def _serves(self, port: int) -> bool:
        try:
            with self._session.get(f"http://127.0.0.1:{port}/health", timeout=1.0) as answer:
                return '"generate":"ready"' in answer.text
        except requests.RequestException:
            return False

    def _listed(self) -> bool:
        try:
            with self._session.get(f"http://127.0.0.1:{self.port}/v1/models", timeout=1.0) as answer:
                return cases.MODEL in answer.text
        except requests.RequestException:
            return False
