"""The alert rules, run by promtool, and held to the catalogue."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.run.catalogue import SERIES
from tests.support.prometheus import needs_prometheus
from tests.support.promql import names

ROOT = Path(__file__).parents[2]
RULES = ROOT / "dashboards/alerts.yaml"
CASES = Path(__file__).with_name("alerts_test.yaml")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def promtool(folder: Path) -> subprocess.CompletedProcess[str]:
    shutil.copy(CASES, folder)
    command = ["promtool", "test", "rules", CASES.name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@needs_prometheus
def test_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    done = promtool(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_the_cases_pass_whatever_the_rules_say(tmp_path: Path) -> None:
    changed = yaml.safe_load(RULES.read_text())
    for group in changed["groups"]:
        for rule in group["rules"]:
            rule["expr"] = "vector(0) > 1"
    (tmp_path / RULES.name).write_text(yaml.safe_dump(changed))
    done = promtool(tmp_path)
    assert done.returncode != 0
    for rule in rules():
        assert f"alertname: {rule['alert']}" in done.stdout + done.stderr, "this rule has no case that needs it"


def test_every_rule_has_a_time_at_which_it_is_quiet() -> None:
    quiet = {
        case["alertname"]
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for case in test["alert_rule_test"]
        if not case["exp_alerts"]
    }
    assert {rule["alert"] for rule in rules()} == quiet


def test_two_rules_of_one_name() -> None:
    found = [rule["alert"] for rule in rules()]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_on_a_metric_that_was_renamed_never_fires(rule: dict[str, Any]) -> None:
    found = names(rule["expr"])
    assert found
    assert found <= SERIES


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_that_tells_nobody_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description"} <= rule["annotations"].keys()
