"""`governor run` as users run it: a real Prometheus that scrapes a toy vLLM fleet, and a webhook that scales it."""

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.endpoint import Endpoint, endpoint
from tests.support.lines import Program, program
from tests.support.ports import free_port
from tests.support.prometheus import needs_prometheus, prometheus
from tests.support.toy_fleet import ToyFleet, toy_fleet

pytestmark = needs_prometheus

ROOT = Path(__file__).parents[2]
WINDOW = 5  # seconds, and scrapes
REPLICAS = ("chat", "replicas", "")
GOVERNOR = ("-c", "from controller.cli import main; main()", "run", "--config")
Json = dict[str, Any]


class World:
    """The fleet, its Prometheus, the webhook, and the config of a Governor over them."""

    def __init__(self, fleet: ToyFleet, hook: Endpoint, prometheus_url: str, folder: Path) -> None:
        self.fleet, self.hook, self.port = fleet, hook, free_port()
        self.file = folder / "governor.yaml"
        self._folder, self._prometheus = folder, prometheus_url
        hook.values[REPLICAS] = 2.0

    def write(self, mode: str = "auto", target: str = "2500ms") -> None:
        """Replaces the config in one step."""
        lever = {
            # The hook's replicas are a number, two pods are all that is seen: what is missing is soon given up.
            "mode": mode, "min": 1, "max": 8, "stabilise": "0s", "give_up": "2s",
            "cooldown": {"up": "0s", "down": "0s"},
            "rate": {"up": "1/1s", "down": "1/1s"},
            "policy": {"kind": "threshold", "signal": "queue_depth", "per_replica": True, "upper": 4, "lower": 0.5,
                       "dwell_down": "0s"},
            "actuator": {"kind": "webhook", "url": self.hook.url, "read_url": self.hook.url},
        }  # fmt: skip
        config = {
            "version": 1, "interval": "1s", "deadline": "900ms",
            "source": {"kind": "prometheus", "url": self._prometheus},
            "ledger": {"path": str(self._folder / "ledger")},
            "http": {"listen": f"127.0.0.1:{self.port}"},
            "pools": {"chat": {
                "engine": "vllm", "selector": {"model_name": "chat"}, "window": f"{WINDOW}s",
                "objectives": [{"signal": "ttft", "percentile": "p99", "target": target, "name": "first_token"}],
                "levers": {"replicas": lever},
            }},
        }  # fmt: skip
        new = self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump(config))
        new.replace(self.file)

    @contextmanager
    def governor(self, *options: str) -> Iterator[Program]:
        """`governor run`, from its first tick."""
        args = [*GOVERNOR, str(self.file), *options]
        with program(args, ROOT, os.environ | {"PYTHONUNBUFFERED": "1"}) as running:
            running.wait("started")
            yield running

    def page(self, path: str) -> Json:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=10) as answer:
            page: Json = json.load(answer)
        return page

    def target(self) -> Json:
        """The replicas of the pool on the status page, {} before the first tick."""
        found: list[Json] = self.page("status")["targets"]
        return found[0] if found else {}

    def attained(self) -> Json:
        (objective,) = self.page("status")["pools"]["chat"]["objectives"]
        return {"target": objective["target"], **(objective["attainment"] or {})}

    def posted(self) -> list[float]:
        return [post.body["value"] for post in self.hook.posts]

    def until(self, true: Callable[[], bool], scrapes: int = 30) -> None:
        """Looks once per scrape of the fleet, which is once a second."""
        while self.fleet.scraped.acquire(blocking=False):  # those of the past
            pass
        for _ in range(scrapes):
            if true():
                return
            assert self.fleet.scraped.acquire(timeout=10), "Prometheus has stopped scraping"
        raise AssertionError(f"not within {scrapes} s; {json.dumps(self.page('status'), indent=1)}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with toy_fleet() as fleet, endpoint() as hook:
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "vllm", "static_configs": fleet.targets()}],
        }
        with prometheus(tmp_path / "data", json.dumps(config)) as url:
            assert fleet.scraped.acquire(timeout=30)
            yield World(fleet, hook, url, tmp_path)


@pytest.mark.parametrize(("mode", "options"), [("observe", ()), ("auto", ("--dry-run",))])
def test_a_rehearsal_that_scales_the_fleet(world: World, mode: str, options: tuple[str, ...]) -> None:
    world.fleet.waiting = 20
    world.write(mode)
    with world.governor(*options):
        world.until(lambda: world.target().get("final") == 3.0)
        wish = world.target()
        assert (wish["current"], wish["why"]) == (2.0, "above_threshold")
        world.until(lambda: world.page("status")["last_tick"]["number"] > 5)
    assert world.hook.posts == []
    assert world.hook.values[REPLICAS] == 2.0


def test_the_first_day_in_auto_mode(world: World) -> None:
    """Scales up, takes an edited promise at the next tick, survives broken YAML, and lowers nothing after a kill -9."""
    world.fleet.waiting = 20
    world.write()
    with world.governor() as governor:
        world.until(lambda: world.posted()[:2] == [3.0, 4.0])
        assert "above_threshold" in {entry["why"] for entry in world.page("decisions?limit=50")["decisions"]}
        world.fleet.waiting = 0

        world.until(lambda: world.attained().get("value") == 1.0)
        world.write(target="100ms")
        governor.wait("config_reloaded")
        before = world.page("status")["last_tick"]["number"]
        world.until(lambda: world.page("status")["last_tick"]["number"] > before, 3)
        assert world.attained()["target"] == 0.1
        world.until(lambda: world.attained().get("hi", 1.0) < 0.5, 5)  # measured against the new promise

        world.file.write_text("version: 1\npools: {chat: {engine: vllm, levers: [")
        governor.wait("config_rejected")
        now = world.page("status")
        assert now["config"]["problems"]
        world.until(lambda: world.page("status")["last_tick"]["number"] > now["last_tick"]["number"], 3)
        assert world.attained()["target"] == 0.1
        governor.process.kill()
        assert governor.end() == -signal.SIGKILL

    world.write()
    world.hook.values[REPLICAS] = 6.0
    world.hook.posts.clear()
    with world.governor():
        world.until(lambda: world.target().get("why") in ("boot", "underfilled"))
        world.until(lambda: bool(world.posted()))
        first = world.hook.posts[0].body
        began = world.page("status")["started_at"]
        assert (first["previous"], first["value"]) == (6.0, 5.0), "with a full window of calm it may lower"
        assert first["at"] - began >= WINDOW - 1, "lowered before it had seen a full window"


def test_a_port_in_use_is_a_traceback(world: World) -> None:
    world.write()
    with world.governor(), program([*GOVERNOR, str(world.file)], ROOT) as second:
        assert second.end() == 2
    assert f"http.listen: cannot listen on 127.0.0.1:{world.port}: Address already in use; stop" in second.text[0]
    assert len(second.text) == 1


def test_a_config_that_cannot_act_starts_anyway(world: World) -> None:
    world.write()
    config = yaml.safe_load(world.file.read_text())
    del config["pools"]["chat"]["levers"]["replicas"]["actuator"]
    world.file.write_text(yaml.safe_dump(config))
    with program([*GOVERNOR, str(world.file)], ROOT) as governor:
        assert governor.end() == 2
    assert "pools.chat.levers.replicas.actuator: is missing, and mode auto needs one" in governor.text[0]
