"""Addresses of HTTP servers in a config, checked before the first request fails on them."""

from controller.core.address import shown, unusable


def check(key: str, url: str, *, api: bool = False) -> None:
    """Raises ValueError, said as `key: mistake; mend`, for an address that cannot be asked. `api` is one that a path is
    put behind."""
    example = "http://prometheus:9090" if api else "http://host:8000/metrics"
    if problem := unusable(url, "use username and password" if api else "take them out", example=example):
        raise ValueError(f"{key}: {problem}")
    if not api:
        return
    path, mark, _ = url.partition("?") if "?" in url else url.partition("#")
    if path.rstrip("/").endswith("/api/v1"):
        raise ValueError(f"{key}: {shown(url)} must be the address before /api/v1; remove that part")
    if mark:
        raise ValueError(f"{key}: {shown(url)} has something behind ? or #; remove it")
