"""A deployment makes and ends the replicas that Kubernetes would, so that a scale-down costs what it really costs."""

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster.deployment import SURGE, Verdict, active, reconcile
from simulator.cluster.life import Life, Stage
from simulator.spec import LifeSpec

SPEC = LifeSpec(provision=10.0, pull=10.0, load=10.0, warm=10.0)
AGE = {Stage.REQUESTED: None, Stage.PROVISIONING: 5, Stage.PULLING: 15, Stage.LOADING: 25, Stage.READY: 45}


@dataclass
class Pod:
    life: Life
    version: str
    number: int
    cost: int = 0


def pod(number: int, stage: Stage, version: str = "v1", ready_for: float = 100.0) -> Pod:
    life = Life(SPEC, random.Random(1), 0.0)
    if stage in (Stage.READY, Stage.DRAINING):
        life.settle(1000.0 - ready_for)
    elif (age := AGE[stage]) is not None:
        life.place(0.0)
        while life.advance(float(age)):
            pass
    if stage is Stage.DRAINING:
        life.end(1000.0, 300.0)
    assert life.stage is stage
    return Pod(life, version, number)


def test_as_many_are_made_as_are_wanted_and_the_dying_do_not_count() -> None:
    pods = [pod(0, Stage.READY), pod(1, Stage.DRAINING), pod(2, Stage.LOADING)]
    assert reconcile(pods, 5, "v1") == Verdict(3, ())


def test_scaling_down_takes_first_what_serves_least() -> None:
    pods = [
        pod(0, Stage.READY, ready_for=900.0),
        pod(1, Stage.READY, ready_for=50.0),
        pod(2, Stage.LOADING),
        pod(3, Stage.PULLING),
        pod(4, Stage.REQUESTED),
        pod(5, Stage.READY, ready_for=500.0),
    ]
    assert reconcile(pods, 0, "v1").end == (4, 3, 2, 1, 5, 0)
    assert reconcile(pods, 3, "v1").end == (4, 3, 2)


def test_who_was_pointed_out_goes_before_others_that_serve_and_after_those_that_do_not() -> None:
    """Else the newest goes, whatever it holds."""
    pods = [pod(0, Stage.READY, ready_for=900.0), pod(1, Stage.READY, ready_for=50.0), pod(2, Stage.LOADING)]
    pods[0].cost = -1
    assert reconcile(pods, 2, "v1").end == (2,)
    assert reconcile(pods, 1, "v1").end == (2, 0)


def test_a_rollout_never_serves_with_fewer_than_wanted() -> None:
    pods = [pod(0, Stage.READY), pod(1, Stage.READY)]
    assert reconcile(pods, 2, "v2") == Verdict(1, ())
    pods.append(pod(2, Stage.LOADING, "v2"))
    assert reconcile(pods, 2, "v2") == Verdict(0, ())
    pods[2] = pod(2, Stage.READY, "v2")
    assert reconcile(pods, 2, "v2") == Verdict(1, (1,))


def test_a_rollout_replaces_first_what_does_not_serve() -> None:
    pods = [pod(0, Stage.READY), pod(1, Stage.LOADING)]
    assert reconcile(pods, 2, "v2") == Verdict(2, (1,))


kinds = st.sampled_from([Stage.REQUESTED, Stage.PULLING, Stage.LOADING, Stage.READY, Stage.DRAINING])


@given(st.lists(st.tuples(kinds, st.sampled_from(["v1", "v2"])), max_size=8), st.integers(0, 8))
def test_every_rollout_comes_to_its_end_and_never_gives_up_capacity(
    stages: list[tuple[Stage, str]], wanted: int
) -> None:
    pods = [pod(i, stage, version) for i, (stage, version) in enumerate(stages)]
    number = len(pods)
    had = min(wanted, sum(p.life.stage is Stage.READY for p in pods))
    for _ in range(60):
        verdict = reconcile(pods, wanted, "v2")
        ended = set(verdict.end)
        pods = [p for p in pods if p.number not in ended]
        pods += [pod(number + i, Stage.LOADING, "v2") for i in range(verdict.make)]
        number += verdict.make
        assert sum(p.life.stage is Stage.READY for p in pods) >= had
        assert not verdict.make or len(active(pods)) <= wanted + SURGE
        if not verdict.make and not verdict.end:
            loading = next((p for p in active(pods) if p.life.stage is not Stage.READY), None)
            if loading is None:
                break
            pods[pods.index(loading)] = pod(loading.number, Stage.READY, loading.version)  # type: ignore[arg-type]
    assert [p.version for p in active(pods)] == ["v2"] * wanted
