"""Addresses of servers in a config: checked before the first request fails on them, and shown without their secrets.

What stands before an @ is taken for a name and a password wherever it is, since a password with a slash in it moves the
rest of the address into the path. Nothing before an @ is ever shown.
"""

import re
import unicodedata
from collections.abc import Collection
from ipaddress import IPv6Address

WEB = ("http", "https")
_SCHEME = re.compile(r"[a-z][a-z+.-]*", re.IGNORECASE)
_ENDS = re.compile(r"[/?#]")  # of the part that names the server
_NO_HOST = frozenset('<>"{}|^`\\/?#@:[]')


def shown(url: str) -> str:
    """The server alone, since paths and queries may be secrets themselves. For whatever text."""
    scheme, mark, rest = url.partition("://")
    if not (mark and _SCHEME.fullmatch(scheme)):
        scheme, mark, rest = "", "", url
    return f"{scheme}{mark}{_ENDS.split(rest.rpartition('@')[2], maxsplit=1)[0]}"


def place(url: str) -> str:
    """The server and the path of an address whose path is no secret, such as that of a page with metrics."""
    return shown(url) if "@" in url else re.split("[?#]", url, maxsplit=1)[0]


def without_credentials(text: str) -> str:
    """Somebody else's words, without what stands before an @ in them."""
    return " ".join(word.rpartition("@")[2] for word in text.split(" "))


def unusable(url: str, instead: str, schemes: Collection[str] = WEB, example: str = "https://host:port") -> str:
    """Why an address cannot be used, said as `mistake; mend`, "" where it can. `instead` is the mend for credentials in
    it. These messages are logged, so they tell no more of it than its server, and nothing where that may be one."""
    mend = f"write for example {example}"
    what = f"{shown(url)} " if "@" not in url else ""
    scheme, mark, rest = url.partition("://")
    server = _ENDS.split(rest, maxsplit=1)[0]
    if not mark or scheme.lower() not in schemes:
        return f"{what}does not begin with {' or '.join(f'{one}://' for one in schemes)}; {mend}"
    parts = _parts(server.rpartition("@")[2])
    if parts is None:  # not shown: a password may have been taken for a port
        return f"is no address, for its host or its port is broken; {mend}"
    if "@" in server:
        return f"credentials in the URL would be logged; {instead}"
    if "@" in url:
        return f"an @ behind the host looks like credentials, which would be logged; write %40 for it, or {instead}"
    host, port = parts
    if not host or port == 0 or any(c.isspace() or not c.isprintable() for c in url):
        return f"{what}names no host that can be asked; {mend}"
    return ""


def _parts(server: str) -> tuple[str, int | None] | None:
    """Host and port of host, host:port, [IPv6] or [IPv6]:port; None where it is none of them."""
    if server.startswith("["):
        host, closed, behind = server[1:].partition("]")
        try:
            IPv6Address(host)
        except ValueError:
            return None
        if not closed or behind[:1] not in ("", ":"):
            return None
        port = behind[1:]
    else:
        host, _, port = server.partition(":")
        if not _NO_HOST.isdisjoint(unicodedata.normalize("NFKC", host)):
            return None
    if port and not (port.isascii() and port.isdecimal() and int(port[:6]) <= 65535):
        return None
    return host, int(port[:6]) if port else None
