"""A table of other things that is taken for a request log, and fitted without a word."""

import numpy as np
import pytest

from controller.core.errors import InputError
from simulator.calibrate.log import read_log

HEADER = "queued_ts,scheduled_ts,first_token_ts,last_token_ts,input_toks,output_toks"


def table(*rows: str, header: str = HEADER, count: int = 40) -> str:
    """Good rows, a second apart, and then the given ones."""
    good = [f"{i},{i + 0.1},{i + 0.2},{i + 1.2},{100 + i},11" for i in range(count - len(rows))]
    return "\n".join((header, *good, *rows)) + "\n"


def test_times_are_counted_from_the_first_request_and_rows_are_put_in_order() -> None:
    text = table("0.5,0.6,0.7,0.7,20,1")
    log = read_log(text.replace("0.5,", "-3,", 1).replace("-3,0.6", "-3,-2.5", 1))
    assert log.queued[:3].tolist() == [0.0, 3.0, 4.0]
    assert log.ttft[0] == pytest.approx(3.7)
    assert np.isnan(log.tpot[0])  # one token has no time between tokens
    assert log.tpot[1] == pytest.approx(0.1)
    assert log.scheduled is not None


def test_the_engines_own_clock_counts_before_the_clients() -> None:
    header = f"arrival_time,{HEADER}"
    rows = [f"1700000000,{i},{i},{i + 0.2},{i + 1.2},100,11" for i in range(40)]
    assert read_log("\n".join((header, *rows))).queued[1] == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no column for queued \(queued_ts or .*its columns are none, it is empty"),
        ("a,b\n1,2\n", "its columns are a, b"),
        (table(header=HEADER.replace("last_token_ts", "end")), "no column for last token"),
        (table(count=39), "39 finished requests; 40 are the fewest"),
        (table("5,5,x,6,1,2"), "line 41: first_token_ts is 'x', which is no number"),
        (table("5,5,nan,6,1,2"), "line 41: first_token_ts is 'nan', which is no number"),
        (table("5,5,6,5.5,1,2"), r"line 41: last token \(5.5\) is before first token \(6\); all times must be of one"),
        (table("5,4,6,7,1,2"), "line 41: scheduled .* is before queued"),
        (table("5,5,6,7,0,2"), "line 41: a request has at least one token of prompt"),
        (table("5,5,,,1,2", "6,6,,,1,2", "7,7,,,1,2"), "3 of 40 requests have no last token"),
        (table(header=HEADER.replace("scheduled_ts", "cached_tokens")), "more tokens are cached than the prompt has"),
        (table().replace(",11\n", ",1\n"), "all answers have one token"),
    ],
)
def test_what_is_no_request_log_is_refused_with_the_place_and_the_mend(text: str, message: str) -> None:
    if "cached_tokens" in text:
        text = text.replace("0,0.1,", "0,900,", 1)
    with pytest.raises(InputError, match=message):
        read_log(text)


def test_milliseconds_are_not_taken_for_seconds() -> None:
    rows = [f"{i},{i},{i + 200},{i + 120_000},100,11" for i in range(40)]
    with pytest.raises(InputError, match="these times are no seconds"):
        read_log("\n".join((HEADER, *rows)))


def test_requests_of_several_replicas_are_not_fitted_as_one_engine() -> None:
    rows = [f"{i},{i},{i + 0.2},{i + 1.2},100,11,pod-{i % 2}" for i in range(40)]
    with pytest.raises(InputError, match="requests of 2 replicas; keep the rows of one"):
        read_log("\n".join((f"{HEADER},pod", *rows)))


def test_a_few_requests_without_an_end_are_left_out_and_told() -> None:
    log = read_log(table("5,5,,,1,2", count=60))
    assert len(log) == 59
    assert log.notes == ("1 requests without a last token were left out",)
