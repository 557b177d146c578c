"""Every shipped config is a fixture: it loads, and what it says about defaults is true."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from controller.config import ConfigError, GovernorConfig, config_hash, hints, load, without_actuator
from controller.config.docs import render
from controller.config.models import LeverConfig, ObjectiveConfig, PoolConfig
from controller.config.terms import fleet_rules

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yaml") if not path.stem.endswith("_test"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_loads(path: Path) -> None:
    assert load(path).pools


WHOLE = [*EXAMPLES, *sorted((ROOT / "examples" / "targets").glob("*/governor*.yaml")),
         ROOT / "examples" / "end-to-end" / "governor.yaml", ROOT / "manifests" / "base" / "governor.yaml"]  # fmt: skip


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_config_that_check_has_doubts_of_is_no_example(path: Path) -> None:
    assert hints(load(path), datetime(2026, 11, 30, tzinfo=UTC)) == ()


def test_there_are_examples() -> None:
    assert {"minimal", "reference", "demo", "kubernetes", "thresholds", "levers"} <= {path.stem for path in EXAMPLES}


def test_the_reference_file_states_the_defaults_of_the_code() -> None:
    """A default that is documented wrongly is believed."""
    minimal, reference = (load(ROOT / "examples" / f"{name}.yaml") for name in ("minimal", "reference"))
    assert reference.model_dump() == minimal.model_dump()
    assert config_hash(reference) == config_hash(minimal)


def test_the_reference_file_leaves_out_no_key() -> None:
    raw = yaml.safe_load((ROOT / "examples" / "reference.yaml").read_text(encoding="utf-8"))
    pool = raw["pools"]["chat"]
    for written, model, optional in (
        (raw, GovernorConfig, set[str]()),
        (pool, PoolConfig, {"workload", "profile", "max_num_seqs", "gateway"}),
        (pool["objectives"][0], ObjectiveConfig, {"attainment", "statistic"}),
        (pool["levers"]["replicas"], LeverConfig, {"actuator", "pin", "prompt"}),
    ):
        assert keys(model) - optional == set(written)


def keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_what_acts_in_the_kubernetes_example_has_an_actuator() -> None:
    assert without_actuator(load(ROOT / "examples" / "kubernetes.yaml")) == ()


def test_the_configuration_page_is_what_the_models_say() -> None:
    """Mend: `python -m controller.config.docs > docs/configuration.md`."""
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == render()


def test_the_example_of_regions_moves_shares_between_them() -> None:
    """The pool that sees all regions moves nothing but the shares; each region has its own replicas."""
    found = fleet_rules(load(ROOT / "examples" / "targets" / "regions" / "governor.yaml"))

    assert [(pool.pool, lever.lever.value, lever.by) for pool in found.pools for lever in pool.levers] == [
        ("chat", "weight", "zone"), ("chat-eu", "replicas", "replica"), ("chat-us", "replicas", "replica"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    labels: {zone: region} ", "    # ", "no label tells the zones apart"),
        ("replicas: {min: 2", "replicas: {by: zone, min: 2", "means nothing for replicas"),
    ],
)
def test_zones_that_nobody_can_tell_apart_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (ROOT / "examples" / "targets" / "regions" / "governor.yaml").read_text(encoding="utf-8")
    (tmp_path / "g.yaml").write_text(text.replace(old, new), encoding="utf-8")
    assert old in text
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "g.yaml")
