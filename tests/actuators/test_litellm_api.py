"""LiteLLM's management API, by a record of the source of 1.108.7 (see ``tests/support/litellm_db.py``)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actuators.litellm import LiteLLM, LiteLLMConfig, LiteLLMPool
from controller.core.model import Drift, Lever, Outcome, Target
from controller.core.params import SecretRef
from controller.core.ports import Binding
from tests.actuators.rigs import NOW
from tests.support.decisions import decide
from tests.support.litellm_db import Database, litellm_database

A, B = (Target("chat", Lever.WEIGHT, name) for name in ("a", "b"))
OUT, ALSO_OUT = (Target("chat", Lever.BREAKER, name) for name in ("a", "b"))
ACME = Target("chat", Lever.TENANT_CAP, "acme")
BOUND = Binding((ACME,), "governor", (("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))
NO_LIMIT = 1e12
TOKEN = "88dc28d0"


@pytest.fixture
def data() -> Iterator[Database]:
    with litellm_database() as one:
        one.model("a", "chat", 3)
        one.model("b", "chat", 1)
        one.key(TOKEN, 60_000, team="red")
        yield one


@pytest.fixture
def config(data: Database, tmp_path: Path) -> LiteLLMConfig:
    secret = tmp_path / "key"
    secret.write_text(data.master_key)
    key = SecretRef(file=str(secret))
    return LiteLLMConfig(
        {"chat": LiteLLMPool("chat")}, mode="api", url=data.url, master_key=key, keys={"acme": TOKEN}, timeout=0.5
    )


@pytest.fixture
def hands(config: LiteLLMConfig) -> Iterator[LiteLLM]:
    one = LiteLLM(config, BOUND)
    yield one
    one.close()


def weight(data: Database, name: str = "a") -> Any:
    return data.models[name]["litellm_params"].get("weight")


def put(hands: LiteLLM, target: Target, value: float, current: float | None = None) -> Outcome:
    return hands.apply([decide(target, current, value)], NOW)[0].outcome


def test_a_weight_is_a_part_of_the_owners_and_comes_back_by_another_process(
    data: Database, hands: LiteLLM, config: LiteLLMConfig
) -> None:
    assert put(hands, A, 0.5) is Outcome.DONE
    assert weight(data) == 1.5
    heir = LiteLLM(config, BOUND)
    assert heir.read([A], NOW)[A].accepted == 0.5
    assert put(heir, A, 1.0) is Outcome.DONE
    assert weight(data) == 3
    heir.close()


def test_weight_and_breaker_of_one_replica_are_one_write_of_the_lower(data: Database, hands: LiteLLM) -> None:
    outcomes = hands.apply([decide(A, 1, 0.5), decide(OUT, 1, 0.25), decide(B, 1, 0.9)], NOW)
    assert {one.outcome for one in outcomes} == {Outcome.DONE}
    assert (weight(data), weight(data, "b"), len(data.writes)) == (0.75, 0.9, 2)
    put(hands, OUT, 1.0)
    assert weight(data) == 1.5


def test_the_last_deployment_that_has_weight_stays(data: Database, hands: LiteLLM) -> None:
    outcomes = {one.target: one.outcome for one in hands.apply([decide(OUT, 1, 0), decide(ALSO_OUT, 1, 0)], NOW)}
    assert sorted(outcomes.values()) == [Outcome.DONE, Outcome.REFUSED]
    assert sorted([weight(data), weight(data, "b")])[1] > 0


def test_a_cap_is_tokens_per_minute_below_the_owners_and_keeps_the_metadata(data: Database, hands: LiteLLM) -> None:
    assert put(hands, ACME, 500) is Outcome.DONE
    assert data.keys[TOKEN]["tpm_limit"] == 30_000
    assert data.keys[TOKEN]["metadata"]["team"] == "red"
    assert put(hands, ACME, 5000) is Outcome.DONE
    assert data.keys[TOKEN]["tpm_limit"] == 60_000
    assert put(hands, ACME, NO_LIMIT) is Outcome.DONE
    assert data.keys[TOKEN] == {
        "key_alias": TOKEN, "tpm_limit": 60_000, "rpm_limit": None, "metadata": {"team": "red"},
    }  # fmt: skip


def test_a_key_without_a_limit_has_none_again(data: Database, hands: LiteLLM) -> None:
    data.key(TOKEN, None)
    put(hands, ACME, 500)
    put(hands, ACME, NO_LIMIT)
    assert data.keys[TOKEN]["tpm_limit"] is None


def test_what_somebody_set_is_yielded_to_and_is_the_owners_from_then_on(data: Database, hands: LiteLLM) -> None:
    put(hands, A, 0.5)
    put(hands, ACME, 500)
    hands.read([A, ACME], NOW)
    data.models["a"]["litellm_params"]["weight"] = 2
    data.keys[TOKEN]["tpm_limit"] = 12_000
    states = hands.read([A, ACME], NOW + 15)
    assert [states[t].drift for t in (A, ACME)] == [Drift.FOREIGN, Drift.FOREIGN]
    assert states[ACME].accepted == 200
    put(hands, A, 0.5)
    put(hands, ACME, NO_LIMIT)
    assert (weight(data), data.keys[TOKEN]["tpm_limit"]) == (1, 12_000)


# How the API treats a weight that goes from 0.5 to 0.3 of 3; the outcome; the weight then.
MATRIX: dict[str, tuple[int | str, Outcome, float]] = {
    "no right": (403, Outcome.REFUSED, 1.5),
    "nonsense asked": (400, Outcome.REFUSED, 1.5),
    "too many requests": (429, Outcome.FAILED, 1.5),
    "an error inside": (500, Outcome.UNKNOWN, 1.5),
    "a gateway lost it": (502, Outcome.UNKNOWN, 1.5),
    "written, then an error": ("half", Outcome.UNKNOWN, 0.9),
    "the answer is lost": ("lost", Outcome.UNKNOWN, 0.9),
    "no answer": ("mute", Outcome.UNKNOWN, 1.5),
    "a web page": ("text", Outcome.UNKNOWN, 0.9),
}


@pytest.mark.parametrize("case", MATRIX)
def test_each_failure_ends_in_the_outcome_that_is_documented_and_is_read_back(
    data: Database, hands: LiteLLM, config: LiteLLMConfig, case: str
) -> None:
    step, outcome, left = MATRIX[case]
    assert put(hands, A, 0.5) is Outcome.DONE
    data.script.append(step)
    assert put(hands, A, 0.3, current=0.5) is outcome
    assert weight(data) == pytest.approx(left)
    if outcome is Outcome.UNKNOWN:
        heir = LiteLLM(config, BOUND)  # also when Governor was killed meanwhile
        truth = Outcome.DONE if left == 0.9 else Outcome.FAILED
        for one in (hands, heir):
            assert one.verify([decide(A, 0.5, 0.3)], NOW)[0].outcome is truth
        heir.close()


def test_one_of_two_that_is_refused_does_not_stop_the_other_and_is_named(data: Database, hands: LiteLLM) -> None:
    data.script += ["do", 403]
    outcomes = hands.apply([decide(A, 1, 0.5), decide(B, 1, 0.5)], NOW)
    assert [(one.target, one.outcome) for one in outcomes] == [(A, Outcome.DONE), (B, Outcome.REFUSED)]
    states = hands.read([A, B], NOW)
    assert [states[t].accepted for t in (A, B)] == [0.5, 1.0]


def test_down_is_failed_and_unreadable(data: Database, config: LiteLLMConfig) -> None:
    hands = LiteLLM(replace(config, url="http://127.0.0.1:1"), BOUND)
    assert put(hands, A, 0.5) is Outcome.FAILED
    assert "cannot connect" in hands.read([A], NOW)[A].error
    hands.close()


def test_a_wrong_key_is_refused_and_never_shown(data: Database, hands: LiteLLM, config: LiteLLMConfig) -> None:
    assert config.master_key is not None
    assert config.master_key.file is not None
    Path(config.master_key.file).write_text("sk-guess-7733")
    for target in (A, ACME):
        (applied,) = hands.apply([decide(target, None, 1 if target is A else 500)], NOW)
        assert applied.outcome is Outcome.REFUSED
        assert "7733" not in applied.detail + hands.read([target], NOW)[target].error


@pytest.mark.parametrize("page", ["<html>", "[]", '{"data": 7}', '{"data": [{}]}', '{"info": 7}'])
def test_an_answer_that_is_not_litellms_is_not_decided_on(data: Database, hands: LiteLLM, page: str) -> None:
    data.page = page
    states = hands.read([A, ACME], NOW)
    assert [states[t].accepted for t in (A, ACME)] == [None, None]
    assert put(hands, A, 0.5) is Outcome.FAILED
    assert not data.writes


def test_a_deployment_or_key_that_is_not_there_is_named(data: Database, hands: LiteLLM) -> None:
    del data.models["a"], data.keys[TOKEN]
    outcomes = hands.apply([decide(A, None, 0.5), decide(ACME, None, 500)], NOW)
    assert {one.outcome for one in outcomes} == {Outcome.REFUSED}
    assert "no deployment a of chat" in outcomes[0].detail + outcomes[1].detail


def test_with_every_governor_dead_what_the_api_holds_stays_and_no_end_is_claimed(
    data: Database, hands: LiteLLM, config: LiteLLMConfig
) -> None:
    decision = decide(A, None, 0.5)._replace(until=NOW + 60)
    assert hands.apply([decision], NOW)[0].outcome is Outcome.DONE
    hands.close()
    heir = LiteLLM(config, BOUND)
    assert heir.read([A], NOW + 86_400)[A].accepted == 0.5
    assert not any(can.expiry for can in LiteLLM.describe(config).values())
    heir.close()


def test_the_doctor_names_models_that_the_api_cannot_change(data: Database, hands: LiteLLM) -> None:
    assert not hands.diagnose(NOW)
    data.model("a", "chat", 3, db_model=False)
    del data.keys[TOKEN]
    text = " ".join(finding.text for finding in hands.diagnose(NOW))
    assert "config.yaml" in text
    assert "Key not found" in text
    assert put(hands, A, 0.5) is Outcome.REFUSED


def test_what_the_api_cannot_do_is_refused_when_it_is_built(config: LiteLLMConfig) -> None:
    with pytest.raises(ValueError, match="cannot downgrade a share"):
        LiteLLM(config, Binding((Target("chat", Lever.DOWNGRADE, "chat"),), "governor"))
    with pytest.raises(ValueError, match="keys: zoe has none"):
        LiteLLM(config, Binding((Target("chat", Lever.TENANT_CAP, "zoe"),), "governor"))
    with pytest.raises(ValueError, match="keys: has a key itself"):
        LiteLLMConfig({}, mode="api", url="http://x", master_key=SecretRef(env="X"), keys={"acme": "sk-123"})
