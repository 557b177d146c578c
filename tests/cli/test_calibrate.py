"""`governor calibrate` as a person and a pipe meet it."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from controller.config import loads
from tests.support.cli import ROOT, governor
from tests.support.requestlogs import csv_of, lengths, made, poisson

RECORDING = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"
DEMO = ROOT / "examples" / "demo.yaml"
LIBRARY = "llama-3.1-8b/h100/1/bf16"
MAPPING = """
format: governor-import
version: 1
tables:
  - time: {column: t}
    labels: {model_name: m}
    facts:
      finished: {column: rate, kind: rate}
      prompt_tokens: {column: rate, times: prompt, kind: rate}
      generation_tokens: {column: rate, times: answer, kind: rate}
      ttft: {column: ttft, kind: mean, count: {column: rate}}
      itl: {column: itl, kind: mean, count: {column: rate, times: answer}}
      waiting: {column: waiting}
      kv_usage: {column: kv}
      ready_replicas: {column: pods}
"""
CONFIG = """
version: 1
interval: 60s
deadline: 900ms
source: {kind: prometheus, url: "http://127.0.0.1:9090"}
pools:
  m:
    engine: vllm
    selector: {model_name: m}
    window: 60s
    objectives: [{signal: itl, statistic: mean, target: 50ms}]
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small request log, packed."""
    made_ = made(poisson(60, 6.0), lengths(60, 800, 0.8, 1), lengths(60, 120, 0.6, 2))
    path = tmp_path_factory.mktemp("log") / "requests.csv.gz"
    path.write_bytes(gzip.compress(csv_of(made_).encode()))
    return path


def test_what_is_printed_is_a_profile_for_a_config_and_a_scenario(log: Path) -> None:
    done = governor("calibrate", "--requests", log, "--library", LIBRARY, "--max-num-seqs", "64")
    assert done.returncode == 0, done.stderr
    printed = yaml.safe_load(done.stdout)
    assert printed["profile"]["max_num_seqs"] == 64
    assert printed["limits"] == {"max_batched_tokens": 8192}
    assert printed["engine"]["kind"] == "profile"
    config = yaml.safe_load(CONFIG)
    config["pools"]["m"]["profile"] = printed["profile"]
    profile = loads(yaml.safe_dump(config)).pools["m"].profile
    assert profile is not None
    assert profile.base == pytest.approx(9e-3, rel=0.1)
    # The scenario's numbers are the same.
    assert printed["engine"]["b"] == pytest.approx(profile.prefill_token)
    assert "errors are those of the 30 after them" in done.stdout
    assert all(f"#   {kind}" in done.stdout for kind in ("ttft", "tpot", "e2e"))
    assert "llama-3.1-8b on 1x h100" in done.stdout


def test_json_has_the_errors(log: Path) -> None:
    done = governor("calibrate", "--requests", log, "--library", LIBRARY, "--max-num-seqs", "64", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["kind"] for row in found["held_out"]] == ["ttft", "tpot", "e2e"]
    assert abs(found["held_out"][2]["mean_error"]) < 0.05
    assert len(found["terms"]) == 5


def test_a_log_that_does_not_tell_is_refused_with_the_term_and_the_mend(tmp_path: Path) -> None:
    alone = made(np.arange(60, dtype=np.float64) * 4, lengths(60, 800, 0.5, 1), np.full(60, 50.0))
    path = tmp_path / "requests.csv"
    path.write_text(csv_of(alone))
    done = governor("calibrate", "--requests", path, "--max-num-seqs", "64")
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{path}: the log does not tell c (" in done.stderr
    assert "--library MODEL/GPU/TP/PRECISION" in done.stderr


def test_a_recording_of_means(tmp_path: Path) -> None:
    rows = ["t,rate,prompt,answer,ttft,itl,waiting,kv,pods"]
    for minute in range(30):
        batch = (10, 60, 20, 110, 40)[minute // 3 % 5]
        itl = 8e-3 + 60e-6 * batch
        rate = 2 * batch / itl / 400
        rows.append(f"{60 * minute + 6e8},{rate},300,400,{1.5 * itl + 8e-3},{itl},0,{batch * 508 / 300_000},2")
    table, mapping, config, out = (tmp_path / name for name in ("t.csv", "m.yaml", "c.yaml", "r.jsonl.gz"))
    table.write_text("\n".join(rows) + "\n")
    mapping.write_text(MAPPING)
    config.write_text(CONFIG)
    assert governor("import", "-m", mapping, "-o", out, table).returncode == 0
    done = governor("calibrate", "--recording", out, "--config", config, "--library", LIBRARY)
    assert done.returncode == 0, done.stderr
    printed = yaml.safe_load(done.stdout)
    assert printed["profile"]["kv_tokens"] == pytest.approx(300_000, rel=0.02)
    assert "calm intervals" in done.stdout
    assert "kv_usage" in done.stdout
    again = governor("calibrate", "--recording", out, "--config", config, "--json")
    assert json.loads(again.stdout)["held"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give either --requests FILE or --recording FILE with --config FILE"),
        (("--requests", "a", "--recording", "b"), "give either --requests FILE or --recording FILE"),
        (("--requests", "/nowhere.csv"), "/nowhere.csv: cannot be read"),
        (("--requests", DEMO), "demo.yaml: has no column for queued"),
        (("--requests", DEMO, "--hold-out", "half"), "--hold-out: 'half' is not a ratio; write for example"),
        (("--recording", RECORDING), "--recording: needs --config FILE"),
        (("--recording", RECORDING, "-c", DEMO), "0 of 13 intervals are calm"),
        (("--recording", RECORDING, "-c", DEMO, "--pool", "x"), "--pool x: the config has no such pool"),
        (("--recording", RECORDING, "-c", DEMO, "--max-batched-tokens", "2048"), "leave it out"),
        (("--recording", "/nowhere.gz", "-c", DEMO), "/nowhere.gz: cannot be read"),
    ],
)
def test_wrong_input_names_the_place_and_the_mend(words: tuple[str | Path, ...], message: str) -> None:
    done = governor("calibrate", *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
