"""Addresses of HTTP servers in a config, checked before the first request fails on them."""

from urllib.parse import urlsplit


def check(key: str, url: str, *, api: bool = False) -> None:
    """Raises ValueError, said as `key: mistake; mend`, for an address that cannot be asked. `api` is one that a path is
    put behind."""
    example = "http://prometheus:9090" if api else "http://host:8000/metrics"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{key}: {url!r} must start with http:// or https://; write for example {example}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:  # a port that is none, a broken IPv6 address
        raise ValueError(f"{key}: {url!r} is no address ({error}); write for example {example}") from error
    if parts.username is not None or parts.password is not None:
        # Not shown: this message goes into logs, as the address would.
        mend = "use username and password" if api else "take them out"
        raise ValueError(f"{key}: credentials in the address would be logged; {mend}")
    if not host or port == 0 or any(letter.isspace() or not letter.isprintable() for letter in url):
        raise ValueError(f"{key}: {url!r} names no host that can be asked; write for example {example}")
    if not api:
        return
    if parts.path.rstrip("/").endswith("/api/v1"):
        raise ValueError(f"{key}: {url!r} must be the address before /api/v1; remove that part")
    if parts.query or parts.fragment:
        raise ValueError(f"{key}: {url!r} has something behind ? or #; remove it")
