"""One connection to one Redis: what is sent is sent once, and who asks learns whether it can have arrived.

The client's own retries are off: a write that is repeated on a guess is what ``unknown`` is there to prevent.
"""

import re
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from actuators import secret
from actuators.paced import within
from actuators.redis.timed import timed
from controller.core.address import unusable
from controller.core.model import Outcome
from controller.core.params import SecretRef, Unit, param, refuse

if TYPE_CHECKING:
    from redis.connection import Connection, ConnectionPool

Reply = Any  # what Redis gives: bytes decoded to text, whole numbers, None, lists of them, or its own error

# Answers to a command that did nothing, and that may be another one later.
_LATER = frozenset({"READONLY", "OOM", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF",
                    "NOREPLICAS", "BUSYKEY", "UNBLOCKED"})  # fmt: skip
_MENDS = {
    "READONLY": "this is a replica; give the address of the primary",
    "OOM": "its memory is full; raise maxmemory",
    "LOADING": "it is still loading its data",
    "BUSY": "a script blocks it; end it with SCRIPT KILL",
    "MISCONF": "it cannot save to its disk, and refuses writes",
    "NOAUTH": "set `password`",
    "WRONGPASS": "mend `user` or `password`",
    "NOPERM": "see docs/actuators/redis.md",
    "WRONGTYPE": "a key of ours holds something else; look at it and delete it",
    "MOVED": "Redis Cluster is not supported; give a single primary",
    "CROSSSLOT": "Redis Cluster is not supported; give a single primary",
}


_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class RedisServer:
    """Where a Redis is and how to enter."""

    url: str = param("Address: redis://HOST:6379/0, rediss:// with TLS, unix:///path.")
    user: str = param("Name of an ACL user; empty is the default user.", "")
    password: SecretRef | None = param("Its password.", None, unit=Unit.SECRET)
    ca_file: str = param("CA bundle for rediss; by default the usual public ones.", "")
    timeout: float = param("Longest wait for a connection, and for an answer.", 1.0, unit=Unit.DURATION, gt=0, le=3600)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        local = re.fullmatch("unix:///[^@]+", self.url)  # no host that could be wrong
        if not local and (problem := unusable(self.url, "use user and password", _SCHEMES, "redis://HOST:6379/0")):
            yield f"url: {problem}"
        elif "?" in self.url:
            yield "url: credentials and options in it would be logged; use user, password and ca_file"
        if self.user and self.password is None:
            yield "password: is missing; a user without one cannot enter"

    @property
    def shown(self) -> str:
        """For people."""
        return self.url


class NoAnswer(Exception):
    """Nothing usable came back; `outcome` is what that means for a write."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


def _library() -> Any:
    """redis-py, an extra that most installations lack."""
    try:
        import redis
        import redis.backoff
        import redis.connection
        import redis.exceptions
        import redis.retry
    except ImportError as error:
        mend = "redis-py is not installed; run pip install 'inference-governor[redis]'"
        raise NoAnswer(mend, Outcome.REFUSED) from error
    return redis


class _Password:
    """Read at each connection, so that it can be rotated; redis-py asks for no more than this method."""

    def __init__(self, user: str, ref: SecretRef) -> None:
        self._user, self._ref = user, ref

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = secret.read(self._ref).decode()
        return (self._user, password) if self._user else (password,)


class Server:
    """Connects at the first question and again after each failure."""

    def __init__(self, config: RedisServer) -> None:
        self._config = config
        self._pool: ConnectionPool | None = None
        self._redis: Any = None  # the library, once it is needed

    def ask(self, *commands: Sequence[str | int]) -> list[Reply]:
        """The answers in order, errors of Redis among them. Raises NoAnswer when they do not all come."""
        connection = self._connected()
        answers: list[Reply] = []
        try:
            with within(self._config.timeout):
                connection.send_packed_command(connection.pack_commands(commands))
                answers += [self._one(connection) for _ in commands]
            return answers
        except self._redis.TimeoutError as error:
            raise self._lost(connection, f"no answer within {self._config.timeout:g} s") from error
        except (self._redis.RedisError, OSError, ValueError) as error:
            raise self._lost(connection, f"the connection broke before an answer came ({_kind(error)})") from error
        finally:
            self._leave(connection, answers)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.disconnect()
            self._pool = None

    def _connected(self) -> "Connection":
        """A connection that is open and whose password was taken. What fails here was never sent."""
        where = self._config.shown
        if self._redis is None:
            self._redis = _library()
        told = self._redis.exceptions
        try:
            if self._pool is None:
                self._pool = self._make_pool()
            with within(self._config.timeout):
                connection: Connection = self._pool.get_connection()
        except secret.SecretMissing as error:
            raise NoAnswer(str(error), Outcome.FAILED) from error
        except (told.AuthenticationError, told.BusyLoadingError, told.ResponseError) as error:
            raise NoAnswer(f"{where}: {words(error)}", outcome_of(error)) from error
        except told.TimeoutError as error:
            raise NoAnswer(f"{where}: no connection within {self._config.timeout:g} s", Outcome.FAILED) from error
        except (told.ConnectionError, OSError, ValueError) as error:
            reason = "TLS is not trusted" if _untrusted(error) else "cannot connect"
            raise NoAnswer(f"{where}: {reason}", Outcome.FAILED) from error
        except told.RedisError as error:
            raise NoAnswer(f"{where}: {_kind(error)} while connecting", Outcome.FAILED) from error
        return connection

    def _make_pool(self) -> "ConnectionPool":
        c, retry = self._config, self._redis.retry.Retry(self._redis.backoff.NoBackoff(), 0)
        options: dict[str, Any] = {
            "decode_responses": True, "encoding_errors": "replace", "protocol": 2, "max_connections": 4,
            "socket_timeout": c.timeout, "retry": retry, "retry_on_error": [],
        }  # fmt: skip
        if not c.url.startswith("unix:"):
            options["socket_connect_timeout"] = c.timeout
        if c.password is not None:
            options["credential_provider"] = _Password(c.user, c.password)
        if c.url.startswith("rediss:"):
            options.update(ssl_ca_certs=c.ca_file or None, ssl_cert_reqs="required", ssl_check_hostname=True)
        options["connection_class"] = timed(self._redis, urlsplit(c.url).scheme)
        pool: ConnectionPool = self._redis.ConnectionPool.from_url(c.url, **options)
        return pool

    def _one(self, connection: "Connection") -> Reply:
        told = self._redis.exceptions
        try:
            return connection.read_response()
        except (told.AuthenticationError, told.BusyLoadingError) as error:  # redis-py leaves the connection after these
            connection.disconnect()
            raise NoAnswer(f"{self._config.shown}: {words(error)}", outcome_of(error)) from error
        except told.ResponseError as error:
            return error

    def _leave(self, connection: "Connection", answers: Sequence[Reply]) -> None:
        """A primary that became a replica is left: the next connection may lead to the new one."""
        if any(isinstance(one, self._redis.exceptions.ReadOnlyError) for one in answers):
            connection.disconnect()
        if self._pool is not None:
            self._pool.release(connection)

    def _lost(self, connection: "Connection", why: str) -> NoAnswer:
        connection.disconnect()  # an answer that comes late must not be read as that of the next question
        return NoAnswer(f"{self._config.shown}: {why}", Outcome.UNKNOWN)


def code(error: Exception) -> str:
    """Redis' own code of an error. redis-py cuts it off where it has a class for it; inside a script's error it stands
    behind the script's own words."""
    told = getattr(error, "status_code", None)
    if isinstance(told, str) and told != "ERR":
        return told
    text = str(error)
    return next((c for c in (*_MENDS, *_LATER) if f"{c} " in f"{text} "), text.split(" ", 1)[0])


def outcome_of(error: Exception) -> Outcome:
    """What an error of Redis means for a write: all of them say that nothing was done."""
    return Outcome.FAILED if code(error) in _LATER else Outcome.REFUSED


def words(error: Exception) -> str:
    """Redis' own words, with the mend."""
    what = code(error)
    said = str(error)[:200].rstrip(".")
    return f"{said}; {_MENDS[what]}" if what in _MENDS else said


def _kind(error: Exception) -> str:
    return type(error).__name__


def _untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
