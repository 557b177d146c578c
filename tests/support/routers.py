"""Real sglang-router and vllm-router on loopback, in front of engines of the tests."""

import atexit
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import requests

from tests.support.openai_upstream import Upstream, upstreams
from tests.support.ports import free_port
from tests.support.real import program
from tests.support.waiting import until

SHIPPED = Path(__file__).parents[2] / "examples" / "targets" / "router"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ADMIN = "only-for-tests"


class RealRouter:
    """One router process; it can be started again. `flags` are the workers that it takes when it starts."""

    def __init__(self, make: str, folder: Path, engines: Sequence[Upstream], flags: Sequence[Upstream]) -> None:
        self.make, self.folder, self.engines, self.flags = make, folder, list(engines), list(flags)
        self.keyed = False
        self.more: Sequence[str] = ()  # flags beside those of the example
        self.url = self.metrics = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._session = requests.Session()
        self._session.trust_env = False
        self._port = self._page = 0

    # --- the process ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """By the command that the example ships."""
        self._port, self._page = self._port or free_port(), self._page or free_port()
        self.url, self.metrics = f"http://127.0.0.1:{self._port}", f"http://127.0.0.1:{self._page}/metrics"
        script = SHIPPED / f"{self.make}.sh"
        places = {
            "PORT": str(self._port), "METRICS_PORT": str(self._page), "HOST": "127.0.0.1",
            "WORKERS": " ".join(place(engine) for engine in self.flags),
            "CONTROL_KEY": ADMIN if self.keyed else "",
        }  # fmt: skip
        path = os.pathsep.join([str(Path(program(f"{self.make}-router")).parent), os.environ.get("PATH", "")])
        with (self.folder / f"{self.make}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "/bin/bash", str(script), "--worker-startup-check-interval=1", "--worker-startup-timeout-secs=1",
                    *self.more,
                ],
                env={"PATH": path, "HOME": str(self.folder), **places}, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        until(self._stands, 20.0)

    def _stands(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / f"{self.make}.log").read_text()[-2000:]
        try:
            return len(self.members()) == len(self.flags)
        except requests.RequestException:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    # --- looking from outside, and other people's hands -----------------------------------------------------------

    def ask(self, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {ADMIN}"} if self.keyed else {}
        return self._session.request(method, self.url + path, headers=headers, timeout=10, **more)

    def rows(self) -> dict[str, dict[str, Any]]:
        """Its workers by host:port."""
        rows = self.ask("GET", "/workers").json()["workers"]
        return {row["url"].partition("://")[2]: row for row in rows}

    def members(self) -> set[str]:
        return set(self.rows())

    def put(self, engine: Upstream, *, inside: bool, **more: Any) -> None:
        """By somebody else's hand, and waits until it is so."""
        name = called(engine)
        if (name in self.members()) != inside:
            if self.make == "vllm":
                verb = "add_worker" if inside else "remove_worker"
                self.ask("POST", f"/{verb}", params={"url": place(engine)}).raise_for_status()
            elif inside:
                self.ask("POST", "/workers", json={"url": place(engine), **more}).raise_for_status()
            else:
                self.ask("DELETE", f"/workers/{self.rows()[name]['id']}").raise_for_status()
        until(lambda: (name in self.members()) == inside)

    def reset(self) -> None:
        """As its flags have it."""
        for engine in self.engines:
            self.put(engine, inside=engine in self.flags)
        for engine in self.engines:
            engine.gate.set()
            engine.status = 200

    def traffic(self, count: int) -> Counter[int]:
        """Answers by the number of the engine, failures under -1."""
        before = [engine.served for engine in self.engines]
        lost = sum(self.ask("POST", "/v1/chat/completions", json=BODY).status_code != 200 for _ in range(count))
        seen = Counter({n: e.served - b for n, (e, b) in enumerate(zip(self.engines, before, strict=True))})
        return +(seen + Counter({-1: lost}))

    def begin(self, count: int, pool: ThreadPoolExecutor, *, stream: bool) -> "list[Future[tuple[int, str]]]":
        """Requests that are on the way: status and text of each in the end."""

        def one() -> tuple[int, str]:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.post(f"{self.url}/v1/chat/completions", json={**BODY, "stream": stream}, timeout=20)
                return answer.status_code, answer.text

        return [pool.submit(one) for _ in range(count)]


def place(engine: Upstream) -> str:
    return f"http://127.0.0.1:{engine.port}"


def called(engine: Upstream) -> str:
    return f"127.0.0.1:{engine.port}"


@contextmanager
def router(make: str, folder: Path, engines: Sequence[Upstream], flags: Sequence[Upstream]) -> Iterator[RealRouter]:
    """A router of its own."""
    one = RealRouter(make, folder, engines, flags)
    try:
        one.start()
        yield one
    finally:
        one.stop()


@cache
def shared(make: str, flagged: tuple[int, ...] = (0, 1, 2)) -> RealRouter:
    """One for all tests of this run, in front of three engines; ended with the run. `flagged` are those that it starts
    with."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="governor-router-")))
    engines = stack.enter_context(upstreams(3))
    return stack.enter_context(router(make, folder, engines, [engines[n] for n in flagged]))
