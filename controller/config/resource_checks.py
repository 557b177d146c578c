"""What belongs to one alone: a file, a socket, a port, a page. Two actuators that are described apart do not know what
the other wrote, and take it for a stranger's; two that listen at one port do not start."""

from collections.abc import Iterator, Mapping

from controller.config.errors import Finding, Path, dotted
from controller.config.models import GovernorConfig
from controller.config.plugins import Plugin

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound


def check_resources(config: GovernorConfig) -> Iterator[Finding]:
    """Every file, socket and port that two parts of the config claim, and every page that is read twice."""
    yield from _written(config)
    yield from _pages(config)


def _described(config: GovernorConfig) -> Iterator[tuple[Path, Plugin]]:
    """Each actuator once, where it is described."""
    yield from ((("actuators", name), plugin) for name, plugin in config.actuators.items())
    for name, pool in config.pools.items():
        for lever, settings in pool.levers.items():
            if settings.actuator is not None and not settings.actuator.name:
                yield ("pools", name, "levers", lever.value, "actuator"), settings.actuator


def _claims(plugin: Plugin) -> Iterator[tuple[Path, str, str]]:
    """What an actuator needs for itself: the key that says it, what it is, and which."""
    own = plugin.settings
    if plugin.kind == "file":
        yield ("path",), "file", own.path
        if own.output:
            yield ("output",), "file", own.output
    elif plugin.kind == "haproxy":
        yield ("socket",), "socket", own.socket
        if own.listen:
            yield ("listen",), "port", own.listen
    elif plugin.kind == "envoy":
        key, what = ("listen", "port") if own.transport.kind == "grpc" else ("folder", "folder")
        yield ("transport", key), what, getattr(own.transport, key)
    elif plugin.kind == "litellm" and own.document:
        yield ("document",), "file", own.document


def _written(config: GovernorConfig) -> Iterator[Finding]:
    taken: list[tuple[Path, str, str]] = [(("http", "listen"), "port", config.http.listen)]
    for place, plugin in _described(config):
        for key, what, which in _claims(plugin):
            here = (*place, *key)
            first = next((at for at, kind, one in taken if kind == what and _same(what, one, which)), None)
            if first is None:
                taken.append((here, what, which))
                continue
            mend = "give each its own" if what == "port" else "describe it once under `actuators`, and name it in both"
            yield Finding(here, f"{which} is the {what} of {dotted(first)} too", mend, (first,))


def _same(what: str, one: str, other: str) -> bool:
    if what != "port":
        return one.rstrip("/") == other.rstrip("/")
    (host, _, port), (host_, _, port_) = one.rpartition(":"), other.rpartition(":")
    hosts = {host.strip("[]"), host_.strip("[]")}
    return port == port_ and port != "0" and (len(hosts) == 1 or not hosts.isdisjoint(_EVERYWHERE))


def _pages(config: GovernorConfig) -> Iterator[Finding]:
    """A page that is read for two pools counts its load twice."""
    listed = getattr(config.source.settings, "replicas", None)
    if config.source.kind != "direct" or not isinstance(listed, Mapping):
        return
    seen: dict[str, Path] = {}
    for name, pages in listed.items():
        for index, page in enumerate(pages):
            here: Path = ("source", "replicas", name, index)
            first = seen.setdefault(page, here)
            if first != here:
                whose = "twice" if first[2] == name else f"for {first[2]} too"
                yield Finding(
                    here, f"this page is listed {whose}, and its load would count twice", "list it once", (first,)
                )
