"""The failure matrix: what each actuator says when its target fails, and the test that shows it.

``python -m tests.actuators.matrix`` prints the table of ``docs/actuators.md``; ``test_matrix.py`` holds both to it. A
name of a test is its module without ``test_``, two colons and its node, with the case in brackets where it has one.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """What is said, in the words of the table, and the tests that show it."""

    outcome: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cannot:
    """Why it cannot happen, or cannot be told apart."""

    why: str


Cell = Shown | Cannot

FAILURES = (
    "down", "slow", "restarts and forgets", "half-applies", "refuses one of many", "foreign writer",
    "wrong credentials", "garbage answer", "disk full or read-only", "Governor killed before the answer",
    "all Governors killed",
)  # fmt: skip


def shown(outcome: str, *tests: str) -> Shown:
    return Shown(outcome, tests)


def row(*cells: Cell) -> Mapping[str, Cell]:
    """The cells in the order of the failures."""
    return dict(zip(FAILURES, cells, strict=True))


def _contract(test: str, rig: str) -> str:
    return f"contract::{test}[{rig}]"


_ANEW = "test_a_target_that_began_anew_is_no_foreign_writer"
_LOST = "test_a_lost_answer_is_unknown_and_verify_finds_the_truth_without_writing"
_FOREIGN = "test_a_foreign_write_is_seen_once_and_forgotten_in_time"
_TOLD = "test_whatever_breaks_is_told_apart_and_a_new_governor_finds_the_truth"
_ENDS = "test_each_failure_ends_in_the_outcome_that_is_documented"
_API = f"litellm_api::{_ENDS}_and_is_read_back"
_KUBE = "kubernetes_scale::test_an_unclear_answer_is_never_called_a_failure"
_HOOK = "webhook::test_only_a_proof_that_nothing_was_applied_is_called_a_failure"
_FILES = "file_matrix::test_whatever_breaks_the_two_files_agree_and_a_new_governor_finds_the_truth"
_MUTE = "envoy_files::test_an_admin_page_that_does_not_tell_leaves_it_unknown_and_the_next_governor_finds_the_truth"
_KILLED = "Governor killed between write and acknowledgement"
_WRITES_NOTHING = Cannot("it writes nothing")
_STAYS = "stays; `fail_static`"


def _router(make: str) -> Mapping[str, Cell]:
    def case(name: str) -> str:
        return f"router::{_TOLD}[{make}-{name}]"

    return row(
        shown("failed", case("down")),
        shown("failed", case("slow"), f"router::test_a_router_that_hangs_is_a_failure_in_time[{make}]"),
        shown("told again", f"router::test_a_restart_that_forgot_is_told_from_somebody_elses_hand[{make}]"),
        shown("unknown", f"router::test_half_of_the_routers_is_no_success_and_is_mended[{make}]"),
        shown("that one refused", f"router::test_a_name_without_an_address_is_said_and_stops_nobody_else[{make}]"),
        shown("yields", f"router::test_a_foreign_writer_is_yielded_to[{make}]"),
        shown("refused", case("wrong credentials")),
        shown("failed", case("garbage answer")),
        _WRITES_NOTHING,
        shown("unknown; the next finds it", case(_KILLED)),
        shown(_STAYS, "router::test_what_a_router_cannot_keep_is_refused_by_check"),
    )


MATRIX: Mapping[str, Mapping[str, Cell]] = {
    "aibrix": row(
        shown("failed", f"aibrix::{_ENDS}[it is down]"),
        shown("failed", f"aibrix::{_ENDS}[it is silent]"),
        shown("told again", _contract(_ANEW, "aibrix")),
        Cannot("one swap for all"),
        shown("none is written", "aibrix::test_a_user_that_is_not_there_is_not_made"),
        shown("yields", "aibrix::test_a_user_written_anew_by_its_owner_is_yielded_to_and_has_a_new_limit_of_its_own"),
        shown("refused", f"aibrix::{_ENDS}[a right is missing]"),
        shown("failed", f"aibrix::{_ENDS}[something else answers]"),
        shown("failed", "aibrix::test_a_disk_that_is_full_fails_the_write_and_says_so"),
        shown("unknown; the next finds it",
              "aibrix::test_killed_between_write_and_answer_the_next_process_finds_the_truth"),
        shown(_STAYS, "aibrix::test_a_user_is_never_given_a_time_to_live"),
    ),
    "dynamo": row(
        shown("failed", f"dynamo::{_TOLD}[down]"),
        shown("failed", f"dynamo::{_TOLD}[slow]", "dynamo::test_a_frontend_that_hangs_is_a_failure_in_time"),
        shown("told again", _contract(_ANEW, "dynamo"),
              "dynamo::test_a_limit_that_could_be_removed_by_nobody_and_is_gone_is_a_restart"),
        shown("unknown", "dynamo::test_half_of_the_frontends_is_no_success_and_is_mended"),
        shown("that one refused", "dynamo::test_a_model_that_nobody_serves_is_refused_and_stops_no_other"),
        shown("yields", _contract(_FOREIGN, "dynamo")),
        shown("refused", f"dynamo::{_TOLD}[wrong credentials]"),
        shown("failed", f"dynamo::{_TOLD}[garbage answer]"),
        _WRITES_NOTHING,
        shown("unknown; the next finds it", f"dynamo::{_TOLD}[{_KILLED}]"),
        shown(_STAYS, "dynamo::test_a_limit_that_would_stay_when_every_governor_is_dead_must_be_meant"),
    ),
    "envoy, gRPC": row(
        shown("failed", "envoy_failures::test_failure_matrix[it is down: failed, and not told when it is back]"),
        shown("unknown",
              "envoy_failures::test_failure_matrix[it took it and its answer was lost: unknown, done when verified]"),
        shown("told again", "envoy_failures::test_failure_matrix[it restarted and forgot: told again]"),
        shown("unknown", "envoy_failures::test_every_envoy_must_take_a_value_and_each_gets_its_part_of_a_gate"),
        shown("that one refused", "envoy_failures::test_what_envoy_refuses_is_refused_with_its_words_and_taken_back"),
        shown("yields", "envoy_failures::test_a_value_on_an_admin_page_is_a_foreign_one_and_is_told_of"),
        shown("told nothing", "envoy_tls::test_an_envoy_with_a_certificate_of_somebody_else_is_told_nothing"),
        shown("passed over", "envoy_failures::test_an_admin_page_that_is_none_stops_nothing_and_is_told_of[/nowhere]"),
        _WRITES_NOTHING,
        shown("the next finds it",
              "envoy_failures::test_a_governor_that_died_between_write_and_answer_leaves_no_riddle"),
        shown("expires", "envoy_failures::test_when_every_governor_dies_in_mid_flash_all_is_neutral_again_in_time"),
    ),
    "envoy, files": row(
        shown("unknown", "envoy_files::test_an_envoy_that_is_down_takes_it_when_it_is_back"),
        shown("unknown", f"{_MUTE}[slow]"),
        shown("it is kept", "envoy_files::test_a_restart_of_envoy_forgets_nothing"),
        shown("half by half", "envoy_files::test_the_second_of_two_files_that_fails_leaves_the_first_done"),
        shown("that one refused", "envoy_files::test_what_envoy_refuses_is_refused_and_put_back"),
        shown("yields", "envoy_files::test_what_a_person_edits_is_yielded_to_and_kept_when_another_value_moves"),
        Cannot("an admin page has none"),
        shown("unknown", f"{_MUTE}[garbage]", "envoy_files::test_a_spoiled_file_is_said_and_not_replaced"),
        shown("failed", "envoy_files::test_a_disk_that_takes_nothing_leaves_envoy_as_it_is"),
        shown("unknown; the next finds it", f"{_MUTE}[slow]"),
        shown("weight, breaker expire; others stay", "envoy_files::test_weights_and_breakers_expire_by_themselves"),
    ),
    "file": row(
        shown("failed", f"{_FILES}[the reload fails]"),
        shown("unknown", f"{_FILES}[the reload hangs]"),
        shown("its start value", "file::test_a_file_that_vanished_pulls_the_fleet_down_to_the_initial_value"),
        shown("failed", f"{_FILES}[the disk fills up between the two files]"),
        Cannot("one file for all"),
        shown("yields", "file_matrix::test_a_foreign_writer_is_yielded_to"),
        Cannot("a disk has none but rights"),
        shown("failed", f"{_FILES}[the file is garbage]", f"{_FILES}[the template is garbage]"),
        shown("failed", f"{_FILES}[the disk is full]", f"{_FILES}[the folder is read-only]"),
        shown("the next finds it", "file_nginx::test_a_governor_killed_between_the_two_files_claims_nothing"),
        shown(_STAYS, "file_matrix::test_when_every_governor_is_dead_a_value_stays_and_nothing_else_is_claimed"),
    ),
    "haproxy, socket": row(
        shown("failed", f"haproxy_failures::{_TOLD}[down]"),
        shown("failed", f"haproxy_failures::{_TOLD}[slow]",
              "haproxy_failures::test_an_haproxy_that_stands_still_applies_nothing_when_it_wakes"),
        shown("told again", "haproxy_failures::test_a_restart_that_forgot_is_told_from_somebody_elses_hand"),
        shown("half by half", "haproxy_failures::test_half_of_a_batch_is_told_half_by_half"),
        shown("that one refused", "haproxy::test_a_command_that_fails_neither_stops_nor_undoes_the_others"),
        shown("yields", "haproxy_failures::test_a_foreign_writer_is_yielded_to_and_not_fought"),
        shown("refused", f"haproxy_failures::{_TOLD}[wrong credentials]"),
        shown("failed", f"haproxy_failures::{_TOLD}[garbage answer]"),
        shown("in force, and said", "haproxy_failures::test_a_full_disk_keeps_nothing_from_taking_effect_and_is_said"),
        shown("unknown; the next finds it", f"haproxy_failures::{_TOLD}[{_KILLED}]"),
        shown("expires", "haproxy_failures::test_every_value_ends_in_time_when_every_governor_is_dead"),
    ),
    "haproxy, agent": row(
        shown("failed", "haproxy_agent::test_an_haproxy_that_is_down_is_a_failure_and_told_at_reading"),
        shown("failed; taken back", "haproxy_agent::test_what_nobody_fetched_is_taken_back_and_may_be_retried",
              "haproxy_agent::test_a_question_that_drips_is_over_in_time"),
        shown("told again", "haproxy_agent::test_an_haproxy_that_restarts_is_told_again"),
        shown("unknown", "haproxy_agent::test_half_of_the_servers_that_ask_is_no_success"),
        shown("that one fails", "haproxy_agent::test_one_of_many_that_is_not_there_stops_no_other"),
        shown("yields", _contract(_FOREIGN, "haproxy-agent")),
        Cannot("an agent is asked without any"),
        shown("passed over", "haproxy_agent::test_a_stranger_at_the_port_hurts_nobody"),
        _WRITES_NOTHING,
        shown("the next finds it", "haproxy_agent::test_a_new_governor_is_silent_until_it_has_decided"),
        shown(_STAYS, "haproxy_agent::test_when_every_governor_is_dead_haproxy_keeps_what_it_was_told_last"),
    ),
    "kubernetes": row(
        shown("failed", "kubernetes_scale::test_nobody_listening_is_a_failure_that_says_so"),
        shown("unknown", f"{_KUBE}[hang-unknown]", f"{_KUBE}[headers-unknown]"),
        shown("failed; decided anew",
              "kubernetes_scale::test_a_recreated_workload_of_the_same_name_is_not_scaled_by_an_old_read"),
        shown("half by half", "kubernetes_scale::test_one_of_many_undoes_no_other[half of a batch fails]"),
        shown("that one refused", "kubernetes_scale::test_one_of_many_undoes_no_other[it refuses one of many]"),
        shown("yields", "kubernetes_scale::test_a_hand_scaled_deployment_is_seen_named_and_left_alone_for_a_while"),
        shown("refused", f"{_KUBE}[401-refused]", f"{_KUBE}[403-refused]"),
        shown("unknown", f"{_KUBE}[html-unknown]", "kubernetes_scale::test_a_login_page_is_not_a_replica_count"),
        _WRITES_NOTHING,
        shown("unknown; the next finds it",
              "kubernetes_scale::test_when_every_governor_is_dead_the_fleet_keeps_its_size"),
        shown("stays", "kubernetes_scale::test_when_every_governor_is_dead_the_fleet_keeps_its_size"),
    ),
    "litellm, plugin": row(
        shown("unknown", f"litellm::{_ENDS}[the proxy is down]"),
        shown("unknown", f"litellm::{_ENDS}[the proxy is slow]",
              "litellm::test_many_slow_proxies_cost_the_time_of_one"),
        shown("told again", _contract(_ANEW, "litellm-redis"),
              "litellm::test_a_proxy_that_is_back_confirms_what_it_had_missed"),
        shown("unknown", "litellm::test_one_of_several_proxies_that_lags_is_named_and_the_batch_is_not_done"),
        Cannot("one document for all"),
        shown("yields", f"litellm::{_ENDS}[somebody edits it]", _contract(_FOREIGN, "litellm-plugin")),
        shown("failed; Redis: refused",
              "litellm::test_a_document_that_we_may_not_read_is_said_and_not_replaced",
              "litellm::test_a_redis_whose_password_is_wrong_is_refused_and_never_shown"),
        shown("failed; a proxy's: unknown", f"litellm::{_ENDS}[the document is garbage]",
              f"litellm::{_ENDS}[the proxy has no plugin]"),
        shown("failed", f"litellm::{_ENDS}[the disk is full]", f"litellm::{_ENDS}[the disk is read-only]"),
        shown("unknown; the next finds it",
              "litellm::test_killed_between_write_and_answer_the_next_process_finds_the_truth"),
        shown("expires", "litellm_proxy::test_with_every_governor_dead_values_end_at_their_time"),
    ),
    "litellm, api": row(
        shown("failed", "litellm_api::test_down_is_failed_and_unreadable"),
        shown("unknown", f"{_API}[no answer]"),
        Cannot("its database keeps all"),
        shown("unknown", f"{_API}[written, then an error]"),
        shown("that one refused",
              "litellm_api::test_one_of_two_that_is_refused_does_not_stop_the_other_and_is_named"),
        shown("yields", "litellm_api::test_what_somebody_set_is_yielded_to_and_is_the_owners_from_then_on"),
        shown("refused", "litellm_api::test_a_wrong_key_is_refused_and_never_shown"),
        shown("unknown", f"{_API}[a web page]",
              "litellm_api::test_an_answer_that_is_not_litellms_is_not_decided_on"),
        shown("unknown", f"{_API}[an error inside]"),
        shown("unknown; the next finds it", f"{_API}[the answer is lost]"),
        shown(_STAYS,
              "litellm_api::test_with_every_governor_dead_what_the_api_holds_stays_and_no_end_is_claimed"),
    ),
    "redis": row(
        shown("failed", f"redis::{_ENDS}[it is down]"),
        shown("unknown", f"redis::{_ENDS}[it falls silent in the middle]",
              "redis::test_a_redis_that_drips_its_answer_does_not_hold_us"),
        shown("told again", _contract(_ANEW, "redis")),
        Cannot("one script for all"),
        shown("none is written", "redis::test_one_bad_key_among_many_and_nothing_is_written"),
        shown("yields", f"redis::{_ENDS}[somebody wrote since]", _contract(_FOREIGN, "redis")),
        shown("refused", "redis::test_a_wrong_password_is_refused_and_never_shown"),
        shown("unknown", f"redis::{_ENDS}[something else answers]"),
        shown("failed", "redis::test_a_disk_that_is_full_fails_the_write_and_says_so"),
        shown("unknown; the next finds it",
              "redis::test_killed_between_write_and_answer_the_next_process_finds_the_truth"),
        shown("expires", "redis_buckets::test_with_every_governor_dead_a_cap_ends_at_its_time"),
    ),
    "router, sglang": _router("sglang"),
    "router, vllm": _router("vllm"),
    "webhook": row(
        shown("failed", "webhook::test_nobody_listening_is_a_failure_and_not_an_unknown_that_blocks"),
        shown("unknown", f"{_HOOK}[hang-unknown-1]",
              "webhook::test_a_server_that_drips_its_answer_holds_us_without_limit[drip]"),
        shown("yields, as to a hand", "webhook::test_an_endpoint_that_forgot_passes_for_somebody_elses_value"),
        shown("half by half", "webhook::test_one_of_many_stops_or_undoes_the_others[half of a batch fails]"),
        shown("that one refused", "webhook::test_one_of_many_stops_or_undoes_the_others[it refuses one of many]"),
        shown("yields", "webhook::test_a_value_set_by_somebody_else_is_seen_and_named"),
        shown("refused", f"{_HOOK}[401-refused-1]"),
        shown("unknown", f"{_HOOK}[page-unknown-1]", "webhook::test_garbage_is_unreadable_and_not_a_number"),
        _WRITES_NOTHING,
        shown("unknown; the next finds it",
              "webhook::test_killed_between_write_and_answer_the_next_process_finds_the_truth"),
        shown("expires, if yours does", "webhook::test_the_body_tells_value_expiry_and_reason"),
    ),
}  # fmt: skip


def table() -> str:
    """The matrix as Markdown."""
    lines = ["| | " + " | ".join(FAILURES) + " |", "| --- |" + " --- |" * len(FAILURES)]
    for name, cells in MATRIX.items():
        words = (c.outcome if isinstance(c, Shown) else f"cannot: {c.why}" for c in (cells[f] for f in FAILURES))
        lines.append(f"| {name} | " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
