"""Packed text files, written line by line: when a line is on disk, and on whose time it is packed."""

import os
import zlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_LEVEL = 3
_CHUNK = 1 << 20  # bytes of text that are packed at once behind the writer's back
_SYNCED = b"\x00\x00\xff\xff"  # what a flush of the packer ends with


def ends_whole(path: Path) -> bool:
    """Whether a file that was never closed ends with all that some ``write`` put there: not what is left of one."""
    try:
        with path.open("rb") as file:
            file.seek(-len(_SYNCED), os.SEEK_END)
            return file.read() == _SYNCED
    except OSError:
        return False


class Packed:
    """A gzip file of lines that are on disk, and can be read, when ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("wb")
        made = os.fstat(self.file.fileno())
        self._made = made.st_dev, made.st_ino
        self.size = 0  # bytes on disk
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)

    def in_place(self) -> bool:
        """Whether the file is still where it was begun. Where nobody can tell it counts as there."""
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return (there.st_dev, there.st_ino) == self._made

    def write(self, lines: Iterable[bytes]) -> None:
        """Raises OSError."""
        parts = [self._packer.compress(line) for line in lines]
        self.size += self._put(b"".join((*parts, self._packer.flush(zlib.Z_SYNC_FLUSH))))

    def close(self) -> None:
        """Write the mark of the end. Without it the lines can be read all the same, so that it fails is no loss."""
        with suppress(OSError):
            self.size += self._put(self._packer.flush())
        self.abandon()

    def abandon(self) -> None:
        """Close as it is."""
        with suppress(OSError):  # that it cannot be written is being reported; the descriptor is closed all the same
            self.file.close()

    def _put(self, data: bytes) -> int:
        self.file.write(data)
        self.file.flush()
        return len(data)


class PackedBehind(Packed):
    """The same file, packed by a thread while the writer goes on: lines are on disk when it is closed. For who can do
    without them after a crash. ``write`` raises what became of the chunk before, and so does ``close``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lines: list[bytes] = []
        self._waiting = 0  # bytes in them
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._busy: Future[int] | None = None

    def write(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._lines.append(line)
            self._waiting += len(line)
        if self._waiting >= _CHUNK:
            self._settle()
            self._busy = self._thread.submit(self._pack, b"".join(self._lines))
            self._lines, self._waiting = [], 0

    def close(self) -> None:
        try:
            self._settle()
            self.size += self._pack(b"".join(self._lines))
        finally:
            super().close()

    def abandon(self) -> None:
        self._thread.shutdown()
        super().abandon()

    def _settle(self) -> None:
        """Wait for the chunk that is being packed. Only here does `size` change, so that a file ends at the same line
        however fast the thread is."""
        if self._busy is not None:
            busy, self._busy = self._busy, None
            self.size += busy.result()

    def _pack(self, text: bytes) -> int:
        return self._put(self._packer.compress(text))
