"""`governor serve-fleet` as users run it: real HTTP, a real Prometheus that scrapes it, a real webhook actuator."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actuators.webhook import Webhook, WebhookConfig
from controller.config import GovernorConfig, pool_needs
from controller.config.terms import pool_specs
from controller.core.meter import Meter
from controller.core.model import Decision, Lever, Outcome, PoolReadings, Target
from controller.core.ports import Binding
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.why import Why
from controller.simulate.load import open_study
from simulator.scenario import Scenario
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from sources.scraped import ScrapedSource
from tests.support.ports import free_row
from tests.support.prometheus import needs_prometheus, prometheus

ROOT = Path(__file__).parents[2]
SEED = 3
PORTS = 8  # of one fleet: its own and those of its replicas
SCENARIO = """
version: 1
name: served
duration: 10m
promises: {default: {ttft: 2s}}
fleet:
  pools:
    chat:
      replicas: 2
      engine: {kind: profile, a: 10ms, max_num_seqs: 8, kv_tokens: 60000}
      life: {pull: 0s, load: 1s, warm: 500ms}
      zones: [a, b]
traffic:
  chat:
    - {kind: generated, name: web, rate: 12, prompt: {kind: lognormal, mean: 300, p99: 900, longest: 2000},
       answer: {kind: lognormal, mean: 60, p99: 200, longest: 400}}
governor:
  version: 1
  interval: 2s
  deadline: 1s
  source: {kind: prometheus, url: "http://127.0.0.1:1"}
  pools:
    chat:
      engine: vllm
      selector: {namespace: default, model_name: chat}
      window: 10s
      objectives:
        - {signal: ttft, percentile: p95, target: 2500ms}
        - {signal: itl, percentile: p95, target: 50ms}
        - {signal: queue_time, percentile: p95, target: 2500ms}
      workload: {namespace: default, name: chat}
      levers: {replicas: {min: 1, max: 4, policy: {kind: capacity}}}
"""
SCRAPING = """
global: {{scrape_interval: 1s, scrape_timeout: 900ms}}
scrape_configs:
- job_name: fleet
  http_sd_configs: [{{url: "{targets}", refresh_interval: 1s}}]
"""


class Served:
    """A fleet that is served: its own address, and since when its clock runs."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, since: float) -> None:
        self.process, self.port, self.since = process, port, since

    def url(self, path: str, replica: int = 0) -> str:
        return f"http://127.0.0.1:{self.port + replica}{path}"

    def get(self, path: str, replica: int = 0) -> bytes:
        with urllib.request.urlopen(self.url(path, replica), timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def ask(self, body: object, replica: int = 1, path: str = "/v1/completions") -> tuple[int, bytes]:
        request = urllib.request.Request(self.url(path, replica), json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()


@contextmanager
def fleet(folder: Path, *options: str) -> Iterator[Served]:
    file = folder / "served.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    port = free_row(PORTS)
    with serving(file, port, *options) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving served since"), line
        yield Served(process, port, float(line.split("since ")[1].split(":")[0]))


@contextmanager
def serving(file: Path, port: int, *options: str) -> "Iterator[subprocess.Popen[str]]":
    """`governor serve-fleet`, ended by its pid."""
    command = [sys.executable, "-c", "from controller.cli import main; main()", "serve-fleet", str(file)]
    command += ["--port", str(port), *options]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with fleet(tmp_path_factory.mktemp("quiet"), "--no-traffic") as served:
        yield served


def test_a_gateway_gets_tokens_when_they_are_made_and_not_all_at_the_end(quiet: Served) -> None:
    body = {"prompt": [1] * 100, "max_tokens": 40, "stream": True}
    request = urllib.request.Request(quiet.url("/v1/completions", 1), json.dumps(body).encode())
    came, began = [], time.monotonic()
    with urllib.request.urlopen(request, timeout=20) as answer:
        for line in answer:
            if line.startswith(b'data: {"'):
                came.append(time.monotonic() - began)
        assert line in (b"\n", b"data: [DONE]\n")
    assert came[0] < 0.2  # one step of 10 ms and a prompt of 100 tokens
    assert came[-1] > 0.35  # forty steps
    assert sum(later - sooner > 0.005 for sooner, later in pairwise(came)) > 15


def test_an_engine_that_is_alive_says_so_and_names_its_model(quiet: Served) -> None:
    assert quiet.get("/health", 1) == b""
    assert json.loads(quiet.get("/v1/models", 2))["data"][0]["id"] == "chat"
    status, answer = quiet.ask(
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}, 2, "/v1/chat/completions"
    )
    assert (status, json.loads(answer)["usage"]["completion_tokens"]) == (200, 3)


def test_a_request_that_no_engine_can_serve_is_refused_with_the_reason(quiet: Served) -> None:
    status, body = quiet.ask({"prompt": "x", "max_tokens": 100_000})
    assert (status, json.loads(body)["error"]["type"]) == (400, "BadRequestError")
    assert "longer than" in json.loads(body)["error"]["message"]
    assert quiet.ask(["x"])[0] == 400


def test_a_client_that_goes_away_leaves_its_seat(quiet: Served) -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 40_000, "stream": True}).encode()
    with urllib.request.urlopen(urllib.request.Request(quiet.url("/v1/completions", 1), body), timeout=20) as answer:
        answer.readline()
        assert b"num_requests_running{" in (page := quiet.get("/metrics", 1))
        assert value(page, "vllm:num_requests_running") == 1
    until = time.monotonic() + 10
    while value(quiet.get("/metrics", 1), "vllm:num_requests_running") and time.monotonic() < until:
        pass
    page = quiet.get("/metrics", 1)
    assert value(page, "vllm:num_requests_running") == 0
    assert b'finished_reason="abort"' in page


def test_the_webhook_actuator_scales_it_and_a_new_replica_serves_on_a_port_of_its_own(quiet: Served) -> None:
    url = quiet.url("/replicas")
    target = Target("chat", Lever.REPLICAS)
    hook = Webhook(WebhookConfig(url=url, read_url=url), Binding((target,)))
    now = time.time()
    assert hook.read([target], now)[target].accepted == 2.0
    decision = Decision(target, 2.0, 3.0, Why.FORECAST, send=True)
    assert [applied.outcome for applied in hook.apply([decision], now)] == [Outcome.DONE]
    state = hook.read([target], now)[target]
    assert (state.accepted, state.ready) == (3.0, 2.0)
    until = time.monotonic() + 20
    while hook.read([target], now)[target].ready != 3.0 and time.monotonic() < until:
        pass
    assert quiet.get("/health", 3) == b""
    targets = json.loads(quiet.get("/targets"))
    assert f"127.0.0.1:{quiet.port + 3}" in [one["targets"][0] for one in targets]
    pods = {one["labels"].get("pod") for one in targets}
    assert pods == {"chat-v1-0", "chat-v1-1", "chat-v1-2", "chat-gateway-0", None}
    hook.close()


@pytest.mark.parametrize(
    ("order", "status"),
    [
        ({"pool": "chat", "lever": "replicas", "value": 1e9, "at": 1.0}, 422),
        ({"pool": "chat", "lever": "replicas", "value": -1, "at": 1.0}, 422),
        ({"pool": "chat", "lever": "replicas", "value": None, "at": 1.0}, 422),
        ({"pool": "chat", "lever": "replicas", "value": float("inf"), "at": 1.0}, 400),
        ({"pool": "chat", "lever": "replicas", "value": 3}, 400),
        ({"pool": "nope", "lever": "replicas", "value": 3, "at": 1.0}, 404),
        ({"pool": "chat", "lever": "replicas", "value": 3, "at": 1e300}, 400),
        ({"pool": ["chat"], "lever": {}, "value": 3, "at": 1.0}, 404),
        ([], 400),
    ],
    ids=str,
)
def test_one_absurd_order_takes_no_machine_down(quiet: Served, order: object, status: int) -> None:
    assert quiet.ask(order, 0, "/replicas")[0] == status
    assert quiet.get("/health") == b""


def test_a_replica_that_drains_gets_requests_that_will_be_cut_off(tmp_path: Path) -> None:
    with fleet(tmp_path, "--no-traffic") as served, ExitStack() as streams:
        assert json.loads(served.get("/endpoints/chat")) == {
            f"chat-v1-{place}": f"127.0.0.1:{served.port + 1 + place}" for place in (0, 1)
        }
        body = json.dumps({"prompt": "x", "max_tokens": 40_000, "stream": True}).encode()
        for replica in (1, 2):
            request = urllib.request.Request(served.url("/v1/completions", replica), body)
            streams.enter_context(urllib.request.urlopen(request, timeout=20)).readline()
        order = {"pool": "chat", "lever": "replicas", "value": 1, "at": time.time()}
        assert served.ask(order, 0, "/replicas")[0] == 200
        assert len(json.loads(served.get("/endpoints/chat"))) == 1
        targets = [one for one in json.loads(served.get("/targets")) if one["labels"]["job"] == "chat"]
        assert len(targets) == 2  # what it still does is still measured
        assert b"" == served.get("/health", 1) == served.get("/health", 2)


def test_a_replica_that_dies_holds_up_the_streams_of_all_others(tmp_path: Path) -> None:
    """They stood still for as long as a port that closes waits for its own streams, a second."""
    file = tmp_path / "served.yaml"
    crash = "  disturbances: [{kind: crash, at: 3s, pool: chat, replica: 1}]\ntraffic:"
    file.write_text(SCENARIO.replace("traffic:", crash, 1), encoding="utf-8")
    body = json.dumps({"prompt": "x", "max_tokens": 500, "stream": True}).encode()
    with ExitStack() as streams:
        process = streams.enter_context(serving(file, free_row(PORTS), "--no-traffic"))
        assert process.stdout is not None
        first = int(process.stdout.readline().split("http://127.0.0.1:")[1].split("/")[0]) + 1
        ask = [urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body) for port in (first, first + 1)]
        survivor, victim = [streams.enter_context(urllib.request.urlopen(one, timeout=20)) for one in ask]
        came = [time.monotonic() for line in survivor if line.startswith(b'data: {"')]
        with pytest.raises((ConnectionError, http.client.IncompleteRead)):
            victim.read()
    assert max(later - sooner for sooner, later in pairwise(came)) < 0.9


def test_a_port_that_is_taken_is_said_with_its_mend(quiet: Served, tmp_path: Path) -> None:
    file = tmp_path / "served.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    with serving(file, quiet.port) as second:
        said, _ = second.communicate(timeout=20)
    assert second.returncode == 2
    assert f"127.0.0.1:{quiet.port} cannot be served on" in said
    assert "choose another --port" in said


def test_a_replica_passes_over_a_port_that_somebody_else_has(tmp_path: Path) -> None:
    port = free_row(PORTS)
    file = tmp_path / "served.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + 1))
        other.listen()
        with serving(file, port, "--no-traffic") as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("serving served since")
            targets = json.loads(Served(process, port, 0.0).get("/targets"))
    ports = sorted(one["targets"][0] for one in targets if one["labels"]["job"] == "chat")
    assert ports == [f"127.0.0.1:{port + 2}", f"127.0.0.1:{port + 3}"]


def test_a_fleet_that_is_told_to_stop_ends_though_a_stream_is_open(tmp_path: Path) -> None:
    with fleet(tmp_path, "--no-traffic") as served:
        body = json.dumps({"prompt": "x", "max_tokens": 40_000, "stream": True}).encode()
        with urllib.request.urlopen(
            urllib.request.Request(served.url("/v1/completions", 1), body), timeout=20
        ) as answer:
            answer.readline()
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(15) == 0


def value(page: bytes, name: str) -> float:
    (line,) = [line for line in page.decode().splitlines() if line.startswith(f"{name}{{")]
    return float(line.split()[-1])


# --- the same readings ----------------------------------------------------------------------------------------------

TICKS = (24.0, 26.0, 28.0)  # seconds since the start; the window is full by then
FINE = 0.1
SCRAPE, WINDOW = 1.0, 10.0  # seconds
ONE = {"running": 1.0, "queue_depth": 1.0, "kv_usage": 0.015}  # what one request more or less makes at a moment


def readings(source: Any, config: GovernorConfig, times: Iterator[float]) -> dict[float, PoolReadings]:
    meter = Meter(pool_specs(config))
    found = {}
    for at in times:
        found[at] = meter.update(source.observe(at, 1.0))["chat"]
    return found


def numbers(pool: PoolReadings) -> dict[str, float]:
    """What is known for sure. The rate of admission looks back 30 s, which are not there yet. What is true for a moment
    only is told by replica, for each is scraped at a moment of its own."""
    summed = (
        Signal.FINISHED_RATE, Signal.OFFERED_RATE, Signal.GENERATION_TOKEN_RATE, Signal.PROMPT_TOKEN_RATE,
        Signal.READY_REPLICAS,
    )  # fmt: skip
    found = {str(signal): pool.get(signal) for signal in summed}
    for latency in (Signal.TTFT, Signal.ITL):
        found |= {f"{latency} {stat}": pool.latency(latency, stat) for stat in ("mean", "p50", "p95")}
    for name, replica in pool.replicas.items():
        for now in (Signal.RUNNING, Signal.QUEUE_DEPTH, Signal.KV_USAGE):
            found[f"{name} {now}"] = replica.get(now)
    return {
        name: reading.value
        for name, reading in found.items()
        if reading.state is State.OK and reading.value is not None
    }


@needs_prometheus
def test_a_twin_that_shows_prometheus_another_fleet_than_its_own_controller(tmp_path: Path) -> None:
    """What a real Prometheus makes of the served fleet is what the in-process source says, within scrape error: between
    the least and the most that the latter says when it looks up to two scrapes earlier or one later, give or take half
    a scrape at the edges of the window, since each replica is scraped at a moment of its own."""
    with fleet(tmp_path, "--seed", str(SEED)) as served:
        config = open_study(tmp_path / "served.yaml").config
        with prometheus(tmp_path / "tsdb", SCRAPING.format(targets=served.url("/targets"))) as url:
            source = PrometheusSource(PrometheusConfig(url=url, delay=0.05), pool_needs(config))
            ticks = [served.since + at for at in (*(float(at) for at in range(4, 24, 2)), *TICKS)]
            real = readings(source, config, paced(ticks))
            source.close()
    scenario = open_study(tmp_path / "served.yaml").scenario
    assert isinstance(scenario, Scenario)
    watched = replace(scenario.fleet.prometheus, interval=FINE)
    fast = replace(scenario, fleet=replace(scenario.fleet, prometheus=watched))
    world = fast.world(SEED, start=served.since)
    first = next(at for at in ticks if real[at].get(Signal.RUNNING).value is not None)
    grid = [first + FINE * step for step in range(int((served.since + TICKS[-1] + 2 - first) / FINE))]
    own = readings(ScrapedSource(pool_needs(config), world.pages), config, iter(grid))
    for at in TICKS:
        got = numbers(real[served.since + at])
        around = [numbers(own[one]) for one in grid if -2.25 <= one - served.since - at <= 1.25]
        for name, number in got.items():
            said = [one[name] for one in around if name in one]
            one = next((size for signal, size in ONE.items() if name.endswith(signal)), 0.0)
            slack = SCRAPE / 2 / WINDOW * max(map(abs, said)) + one + 1e-9
            assert min(said) - slack <= number <= max(said) + slack, (at, name, number, min(said), max(said))
        assert len(got) == 5 + 6 + 2 * 3, sorted(got)


def paced(times: list[float]) -> Iterator[float]:
    """Each time when it has come. A real Prometheus cannot be hurried."""
    never = threading.Event()
    for at in times:
        never.wait(max(0.0, at - time.time()))
        yield at
