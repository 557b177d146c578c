"""A scenario file to a study: the scenario, Governor's config for it, and the peers, or every mistake in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from controller import registry
from controller.config import ConfigError, GovernorConfig, Plugin, load, tree
from controller.config.errors import BadParts, BadValue, Path, Problem
from controller.config.load import located, mapping, read, validate
from controller.config.plugins import build, choose
from controller.core.model import Lever
from controller.registry import Group
from controller.simulate.checks import check
from controller.simulate.ports import Scenario

# What an inline config may leave out. Its source is never read: the twin is.
_IMPLIED: Mapping[str, Any] = {"version": 1, "source": {"kind": "prometheus", "url": "http://twin"}}
Mistake = tuple[Path, str, str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a study comes from, so that another process can load it again: the file's text, its name in messages, the
    folder that its paths are relative to, and a config in place of its own."""

    text: str
    name: str
    folder: str
    config: str = ""

    def load(self) -> "Study":
        """The study. Raises ConfigError with every problem found."""
        return _study(self)


@dataclass(frozen=True, slots=True)
class Study:
    """A scenario with all that is needed to run it. `peers` are policies for replicas by name."""

    scenario: Scenario
    config: GovernorConfig
    origin: Origin
    peers: Mapping[str, Plugin] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, Path]:
        """The file that Governor's config stands in, and the path in it that the config's own paths are below."""
        given = self.scenario.governor
        if self.origin.config:
            return self.origin.config, ()
        return (
            (str(FilePath(self.origin.folder) / given), ())
            if isinstance(given, str)
            else (self.origin.name, ("governor",))
        )


def open_study(path: FilePath, config: FilePath | None = None) -> Study:
    """The study in a scenario file; `config` is a config file in place of the one that it names. Raises ConfigError."""
    return Origin(read(path), str(path), str(path.parent), "" if config is None else str(config)).load()


def study_with(text: str, name: str, config: GovernorConfig) -> Study:
    """The study of a scenario's text with a config that is loaded already, in place of the one that it names. `name`
    stands for it in messages. Raises ConfigError."""
    return _study(Origin(text, name, "."), config)


def _study(origin: Origin, config: GovernorConfig | None = None) -> Study:
    found = tree.parse(origin.text)
    data = mapping(found, origin.name, "docs/simulating.md begins with one")
    scenario, mistakes = _scenario(data, origin.folder)
    file = "" if config is None else "the config"
    peers: dict[str, Plugin] = {}
    if scenario is not None:
        if config is None:
            file = origin.config or (scenario.governor if isinstance(scenario.governor, str) else "")
            config, wrong = _config(scenario, origin, found.broken)
            mistakes += wrong
        peers, wrong = _peers(scenario)
        mistakes += wrong
    if scenario is not None and config is not None:
        mistakes += check(scenario, config, file)
    problems: list[Problem] = located(found, mistakes)
    if problems or scenario is None or config is None:
        raise ConfigError(problems, origin.name)
    return Study(scenario, config, origin, peers)


def _scenario(data: dict[str, Any], folder: str) -> tuple[Scenario | None, list[Mistake]]:
    kind: type[Any] | Callable[..., Any] = registry.tool("scenario")
    if not isinstance(kind, type):
        raise TypeError("the tool 'scenario' is not a class")
    try:
        scenario: Scenario = build(kind, data)
    except BadParts as error:
        return None, list(error.problems)
    return scenario.within(folder), []


def _config(scenario: Scenario, origin: Origin, broken: set[Path]) -> tuple[GovernorConfig | None, list[Mistake]]:
    given = scenario.governor
    if origin.config:
        return load(origin.config), []
    if isinstance(given, str):
        return load(FilePath(origin.folder) / given), []
    inside = {path[1:] for path in broken if path[:1] == ("governor",)}
    config, mistakes = validate({**_IMPLIED, **given}, broken=inside)
    return config, [(("governor", *path), mistake, mend) for path, mistake, mend in mistakes]


def _peers(scenario: Scenario) -> tuple[dict[str, Plugin], list[Mistake]]:
    peers: dict[str, Plugin] = {}
    mistakes: list[Mistake] = []
    for name, given in scenario.against.peers.items():
        place: Path = ("against", "peers", name)
        if name.casefold() in RESERVED:
            mistakes.append((place, "is a name of this command's own", "call the peer something else"))
            continue
        try:
            peer = choose(Group.POLICY, given)
        except BadParts as error:
            mistakes += [((*place, *below), mistake, mend) for below, mistake, mend in error.problems]
        except BadValue as error:
            mistakes.append((place, error.mistake, error.mend))
        else:
            if Lever.REPLICAS in getattr(peer.cls, "levers", ()):
                peers[name] = peer
            else:
                mistakes.append(((*place, "kind"), f"{peer.kind} does not drive replicas", "choose another policy"))
    return peers, mistakes


# Those of the contenders that are built in, and what they are called on a scoreboard.
RESERVED = frozenset(
    {
        *("governor", "none", "static", "oracle", "recorded"),
        *("no controller", "cheapest static", "recorded replicas"),
    }
)
