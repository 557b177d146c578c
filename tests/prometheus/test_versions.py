"""Versions of replicas: read from the label that the config names, and from the newest series of a pod."""

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.prometheus.discovery import Found
from sources.prometheus.family import families
from sources.prometheus.plan import sightings
from sources.prometheus.targets import Targets
from sources.prometheus.transport import Row

NAMES = frozenset({"vllm:num_requests_running", "vllm:num_requests_waiting"})


def needs(version_label: str = "pod_template_hash") -> PoolNeeds:
    return PoolNeeds(
        "chat", "vllm", (Matcher("model_name", "=", "chat"),), frozenset({Fact.RUNNING}), version_label=version_label
    )


def row(stamp: float, version: str) -> Row:
    return {
        "job": "vllm",
        "instance": "a:1",
        "pod": "chat-0",
        "model_name": "chat",
        "pod_template_hash": version,
    }, stamp


def version(*rows: Row, need: PoolNeeds | None = None) -> str:
    (family,) = families([need or needs()])
    targets = Targets()
    targets.sight(family, True, rows, first=True)
    ((seat, _),) = targets.by_pool()["chat"]["chat-0"]
    return seat.version


def test_a_pod_that_keeps_its_name_runs_what_its_newest_series_says() -> None:
    """Of a StatefulSet a rollout replaces chat-0 by chat-0: for five minutes the old series is there, too."""
    assert version(row(100.0, "new"), row(40.0, "old")) == "new"
    assert version(row(40.0, "old"), row(100.0, "new")) == "new"


def test_without_the_label_in_the_config_no_version_is_asked_for_or_told() -> None:
    assert version(row(100.0, "new"), need=needs("")) == ""
    for label, asked in (("pod_template_hash", True), ("", False)):
        (family,) = families([needs(label)])
        assert ("pod_template_hash" in sightings(family, Found(NAMES, named=NAMES))) is asked
