"""A real Redis on loopback, started by the tests and ended by its pid."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import BusyLoadingError, ConnectionError  # noqa: A004
from redis.retry import Retry

from tests.support.ports import free_port
from tests.support.real import program


@dataclass
class RealRedis:
    """`admin` is the tests' own hand in it."""

    binary: str
    folder: Path
    flags: tuple[str, ...] = ()
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None
    password: str = ""
    clients: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def admin(self) -> Any:
        """A client of redis-py, without types: its own are those of both its worlds at once."""
        if not self.clients:
            self.clients.append(redis.Redis(port=self.port, password=self.password or None, decode_responses=True))
        return self.clients[0]

    def start(self) -> None:
        self.port = self.port or free_port()
        command = [
            self.binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
            "--dbfilename", "dump.rdb", *self.flags,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        patience = Retry(ConstantBackoff(0.01), 1000, supported_errors=(ConnectionError, BusyLoadingError))
        with redis.Redis(port=self.port, password=self.password or None, retry=patience) as client:
            client.ping()

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Begins anew with nothing but what is in its dump."""
        self.stop()
        self.start()

    def reset(self) -> None:
        """As it was when it was started."""
        self.admin.config_set("maxmemory", "0")
        self.admin.execute_command("ACL", "SETUSER", "default", "+@all")
        self.admin.flushall()


@contextmanager
def real_redis(folder: Path, *flags: str) -> Iterator[RealRedis]:
    one = RealRedis(program("redis-server"), folder, flags)
    try:
        one.start()
        yield one
    finally:
        one.stop()
