"""What the loop relies on, whatever the control surface: one suite over every actuator.

A new actuator joins by adding a ``Rig``: how to build it, how to look at the target from outside, how to break it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from actuators.file import File, FileConfig
from actuators.kubernetes_scale import KubernetesScale, KubernetesScaleConfig
from actuators.webhook import Webhook, WebhookConfig
from controller.core.model import Lever, Outcome
from controller.core.ports import Actuator, Binding
from tests.support.decisions import decide, replicas
from tests.support.endpoint import endpoint
from tests.support.kube import Trouble, fake_kube

NOW = 1_704_067_800.0
A, B, C = replicas("a"), replicas("b"), replicas("c")
START = {A: 4.0, B: 6.0, C: 2.0}


@dataclass
class Rig:
    """An actuator over a, b, c at 4, 6, 2. `values` looks from outside, `touched` counts writes that arrived, `refuse`,
    `fail` and `lose` make the next write end so, `edit` changes a by somebody else's hand."""

    actuator: Actuator
    values: Callable[[], dict[str, float]]
    touched: Callable[[], int]
    edit: Callable[[float], object]
    fail: Callable[[], object]
    refuse: Callable[[], object] | None = None
    lose: Callable[[], object] | None = None


def kubernetes_rig(folder: Path, stack: ExitStack) -> Rig:
    kube = stack.enter_context(fake_kube(folder))
    for target, value in START.items():
        kube.deploy(target.pool, int(value))
    config = KubernetesScaleConfig("prod", kubeconfig=kube.kubeconfig, timeout=0.3)
    return Rig(
        KubernetesScale(config, Binding(tuple(START), "governor")),
        values=lambda: {t.pool: float(kube.replicas(t.pool)) for t in START},
        touched=lambda: len(kube.writes),
        edit=lambda value: kube.set_scale(kube.objects["apps", "deployments", "prod", "a"], int(value), "kubectl"),
        fail=lambda: kube.trouble.append(Trouble("PUT", "/scale", 503)),
        refuse=lambda: kube.trouble.append(Trouble("PUT", "/scale", 403)),
        lose=lambda: kube.trouble.append(Trouble("PUT", "/scale", "lost")),
    )


def webhook_rig(_: Path, stack: ExitStack) -> Rig:
    end = stack.enter_context(endpoint())
    end.values = {(t.pool, "replicas", ""): value for t, value in START.items()}
    config = WebhookConfig(url=end.url, read_url=end.url, timeout=0.3, retries=0)
    return Rig(
        Webhook(config, Binding(tuple(START), "governor")),
        values=lambda: {pool: value for (pool, _, _), value in end.values.items()},
        touched=lambda: len(end.posts),
        edit=lambda value: end.values.update({("a", "replicas", ""): value}),
        fail=lambda: end.script.append(("POST", 503)),
        refuse=lambda: end.script.append(("POST", 403)),
        lose=lambda: end.script.append(("POST", "lost")),
    )


def file_rig(folder: Path, _: ExitStack) -> Rig:
    path = folder / "fleet.json"
    path.write_text(json.dumps({str(target): value for target, value in START.items()}))
    runs = folder / "runs"
    runs.write_text("")
    ending = folder / "ending"
    ending.write_text("exit 0")
    script = ("sh", "-c", 'echo x >> "$0"; . "$1"', str(runs), str(ending))
    config = FileConfig(path=str(path), reload=script, timeout=0.3)

    def now() -> dict[str, float]:
        return {key.partition("/")[0]: float(value) for key, value in json.loads(path.read_text()).items()}

    return Rig(
        File(config, Binding(tuple(START), "governor")),
        values=now,
        touched=lambda: runs.read_text().count("x"),
        edit=lambda value: path.write_text(
            json.dumps({f"{pool}/replicas": v for pool, v in (now() | {"a": value}).items()})
        ),
        fail=lambda: ending.write_text("exit 1"),
        lose=lambda: ending.write_text("exec tail -f /dev/null"),
    )


RIGS = {"kubernetes": kubernetes_rig, "webhook": webhook_rig, "file": file_rig}


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        made = RIGS[request.param](tmp_path, stack)
        yield made
        made.actuator.close()


@pytest.mark.parametrize("name", RIGS)
def test_every_actuator_is_found_by_its_name(name: str) -> None:
    (point,) = entry_points(group="governor.actuators", name=name)
    assert is_dataclass(point.load().Config)


def test_every_built_in_actuator_is_in_this_suite() -> None:
    ours = {p.name for p in entry_points(group="governor.actuators") if p.value.startswith("actuators.")}
    assert ours == set(RIGS)


def test_it_describes_itself_truly(rig: Rig) -> None:
    description = rig.actuator.describe()
    assert description.levers == (Lever.REPLICAS,)
    assert description.quantum > 0
    assert description.settle >= 0


def test_it_reads_what_is_there(rig: Rig) -> None:
    states = rig.actuator.read(list(START), NOW)
    assert {target: state.accepted for target, state in states.items()} == START
    assert not any(state.error or state.foreign_writer for state in states.values())


def test_it_reads_only_what_it_is_asked(rig: Rig) -> None:
    assert set(rig.actuator.read([B], NOW)) == {B}


def test_a_batch_arrives_and_is_read_back(rig: Rig) -> None:
    decisions = [decide(A, 4, 5), decide(B, 6, 3), decide(C, 2, 2)]
    outcomes = {a.target: a.outcome for a in rig.actuator.apply(decisions, NOW)}
    assert outcomes == dict.fromkeys(START, Outcome.DONE)
    assert rig.values() == {"a": 5, "b": 3, "c": 2}
    states = rig.actuator.read(list(START), NOW + 15)
    assert [states[t].accepted for t in START] == [5, 3, 2]
    assert (states[A].last_change, states[A].last_outcome) == (NOW, Outcome.DONE)


def test_applying_twice_is_applying_once(rig: Rig) -> None:
    decision = decide(A, 4, 5)
    for _ in range(2):
        (applied,) = rig.actuator.apply([decision], NOW)
        assert applied.outcome is Outcome.DONE
    assert rig.values()["a"] == 5


@pytest.mark.parametrize(
    "bad",
    [
        decide(replicas("stranger"), 1, 2),
        decide(B, 6, None),
        decide(B, 6, float("nan")),
        decide(B, 6, float("inf")),
        decide(B, 6, -1),
        decide(B, 6, 2.5),
        decide(B, 6, 5, send=False),
        decide(A, 4, 7),
    ],
    ids=["stranger", "none", "nan", "inf", "negative", "fraction", "dry", "twice"],
)
def test_one_impossible_decision_stops_its_batch_before_the_first_write(rig: Rig, bad: object) -> None:
    outcomes = rig.actuator.apply([decide(A, 4, 5), bad, decide(C, 2, 3)], NOW)  # type: ignore[list-item]
    assert len(outcomes) == 3
    assert Outcome.REFUSED in {a.outcome for a in outcomes}
    assert {a.outcome for a in outcomes} <= {Outcome.REFUSED, Outcome.FAILED}
    assert rig.values() == {"a": 4, "b": 6, "c": 2}
    assert rig.touched() == 0


def test_an_empty_batch_is_nothing(rig: Rig) -> None:
    assert list(rig.actuator.apply([], NOW)) == []
    assert list(rig.actuator.verify([], NOW)) == []
    assert rig.touched() == 0


def test_a_failed_write_changes_nothing_and_says_why(rig: Rig) -> None:
    rig.fail()
    (applied,) = rig.actuator.apply([decide(A, 4, 5)], NOW)
    assert (applied.outcome, bool(applied.detail)) == (Outcome.FAILED, True)
    assert rig.values()["a"] == 4
    state = rig.actuator.read([A], NOW + 15)[A]
    assert (state.accepted, state.last_change, state.foreign_writer) == (4, None, "")


def test_a_refused_write_is_told_from_a_failed_one(rig: Rig) -> None:
    if rig.refuse is None:
        assert isinstance(rig.actuator, File)  # a file has nobody who could refuse
        return
    rig.refuse()
    (applied,) = rig.actuator.apply([decide(A, 4, 5)], NOW)
    assert applied.outcome is Outcome.REFUSED
    assert rig.values()["a"] == 4


def test_a_lost_answer_is_unknown_and_verify_finds_the_truth_without_writing(rig: Rig) -> None:
    assert rig.lose is not None
    rig.actuator.read([A], NOW)
    rig.lose()
    decision = decide(A, 4, 5)
    (applied,) = rig.actuator.apply([decision], NOW)
    assert applied.outcome is Outcome.UNKNOWN
    written = rig.touched()
    assert rig.actuator.read([A], NOW + 15)[A].foreign_writer == ""
    for _ in range(2):
        (verified,) = rig.actuator.verify([decision], NOW + 15)
        assert verified.outcome is Outcome.DONE
    assert rig.touched() == written


def test_verify_of_what_did_not_happen_says_failed(rig: Rig) -> None:
    (verified,) = rig.actuator.verify([decide(A, 4, 5)], NOW)
    assert verified.outcome is Outcome.FAILED
    assert rig.touched() == 0


def test_a_foreign_write_is_seen_once_and_forgotten_in_time(rig: Rig) -> None:
    rig.actuator.read([A], NOW)
    rig.edit(7)
    seen = rig.actuator.read([A], NOW + 15)[A]
    assert seen.accepted == 7
    assert seen.foreign_writer
    assert rig.actuator.read([A], NOW + 16 + 900)[A].foreign_writer == ""


def test_our_next_write_after_yielding_is_ours_again(rig: Rig) -> None:
    rig.actuator.read([A], NOW)
    rig.edit(7)
    rig.actuator.read([A], NOW + 15)
    rig.actuator.apply([decide(A, 7, 5)], NOW + 1000)
    state = rig.actuator.read([A], NOW + 1015)[A]
    assert (state.accepted, state.foreign_writer) == (5, "")


def test_decreases_come_before_increases(rig: Rig) -> None:
    outcomes = rig.actuator.apply([decide(A, 4, 5), decide(B, 6, 5), decide(C, 2, 1)], NOW)
    if isinstance(rig.actuator, File):
        return  # one write for all
    assert [a.target for a in outcomes] == [B, C, A]
