"""The shipped recording rules: written by the code, valid, and reading through them counts the same."""

import subprocess
from collections.abc import Iterator

import pytest

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.rulefile import DELAY, document
from sources.prometheus.transport import Transport
from tests.support.prometheus import needs_prometheus, prometheus, write_blocks
from tests.support.repository import ROOT
from tests.support.vllm_recording import MODEL, scrapes

SHIPPED = ROOT / "manifests" / "prometheus" / "recording-rules.yaml"
TTFT_SUM = "governor:vllm:ttft:vllm:time_to_first_token_seconds_sum:increase15s"
NEEDS = PoolNeeds(
    pool="llama",
    engine="vllm",
    matchers=(Matcher("namespace", "=", "prod"), Matcher("model_name", "=", MODEL)),
    facts=frozenset({Fact.TTFT, Fact.E2E, Fact.FINISHED}),
)


def test_the_shipped_rules_are_what_the_code_writes() -> None:
    assert SHIPPED.read_text() == document(), "run: python -m sources.prometheus.rulefile > " + str(SHIPPED.name)


@needs_prometheus
def test_the_shipped_rules_are_valid() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(SHIPPED)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The recording together with what the rules make of it, by promtool's own evaluation of the shipped file."""
    folder = tmp_path_factory.mktemp("rules")
    storage = folder / "tsdb"
    write_blocks(scrapes(), storage)
    start, end = scrapes()[0][0], scrapes()[-1][0]
    with prometheus(storage) as url:
        command = ["promtool", "tsdb", "create-blocks-from", "rules", f"--url={url}", f"--start={start:.0f}"]
        command += [f"--end={end:.0f}", f"--output-dir={storage}", "--eval-interval=15s", str(SHIPPED)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    with prometheus(storage) as url:
        yield url


@needs_prometheus
def test_increments_through_the_rules_are_those_of_the_raw_series(recorded: str) -> None:
    raw = PrometheusSource(PrometheusConfig(url=recorded), [NEEDS])
    ruled = PrometheusSource(PrometheusConfig(url=recorded, recording_rules=True), [NEEDS])
    # Each group is evaluated in a phase of its own, and the rules look DELAY behind: the raw reading does so, too.
    transport = Transport(PrometheusConfig(url=recorded))
    [(_, first)] = transport.query(f"max(timestamp({TTFT_SUM}))", scrapes()[0][0] + 35.0, 5.0).rows
    transport.close()
    total = 0.0
    for k in range(13):
        at = first + 15.0 * k
        expected, seen = raw.observe(at - DELAY, 20.0).pools["llama"], ruled.observe(at, 20.0).pools["llama"]
        assert seen.failed == {}
        assert seen.histograms == expected.histograms
        total += seen.histograms[Fact.TTFT].count if k else 0.0
    raw.close()
    ruled.close()
    assert total > 40.0
