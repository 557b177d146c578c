"""The body of an HTTP answer, within a time and a size. A read time-out alone bounds neither: a server may drip."""

import time

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError


def read_body(response: requests.Response, until: float, limit: int) -> bytes:
    """The whole decoded body of a response that was asked for with ``stream=True``. Raises TimeoutError when it is not
    complete at `until` (monotonic seconds), OverflowError when it is larger than `limit` bytes, ConnectionError when it
    breaks off."""
    parts: list[bytes] = []
    size = 0
    try:
        # read1 and not read: it gives what has come instead of waiting for more, so dripping is noticed.
        while part := response.raw.read1(1 << 16, decode_content=True):
            size += len(part)
            if size > limit:
                raise OverflowError(f"the answer is larger than {limit} bytes")
            if time.monotonic() > until:
                raise TimeoutError("the answer was not complete in time")
            parts.append(part)
    except ReadTimeoutError as error:
        raise TimeoutError("the answer was not complete in time") from error
    except HTTPError as error:
        raise ConnectionError(f"the answer broke off: {error}") from error
    return b"".join(parts)
