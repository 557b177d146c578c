"""A lever that the twin's gateway has not is told before the run, once: at every tick it would be an unread value
among a thousand lines, or nothing at all."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from controller.cli.app import app
from controller.run import memory
from controller.simulate.checks import misfits
from controller.simulate.load import open_study
from tests.support.scenarios import SMALL, changed, written

GATE = {"kind": "gate"}
CAP = {"per_slot": 1}


def gated(*setpoints: str, **knobs: Any) -> dict[str, Any]:
    """The small scenario with these set-points, before a gateway with these knobs."""
    data = changed(SMALL, "fleet.pools.chat.gateway", {"strategy": "least-loaded", "knobs": knobs})
    data = changed(data, "governor.pools.chat.labels", {"class": "request_class"})
    data = changed(data, "governor.pools.chat.classes", {"first": {"rank": 0}, "last": {"rank": 1}})
    return changed(
        data, "governor.pools.chat.levers.admission", {"mode": "auto", "setpoints": list(setpoints), "policy": GATE}
    )


def sending(prompt: dict[str, int] | None, rule: dict[str, Any]) -> dict[str, Any]:
    """A downgrade of these prompts, with this rule of the gateway."""
    small = SMALL["fleet"]["pools"]["chat"]
    one = {"pool": "small", "classes": ["last"], "tenants": ["*"], **rule}
    data = changed(SMALL, "fleet.pools.chat.gateway", {"strategy": "least-loaded", "knobs": {"downgrade": [one]}})
    data = changed(data, "fleet.pools.small", small)
    data = changed(data, "governor.pools.small", {"engine": "vllm", "selector": {"model_name": "small"}})
    data = changed(data, "governor.pools.chat.labels", {"class": "request_class"})
    data = changed(data, "governor.pools.chat.classes", {"first": {}, "last": {"rank": 1, "consents": True}})
    lever = {"receivers": ["small"], "policy": {"kind": "downgrade"}, **({"prompt": prompt} if prompt else {})}
    return changed(data, "governor.pools.chat.levers.downgrade", lever)


def told(folder: Path, data: dict[str, Any]) -> list[str]:
    study = open_study(written(folder, data))
    return list(misfits(study.scenario, study.config))


def test_a_factor_on_deadlines_that_the_gateway_does_not_go_by_is_told(tmp_path: Path) -> None:
    (said,) = told(tmp_path, gated("concurrency", "deadline", concurrency=CAP))
    assert said.startswith("chat/admission/deadline: the gateway goes by no deadlines; write")
    assert told(tmp_path, gated("concurrency", "deadline", concurrency=CAP, admission={"deadlines": True})) == []


def test_set_points_of_a_gate_that_nobody_waits_for_are_told(tmp_path: Path) -> None:
    knobs = {"admission": {"deadlines": True}}
    said = told(tmp_path, gated("deadline", "priority", **knobs))
    assert [one.partition(": ")[0] for one in said] == ["chat/admission/deadline", "chat/admission/priority"]
    assert all("nothing limits the requests in flight" in one for one in said)
    assert told(tmp_path, gated("deadline", "priority", concurrency=CAP, **knobs)) == []
    assert told(tmp_path, gated("concurrency", "deadline", "priority", **knobs)) == []


@pytest.mark.parametrize(
    ("prompt", "rule"),
    [
        ({"max": 2000}, {"shortest_prompt": 5000}),
        ({"max": 2000}, {}),
        (None, {"longest_prompt": 2000}),
        ({"min": 100, "max": 2000}, {"longest_prompt": 2000}),
    ],
)
def test_a_downgrade_whose_two_ends_mean_other_prompts_is_told(
    tmp_path: Path, prompt: dict[str, int] | None, rule: dict[str, int]
) -> None:
    """The law would count on relief that the gateway does not give."""
    (said,) = told(tmp_path, sending(prompt, rule))
    assert said.startswith("chat/downgrade/small: the lever counts on ")


@pytest.mark.parametrize(
    ("prompt", "rule"),
    [(None, {}), ({"max": 2000}, {"longest_prompt": 2000}), ({"min": 1}, {}), ({"min": 9}, {"shortest_prompt": 9})],
)
def test_a_downgrade_whose_two_ends_agree_is_no_doubt(
    tmp_path: Path, prompt: dict[str, int] | None, rule: dict[str, int]
) -> None:
    assert told(tmp_path, sending(prompt, rule)) == []


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            {"classes": ["*"]},
            "the lever counts on last of the classes, and the gateway's rule sends all classes; write",
        ),
        ({"classes": ["first"]}, "the lever counts on last of the classes, and the gateway's rule sends first of the"),
        ({"tenants": ["ann"]}, "the lever counts on all tenants, and the gateway's rule sends ann of the tenants; "),
        (
            {"tenants": []},
            "the lever counts on all tenants, and the gateway's rule sends no tenants; write the same in",
        ),
    ],
)
def test_whoever_does_not_consent_is_answered_by_the_smaller_model_and_nobody_says_so(
    tmp_path: Path, rule: dict[str, Any], said: str
) -> None:
    (one,) = told(tmp_path, sending(None, rule))
    assert one.startswith(f"chat/downgrade/small: {said}")


def test_several_rules_for_one_pool_are_one_consent(tmp_path: Path) -> None:
    data = sending(None, {})
    classes = {"first": {"consents": True}, "last": {"rank": 1, "consents": True}}
    data = changed(data, "governor.pools.chat.classes", classes)
    rule = {"pool": "small", "tenants": ["*"]}
    rules = [{**rule, "classes": ["last"]}, {**rule, "classes": ["first"]}]
    assert told(tmp_path, changed(data, "fleet.pools.chat.gateway.knobs.downgrade", rules)) == []


@pytest.mark.parametrize(("mode", "strategy", "many"), [("auto", "least-loaded", 1), ("off", "least-loaded", 0)])
def test_an_affinity_that_the_strategy_has_not_is_told_where_it_would_be_moved(
    tmp_path: Path, mode: str, strategy: str, many: int
) -> None:
    data = changed(SMALL, "fleet.pools.chat.gateway", {"strategy": strategy})
    data = changed(data, "governor.pools.chat.levers.routing", {"mode": mode, "policy": {"kind": "affinity"}})
    said = told(tmp_path, data)
    assert [one for one in said if "least-loaded has no affinity to move" in one] == said
    assert len(said) == many


def begun(monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    """A simulation that is ended where its runs would begin."""

    def stop(*_: object, **__: object) -> None:
        raise RuntimeError("far enough")

    monkeypatch.setattr(memory, "settle", stop)
    return CliRunner().invoke(app, ["simulate", *words])


def test_the_console_says_it_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = begun(monkeypatch, str(written(tmp_path, gated("concurrency", "deadline", concurrency=CAP))))
    assert "the gateway goes by no deadlines" in done.stderr.replace("\n", " ")


SPARE = {"kind": "capacity", "spare": 1}
LAZY = changed(changed(SMALL, "governor.pools.chat.levers.replicas.policy", SPARE), "seeds", 3)


def lazy(**pin: str) -> dict[str, Any]:
    """A pool that never goes to zero, with a pin where one is given."""
    data = changed(changed(LAZY, "governor.pools.chat.levers.replicas.min", 0), "governor.pools.chat.gateway", GAIE)
    return changed(data, "governor.pools.chat.levers.replicas.pin", {"value": 2, **pin}) if pin else data


GAIE = {"engine": "gaie", "selector": {"model_name": "chat"}}
NEVER = "keeps 1 when nobody asks for anything, so the pool never goes to zero; write spare: 0, or min: 1"


def test_what_check_tells_of_a_config_is_told_where_it_is_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that never went to zero was simulated, and nobody said why."""
    done = begun(monkeypatch, str(written(tmp_path, lazy())))

    place = f"{tmp_path / 'small.yaml'}: governor.pools.chat.levers.replicas.policy.spare"
    assert done.stderr == f"governor: {place}: {NEVER}\n"
    assert done.stdout == ""


@pytest.mark.parametrize("named", [True, False])
def test_it_is_told_of_the_file_that_the_config_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    own = {"version": 1, "source": {"kind": "prometheus", "url": "http://twin"}, **lazy()["governor"]}
    file = written(tmp_path, own, "governor.yaml")
    scenario = written(tmp_path, changed(SMALL, "governor", "governor.yaml") if named else SMALL)
    done = begun(monkeypatch, str(scenario), *(() if named else ("--config", str(file))))
    checked = CliRunner().invoke(app, ["check", str(file)])

    assert f"{file}: pools.chat.levers.replicas.policy.spare: {NEVER}" in done.stderr
    told = [line for line in checked.stderr.splitlines() if "not needed to rehearse" not in line]
    assert done.stderr.splitlines() == told


def test_a_pin_is_judged_by_the_time_of_the_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ended last spring holds in it, and was said to hold nothing any more."""
    spring = begun(monkeypatch, str(written(tmp_path, lazy(until="2026-03-01T00:00:00Z", reason="fair"))))
    before = begun(monkeypatch, str(written(tmp_path, lazy(until="2025-12-01T00:00:00Z", reason="fair"))))

    assert "holds nothing any more" not in spring.stderr
    assert "replicas.pin: ended at 2025-12-01T00:00Z and holds nothing any more" in before.stderr
