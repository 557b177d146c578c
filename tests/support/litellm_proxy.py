"""A real LiteLLM proxy on loopback with the plugin in it, as `examples/targets/litellm` has it."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.support.by_hand import TARGETS
from tests.support.openai_upstream import Upstream
from tests.support.ports import free_port
from tests.support.real import program
from tests.support.repository import ROOT

KEY = "sk-6f1d9a57c0b84e2fa1d3be7790cc1e52"
_PATIENCE = 180.0  # seconds; it imports for ten on an idle core


@dataclass
class Answer:
    """What a client sees."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def replica(self) -> str:
        return self.headers.get("x-litellm-model-id", "")


@dataclass
class Proxy:
    """`document` is the file that the plugin reads."""

    url: str
    document: Path
    program: str
    log: Path
    session: requests.Session = field(default_factory=requests.Session)

    @property
    def status_url(self) -> str:
        return f"{self.url}/governor/status"

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = requests.get(self.status_url, timeout=5).json()
        return found

    def ask(self, model: str = "chat", *, text: str = "hi", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.session.post(
            f"{self.url}/v1/chat/completions",
            json={"model": model, "messages": [{"role": "user", "content": text}]},
            headers={"Authorization": f"Bearer {KEY}", **named},
            timeout=30,
        )
        return Answer(answer.status_code, answer.headers, answer.json())

    def stream(self, **headers: str) -> str:
        """A streamed answer, all of it."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.session.post(
            f"{self.url}/v1/chat/completions",
            json={"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True},
            headers={"Authorization": f"Bearer {KEY}", **named},
            timeout=30,
        )
        return answer.text

    def ask_many(self, count: int, **headers: str) -> list[Answer]:
        with ThreadPoolExecutor(8) as crew:
            return list(crew.map(lambda _: self.ask(**headers), range(count)))


def configured(engines: Sequence[Upstream]) -> dict[str, Any]:
    """The example's configuration, over engines of the tests."""
    config: dict[str, Any] = yaml.safe_load((TARGETS / "litellm" / "config.yaml").read_text())
    for model, engine in zip(config["model_list"], engines, strict=True):
        model["litellm_params"].update(model="openai/m", api_base=f"http://127.0.0.1:{engine.port}/v1", api_key="x")
    config["general_settings"]["master_key"] = KEY
    config["router_settings"]["num_retries"] = 0
    return config


@contextmanager
def litellm_proxy(folder: Path, config: Mapping[str, Any], **environment: str) -> Iterator[Proxy]:
    binary = program("litellm")
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config)))
    shutil.copy(ROOT / "actuators" / "litellm" / "governor_litellm.py", folder)
    port, document, log = free_port(), folder / "governor.json", folder / "proxy.log"
    variables = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR",
        "GOVERNOR_DOCUMENT": str(document), "LITELLM_TELEMETRY": "False", **environment,
    }  # fmt: skip
    command = [binary, "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as out, subprocess.Popen(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
    ) as process:  # fmt: skip
        try:
            made = Proxy(f"http://127.0.0.1:{port}", document, binary, log)
            _until_it_answers(made, process)
            with made.session:
                yield made
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _until_it_answers(proxy: Proxy, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            requests.get(proxy.status_url, timeout=2)
            return
        except requests.RequestException:
            pass
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"litellm did not start: {proxy.log.read_text()[-2000:]}")


def picks(proxy: Proxy, count: int) -> dict[str, int]:
    """So many choices of LiteLLM's router, with the plugin, in LiteLLM's own Python: by deployment. A request through
    the proxy costs it 13 ms of a core, a choice a thirtieth of that."""
    script = (
        "import asyncio, json, random, sys, yaml, litellm\n"
        "sys.path.insert(0, '.')\n"
        "from governor_litellm import hook\n"
        "litellm.callbacks = [hook]\n"
        "config = yaml.safe_load(open('config.yaml'))\n"
        "router = litellm.Router(model_list=config['model_list'], routing_strategy='simple-shuffle')\n"
        "random.seed(1)\n"
        "async def main():\n"
        "    found = {}\n"
        f"    for _ in range({count}):\n"
        "        one = await router.async_get_available_deployment(model='chat', request_kwargs={}, messages=[])\n"
        "        name = one['model_info']['id']\n"
        "        found[name] = found.get(name, 0) + 1\n"
        "    print(json.dumps(found))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [str(Path(proxy.program).resolve().parent / "python"), "-c", script],
        cwd=proxy.document.parent, capture_output=True, text=True, check=False, timeout=_PATIENCE,
        env={"PATH": os.environ["PATH"], "HOME": str(proxy.document.parent), "LITELLM_LOCAL_MODEL_COST_MAP": "True",
             "GOVERNOR_DOCUMENT": str(proxy.document)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found
