"""What becomes of a write when Redis, the way to it, or somebody beside us goes wrong. A real Redis behind a wire."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from actuators.redis import Redis, RedisConfig
from actuators.redis.schema import SCRIPT
from controller.core.model import Drift, Lever, Outcome, Target, TargetState
from controller.core.params import SecretRef
from controller.core.ports import Binding
from tests.actuators.rigs import NOW
from tests.support.by_hand import TARGETS
from tests.support.decisions import decide
from tests.support.ports import free_port
from tests.support.redis_server import RealRedis, real_redis
from tests.support.relay import Relay, relay

A, B = (Target("chat", Lever.TENANT_CAP, tenant) for tenant in ("acme", "bert"))
GATE = Target("chat", Lever.ADMISSION, "concurrency")
BOUND = Binding((A, B, GATE), "governor")
NO_LIMIT = 1e12
KEY = "governor:{chat}:tenant_cap:acme"


@dataclass
class Place:
    """Governor's hands on a Redis, and the way between them."""

    real: RealRedis
    wire: Relay
    hands: Redis

    def cap(self, value: float, current: float | None = None, lasts: float | None = None) -> Outcome:
        decision = decide(A, current, value)
        until = None if lasts is None else NOW + lasts
        (applied,) = self.hands.apply([decision._replace(until=until)], NOW)
        assert applied.detail
        return applied.outcome

    def stands(self) -> str | None:
        value = self.real.admin.hget(KEY, "value")
        return None if value is None else str(value)

    def again(self) -> Redis:
        """Another process of Governor over the same Redis."""
        return Redis(RedisConfig(f"redis://127.0.0.1:{self.wire.port}/0", timeout=0.4), BOUND)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRedis]:
    with real_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture
def place(server: RealRedis) -> Iterator[Place]:
    server.reset()
    with relay(server.port) as wire:
        made = Place(server, wire, Redis(RedisConfig(f"redis://127.0.0.1:{wire.port}/0", timeout=0.4), BOUND))
        yield made
        made.hands.close()


def down(at: Place) -> None:
    at.wire.to = 1
    at.hands.close()


def silent_from_the_start(at: Place) -> None:
    at.hands.close()
    at.wire.mute = True


def silent_in_the_middle(at: Place) -> None:
    at.wire.mute = True


def nonsense(at: Place) -> None:
    at.wire.says = b"HTTP/1.1 400 Bad Request\r\n\r\n"


def says(words: str) -> Callable[[Place], None]:
    def arrange(at: Place) -> None:
        at.wire.says = words.encode() + b"\r\n"

    return arrange


def memory_is_full(at: Place) -> None:
    at.real.admin.config_set("maxmemory", "1")


def becomes_a_replica(at: Place) -> None:
    at.real.admin.execute_command("REPLICAOF", "127.0.0.1", "1")


def right_is_taken(at: Place) -> None:
    at.real.admin.execute_command("ACL", "SETUSER", "default", "-hset")


def password_is_set(at: Place) -> None:
    at.real.admin.config_set("requirepass", "new")
    at.hands.close()


def key_is_of_another_kind(at: Place) -> None:
    at.real.admin.delete(KEY)
    at.real.admin.set(KEY, "x")


def somebody_writes(at: Place) -> None:
    at.real.admin.hset(KEY, mapping={"value": 77, "by": "ops"})


def one_lost_the_answer(at: Place) -> None:
    at.wire.lose.append(b"EVAL")


# What happens before a cap of 500 becomes one of 300; the outcome; and what stands in Redis then.
MATRIX = {
    "it is down": (down, Outcome.FAILED, "500"),
    "it accepts and never answers": (silent_from_the_start, Outcome.FAILED, "500"),
    "it falls silent in the middle": (silent_in_the_middle, Outcome.UNKNOWN, "500"),
    "the answer is lost": (one_lost_the_answer, Outcome.UNKNOWN, "300"),
    "something else answers": (nonsense, Outcome.UNKNOWN, "300"),
    "its memory is full": (memory_is_full, Outcome.FAILED, "500"),
    "it is a replica": (becomes_a_replica, Outcome.FAILED, "500"),
    "it is loading": (says("-LOADING Redis is loading the dataset in memory"), Outcome.FAILED, None),
    "a script blocks it": (says("-BUSY Redis is busy running a script"), Outcome.FAILED, None),
    "it is a cluster": (says("-MOVED 3999 127.0.0.1:6381"), Outcome.REFUSED, None),
    "a right is missing": (right_is_taken, Outcome.REFUSED, "500"),
    "a password is wanted": (password_is_set, Outcome.REFUSED, "500"),
    "the key holds something else": (key_is_of_another_kind, Outcome.REFUSED, None),
    "somebody wrote since": (somebody_writes, Outcome.FAILED, "77"),
}


@pytest.mark.parametrize("case", MATRIX)
def test_each_failure_ends_in_the_outcome_that_is_documented(place: Place, case: str) -> None:
    arrange, outcome, stands = MATRIX[case]
    assert place.cap(500) is Outcome.DONE
    place.hands.read([A], NOW)
    arrange(place)
    try:
        assert place.cap(300, current=500) is outcome
        if stands is not None:
            assert place.stands() == stands
    finally:
        place.real.admin.config_set("requirepass", "")
        place.real.admin.execute_command("REPLICAOF", "NO", "ONE")
        place.real.admin.execute_command("ACL", "SETUSER", "default", "+@all")
        place.real.admin.config_set("maxmemory", "0")


def test_what_could_not_be_read_has_no_value_and_a_reason(place: Place) -> None:
    down(place)
    state = place.hands.read([A], NOW)[A]
    assert state.accepted is None
    assert "cannot connect" in state.error


def test_after_an_outage_the_next_write_goes_through_without_a_restart(place: Place) -> None:
    place.cap(500)
    place.wire.mute = True
    assert place.cap(300, current=500) is Outcome.UNKNOWN
    place.wire.mute = False
    (verified,) = place.hands.verify([decide(A, 500, 300)], NOW)
    assert verified.outcome is Outcome.FAILED
    assert place.cap(300, current=500) is Outcome.DONE


def test_a_redis_that_drips_its_answer_does_not_hold_us(place: Place) -> None:
    """The time-out of redis-py counts from byte to byte: 0.4 s here, and each byte comes after 0.1 s."""
    place.cap(500)
    place.wire.drip = 0.1
    begun = time.monotonic()
    assert place.cap(300, current=500) is Outcome.UNKNOWN
    assert time.monotonic() - begun < 2.0  # 0.4 s, on a busy machine
    place.wire.drip = 0.0
    assert place.hands.verify([decide(A, 500, 300)], NOW)[0].outcome is Outcome.DONE


def test_a_question_waits_for_nothing_but_its_own_answer(place: Place) -> None:
    """redis-py looks at an idle connection, without waiting, before it gives it out."""
    place.hands.read([A], NOW)
    begun = time.monotonic()
    for _ in range(5):
        assert not place.hands.read([A], NOW)[A].error
    assert time.monotonic() - begun < 1.0


def test_a_disk_that_is_full_fails_the_write_and_says_so(tmp_path: Path) -> None:
    """Redis refuses writes once it could not save: here its folder is gone."""
    folder = tmp_path / "data"
    folder.mkdir()
    with real_redis(folder) as real:
        hands = Redis(RedisConfig(real.url), BOUND)
        real.admin.config_set("save", "3600 1")
        shutil.rmtree(folder)
        real.admin.bgsave()
        while real.admin.info("persistence")["rdb_bgsave_in_progress"]:
            pass
        (applied,) = hands.apply([decide(A, None, 300)], NOW)
        hands.close()
    assert applied.outcome is Outcome.FAILED
    assert "cannot save to its disk" in applied.detail


def test_a_wrong_password_is_refused_and_never_shown(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("guess-7733\n")
    config = RedisConfig(place.real.url, user="governor", password=SecretRef(file=str(secret)))
    hands = Redis(config, BOUND)
    (applied,) = hands.apply([decide(A, None, 300)], NOW)
    assert applied.outcome is Outcome.REFUSED
    assert "guess-7733" not in applied.detail + hands.read([A], NOW)[A].error
    place.real.admin.execute_command("ACL", "SETUSER", "governor", "on", ">guess-7733", "~*", "+@all")
    assert hands.apply([decide(A, None, 300)], NOW)[0].outcome is Outcome.DONE
    hands.close()
    place.real.admin.execute_command("ACL", "DELUSER", "governor")


def test_the_rights_in_the_example_are_enough_and_no_more(tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    text = (TARGETS / "redis" / "users.acl").read_text()
    users.write_text(text.replace("user default off", "user default on nopass ~* &* +@all"))
    secret = tmp_path / "password"
    secret.write_text("change-me-governor")
    with real_redis(tmp_path, "--aclfile", str(users)) as real:
        hands = Redis(RedisConfig(real.url, user="governor", password=SecretRef(file=str(secret))), BOUND)
        assert not hands.diagnose(NOW)
        outcomes = hands.apply([decide(A, None, 300), decide(GATE, None, 20)], NOW)
        assert {one.outcome for one in outcomes} == {Outcome.DONE}
        assert hands.read([A], NOW)[A].accepted == 300
        hands.close()
        with redis.Redis(port=real.port, username="governor", password="change-me-governor") as own:
            with redis.Redis(port=real.port, username="gateway", password="change-me-gateway") as gateway:
                keys = [f"governor:{{chat}}:{kind}:acme" for kind in ("tenant_cap", "bucket", "standing")]
                assert gateway.register_script(SCRIPT)(keys=keys, args=["take", 10])[0] == 1
            for beyond in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("SET", "else", "1"), ("KEYS", "*")):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    own.execute_command(*beyond)


def test_one_bad_key_among_many_and_nothing_is_written(place: Place) -> None:
    place.cap(500)
    place.real.admin.set("governor:{chat}:tenant_cap:bert", "x")
    outcomes = place.hands.apply([decide(A, 500, 300), decide(B, None, 100)], NOW)
    assert {one.outcome for one in outcomes} == {Outcome.REFUSED}
    assert place.stands() == "500"


def test_a_stale_governor_loses_against_the_one_that_took_over(place: Place) -> None:
    place.cap(500)
    place.hands.read([A], NOW)
    successor = place.again()
    successor.read([A], NOW)
    assert successor.apply([decide(A, 500, 200)], NOW)[0].outcome is Outcome.DONE
    outcomes = place.hands.apply([decide(A, 500, 400), decide(B, None, 50)], NOW)
    assert [one.outcome for one in outcomes] == [Outcome.FAILED, Outcome.FAILED]
    assert (place.stands(), place.real.admin.hget("governor:{chat}:tenant_cap:bert", "value")) == ("200", None)
    successor.close()


def test_a_write_that_lingered_on_the_way_does_not_undo_a_newer_one_of_the_same_value(place: Place) -> None:
    """There and back: the value is as it was, and the generation is not."""
    place.cap(500)
    place.hands.read([A], NOW)
    successor = place.again()
    successor.read([A], NOW)
    successor.apply([decide(A, 500, 200)], NOW)
    successor.apply([decide(A, 200, 500)], NOW)
    assert place.cap(900, current=500) is Outcome.FAILED
    successor.close()


def test_killed_between_write_and_answer_the_next_process_finds_the_truth(place: Place) -> None:
    place.cap(500)
    one_lost_the_answer(place)
    assert place.cap(300, current=500) is Outcome.UNKNOWN
    place.hands.close()
    heir = place.again()
    (verified,) = heir.verify([decide(A, 500, 300)], NOW)
    assert verified.outcome is Outcome.DONE
    assert heir.read([A], NOW)[A].foreign_writer == ""
    heir.close()


def test_what_ran_out_while_governor_could_not_renew_it_is_nobodys_writing(place: Place) -> None:
    place.cap(300, lasts=0.05)
    place.hands.read([A], NOW)
    began = time.monotonic()
    while place.stands() is not None:
        assert time.monotonic() - began < 2
    state = place.hands.read([A], NOW + 1)[A]
    assert (state.accepted, state.drift, state.foreign_writer) == (NO_LIMIT, None, "")


def test_a_value_ends_when_it_should_by_redis_own_clock_whatever_ours_says(place: Place) -> None:
    """Our clock is years away from that of Redis here, and the cap lasts a minute all the same."""
    place.cap(300, lasts=60)
    assert place.real.admin.pttl(KEY) == pytest.approx(60_000, abs=1000)
    assert float(place.real.admin.hget(KEY, "expires_at")) == pytest.approx(time.time() + 60, abs=2)


def test_a_deleted_key_is_somebodys_doing(place: Place) -> None:
    place.cap(300, lasts=60)
    place.hands.read([A], NOW)
    place.real.admin.delete(KEY)
    state = place.hands.read([A], NOW + 15)[A]
    assert (state.accepted, state.drift) == (NO_LIMIT, Drift.FOREIGN)
    assert "evicted" in state.foreign_writer


def test_who_wrote_is_named(place: Place) -> None:
    place.cap(300)
    place.hands.read([A], NOW)
    somebody_writes(place)
    state = place.hands.read([A], NOW + 15)[A]
    assert (state.accepted, state.foreign_writer) == (77, "ops")


def test_a_dump_that_was_put_back_is_an_older_value_of_ours(place: Place) -> None:
    place.cap(500)
    old = place.real.admin.hgetall(KEY)
    place.cap(300, current=500)
    place.hands.read([A], NOW)
    place.real.admin.hset(KEY, mapping=old)
    assert place.hands.read([A], NOW + 15)[A].drift is Drift.STALE


def test_a_value_is_read_back_to_the_last_digit(place: Place) -> None:
    """Else 57 hundredths would be somebody else's, and yielded to."""
    share = Target("chat", Lever.DOWNGRADE, "small")
    hands = Redis(RedisConfig(place.real.url), Binding((share,), "governor"))
    for hundredths in range(1, 100):
        value = hundredths * 0.01
        assert hands.apply([decide(share, None, value)], NOW)[0].outcome is Outcome.DONE
        state = hands.read([share], NOW)[share]
        assert (state.accepted, state.drift) == (value, None)
    hands.close()


def test_a_value_that_another_process_of_ours_wrote_is_ours(place: Place) -> None:
    place.cap(500)
    place.hands.read([A], NOW)
    twin = place.again()
    twin.apply([decide(A, 500, 200)], NOW)
    state = place.hands.read([A], NOW + 15)[A]
    assert (state.accepted, state.foreign_writer, state.drift) == (200, "", None)
    twin.close()


def test_two_governors_that_undo_each_other_are_told_and_one_stands_down(place: Place) -> None:
    place.cap(500)
    place.hands.read([A], NOW)
    twin = place.again()

    def theirs(at: float) -> TargetState:
        twin.read([A], at)
        assert twin.apply([decide(A, 500, 200)], at)[0].outcome is Outcome.DONE
        return place.hands.read([A], at + 5)[A]

    assert theirs(NOW).foreign_writer == ""  # one that took over
    assert place.hands.apply([decide(A, 200, 500)], NOW + 10)[0].outcome is Outcome.DONE
    state = theirs(NOW + 30)
    assert (state.accepted, state.foreign_writer, state.drift) == (200, "another Governor", Drift.FOREIGN)
    twin.close()


def test_a_limit_that_is_no_number_is_not_decided_on(place: Place) -> None:
    place.real.admin.hset(KEY, "value", "lots")
    state = place.hands.read([A], NOW)[A]
    assert state.accepted is None
    assert "'lots'" in state.error


def test_a_user_who_may_not_see_info_reads_all_the_same(place: Place) -> None:
    place.cap(500)
    place.real.admin.execute_command("ACL", "SETUSER", "default", "-info")
    assert place.hands.read([A], NOW)[A].accepted == 500
    (finding,) = place.hands.diagnose(NOW)
    assert finding.text == (
        "this user has no permissions to run the 'info' command; see docs/actuators/redis.md; "
        "without INFO a restart is told by its generations alone"
    )


def test_the_doctor_names_what_will_hurt_and_writes_nothing(place: Place) -> None:
    somebody_writes(place)
    place.real.admin.config_set("maxmemory", "100mb")
    place.real.admin.config_set("maxmemory-policy", "allkeys-lru")
    place.real.admin.execute_command("ACL", "SETUSER", "default", "-hset")
    before = place.real.admin.dbsize()
    said = " ".join(finding.text for finding in place.hands.diagnose(NOW))
    assert "allkeys-lru" in said
    assert "HSET" in said
    assert "written by ops" in said
    assert place.real.admin.dbsize() == before
    down(place)
    (finding,) = place.hands.diagnose(NOW)
    assert (finding.level, "cannot connect" in finding.text) == ("error", True)
    place.real.admin.config_set("maxmemory-policy", "noeviction")


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    hands = Redis(RedisConfig("redis://127.0.0.1:1"), BOUND)
    (applied,) = hands.apply([decide(A, None, 300)], NOW)
    assert (applied.outcome, "inference-governor[redis]" in applied.detail) == (Outcome.REFUSED, True)
    assert "inference-governor[redis]" in hands.read([A], NOW)[A].error


def test_over_tls_the_certificate_is_checked(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert),
         "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    port = free_port()
    tls = (
        "--tls-port",
        str(port),
        "--tls-cert-file",
        str(cert),
        "--tls-key-file",
        str(key),
        "--tls-auth-clients",
        "no",
    )
    with real_redis(tmp_path, *tls):
        hands = Redis(RedisConfig(f"rediss://localhost:{port}/0", ca_file=str(cert)), BOUND)
        assert hands.apply([decide(A, None, 300)], NOW)[0].outcome is Outcome.DONE
        hands.close()
        for stranger in (RedisConfig(f"rediss://localhost:{port}/0"),
                         RedisConfig(f"rediss://127.0.0.1:{port}/0", ca_file=str(cert))):  # fmt: skip
            doubter = Redis(stranger, BOUND)
            (applied,) = doubter.apply([decide(A, None, 100)], NOW)
            assert (applied.outcome, "TLS is not trusted" in applied.detail) == (Outcome.FAILED, True)
            doubter.close()


@pytest.mark.parametrize(
    "wrong", ["localhost:6379", "redis://user:pw@host", "http://host", "redis://host?password=x", "redis://"]
)
def test_an_address_that_is_none_or_tells_secrets_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^url: ") as caught:
        RedisConfig(wrong)
    assert "pw" not in str(caught.value).replace("password", "")
