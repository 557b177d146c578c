"""A ledger carries its config; one that does not load again cannot be replayed."""

import json
from pathlib import Path

import pytest
import yaml

from controller.config import config_hash, load, loads
from controller.config.spell import spell

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.yaml") if "_test" not in p.name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_spelled_out_loads_to_the_same_config(path: Path) -> None:
    config = load(path)
    again = loads(yaml.safe_dump(json.loads(json.dumps(spell(config), allow_nan=False)), sort_keys=False))
    assert again == config
    assert config_hash(again) == config_hash(config)


def test_units_matchers_rates_and_secrets_survive() -> None:
    text = (ROOT / "examples" / "minimal.yaml").read_text(encoding="utf-8")
    text = text.replace(
        "selector: {model_name: chat}", 'selector: {a: b, c: {regex: "x.*"}, d: {not: y}, e: {not_regex: z}}'
    )
    text = text.replace("levers:", "window: 1m30s\n    levers:")
    text = text.replace(
        "percentile: p99, target: 2500ms}",
        "percentile: p99.95, target: 80ms}\n      - {signal: error_ratio, target: 0.5%}",
    )
    text = text.replace("max: 8,", "max: 8, rate: {up: 150%/90s, down: 2/10m},")
    text = text.replace("prometheus:9090}", "prometheus:9090, bearer: {env: TOKEN}}")
    config = loads(text)
    spelled = spell(config)
    pool = spelled["pools"]["chat"]
    assert pool["selector"] == {"a": "b", "c": {"regex": "x.*"}, "d": {"not": "y"}, "e": {"not_regex": "z"}}
    assert pool["window"] == "1m30s"
    assert pool["objectives"][0]["percentile"] == "p99.95"
    assert pool["objectives"][1]["target"] == "0.5%"
    assert pool["levers"]["replicas"]["rate"] == {"up": "150%/1m30s", "down": "2/10m"}
    assert spelled["source"]["bearer"] == {"env": "TOKEN"}
    assert loads(yaml.safe_dump(spelled)) == config
