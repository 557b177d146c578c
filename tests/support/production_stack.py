"""A stand-in for the router of vLLM's production-stack, which has no package that runs here.

Only what concerns its dynamic configuration, as its source has it: read at every poll, taken as a whole when it differs
from the one in force, passed over with a line in a log when anything of it is wrong.
"""

import json
from pathlib import Path
from typing import Any

_FIELDS = {
    "service_discovery", "routing_logic", "static_backends", "static_models", "static_aliases", "session_key",
    "k8s_port", "k8s_namespace", "k8s_label_selector",
}  # fmt: skip


class Router:
    """`poll` is what its thread does every ten seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.config: dict[str, Any] = {}
        self.backends: dict[str, str] = {}  # model by URL
        self.aliases: dict[str, str] = {}
        self.rebuilt = 0
        self.log: list[str] = []
        self._turn = 0

    def poll(self) -> None:
        try:
            config = json.loads(self._path.read_text())
            if config != self.config:
                self._take(config)
        except Exception as error:  # noqa: BLE001 - as there: whatever it is, it is logged and the old one stays
            self.log.append(str(error))

    def _take(self, config: dict[str, Any]) -> None:
        if strange := set(config) - _FIELDS:
            raise TypeError(f"got an unexpected keyword argument {min(strange)!r}")
        urls, models = config["static_backends"].split(","), config["static_models"].split(",")
        self.backends = dict(zip(urls, models, strict=True))
        self.aliases = dict(pair.split(":") for pair in config["static_aliases"].split(","))
        self.config = config
        self.rebuilt += 1

    def route(self, model: str) -> str:
        """The backend of the next request for a model."""
        model = self.aliases.get(model, model)
        urls = sorted(url for url, name in self.backends.items() if name == model)
        self._turn += 1
        return urls[self._turn % len(urls)]
