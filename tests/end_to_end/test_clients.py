"""The load generator itself: who measures with clients that wait for each other measures a faster server."""

import socket
from itertools import takewhile

from tests.support.envoy import until
from tests.support.open_loop import Crowd, Seen, clients


def crowd() -> Crowd:
    return Crowd(1, 100.0, prompt=10, answer=5)


def test_a_server_that_answers_nobody_is_asked_less() -> None:
    mine = crowd()
    expected = sum(1 for _ in takewhile(lambda one: one.at < 1.0, iter(mine.next, None)))
    with (
        socket.create_server(("127.0.0.1", 0), backlog=512) as mute,
        clients({"mute": f"http://127.0.0.1:{mute.getsockname()[1]}"}, crowd(), model="m", patience=0.3) as asking,
    ):
        until(lambda: len(asking.between("mute", 0.0, 1.0)) == expected, "all have lost patience")
        seen = asking.between("mute", 0.0, 1.0)
    assert asking.came(0.0, 1.0) == expected > 50
    assert {one.status for one in seen} == {0}
    assert min(one.last for one in seen) >= 0.3, "times count from when a request was due"
    assert not any(one.good(10.0, 10.0) for one in seen)


def test_a_late_first_token_or_a_slow_pace_is_a_broken_promise() -> None:
    kept = Seen(0.0, 200, first=0.5, last=1.5, tokens=11, late=0.0)
    assert kept.good(ttft=0.5, tpot=0.1)
    assert not kept.good(ttft=0.4, tpot=0.1)
    assert not kept.good(ttft=0.5, tpot=0.09)
    assert not Seen(0.0, 503, 0.0, 0.001, 11, 0.0).good(10.0, 10.0)
