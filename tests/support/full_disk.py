"""A disk that is full, as far as this process can tell: the kernel refuses each byte of a file beyond a limit."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """No file may grow beyond `room` bytes; what is written fails with an error of the kernel, in the midst of it. A
    file system of a few bytes would need rights that tests do not have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
