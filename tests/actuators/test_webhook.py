"""Disasters of posting values to somebody's endpoint."""

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actuators.webhook import Webhook, WebhookConfig
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target
from controller.core.params import SecretRef
from controller.core.ports import Binding
from tests.support.decisions import decide, replicas
from tests.support.endpoint import Endpoint, endpoint
from tests.support.tls import breaking

NOW = 1_704_067_800.0
LLAMA = replicas("llama")
KEY = ("llama", "replicas", "")


@pytest.fixture
def end() -> Iterator[Endpoint]:
    with endpoint() as end:
        end.values[KEY] = 4
        yield end


def webhook(end: Endpoint, *targets: Target, **config: Any) -> Webhook:
    values: dict[str, Any] = {
        "url": f"{end.url}/hook/T0PS3CRET?token=hunter2",
        "read_url": f"{end.url}/read",
        "timeout": 0.3,
    } | config
    return Webhook(WebhookConfig(**values), Binding(targets or (LLAMA,), "governor"))


def apply_one(hands: Webhook, decision: Decision) -> Applied:
    (applied,) = hands.apply([decision], NOW)
    return applied


# --- what an answer means ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "outcome", "posts"),
    [
        (204, Outcome.DONE, 1), (202, Outcome.DONE, 1),
        (400, Outcome.REFUSED, 1), (401, Outcome.REFUSED, 1), (404, Outcome.REFUSED, 1), (422, Outcome.REFUSED, 1),
        ("redirect", Outcome.REFUSED, 1), ("clamp", Outcome.REFUSED, 1),
        (408, Outcome.FAILED, 1), (409, Outcome.FAILED, 1), (429, Outcome.FAILED, 1),
        (502, Outcome.UNKNOWN, 1), (504, Outcome.UNKNOWN, 1),
        ("hang", Outcome.UNKNOWN, 1), ("cut", Outcome.UNKNOWN, 1), ("drip", Outcome.UNKNOWN, 1),
        ("headers", Outcome.UNKNOWN, 1),
        ("page", Outcome.UNKNOWN, 1), ("text", Outcome.UNKNOWN, 1),
    ],
)  # fmt: skip
def test_only_a_proof_that_nothing_was_applied_is_called_a_failure(
    end: Endpoint, what: int | str, outcome: Outcome, posts: int
) -> None:
    end.script.append(("POST", what))
    applied = apply_one(webhook(end), decide(LLAMA, 4, 6))
    assert applied.outcome is outcome
    assert applied.detail
    assert len(end.posts) == posts


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_is_retried_under_the_same_idempotency_key(end: Endpoint, status: int) -> None:
    end.script.append(("POST", status))
    assert apply_one(webhook(end), decide(LLAMA, 4, 6)).outcome is Outcome.DONE
    assert len(end.posts) == 2
    assert len({post.headers["Idempotency-Key"] for post in end.posts}) == 1


def test_retries_end(end: Endpoint) -> None:
    end.script += [("POST", 503)] * 5
    assert apply_one(webhook(end, retries=2), decide(LLAMA, 4, 6)).outcome is Outcome.FAILED
    assert len(end.posts) == 3


def test_nobody_listening_is_a_failure_and_not_an_unknown_that_blocks(end: Endpoint) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    applied = apply_one(webhook(end, url=url), decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    assert "cannot connect" in applied.detail


def test_a_broken_tls_handshake_is_a_failure_since_nothing_was_sent(end: Endpoint) -> None:
    applied = apply_one(webhook(end, url=end.url.replace("http://", "https://")), decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED


def test_tls_that_breaks_after_the_order_was_read_passes_for_certainly_not_applied(
    end: Endpoint, tmp_path: Path
) -> None:  # fmt: skip
    with breaking(tmp_path) as (url, read):
        hands = webhook(end, url=url, ca_file=str(tmp_path / "tls.crt"), retries=2)
        applied = apply_one(hands, decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.UNKNOWN, applied
    assert len(read) == 1, "it is not repeated on a guess"


def test_a_certificate_that_nobody_vouches_for_gets_no_order(end: Endpoint, tmp_path: Path) -> None:
    with breaking(tmp_path) as (url, read):
        applied = apply_one(webhook(end, url=url), decide(LLAMA, 4, 6))
    assert (applied.outcome, read) == (Outcome.FAILED, [])


def test_a_lost_answer_is_sent_once_and_found_by_verify(end: Endpoint) -> None:
    hands = webhook(end)
    hands.read([LLAMA], NOW)
    end.script.append(("POST", "lost"))
    decision = decide(LLAMA, 4, 6)
    assert apply_one(hands, decision).outcome is Outcome.UNKNOWN
    assert hands.read([LLAMA], NOW)[LLAMA].foreign_writer == ""
    assert hands.verify([decision], NOW + 15)[0].outcome is Outcome.DONE
    assert end.applied == len(end.posts) == 1


def test_a_request_that_was_never_handled_may_be_repeated_after_verify(end: Endpoint) -> None:
    hands = webhook(end)
    end.script.append(("POST", "hang"))
    decision = decide(LLAMA, 4, 6)
    assert apply_one(hands, decision).outcome is Outcome.UNKNOWN
    assert hands.verify([decision], NOW)[0].outcome is Outcome.FAILED


@pytest.mark.parametrize("what", ["hang", "drip", "headers"])
def test_a_server_that_drips_its_answer_holds_us_without_limit(end: Endpoint, what: str) -> None:
    """The time-out of the HTTP client counts from byte to byte."""
    end.script.append(("GET", what))
    began = time.monotonic()
    state = webhook(end).read([LLAMA], NOW)[LLAMA]
    assert time.monotonic() - began < 3.0
    assert state.accepted is None
    assert "GET" in state.error


def test_a_redirect_is_not_followed_with_our_token(end: Endpoint) -> None:
    end.script += [("POST", "redirect"), ("GET", "redirect")]
    hands = webhook(end)
    apply_one(hands, decide(LLAMA, 4, 6))
    assert hands.read([LLAMA], NOW)[LLAMA].accepted is None
    assert end.redirected == 0


# --- what is sent ------------------------------------------------------------------------------------------------


def test_the_body_tells_value_expiry_and_reason(end: Endpoint) -> None:
    cap = Target("llama", Lever.TENANT_CAP, "acme")
    hands = webhook(end, cap, quantum=0.5)
    apply_one(hands, decide(cap, 4, 2.5)._replace(until=NOW + 60))
    (post,) = end.posts
    key = post.body.pop("idempotency_key")
    assert post.headers["Idempotency-Key"] == key
    assert post.body == {
        "version": 1, "pool": "llama", "lever": "tenant_cap", "member": "acme", "value": 2.5, "previous": 4,
        "why": "demand", "at": NOW, "expires_at": NOW + 60, "by": "governor",
    }  # fmt: skip


def test_the_same_value_at_another_time_is_another_order(end: Endpoint) -> None:
    hands = webhook(end)
    for now in (NOW, NOW + 15):
        hands.apply([decide(LLAMA, 4, 6)], now)
    assert len({post.headers["Idempotency-Key"] for post in end.posts}) == 2


def test_a_signed_request_is_accepted_and_a_wrong_key_refused(end: Endpoint, tmp_path: Path) -> None:
    end.key = b"correct horse"
    file = tmp_path / "key"
    file.write_text("correct horse\n")
    hands = webhook(end, secret=SecretRef(file=str(file)))
    assert apply_one(hands, decide(LLAMA, 4, 6)).outcome is Outcome.DONE
    file.write_text("rotated to something else")
    refused = apply_one(hands, decide(LLAMA, 6, 7))
    assert (refused.outcome, "bad signature" in refused.detail) == (Outcome.REFUSED, True)


def test_a_missing_secret_sends_nothing_rather_than_something_unsigned(end: Endpoint) -> None:
    hands = webhook(end, secret=SecretRef(env="GOVERNOR_TEST_NO_SUCH_KEY"))
    applied = apply_one(hands, decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    assert "GOVERNOR_TEST_NO_SUCH_KEY" in applied.detail
    assert end.posts == []


@pytest.mark.parametrize("token", [b"hunter\n2", "hunter2\u20ac".encode(), b"hunter2\xff"])
def test_a_token_that_no_header_can_carry_is_quoted_by_the_error(end: Endpoint, tmp_path: Path, token: bytes) -> None:
    (tmp_path / "token").write_bytes(token)
    hands = webhook(end, bearer=SecretRef(file=str(tmp_path / "token")))
    applied = apply_one(hands, decide(LLAMA, 4, 6))
    errors = [applied.detail, hands.read([LLAMA], NOW)[LLAMA].error, hands.diagnose(NOW)[0].text]
    assert applied.outcome is Outcome.FAILED
    assert all("is no token" in error and "hunter" not in error for error in errors), errors
    assert end.posts == []


@pytest.mark.parametrize("what", [200, 401, 500, "hang", "cut", "page", "redirect"])
def test_no_secret_reaches_a_log_or_an_outcome(
    end: Endpoint, what: int | str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOOK_BEARER", "b3arer-value")
    monkeypatch.setenv("HOOK_KEY", "s1gning-value")
    caplog.set_level(logging.INFO)
    hands = webhook(end, bearer=SecretRef(env="HOOK_BEARER"), secret=SecretRef(env="HOOK_KEY"))
    end.script += [("POST", what), ("GET", what)]
    said = apply_one(hands, decide(LLAMA, 4, 6)).detail + hands.read([LLAMA], NOW)[LLAMA].error + caplog.text
    assert end.posts[0].headers["Authorization"] == "Bearer b3arer-value"
    for word in ("b3arer-value", "s1gning-value", "T0PS3CRET", "hunter2"):
        assert word not in said


def test_a_netrc_does_not_replace_our_token(end: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    apply_one(webhook(end), decide(LLAMA, 4, 6))
    assert end.posts[0].headers["Authorization"] is None


# --- reading back ------------------------------------------------------------------------------------------------


def test_a_value_set_by_somebody_else_is_seen_and_named(end: Endpoint) -> None:
    hands = webhook(end, yield_for=600.0)
    assert hands.read([LLAMA], NOW)[LLAMA].foreign_writer == ""
    end.values[KEY], end.writer = 9, "alice"
    seen = hands.read([LLAMA], NOW + 15)[LLAMA]
    assert (seen.accepted, seen.foreign_writer) == (9, "alice")
    assert hands.read([LLAMA], NOW + 700)[LLAMA].foreign_writer == ""


@pytest.mark.parametrize(
    "body",
    [
        "<html>", "[]", "{}", '{"targets": 3}', '{"targets": [3]}', '{"targets": [{"pool": "llama"}]}',
        '{"targets": [{"pool": "llama", "lever": "teleport", "value": 1}]}',
        '{"targets": [{"pool": "llama", "lever": "replicas", "value": NaN}]}',
        '{"targets": [{"pool": "llama", "lever": "replicas", "value": true}]}',
        '{"targets": [{"pool": "llama", "lever": "replicas", "value": "4"}]}',
        '{"targets": [{"pool": "other", "lever": "replicas", "value": 4}]}',
    ],
)  # fmt: skip
def test_garbage_is_unreadable_and_not_a_number(end: Endpoint, body: str) -> None:
    end.read_body = body
    state = webhook(end).read([LLAMA], NOW)[LLAMA]
    assert state.accepted is None
    assert state.error
    assert webhook(end).verify([decide(LLAMA, 4, 6)], NOW)[0].outcome is Outcome.UNKNOWN


def test_without_a_read_url_the_last_acknowledged_value_is_in_force(end: Endpoint) -> None:
    hands = webhook(end, read_url="", initial=4.0)
    first = hands.read([LLAMA], NOW)[LLAMA]
    assert (first.accepted, first.assumed) == (4, True)
    apply_one(hands, decide(LLAMA, 4, 6))
    second = hands.read([LLAMA], NOW)[LLAMA]
    assert (second.accepted, second.assumed) == (6, False)


def test_a_lost_first_post_of_a_new_process_passes_for_the_value_in_force(end: Endpoint) -> None:
    """The loop remembers 8, the config says that it began with 4, and the post of 9 is lost: it is 8 or 9."""
    hands = webhook(end, read_url="", initial=4.0)
    hands.read([LLAMA], NOW)
    end.script.append(("POST", "hang"))
    apply_one(hands, decide(LLAMA, 8, 9))
    assert hands.read([LLAMA], NOW)[LLAMA].accepted is None


def test_without_a_read_url_a_lost_answer_leaves_the_value_unknown_and_not_the_old_one(end: Endpoint) -> None:
    hands = webhook(end, read_url="", initial=4.0)
    hands.read([LLAMA], NOW)
    end.script.append(("POST", "hang"))
    apply_one(hands, decide(LLAMA, 4, 6))
    state = hands.read([LLAMA], NOW)[LLAMA]
    assert (state.accepted, state.last_outcome) == (None, Outcome.UNKNOWN)
    (verified,) = hands.verify([decide(LLAMA, 4, 6)], NOW)
    assert (verified.outcome, "read_url" in verified.detail) == (Outcome.UNKNOWN, True)


# --- the doctor --------------------------------------------------------------------------------------------------


def test_the_doctor_finds_what_will_fail_and_orders_nothing(end: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_BEARER", "b3arer-value")
    hands = webhook(
        end, LLAMA, replicas("qwen"), secret=SecretRef(env="NO_SUCH_KEY"), bearer=SecretRef(env="HOOK_BEARER")
    )
    end.writer = "alice"
    found = {f.subject: (f.level, f.text) for f in hands.diagnose(NOW)}
    assert found["secret"] == ("error", "the secret in environment variable NO_SUCH_KEY is empty or not set")
    assert found["llama/replicas"] == ("warning", "was written last by alice")
    assert found["qwen/replicas"][0] == "error"
    assert "in the clear" in found[end.url][1]
    assert end.posts == []
    assert webhook(end, read_url="", initial=4.0).diagnose(NOW)[0].level == "warning"
    end.script.append(("GET", 403))
    assert "HTTP 403" in webhook(end).diagnose(NOW)[0].text
    end.writer = "governor"
    assert webhook(end).diagnose(NOW) == []


# --- set-up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"read_url": ""}, "set read_url, or else initial"),
        ({"url": "ftp://host/x"}, "does not begin with http:// or https://"),
        ({"url": "hook"}, "does not begin with http:// or https://"),
        ({"url": "https://user:hunter2@host/x"}, "credentials in the URL would be logged"),
    ],
)
def test_an_unusable_config_is_refused_before_it_matters(end: Endpoint, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        webhook(end, **config)
    assert "hunter2" not in str(refused.value)


# --- the failure matrix, where it is not told above --------------------------------------------------------------


def test_an_endpoint_that_forgot_passes_for_somebody_elses_value(end: Endpoint) -> None:
    """It tells no start of its own, so a restart cannot be told from a hand, and is yielded to. Hence it must keep what
    it was told."""
    hands = webhook(end)
    hands.read([LLAMA], NOW)
    apply_one(hands, decide(LLAMA, 4, 6))
    end.values[KEY] = 4
    state = hands.read([LLAMA], NOW + 15)[LLAMA]
    assert (state.accepted, state.drift, bool(state.foreign_writer)) == (4, Drift.FOREIGN, True)
    assert Webhook.describe()[Lever.REPLICAS].persistent
    assert apply_one(hands, decide(LLAMA, 4, 6)).outcome is Outcome.DONE


def test_killed_between_write_and_answer_the_next_process_finds_the_truth(end: Endpoint) -> None:
    hands = webhook(end)
    hands.read([LLAMA], NOW)
    end.script.append(("POST", "lost"))
    assert apply_one(hands, decide(LLAMA, 4, 6)).outcome is Outcome.UNKNOWN
    hands.close()
    heir, posts = webhook(end), len(end.posts)
    assert heir.verify([decide(LLAMA, 4, 6)], NOW + 15)[0].outcome is Outcome.DONE
    state = heir.read([LLAMA], NOW + 15)[LLAMA]
    assert (state.accepted, state.foreign_writer, len(end.posts)) == (6, "", posts)


# --- several at a time -------------------------------------------------------------------------------------------

SMALL, LARGE = replicas("small"), replicas("large")


@pytest.mark.parametrize(
    ("what", "outcome"),
    [(403, Outcome.REFUSED), (503, Outcome.FAILED), ("lost", Outcome.UNKNOWN)],
    ids=["it refuses one of many", "half of a batch fails", "the answer to one is lost"],
)
def test_one_of_many_stops_or_undoes_the_others(end: Endpoint, what: int | str, outcome: Outcome) -> None:
    for pool in ("small", "large"):
        end.values[pool, "replicas", ""] = 4
    hands = webhook(end, LLAMA, SMALL, LARGE, retries=0)
    hands.read([LLAMA, SMALL, LARGE], NOW)
    end.script += [("POST", "as usual"), ("POST", what)]
    batch = [decide(LLAMA, 4, 6), decide(SMALL, 4, 5), decide(LARGE, 4, 2)]  # told: large, llama, small
    applied = {one.target: one.outcome for one in hands.apply(batch, NOW)}
    assert applied == {LARGE: Outcome.DONE, LLAMA: outcome, SMALL: Outcome.DONE}
    states = hands.read([LLAMA, SMALL, LARGE], NOW + 15)
    took = 6 if what == "lost" else 4
    assert {t: s.accepted for t, s in states.items()} == {LLAMA: took, SMALL: 5, LARGE: 2}
    assert not any(state.foreign_writer for state in states.values())
