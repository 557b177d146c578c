"""One Governor per ledger: a lock on its directory, which the system takes back when the process ends, however it does.

Within one process the lock is shared and counted, because a reload opens the ledger of the new loop before the old one
is closed.
"""

import errno
import fcntl
import os
import threading
from pathlib import Path

FILE = ".lock"
_GUARD = threading.Lock()
_HELD: dict[Path, tuple[int, int]] = {}  # directory -> (file descriptor, users)
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class Taken(Exception):
    """Another process holds the lock; the message names it as far as it is known."""


def acquire(directory: Path) -> Path:
    """Hold the lock of an existing directory; what to give to `release`. Raises Taken or OSError. On a file system
    without locks nothing is held."""
    where = directory.resolve()
    with _GUARD:
        handle, users = _HELD[where] if where in _HELD else (_lock(where), 0)
        _HELD[where] = (handle, users + 1)
    return where


def release(where: Path) -> None:
    """Once for each `acquire`."""
    with _GUARD:
        handle, users = _HELD.pop(where)
        if users > 1:
            _HELD[where] = (handle, users - 1)
        else:
            os.close(handle)


def renew(where: Path, directory: Path) -> Path:
    """Hold the lock of a directory that may be another one than `where` was when it was acquired: it was moved away, or
    removed and made again, with the file that is locked. What to give to `release` now. Raises Taken or OSError."""
    there = directory.resolve()
    if there != where:
        acquire(there)
        release(where)
        return there
    with _GUARD:
        handle, users = _HELD[where]
        if not _is_at(handle, where / FILE):
            _HELD[where] = (_lock(where), users)
            os.close(handle)
    return where


def _is_at(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _lock(where: Path) -> int:
    handle = os.open(where / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
    except BlockingIOError as error:
        other = os.read(handle, 32).decode(errors="replace").strip()
        os.close(handle)
        raise Taken(f"process {other}" if other else "another process") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return handle  # it is locked; who holds it is only told to people
        if error.errno not in _UNSUPPORTED:
            os.close(handle)
            raise
    return handle
