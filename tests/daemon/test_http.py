"""The HTTP face over a real socket."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from controller.core.model import Applied, Lever, Outcome, Plan, Snapshot, Target, TargetState, Tick
from controller.core.why import Why
from controller.run.http import ListenError, Server, parse_listen
from controller.run.loop import TickResult
from controller.run.metrics import Metrics
from controller.run.places import Places
from controller.run.status import HISTORY, Board
from tests.support.build import REPLICAS, decision, readings
from tests.support.toy_loop import ToyConfig, result


def tick(number: int, final: float = 8.0, why: Why = Why.STEADY, applied: tuple[Applied, ...] = ()) -> TickResult:
    targets = {REPLICAS: TargetState(8.0, ready=8.0)}
    snapshot = Snapshot(Tick(number, 15.0 * number), {"llama": readings(queue_depth=3)}, targets)
    return result(snapshot, Plan(15.0 * number, (decision(8.0, final, why),)), applied=applied)


@pytest.fixture
def board() -> Board:
    return Board(version="1.2", mode="dry_run", at=0.0, monotonic=0.0)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="1.2", mode="dry_run")


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def server(board: Board, metrics: Metrics, problems: list[str]) -> Iterator[Server]:
    server = Server("127.0.0.1:0", board, metrics, problems.append)
    server.start()
    yield server
    server.close()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(*server.address, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_a_hung_loop_looks_healthy(board: Board, server: Server) -> None:
    board.configured(ToyConfig(interval=15, deadline=10).settings(), at=0)
    board.ticked(tick(1), monotonic=100.0)
    assert board.alive(100 + 3 * 15 + 10) == ""
    assert board.alive(100 + 3 * 15 + 11) == "no tick ended for 56 s, more than 55 s"
    board.failed("boom")
    assert board.alive(156.0), "a tick that raises is no sign of life"
    board.ticked(tick(1), monotonic=-1e9)
    answer, body = ask(server, "/healthz")
    assert (answer.status, json.loads(body)["status"]) == (503, "failing")


def test_traffic_is_sent_before_the_first_tick(board: Board, server: Server) -> None:
    assert ask(server, "/readyz")[0].status == 503
    board.configured(ToyConfig().settings(), at=0)
    assert b"first tick" in ask(server, "/readyz")[1]
    board.ticked(tick(1), monotonic=0)
    assert ask(server, "/readyz")[0].status == 200


def test_an_invalid_config_takes_the_pod_out_of_service(board: Board, server: Server) -> None:
    board.configured(ToyConfig().settings(), at=0)
    board.ticked(tick(1), monotonic=0)
    board.rejected(["pools: is empty"])
    assert ask(server, "/readyz")[0].status == 200
    assert json.loads(ask(server, "/api/v1/status")[1])["config"]["problems"] == ["pools: is empty"]


def test_the_status_page_tells_the_whole_tick(board: Board, server: Server) -> None:
    board.configured(ToyConfig(name="x").settings(), at=1)
    board.ticked(tick(2, 10.0, Why.DEMAND), monotonic=0)
    answer, body = ask(server, "/api/v1/status")
    page = json.loads(body)
    assert answer.headers["Content-Type"] == "application/json"
    assert (page["version"], page["mode"], page["config"]["hash"]) == ("1.2", "dry_run", "hash-x")
    assert page["last_tick"]["at"] == 30.0
    (objective,) = page["pools"]["llama"]["objectives"]
    assert (objective["target"], objective["attainment"]["lo"]) == (2.0, 0.99)
    assert page["pools"]["llama"]["signals"]["queue_depth"]["value"] == 3.0
    (target,) = page["targets"]
    assert (target["target"], target["current"], target["final"], target["why"]) == ("llama/replicas", 8, 10, "demand")
    assert target["ready"] == 8.0


def test_a_pool_that_left_the_config_haunts_the_status_page(board: Board, server: Server) -> None:
    board.configured(ToyConfig().settings(), at=0)
    board.ticked(tick(1), monotonic=0)
    board.configured(ToyConfig(pools=("other",)).settings(), at=0)
    page = json.loads(ask(server, "/api/v1/status")[1])
    assert (list(page["pools"]), page["targets"]) == (["other"], [])


def test_steady_decisions_bury_the_one_that_mattered(board: Board, server: Server) -> None:
    for number in range(HISTORY + 10):
        board.ticked(tick(number), monotonic=0)
    done = (Applied(REPLICAS, Outcome.DONE, "scaled"),)
    board.ticked(tick(9000, 10.0, Why.DEMAND, done), monotonic=0)
    for number in range(9001, 9001 + HISTORY):
        board.ticked(tick(number), monotonic=0)
    found = json.loads(ask(server, "/api/v1/decisions?limit=5")[1])["decisions"]
    assert [entry["why"] for entry in found] == ["steady", "demand", "steady"]
    assert found[1]["outcome"] == {"outcome": "done", "detail": "scaled"}
    assert len(json.loads(ask(server, "/api/v1/decisions?limit=1")[1])["decisions"]) == 1


@pytest.mark.parametrize("limit", ["0", "-1", "many", "2001", "1e3", "²"])
def test_a_limit_that_makes_no_sense(server: Server, limit: str) -> None:
    answer, body = ask(server, f"/api/v1/decisions?limit={limit if limit.isascii() else '%C2%B2'}")
    assert answer.status == 400
    assert "from 1 to 2000" in json.loads(body)["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_the_read_only_interface_accepts_a_write(server: Server, method: str) -> None:
    answer, _ = ask(server, "/api/v1/status", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_head_sends_a_body(server: Server) -> None:
    with socket.create_connection(server.address, timeout=10) as connection:
        connection.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert re.search(rb"Content-Length: [1-9]", head)
    assert body == b""


@pytest.mark.parametrize("path", ["/", "/metrics/", "/api/v1/status/..", "/%2e%2e/etc/passwd"])
def test_a_stranger_path_is_served(server: Server, path: str) -> None:
    answer, body = ask(server, path)
    assert answer.status == 404
    assert "/healthz" in json.loads(body)["pages"]


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/status", "/healthz", "/nowhere"])
def test_a_browser_is_allowed_to_guess(server: Server, path: str) -> None:
    headers = ask(server, path)[0].headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"
    assert "Python" not in headers["Server"]


def test_a_page_that_fails_ends_the_connection_without_a_word(
    board: Board, server: Server, metrics: Metrics, problems: list[str]
) -> None:
    metrics.configured(ToyConfig().settings(), at=0)
    metrics.reloaded("done")
    metrics._add("not_in_the_catalogue", (), 1)  # noqa: SLF001 - a bug of ours, made on purpose
    answer, body = ask(server, "/metrics")
    assert (answer.status, json.loads(body)) == (500, {"error": "this page failed; see the log"})
    assert "not_in_the_catalogue" in problems[0]
    assert ask(server, "/healthz")[0].status == 200


def test_garbage_on_the_wire(server: Server, problems: list[str]) -> None:
    with socket.create_connection(server.address, timeout=10) as connection:
        connection.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        assert b'"error"' in connection.recv(4096)
    assert ask(server, "/healthz")[0].status == 200
    assert not problems


@contextmanager
def clients(server: Server, number: int, said: bytes) -> Iterator[list[socket.socket]]:
    """That many connections that have said this, in the order in which they came."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_connection(server.address, timeout=10)) for _ in range(number)]
        for one in made:
            one.sendall(said)
        yield made


def dripped(connection: socket.socket, seconds: float = 10.0) -> bool:
    """Whether it was cut while it went on sending a header, byte by byte."""
    connection.settimeout(0.02)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            connection.sendall(b"x")
            if connection.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.0\r\nX-Slow: yes\r\n"])
def test_slow_clients_keep_the_probe_out_until_the_controller_is_killed(server: Server, said: bytes) -> None:
    with clients(server, 16, said) as slow:
        for _ in range(3):
            assert ask(server, "/healthz")[0].status == 200
        assert slow[0].recv(1) == b"", "the one that came first has given its place"
        slow[-1].sendall(b"GET /healthz HTTP/1.0\r\n\r\n" if not said else b"\r\n")
        assert slow[-1].recv(4096).startswith(b"HTTP/1.0 200"), "and the last one is still served"


def test_a_byte_now_and_then_keeps_a_place_for_ever(
    board: Board, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.run.http._PATIENCE", 0.3)
    server = Server("127.0.0.1:0", board, metrics, print)
    server.start()
    with closing(server), clients(server, 1, b"GET /healthz HTTP/1.0\r\nX-Slow: ") as (slow,):
        assert dripped(slow)


def test_clients_that_never_take_their_answer_keep_the_probe_out(server: Server) -> None:
    routes: Any = server._listener.pages.routes  # noqa: SLF001 - a page that no socket's buffer holds
    routes["/large"] = lambda _query, _accept: (HTTPStatus.OK, b"x" * (1 << 25), "text/plain")
    with clients(server, 16, b"GET /large HTTP/1.0\r\n\r\n") as greedy:
        for one in greedy:
            assert one.recv(1), "it is being answered"
        assert ask(server, "/healthz")[0].status == 200


def test_a_client_is_cut_while_its_answer_is_made(server: Server) -> None:
    """Then nothing is waited for, and who comes when sixteen answers are being made is turned away."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow_page(_query: object, _accept: object) -> tuple[HTTPStatus, bytes, str]:
        begun.release()
        go_on.wait()
        return HTTPStatus.OK, b"made", "text/plain"

    routes: Any = server._listener.pages.routes  # noqa: SLF001
    routes["/slow"] = slow_page
    with clients(server, 16, b"GET /slow HTTP/1.0\r\n\r\n") as asking:
        for _ in asking:
            assert begun.acquire(timeout=10)
        with socket.create_connection(server.address, timeout=10) as one_more:
            assert one_more.recv(1) == b""
        go_on.set()
        for one in asking:
            with one.makefile("rb") as answer:
                assert answer.read().endswith(b"made")


def test_a_place_whose_client_has_gone_is_lost() -> None:
    places, pairs = Places(2, 10.0), [socket.socketpair() for _ in range(3)]
    first, second, third = (one for one, _ in pairs)
    assert places.take(first, 0.0)
    assert places.take(second, 0.0)
    assert (places.asked(first), places.asked(second)) == (True, True)
    assert not places.take(third, 1.0)
    places.leave(first)
    assert places.take(third, 1.0)
    places.sweep(11.0)
    assert not places.asked(third), "cut a moment before its request was whole"
    places.leave(third)
    for pair in pairs:
        for one in pair:
            one.close()


def test_a_port_in_use_says_so(server: Server, board: Board, metrics: Metrics) -> None:
    host, port = server.address
    with pytest.raises(ListenError, match=f"cannot listen on {host}:{port}: Address already in use; stop the other"):
        Server(f"{host}:{port}", board, metrics, print)


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:8080", ("::1", 8080)),
        (":9", ("0.0.0.0", 9)),
        ("host:0", ("host", 0)),
    ],
)
def test_addresses(listen: str, expected: tuple[str, int]) -> None:
    assert parse_listen(listen) == expected


@pytest.mark.parametrize("listen", ["", "8080", "host", "host:", "host:http", "host:70000", "::1:80", "host:-1"])
def test_an_address_that_is_none_names_the_mend(listen: str) -> None:
    with pytest.raises(ListenError, match="write host:port"):
        parse_listen(listen)


def test_ipv6(board: Board, metrics: Metrics) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        server = Server("[::1]:0", board, metrics, print)
    except ListenError:
        pytest.skip("no IPv6 loopback here")
    server.start()
    assert ask(server, "/healthz")[0].status == 200
    server.close()


def test_a_target_is_unknown_to_the_snapshot(board: Board, server: Server) -> None:
    """A plan may speak of a target whose state could not be read; the page must still come."""
    board.configured(ToyConfig().settings(), at=0)
    lonely = Target("llama", Lever.WEIGHT, "pod-1")
    plan = Plan(15.0, (decision(None, None, Why.UNREADABLE_TARGET, target=lonely),))
    board.ticked(result(Snapshot(Tick(1, 15.0)), plan), monotonic=0)
    (target,) = json.loads(ask(server, "/api/v1/status")[1])["targets"]
    assert (target["current"], target["why"]) == (None, "unreadable_target")
