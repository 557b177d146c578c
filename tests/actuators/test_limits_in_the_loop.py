"""The shipped configs and the real loop: a value arrives, is renewed at each tick, and ends when Governor is dead."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from actuators.litellm import governor_litellm as plugin
from controller.cli.app import app
from controller.config import load
from controller.run.assembly import RunMode, assemble
from tests.support.by_hand import TARGETS
from tests.support.plugin_status import plugin_status
from tests.support.redis_server import real_redis

EXPIRY = 3.0  # seconds; the shortest that a config with ticks of a second may have


def shipped(folder: Path, example: str, **actuator: Any) -> Path:
    """The config of the example with its actuator's places here, ticks of a second, and the downgrade in auto."""
    body: dict[str, Any] = yaml.safe_load((TARGETS / example / "governor.yaml").read_text())
    body |= {"interval": "1s", "deadline": "500ms", "ledger": {"path": str(folder / "ledger")}}
    body["source"]["url"] = "http://127.0.0.1:1"
    (shared,) = body["actuators"].values()
    shared |= actuator
    body["pools"]["chat"]["levers"]["downgrade"] |= {"mode": "auto", "expiry": f"{EXPIRY:g}s"}
    file = folder / "governor.yaml"
    file.write_text(yaml.safe_dump(body))
    return file


@contextmanager
def pinned(file: Path) -> Iterator[Callable[[], object]]:
    """A share of 0.4 by a pin; gives the tick. At the end Governor is dead."""
    words = ["pin", "chat/downgrade/small", "0.4", "--for", "1h", "--reason", "test", "--config", str(file)]
    assert CliRunner().invoke(app, words).exit_code == 0
    loop = assemble(load(file), mode=RunMode.LIVE)
    try:
        yield lambda: loop.tick(time.time())
    finally:
        loop.close()


def test_a_share_in_redis_is_renewed_and_ends_with_governor(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GOVERNOR_REDIS_PASSWORD", "x")
    with real_redis(tmp_path) as real:
        real.admin.execute_command("ACL", "SETUSER", "governor", "on", ">x", "~governor:*", "+@all")
        with pinned(shipped(tmp_path, "redis", url=real.url)) as tick:
            tick()
            key = "governor:{chat}:downgrade:small"
            left = real.admin.pttl(key)
            assert real.admin.hget(key, "value") == "0.4"
            real.admin.pexpire(key, 200)
            tick()
            assert left - 500 < real.admin.pttl(key) <= 1000 * EXPIRY
        died = time.monotonic()
        while real.admin.exists(key):
            assert time.monotonic() - died < EXPIRY + 1
        assert time.monotonic() - died > EXPIRY - 1.5


def test_a_share_in_litellm_is_renewed_and_ends_with_governor(tmp_path: Path) -> None:
    path = tmp_path / "litellm.json"

    def share(hook: plugin.Hook) -> float | None:
        document = asyncio.run(hook.reader.current())
        value = document.pools["chat"].values["downgrade"].get("small")
        return None if value is None else value.now(time.time())

    with plugin_status(plugin.Reader(path=str(path))) as status:
        file = shipped(tmp_path, "litellm", document=str(path), status=[status.url])
        with pinned(file) as tick:
            tick()
            first = asyncio.run(status.hook.reader.current()).pools["chat"].values["downgrade"]["small"]
            tick()
            again = asyncio.run(status.hook.reader.current()).pools["chat"].values["downgrade"]["small"]
            assert (first.value, first.model) == (0.4, "chat-small")
            assert (again.until or 0) > (first.until or 0)
        died = time.monotonic()
        while share(status.hook) == 0.4:
            assert time.monotonic() - died < EXPIRY + 1
        assert time.monotonic() - died > EXPIRY - 1.5
