"""The shipped config, the real loop and a real Envoy: a value arrives, is renewed each tick, and ends with Governor."""

import threading
import time
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from controller.cli.app import app
from controller.config import load
from controller.run.assembly import RunMode, assemble
from controller.run.look import look
from tests.support.envoy import TARGETS, bootstrap, envoy, until
from tests.support.ports import free_port

KEY = "governor.downgrade.chat.small"


def shipped(folder: Path, port: int, admin: int) -> Path:
    """The config of the example with other ports, a short expiry, and the downgrade in auto."""
    body: dict[str, Any] = yaml.safe_load((TARGETS / "governor.yaml").read_text())
    body |= {"interval": "1s", "deadline": "500ms", "ledger": {"path": str(folder / "ledger")}}
    body["source"]["url"] = "http://127.0.0.1:1"
    edge = body["actuators"]["edge"]
    edge |= {
        "transport": {"kind": "grpc", "listen": f"127.0.0.1:{port}"},
        "admin": [f"http://127.0.0.1:{admin}"],
        "arrival": "0s",
    }
    body["pools"]["chat"]["levers"]["downgrade"] |= {"mode": "auto", "expiry": "3s"}
    file = folder / "governor.yaml"
    file.write_text(yaml.safe_dump(body))
    return file


def test_a_pinned_share_is_in_force_while_governor_ticks_and_neutral_after_it_died(tmp_path: Path) -> None:
    port, admin = free_port(), free_port()
    file = shipped(tmp_path, port, admin)
    words = ["pin", "chat/downgrade/small", "0.4", "--for", "1h", "--reason", "test", "--config", str(file)]
    assert CliRunner().invoke(app, words).exit_code == 0
    loop = assemble(load(file), mode=RunMode.LIVE)
    try:
        loop.tick(time.time())  # opens the port

        def text(front: int, page: int) -> str:
            return bootstrap("bootstrap.yaml", {10000: front, 9901: page, 18000: port})

        with envoy(tmp_path, text, admin=admin) as running:
            for _ in range(6):
                loop.tick(time.time())
                threading.Event().wait(0.7)
            assert running.runtime(KEY) == "4000"
            assert running.runtime("governor.downgrade.chat.chat") == "6000"
            threading.Event().wait(1.0)  # longer than from tick to tick, shorter than the expiry
            assert running.runtime(KEY) == "4000"
            loop.close()
            until(lambda: running.runtime(KEY) == "", "the share expires", 4)
    finally:
        loop.close()


def test_the_doctor_says_of_an_envoy_that_nobody_tells_that_it_stands_at_its_neutral_value(tmp_path: Path) -> None:
    """It called that assumed, and said that a restart would go unnoticed, which is not so of a stream."""
    port, admin = free_port(), free_port()
    file = shipped(tmp_path, port, admin)
    config = yaml.safe_load(file.read_text())
    config |= {"interval": "10s", "deadline": "8s"}
    config["actuators"]["edge"]["arrival"] = "5s"
    config["pools"]["chat"]["levers"]["downgrade"]["expiry"] = "30s"
    file.write_text(yaml.safe_dump(config))

    def text(front: int, page: int) -> str:
        return bootstrap("bootstrap.yaml", {10000: front, 9901: page, 18000: port})

    with envoy(tmp_path, text, admin=admin):
        found = {one.subject: one for one in look(load(file))}
    share = found["chat/downgrade/small"]
    assert (share.level, share.text) == (
        "info", "no Governor tells it now: it stands at 0, or will when what was told has expired"
    )  # fmt: skip
    assert not [one for one in found.values() if "assumed" in one.text]
