"""Policy tests: a test that passes for the wrong reason is worse than none, so what is wrong must be said."""

import re
from pathlib import Path

import pytest

from controller.config import ConfigError
from controller.core.errors import InputError
from controller.core.facts import Fact
from controller.rehearse.policytest import load_tests, run_test
from controller.rehearse.signal_source import SignalSource, SignalTable
from tests.support.build import START

ROOT = Path(__file__).parents[2]
CONFIG = f"config: {ROOT / 'examples' / 'minimal.yaml'}\ninterval: 15s\ntests:\n"
CALM = """\
  - name: calm
    input_signals:
      - {series: offered_rate, values: '2x9'}
      - {series: ttft, values: '0.3x9'}
      - {series: running, values: '4x9'}
      - {series: queue_depth, values: '0x9'}
      - {series: ready_replicas, values: '2x9'}
    expect:
      - {at: 2m, EXPECT}
"""


TWICE = """\
  - name: twice
    input_series:
      - {series: 'vllm:num_requests_running{a="b", model_name="chat"}', values: '1x9'}
      - {series: 'vllm:num_requests_running{model_name="chat",a="b"}', values: '1x9'}
    expect: [{at: 1m, final: 2}]
"""


def problems(tmp_path: Path, expect: str) -> list[str]:
    file = tmp_path / "policy_test.yaml"
    file.write_text(CONFIG + CALM.replace("EXPECT", expect), encoding="utf-8")
    (test,) = load_tests(file)
    return run_test(test)


def test_the_shipped_example_passes() -> None:
    for test in load_tests(ROOT / "examples" / "policy_test.yaml"):
        assert run_test(test) == [], test.name


def test_a_failure_shows_what_was_expected_what_was_decided_and_why(tmp_path: Path) -> None:
    (text,) = problems(tmp_path, "final: '>= 3', why: [demand, forecast], current: 2")
    assert re.search(r"at 00:02:00 chat/replicas\n    final    expected >= 3, got 2\n", text)
    assert "why      expected demand or forecast, got " in text
    assert "current" not in text
    assert "decided  2 → 2: " in text


@pytest.mark.parametrize(
    ("expect", "passes"),
    [
        ("final: 2", True),
        ("final: '!= 2'", False),
        ("final: '< 3'", True),
        ("changed: false", True),
        ("changed: true", False),
        ("held_by: pin", False),
        ("says: the moon", False),
    ],
)
def test_each_kind_of_expectation_can_fail(tmp_path: Path, expect: str, passes: bool) -> None:
    assert (problems(tmp_path, expect) == []) is passes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            CALM.replace("EXPECT", "finale: 2"),
            r"test\.yaml:12: tests\[0\]\.expect\[0\]\.finale: is not a known key; did you mean final\?",
        ),
        (CALM.replace(", EXPECT", ""), r"expect\[0\]: expects nothing; write at least one of final"),
        (CALM.replace("EXPECT", "final: two"), r"final: 'two' is not a condition; write 4"),
        (CALM.replace("EXPECT", "why: demnd"), r"why\[0\]: 'demnd' is not a choice; did you mean demand\?"),
        (CALM.replace("EXPECT", "held_by: demnd"), r"held_by\[0\]: 'demnd' is not a choice; did you mean demand\?"),
        (CALM.replace("EXPECT", "changed: maybe"), r"changed: 'maybe' is not true or false; write true or false"),
        (CALM.replace("- name: calm\n    input", "- input").replace("EXPECT", "final: 2"), r"name: is missing; add it"),
        (CALM.replace("'4x9'", "'4x5 -1'").replace("EXPECT", "final: 2"), r"\[2\]: running is never -1; write 0 or"),
        (
            CALM.replace("running, values: '4x9'", "kv_usage, values: '90x9'").replace("EXPECT", "final: 2"),
            r"input_signals\[2\]: kv_usage is a ratio, and 90 is above 1; write",
        ),
        (CALM.replace("running", "ttft").replace("EXPECT", "final: 2"), r"input_signals\[2\]: ttft is given twice"),
        (
            TWICE,
            r"input_series\[1\]: vllm:num_requests_running.* is given twice",
        ),
        (CALM.replace("at: 2m, EXPECT", "at: 120, final: 2"), r"at: 120 has no unit; write 120s"),
        (CALM.replace("EXPECT", "final: 2, pool: nobody"), r"no pool 'nobody'"),
        (CALM.replace("EXPECT", "final: 2, lever: weight"), r"has no lever weight"),
        (
            CALM.replace("input_signals", "input_series").replace("EXPECT", "final: 2").replace("offered_rate", "x{"),
            "x",
        ),
    ],
)
def test_a_mistake_in_a_test_is_named_and_not_run(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy_test.yaml"
    file.write_text(CONFIG + text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        run_test(load_tests(file)[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^\S+test\.yaml: the file is empty; begin with `config: FILE`"),
        ("- a\n", "must be a mapping of names to values; begin with"),
        ("config: [\n", r"test\.yaml:2: not valid YAML"),
        ("config: 5\ntests: []\n", r"(?s)1: config: 5 is no config; write the path.*2: tests: is empty; write"),
    ],
)
def test_a_file_that_is_no_test_is_told_in_our_own_words(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy_test.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_tests(file)


def test_signals_that_are_computed_cannot_be_given(tmp_path: Path) -> None:
    file = tmp_path / "policy_test.yaml"
    file.write_text(CONFIG + CALM.replace("EXPECT", "final: 2").replace("queue_depth", "queue_delay"), encoding="utf-8")
    with pytest.raises(InputError, match=r"input_signals\[3\]: queue_delay is computed; give queue_depth"):
        run_test(load_tests(file)[0])


def test_a_wrong_config_is_told_as_governor_check_tells_it(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("version: 1\n", encoding="utf-8")
    file = tmp_path / "policy_test.yaml"
    file.write_text("config: bad.yaml\ntests:\n" + CALM.replace("EXPECT", "final: 2"), encoding="utf-8")
    with pytest.raises(ConfigError, match="pools"):
        load_tests(file)
    file.write_text("config: {version: 1}\ntests:\n" + CALM.replace("EXPECT", "final: 2"), encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.pools"):
        load_tests(file)


def source(**rows: list[float | None]) -> SignalSource:
    table = SignalTable()
    for name, values in rows.items():
        table.add(name, {}, values, ["chat"], "here")
    return SignalSource(table, START, 15.0, {Fact.TTFT: (0.5,)})


def test_the_first_look_counts_nothing_and_the_next_one_a_step() -> None:
    eyes = source(offered_rate=[4.0, 4.0], ttft=[0.5, 0.5])
    assert eyes.observe(START, 1.0).pools["chat"].counters == {}
    pool = eyes.observe(START + 15, 1.0).pools["chat"]
    assert pool.counters[Fact.ARRIVED] == 60.0
    assert pool.counters[Fact.FINISHED] == 60.0
    histogram = pool.histograms[Fact.TTFT]
    assert histogram.count == 60.0
    assert histogram.sum == 30.0


def test_a_latency_equal_to_its_target_counts_as_within() -> None:
    eyes = source(ttft=[0.5, 0.5])
    eyes.observe(START, 1.0)
    histogram = eyes.observe(START + 15, 1.0).pools["chat"].histograms[Fact.TTFT]
    assert histogram.cumulative[histogram.edges.index(0.5)] == histogram.count


def test_a_pool_is_shared_out_over_its_replicas_and_adds_up_from_them() -> None:
    pool = source(ready_replicas=[4.0], running=[8.0], kv_usage=[0.5]).observe(START, 1.0).pools["chat"]
    assert [r.gauges[Fact.RUNNING] for r in pool.replicas.values()] == [2.0] * 4
    assert pool.gauges[Fact.WANTED_REPLICAS] == 4.0
    table = SignalTable()
    for name, value in (("a", 0.2), ("b", 0.6)):
        table.add("kv_usage", {"replica": name}, [value], ["chat"], "here")
    pool = SignalSource(table, START, 15.0, {}).observe(START, 1.0).pools["chat"]
    assert pool.gauges[Fact.KV_USAGE] == pytest.approx(0.4)


def test_a_missing_value_is_missing_and_not_zero() -> None:
    seen = source(queue_depth=[None], running=[1.0]).observe(START, 1.0).pools["chat"]
    assert Fact.WAITING not in seen.gauges
    assert Fact.WAITING in seen.failed
    assert source(queue_depth=[None]).observe(START, 1.0).error
