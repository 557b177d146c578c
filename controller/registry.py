"""Plug-ins by name: entry points of installed distributions, or `module:Class` for code that is not installed.

Built-ins are found by the same door as a stranger's. Nothing is imported until it is asked for, and a plug-in that
cannot be imported is named together with the distribution it came from.
"""

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from controller.core.errors import InputError

DISTRIBUTION = "inference-governor"

# The top-level packages that the distribution installs. Their names are so plain that others use them too.
TOP_LEVEL = ("controller", "sources", "policies", "actuators", "routing", "simulator", "dashboards")


class Group(StrEnum):
    """Entry-point groups."""

    SOURCE = "governor.sources"
    POLICY = "governor.policies"
    ACTUATOR = "governor.actuators"
    TOOL = "governor.tools"

    @property
    def noun(self) -> str:
        return self.value.removeprefix("governor.").removesuffix("s").replace("policie", "policy")

    @property
    def article(self) -> str:
        """What goes before the noun."""
        return "an" if self is Group.ACTUATOR else "a"


class PluginError(InputError):
    """A plug-in that cannot be used. The message says which, of which distribution, why, and the mend."""


class InstallationError(InputError):
    """The installation is damaged by another distribution; starting would run a mixture of two programs."""


@cache
def _entries(group: Group) -> Mapping[str, tuple[importlib.metadata.EntryPoint, ...]]:
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=group.value):
        same = found.setdefault(entry.name, [])
        if all((_owner(entry), entry.value) != (_owner(other), other.value) for other in same):
            same.append(entry)
    return {name: tuple(entries) for name, entries in sorted(found.items())}


def refresh() -> None:
    """Forget what was found, so that distributions installed since are seen."""
    importlib.invalidate_caches()
    _entries.cache_clear()


def names(group: Group) -> tuple[str, ...]:
    """The names under which plug-ins of the group are installed, sorted."""
    return tuple(_entries(group))


def builtin(group: Group) -> tuple[str, ...]:
    """The names that this distribution itself brings."""
    return tuple(n for n, entries in _entries(group).items() if any(_owner(e) == DISTRIBUTION for e in entries))


def load(group: Group, name: str) -> Any:
    """The object behind a name or `module:Class`. Raises PluginError."""
    if ":" in name:
        return _from_string(group, name)
    entries = _entries(group).get(name, ())
    if not entries:
        known = ", ".join(names(group)) or "none"
        raise PluginError(f"no {group.noun} is called {name!r}; installed are {known}, or write module:Class")
    if len(entries) > 1:
        owners = " and ".join(sorted(f"{_owner(entry)} ({entry.value})" for entry in entries))
        raise PluginError(f"two {group.value} are called {name!r}, of {owners}; uninstall one of them")
    try:
        return entries[0].load()
    except Exception as error:  # whatever a stranger's module raises while it is imported
        owner = _owner(entries[0])
        raise PluginError(
            f"the {group.noun} {name!r} of {owner} ({entries[0].value}) cannot be imported: {_say(error)}; "
            f"update or uninstall {owner}"
        ) from error


def plugin(group: Group, name: str) -> type[Any]:
    """A plug-in class, checked to have a frozen dataclass ``Config``. Raises PluginError."""
    found = load(group, name)
    if not isinstance(found, type):
        raise PluginError(f"the {group.noun} {name!r} is not a class; point the entry point at the class")
    config = getattr(found, "Config", None)
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise PluginError(
            f"the {group.noun} {name!r} has no dataclass Config; "
            "declare its parameters there, see controller.core.params"
        )
    if group is Group.ACTUATOR and not callable(getattr(found, "describe", None)):
        raise PluginError(
            f"the actuator {name!r} has no class method describe(config); say there what it can move, "
            "see controller.core.ports"
        )
    return found


def source(kind: str) -> type[Any]:
    """The source class of a kind. Raises PluginError."""
    return plugin(Group.SOURCE, kind)


def policy(kind: str) -> type[Any]:
    """The policy class of a kind. Raises PluginError."""
    return plugin(Group.POLICY, kind)


def actuator(kind: str) -> type[Any]:
    """The actuator class of a kind. Raises PluginError."""
    return plugin(Group.ACTUATOR, kind)


def tool(name: str) -> Callable[..., Any]:
    """A function that one of the wings offers to the command line (record, import, diagnose). Raises PluginError."""
    found = load(Group.TOOL, name)
    if not callable(found):
        raise PluginError(f"the tool {name!r} is not callable")
    return found  # type: ignore[no-any-return]


def engines() -> tuple[str, ...]:
    """What a pool's `engine` may be, sorted: all that a metric contract exists for, except platform exporters, which
    know nothing of requests. Raises PluginError when the installation has none."""
    contract = tool("contract")
    return tuple(name for name in sorted(tool("engines")()) if contract(name).scope != "platform")


def gateways() -> tuple[str, ...]:
    """What the `engine` of a pool's `gateway` may be, sorted. Raises PluginError as ``engines`` does."""
    contract = tool("contract")
    return tuple(name for name in engines() if contract(name).scope == "gateway")


def check_installation(owners: Mapping[str, Iterable[str]] | None = None) -> None:
    """Raise InstallationError when another distribution owns one of our packages, or two plug-ins share a name.

    pip installs one distribution's `controller/` over another's without a word, and uninstalling either then deletes
    files of both. `owners` is for tests; by default it is read from what is installed.
    """
    owners = importlib.metadata.packages_distributions() if owners is None else owners
    for package in TOP_LEVEL:
        others = sorted({_normal(name) for name in owners.get(package, ())} - {DISTRIBUTION})
        if others:
            raise InstallationError(
                f"the package {package!r} is also installed by {', '.join(others)}, which may have overwritten files "
                f"of {DISTRIBUTION}; install {DISTRIBUTION} alone, in its own virtual environment, a container or pipx"
            )
    for group in Group:
        for name, entries in _entries(group).items():
            if len(entries) > 1:
                both = " and ".join(sorted(f"{_owner(entry)} ({entry.value})" for entry in entries))
                raise InstallationError(f"two {group.value} are called {name!r}, of {both}; uninstall one of them")


def _from_string(group: Group, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a stranger's module raises while it is imported
        raise PluginError(
            f"the {group.noun} {name!r} cannot be imported: {_say(error)}; check the spelling and PYTHONPATH"
        ) from error


def _owner(entry: importlib.metadata.EntryPoint) -> str:
    return _normal(entry.dist.name) if entry.dist is not None else "an unknown distribution"


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
