"""Moves of the HTTP face over real sockets."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from controller.run.face import Face
from controller.run.http import ListenError, Server
from controller.run.metrics import Metrics
from controller.run.status import Board


class Maker:
    """Makes servers and remembers for which addresses; fails while it is told to."""

    def __init__(self) -> None:
        self.board = Board(version="1", mode="live", at=0.0, monotonic=0.0)
        self.metrics = Metrics(version="1", mode="live")
        self.made: list[str] = []
        self.barred = False

    def __call__(self, listen: str) -> Server:
        self.made.append(listen)
        if self.barred:
            raise ListenError(f"cannot listen on {listen}") from OSError(errno.EADDRINUSE, "taken")
        return Server(listen, self.board, self.metrics, print)


@pytest.fixture
def make() -> Maker:
    return Maker()


@contextmanager
def at(make: Maker, listen: str) -> Iterator[Face]:
    face = Face(listen, make)
    face.start()
    try:
        yield face
    finally:
        face.close()


def serves(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        return connection.recv(4096).startswith(b"HTTP/1.0 ")
    return False


def test_probes_wait_while_the_face_moves_to_an_address_that_holds_its_port(make: Maker) -> None:
    with at(make, "127.0.0.1:0") as face:
        _, port = face.address
        with face.moving(f"0.0.0.0:{port}"):
            assert serves("127.0.0.2", port), "the block may wait for a tick"
        assert serves("127.0.0.1", port)
        assert face.address == ("0.0.0.0", port)


def test_a_config_that_is_refused_takes_the_old_address_with_it(make: Maker) -> None:
    with at(make, "127.0.0.1:0") as face:
        _, port = face.address
        with pytest.raises(RuntimeError), face.moving(f"0.0.0.0:{port}"):
            raise RuntimeError("this config cannot be built")
        assert (serves("127.0.0.1", port), serves("127.0.0.2", port)) == (True, False)
        with pytest.raises(RuntimeError), face.moving("127.0.0.2:0"):
            raise RuntimeError("this config cannot be built")
        assert face.address == ("127.0.0.1", port)
        assert serves("127.0.0.1", port)


def test_an_address_that_another_program_holds_as_well_costs_the_old_one(make: Maker) -> None:
    with at(make, "127.0.0.1:0") as face, socket.socket() as other:
        _, port = face.address
        other.bind(("127.0.0.2", port))
        other.listen()
        with pytest.raises(ListenError, match=r"cannot listen on 0\.0\.0\.0"), face.moving(f"0.0.0.0:{port}"):
            raise AssertionError("it was not bound")
        assert serves("127.0.0.1", port)
        with face.moving("127.0.0.1:0"):
            pass
        assert face.address == ("127.0.0.1", port), "the config in force asks for what is served"


def test_an_address_that_this_host_does_not_have_makes_the_face_blink_at_every_try(make: Maker) -> None:
    with at(make, "127.0.0.1:0") as face:
        _, port = face.address
        make.made.clear()
        with pytest.raises(ListenError), face.moving(f"192.0.2.1:{port}"):
            raise AssertionError("it was not bound")
        assert len(make.made) == 1
        assert serves("127.0.0.1", port)


def test_a_face_whose_way_back_is_barred_is_lost_until_a_restart(make: Maker) -> None:
    with at(make, "127.0.0.1:0") as face:
        _, port = face.address
        make.barred = True
        with pytest.raises(ListenError), face.moving(f"0.0.0.0:{port}"):
            raise AssertionError("it was not bound")
        assert not serves("127.0.0.1", port)
        make.barred = False
        with face.moving("127.0.0.1:0"):
            pass
        assert serves(*face.address)
