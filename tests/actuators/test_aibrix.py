"""AIBrix' users in a real Redis: a user must never be deleted, freed or given more by Governor."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from actuators.redis import Aibrix, AibrixConfig
from controller.config import load
from controller.core.model import Drift, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.actuators.rigs import NOW
from tests.support.by_hand import TARGETS
from tests.support.decisions import decide
from tests.support.redis_server import RealRedis, real_redis
from tests.support.relay import Relay, relay

A, B = (Target("chat", Lever.TENANT_CAP, tenant) for tenant in ("acme", "bert"))
BOUND = Binding((A, B), "governor")
NO_LIMIT = 1e12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRedis]:
    with real_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture
def real(server: RealRedis) -> RealRedis:
    server.reset()
    for name, tpm in (("acme", 60_000), ("bert", 0)):
        server.admin.set(f"aibrix-users/{name}", json.dumps({"name": name, "rpm": 60, "tpm": tpm}))
    return server


@pytest.fixture
def wire(real: RealRedis) -> Iterator[Relay]:
    with relay(real.port) as one:
        yield one


@pytest.fixture
def hands(wire: Relay) -> Iterator[Aibrix]:
    one = Aibrix(AibrixConfig(f"redis://127.0.0.1:{wire.port}/0", timeout=0.4), BOUND)
    yield one
    one.close()


def user(real: RealRedis, name: str = "acme") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(real.admin.get(f"aibrix-users/{name}"))
    return found


def cap(hands: Aibrix, value: float, target: Target = A, current: float | None = None) -> Outcome:
    return hands.apply([decide(target, current, value)], NOW)[0].outcome


def test_a_cap_is_tokens_per_minute_and_the_requests_stay_as_they_are(real: RealRedis, hands: Aibrix) -> None:
    assert cap(hands, 500) is Outcome.DONE
    assert (user(real)["tpm"], user(real)["rpm"], user(real)["name"]) == (30_000, 60, "acme")


def test_without_a_cap_the_user_is_as_its_owner_left_it(real: RealRedis, hands: Aibrix) -> None:
    assert hands.read([A], NOW)[A].accepted == NO_LIMIT
    cap(hands, 500)
    cap(hands, 200)
    assert cap(hands, NO_LIMIT) is Outcome.DONE
    assert user(real) == {"name": "acme", "rpm": 60, "tpm": 60_000}


def test_a_cap_above_the_users_own_limit_gives_nobody_more(real: RealRedis, hands: Aibrix) -> None:
    assert cap(hands, 5000) is Outcome.DONE
    assert user(real)["tpm"] == 60_000
    assert hands.read([A], NOW)[A].accepted == 5000


def test_a_limit_of_nothing_would_be_aibrix_default_and_is_never_written(real: RealRedis, hands: Aibrix) -> None:
    assert cap(hands, 0) is Outcome.REFUSED
    assert cap(hands, 1) is Outcome.DONE
    assert user(real)["tpm"] == 60


def test_the_default_limit_of_a_user_comes_back_as_the_default(real: RealRedis, hands: Aibrix) -> None:
    cap(hands, 500, B)
    assert user(real, "bert")["tpm"] == 30_000
    cap(hands, NO_LIMIT, B)
    assert user(real, "bert")["tpm"] == 0


def test_a_user_is_never_given_a_time_to_live(real: RealRedis, hands: Aibrix) -> None:
    cap(hands, 500)
    assert real.admin.ttl("aibrix-users/acme") == -1
    real.admin.expire("aibrix-users/acme", 1000)  # somebody else's wish is kept
    cap(hands, 300)
    assert real.admin.ttl("aibrix-users/acme") > 900


def test_a_user_that_is_not_there_is_not_made(real: RealRedis, hands: Aibrix) -> None:
    real.admin.delete("aibrix-users/acme")
    assert hands.read([A], NOW)[A].accepted is None
    assert [one.outcome for one in hands.apply([decide(A, None, 500), decide(B, None, 500)], NOW)] == [
        Outcome.REFUSED,
        Outcome.FAILED,
    ]
    assert real.admin.get("aibrix-users/acme") is None
    assert user(real, "bert")["tpm"] == 0


def test_a_new_process_knows_what_the_owner_had_set(real: RealRedis, wire: Relay, hands: Aibrix) -> None:
    cap(hands, 500)
    heir = Aibrix(AibrixConfig(f"redis://127.0.0.1:{wire.port}/0"), BOUND)
    assert heir.read([A], NOW)[A].accepted == 500
    cap(heir, NO_LIMIT)
    assert user(real)["tpm"] == 60_000
    heir.close()


def test_a_user_written_anew_by_its_owner_is_yielded_to_and_has_a_new_limit_of_its_own(
    real: RealRedis, hands: Aibrix
) -> None:
    cap(hands, 500)
    hands.read([A], NOW)
    real.admin.set("aibrix-users/acme", json.dumps({"name": "acme", "rpm": 10, "tpm": 6000}))
    state = hands.read([A], NOW + 15)[A]
    assert (state.accepted, state.drift, bool(state.foreign_writer)) == (NO_LIMIT, Drift.FOREIGN, True)
    cap(hands, 500)
    assert (user(real)["tpm"], user(real)["rpm"]) == (6000, 10)


def test_a_user_changed_between_reading_and_writing_is_left_alone(real: RealRedis, hands: Aibrix) -> None:
    cap(hands, 500)
    real.admin.set("aibrix-users/acme", json.dumps({**user(real), "tpm": 120}))
    assert cap(hands, 300, current=500) is Outcome.FAILED
    assert user(real)["tpm"] == 120


def test_one_limit_cannot_serve_two_pools(real: RealRedis) -> None:
    other = Target("code", Lever.TENANT_CAP, "acme")
    hands = Aibrix(AibrixConfig(real.url), Binding((A, other), "governor"))
    (applied,) = hands.apply([decide(other, None, 500)], NOW)
    assert applied.outcome is Outcome.REFUSED
    assert "one limit of acme for all models" in applied.detail
    assert "one limit of acme" in " ".join(finding.text for finding in hands.diagnose(NOW))
    hands.close()


def test_tenants_may_have_other_names_there(real: RealRedis) -> None:
    tenant = Target("chat", Lever.TENANT_CAP, "Acme Ltd")
    hands = Aibrix(AibrixConfig(real.url, users={"Acme Ltd": "acme"}), Binding((tenant,), "governor"))
    assert cap(hands, 500, tenant) is Outcome.DONE
    assert user(real)["tpm"] == 30_000
    hands.close()


def down(real: RealRedis, wire: Relay) -> None:
    wire.to = 1


def silent(real: RealRedis, wire: Relay) -> None:
    wire.mute = True


def lost(real: RealRedis, wire: Relay) -> None:
    wire.lose.append(b"EVAL")


def nonsense(real: RealRedis, wire: Relay) -> None:
    wire.says = b"+OK\r\n"


def full(real: RealRedis, wire: Relay) -> None:
    real.admin.config_set("maxmemory", "1")


def replica(real: RealRedis, wire: Relay) -> None:
    real.admin.execute_command("REPLICAOF", "127.0.0.1", "1")


def no_right(real: RealRedis, wire: Relay) -> None:
    real.admin.execute_command("ACL", "SETUSER", "default", "-set")


def broken(real: RealRedis, wire: Relay) -> None:
    real.admin.set("aibrix-users/acme", "{")


# What happens before a cap of 500 becomes one of 300; the outcome; tokens per minute then, None where none are left.
MATRIX: dict[str, tuple[Callable[[RealRedis, Relay], None], Outcome, int | None]] = {
    "it is down": (down, Outcome.FAILED, 30_000),
    "it is silent": (silent, Outcome.FAILED, 30_000),
    "the answer is lost": (lost, Outcome.UNKNOWN, 18_000),
    "something else answers": (nonsense, Outcome.FAILED, 30_000),
    "its memory is full": (full, Outcome.FAILED, 30_000),
    "it is a replica": (replica, Outcome.FAILED, 30_000),
    "a right is missing": (no_right, Outcome.REFUSED, 30_000),
    "the user is broken": (broken, Outcome.REFUSED, None),
}


@pytest.mark.parametrize("case", MATRIX)
def test_each_failure_ends_in_the_outcome_that_is_documented(
    real: RealRedis, wire: Relay, hands: Aibrix, case: str
) -> None:
    arrange, outcome, tpm = MATRIX[case]
    assert cap(hands, 500) is Outcome.DONE
    arrange(real, wire)
    if case == "it is down":
        hands.close()
    try:
        assert cap(hands, 300, current=500) is outcome
        if tpm is not None:
            assert user(real)["tpm"] == tpm
    finally:
        real.admin.execute_command("REPLICAOF", "NO", "ONE")


def test_a_disk_that_is_full_fails_the_write_and_says_so(tmp_path: Path) -> None:
    """Redis refuses writes once it could not save: here its folder is gone."""
    folder = tmp_path / "data"
    folder.mkdir()
    with real_redis(folder) as real:
        real.admin.set("aibrix-users/acme", json.dumps({"name": "acme", "rpm": 60, "tpm": 60_000}))
        hands = Aibrix(AibrixConfig(real.url), BOUND)
        real.admin.config_set("save", "3600 1")
        shutil.rmtree(folder)
        real.admin.bgsave()
        while real.admin.info("persistence")["rdb_bgsave_in_progress"]:
            pass
        (applied,) = hands.apply([decide(A, None, 300)], NOW)
        hands.close()
        assert user(real)["tpm"] == 60_000
    assert (applied.outcome, "cannot save to its disk" in applied.detail) == (Outcome.FAILED, True)


def test_killed_between_write_and_answer_the_next_process_finds_the_truth(
    real: RealRedis, wire: Relay, hands: Aibrix
) -> None:
    cap(hands, 500)
    lost(real, wire)
    assert cap(hands, 300, current=500) is Outcome.UNKNOWN
    heir = Aibrix(AibrixConfig(f"redis://127.0.0.1:{wire.port}/0"), BOUND)
    (verified,) = heir.verify([decide(A, 500, 300)], NOW)
    assert verified.outcome is Outcome.DONE
    heir.close()


def test_the_example_caps_its_tenants_with_the_rights_in_it_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, password = TARGETS / "aibrix", "change-me-governor"
    pool = load(folder / "governor.yaml").pools["chat"]
    choice = pool.levers[Lever.TENANT_CAP].actuator
    assert choice is not None
    monkeypatch.setenv("GOVERNOR_REDIS_PASSWORD", password)
    targets = tuple(Target("chat", Lever.TENANT_CAP, tenant) for tenant in pool.tenants)
    shutil.copy(folder / "users.acl", tmp_path / "users.acl")
    with real_redis(tmp_path, "--aclfile", str(tmp_path / "users.acl")) as real:
        for name in ("acme", "batch-jobs"):
            real.admin.set(f"aibrix-users/{name}", json.dumps({"name": name, "rpm": 60, "tpm": 60_000}))
        hands = Aibrix(replace(choice.settings, url=real.url), Binding(targets))
        assert [state.accepted for state in hands.read(targets, NOW).values()] == [NO_LIMIT, NO_LIMIT]
        assert {one.outcome for one in hands.apply([decide(t, NO_LIMIT, 500) for t in targets], NOW)} == {Outcome.DONE}
        assert (user(real)["tpm"], user(real, "batch-jobs")["tpm"]) == (30_000, 30_000)
        assert not hands.diagnose(NOW)
        hands.close()
        with redis.Redis(port=real.port, username="governor", password=password) as own:
            for beyond in (("FLUSHALL",), ("KEYS", "*"), ("DEL", "aibrix-users/acme"), ("SET", "else", "1")):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    own.execute_command(*beyond)
