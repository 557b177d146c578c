"""A drain that could not work is refused: it would end whoever it likes, or hold every lowering for nothing."""

import pytest

from controller.config import ConfigError, loads
from controller.config.terms import fleet_rules
from tests.support.written import pool, written

KUBE = "actuator: {kind: kubernetes, namespace: prod"
HOOK = "actuator: {kind: webhook, url: 'http://127.0.0.1:9/', initial: 1, quantum: 0.01}"
WEIGHT = "weight: {mode: auto, policy: {kind: weights}}"


def replicas(more: str = "", mode: str = "auto", drain: str = "2m") -> str:
    return (
        f"replicas: {{mode: {mode}, min: 1, max: 9, policy: {{kind: capacity}}, drain: {drain}{more and ', ' + more}}}"
    )


def config(*levers: str) -> str:
    return written(pool("chat", levers=list(levers)))


@pytest.mark.parametrize(
    ("levers", "where", "mistake"),
    [
        ([replicas()], "replicas.drain", "nothing takes the traffic of single replicas away"),
        ([replicas(), WEIGHT.replace("auto", "observe")], "replicas.drain", "nothing takes the traffic"),
        ([replicas(), WEIGHT.replace("auto", "protect")], "replicas.drain", "nothing takes the traffic"),
        ([replicas(drain="20s"), WEIGHT], "replicas.drain", "20s is over before anybody can be seen without work"),
        ([replicas(f"{KUBE}, workload_kind: StatefulSet}}"), WEIGHT], "replicas.drain", "cannot choose who goes here"),
        ([replicas("actuator: {kind: webhook, url: 'http://127.0.0.1:9/', initial: 1}"), WEIGHT], "replicas.drain",
         "webhook cannot choose who goes here"),
        ([replicas(drain="30d"), WEIGHT], "replicas.drain", "one answer that hangs would hold every lowering"),
        ([replicas(), WEIGHT.replace("auto", "auto, expiry: 0s")], "weight.expiry", "get nothing any more when every"),
        ([replicas(), WEIGHT.replace("auto", f"auto, {HOOK}")], "weight.actuator", "webhook cannot drop a value"),
        ([replicas(), WEIGHT.replace("auto", "auto, rate: {up: 0.2/15s, down: 0.05/60s}")], "replicas.drain",
         "2m is over before a weight is 0, which takes 19m45s"),
        ([replicas(), WEIGHT.replace("auto", "auto, rate: {up: 0.2/15s, down: 50%/60s}")], "replicas.drain",
         "2m is over before a weight is 0"),
        ([WEIGHT.replace("mode: auto", "mode: auto, drain: 2m")], "weight.drain", "means nothing for weight"),
    ],
)  # fmt: skip
def test_what_could_not_drain_is_refused_with_its_mend(levers: list[str], where: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(config(*levers))
    found = {problem.path: problem for problem in caught.value.problems}
    assert mistake in found[f"pools.chat.levers.{where}"].mistake


@pytest.mark.parametrize(
    ("key", "levers", "where", "mistake"),
    [
        ("workload: {namespace: prod, name: chat, kind: StatefulSet}", [replicas(), WEIGHT], "levers.replicas.drain",
         "a StatefulSet cannot be told whom to end"),
        ("labels: {replica: instance}", [replicas(f"{KUBE}}}"), WEIGHT], "labels.replica",
         "instance is not the name of a pod"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_told_who_has_finished_is_refused(
    key: str, levers: list[str], where: str, mistake: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(written(pool("chat", key, levers=levers)))
    found = {problem.path: problem for problem in caught.value.problems}
    assert mistake in found[f"pools.chat.{where}"].mistake


@pytest.mark.parametrize(
    ("key", "name", "kube"),
    [
        ("workload: {namespace: prod, name: llm}", "llm", ""),
        ("", "llm", f"{KUBE}, name: llm}}"),
        ("", "chat", f"{KUBE}}}"),
        ("", "", ""),
        ("workload: {namespace: prod, name: llm, kind: ReplicaSet}", "", ""),
    ],
)
def test_the_deployment_whose_pods_go_is_known_where_somebody_says(key: str, name: str, kube: str) -> None:
    rules = fleet_rules(loads(written(pool("chat", key, levers=[replicas(kube), WEIGHT]))))
    assert rules.pools[0].levers[0].workload == name


@pytest.mark.parametrize(
    "levers",
    [
        [replicas(), WEIGHT],
        [replicas(f"{KUBE}}}"), WEIGHT],
        [replicas(mode="observe"), WEIGHT.replace("auto", "observe")],
        [replicas(drain="0s")],
        [replicas(), WEIGHT.replace("auto", "auto, expiry: 0s, fail_static: true")],
        [replicas(), WEIGHT.replace("auto", f"auto, fail_static: true, {HOOK}")],
        [replicas(), WEIGHT.replace("auto", "auto, rate: {up: 0.2/15s, down: 0.5/15s}")],
    ],
)
def test_what_can_is_taken_and_is_off_unless_it_is_asked_for(levers: list[str]) -> None:
    rules = fleet_rules(loads(config(*levers)))
    asked = "drain: 2m" in levers[0]
    assert rules.pools[0].levers[0].drain == (120.0 if asked else 0.0)
    assert bool(rules.draining) == (asked and "mode: auto" in levers[0])
