"""Dynamo's frontend with mock workers on loopback: a real router with simulated engines, one for each model."""

import atexit
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import requests

from benchmarks.second_plant import environment
from tests.support.ports import free_port
from tests.support.real import program
from tests.support.waiting import until

SHIPPED = Path(__file__).parents[2] / "examples" / "targets" / "dynamo"
BLOCKS, BLOCK = 80, 64  # of the KV cache of a worker, and tokens of one
PROMPT, ANSWER = 128, 30  # tokens; a prompt is two blocks, and an answer takes about two seconds
FIELD = "active_decode_blocks_threshold"


def _stopped(pid: int) -> bool:
    """Whether no thread of a process runs."""
    found = [one.read_text().rpartition(")")[2].split()[0] for one in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(found) == {"T"}


class Cell:
    """Workers, and frontends that find them through files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = Path(program("dynamo-python"))
        # One step of the link and no more: an interpreter knows its packages by where it lies.
        self.python = str(found.readlink() if found.is_symlink() else found)
        self._model = environment.model(folder / "model")
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, command: Sequence[str], name: str, **more: str) -> "subprocess.Popen[bytes]":
        variables = {**environment.variables(self.folder / "store"), **more}
        with (self.folder / f"{name}.log").open("ab") as log:
            one = subprocess.Popen(command, env=variables, stdout=log, stderr=log, cwd=self.folder)
        self._processes.append(one)
        return one

    def worker(self, model: str) -> "subprocess.Popen[bytes]":
        command = (
            self.python, "-m", "dynamo.mocker", "--model-path", str(self._model), "--model-name", model,
            "--endpoint", f"dyn://{model}.backend.generate", "--max-num-seqs", "32", "--block-size", str(BLOCK),
            "--num-gpu-blocks-override", str(BLOCKS), "--speedup-ratio", "0.2", "--no-enable-prefix-caching",
        )  # fmt: skip
        return self.run(command, model, DYN_SYSTEM_PORT=str(free_port()))

    def frontend(self, *flags: str, **more: str) -> "Front":
        return Front(self, free_port(), flags, more)

    def close(self) -> None:
        for one in self._processes:
            if one.poll() is None:
                one.kill()
                one.wait()


class Front:
    """One frontend, by the command that the example ships; it can be started again."""

    def __init__(self, cell: Cell, port: int, flags: Sequence[str], more: Mapping[str, str]) -> None:
        self._cell, self.port, self._flags, self._more = cell, port, flags, more
        self.url = f"http://127.0.0.1:{port}"
        self._session = requests.Session()
        self._session.trust_env = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *models: str) -> "Front":
        command = ["/bin/bash", str(SHIPPED / "frontend.sh"), *self._flags]
        self._process = self._cell.run(
            command, f"front-{self.port}", PYTHON=self._cell.python, HOST="127.0.0.1", PORT=str(self.port), **self._more
        )
        until(lambda: set(models) <= self.models(), 30.0)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self, *models: str) -> None:
        self.stop()
        self.start(*models)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections and says nothing."""
        assert self._process is not None
        pid = self._process.pid
        self._process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: _stopped(pid))  # a busy machine had it answer once more after the signal
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def ask(self, method: str, path: str, **more: Any) -> requests.Response:
        return self._session.request(method, self.url + path, timeout=30, **more)

    def models(self) -> set[str]:
        with suppress(requests.RequestException):
            return {str(one["id"]) for one in self.ask("GET", "/v1/models").json()["data"]}
        return set()

    def threshold(self, model: str, name: str = FIELD) -> float | None:
        rows = self.ask("GET", "/busy_threshold").json()["thresholds"]
        found: float | None = next(row[name] for row in rows if row["model"] == model)
        return found

    def set(self, model: str, value: float, name: str = FIELD) -> None:
        """By somebody else's hand."""
        self.ask("POST", "/busy_threshold", json={"model": model, name: value}).raise_for_status()

    def quiet(self) -> None:
        """Nothing is in flight."""
        until(lambda: "dynamo_request_plane_inflight_requests 0\n" in self.ask("GET", "/metrics").text, 30.0)

    def one(self, model: str, number: int, answer: int = ANSWER) -> int:
        """The status of one request; prompts share no block."""
        prompt = [(number * 131 + place * 7 + 1) % 2000 for place in range(PROMPT)]
        body = {"model": model, "prompt": prompt, "max_tokens": answer, "ignore_eos": True}
        with requests.Session() as session:
            session.trust_env = False
            return session.post(f"{self.url}/v1/completions", json=body, timeout=30).status_code


def together(fronts: Sequence[Front], model: str, count: int, gap: float = 0.04) -> Counter[int]:
    """So many requests that are in flight at the same time, by turns; statuses. Each is seen before the next comes."""
    with ThreadPoolExecutor(count) as pool:
        asked: list[Future[int]] = []
        for number in range(count):
            asked.append(pool.submit(fronts[number % len(fronts)].one, model, number))
            Event().wait(gap)
        return Counter(one.result() for one in asked)


@contextmanager
def cell(folder: Path) -> Iterator[Cell]:
    """A cell of its own."""
    one = Cell(folder)
    try:
        yield one
    finally:
        one.close()


@cache
def shared() -> tuple[Cell, Front]:
    """One for all tests of this run, ended with it: a frontend, and a worker for each of the models a, b and c."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="governor-dynamo-", ignore_cleanup_errors=True))
    )
    one = stack.enter_context(cell(folder))
    for model in "abc":
        one.worker(model)
    # What stands after a restart, for every model: four requests of two blocks, see actuators/dynamo/formula.py.
    return one, one.frontend("--active-decode-blocks-threshold", str(3.5 * 2 / BLOCKS)).start(*"abc")
