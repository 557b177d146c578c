"""A registry that knows a few plug-ins of ``tests.support.plugins``, so that messages do not depend on what else is
installed."""

from importlib.metadata import EntryPoint

import pytest

from controller import registry
from controller.registry import Group

KNOWN: dict[Group, dict[str, str]] = {
    Group.SOURCE: {"still": "StillSource"},
    Group.POLICY: {"steady": "Steady", "wheel": "Wheel", "knob": "Knob", "broken": "Broken"},
    Group.ACTUATOR: {"hand": "Hand"},
    Group.TOOL: {"engines": "engines", "contract": "contract"},
}


def only_test_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what is installed by KNOWN for one test."""

    def entries(group: Group) -> dict[str, tuple[EntryPoint, ...]]:
        named = KNOWN[group].items()
        return {name: (EntryPoint(name, f"tests.support.plugins:{value}", group.value),) for name, value in named}

    monkeypatch.setattr(registry, "_entries", entries)
