"""Addresses of targets in a config, checked before the first request fails on them, and shown without their secrets."""

from collections.abc import Collection
from urllib.parse import urlsplit

WEB = ("http", "https")


def shown(url: str) -> str:
    """The server alone, since paths and queries may be secrets themselves."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def unusable(url: str, instead: str, schemes: Collection[str] = WEB, example: str = "https://host:port") -> str:
    """Why an address cannot be used, said as `mistake; mend`, "" where it can. `instead` is the mend for credentials in
    it. These messages are logged, so they tell no more of it than its server, and nothing where that may be one."""
    mend = f"write for example {example}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # whose text may quote a password that was taken for a port
        return f"is no address, for its host or its port is broken; {mend}"
    what = f"{shown(url)} " if "@" not in url else ""
    if parts.scheme not in schemes:
        return f"{what}does not begin with {' or '.join(f'{one}://' for one in schemes)}; {mend}"
    if parts.username is not None or parts.password is not None:
        return f"credentials in the URL would be logged; {instead}"
    behind = parts.netloc.rpartition("]")[2] if "]" in parts.netloc else ""  # of an IPv6 address, nothing but a port
    if not host or port == 0 or behind.partition(":")[0] or any(c.isspace() or not c.isprintable() for c in url):
        return f"{what}names no host that can be asked; {mend}"
    return ""
