"""Envoy's admin page, read only: the runtime keys in force and who set them, and the versions of what it runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import urllib3

from actuators.paced import paced, within

_MAX_BODY = 64 << 20
_ADMIN_LAYER = "an admin page (POST /runtime_modify)"


class AdminError(Exception):
    """The page could not be read; the message says which and why."""


@dataclass(frozen=True, slots=True)
class RuntimeKey:
    """A runtime key: its value in force, the name of the layer that it is from, what each layer says, and all layers,
    of which a later one hides what an earlier one says."""

    value: float | None
    layer: str
    said: Mapping[str, float | None]
    layers: tuple[str, ...]

    def hides(self, layer: str) -> bool:
        """Whether it hides whatever a layer says or will say."""
        there = layer in self.layers and self.layer in self.layers
        return there and self.layers.index(self.layer) > self.layers.index(layer)


class Admin:
    """One Envoy's page. Every answer is complete within `timeout` seconds."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._http = urllib3.PoolManager(retries=False)
        paced(self._http)

    def runtime(self) -> dict[str, RuntimeKey]:
        """All runtime keys that are set, by name."""
        page = self._json("/runtime")
        layers, entries = page.get("layers"), page.get("entries")
        if not isinstance(layers, list) or not isinstance(entries, dict):
            raise AdminError(f"{self.url}/runtime is not what Envoy answers")
        return {str(key): _runtime_key(layers, entry) for key, entry in entries.items() if isinstance(entry, dict)}

    def stats(self, pattern: str) -> dict[str, Any]:
        """The stats whose names match, numbers as numbers."""
        found = {}
        for line in self._text(f"/stats?filter={pattern}").splitlines():
            name, colon, value = line.rpartition(": ")
            if colon:
                found[name] = int(value) if value.isdecimal() else value.strip('"')
        return found

    def clusters(self) -> dict[str, Mapping[str, Any]]:
        """The state of all clusters with their hosts, by name."""
        rows = self._json("/clusters?format=json").get("cluster_statuses", [])
        return {str(row.get("name")): row for row in rows if isinstance(row, dict)}

    def definitions(self) -> list[Mapping[str, Any]]:
        """How all clusters are defined."""
        kinds = ("static_clusters", "dynamic_active_clusters")
        parts = [part for kind in kinds for part in self._json(f"/config_dump?resource={kind}").get("configs", [])]
        return [part["cluster"] for part in parts if isinstance(part, dict) and isinstance(part.get("cluster"), dict)]

    def close(self) -> None:
        self._http.clear()

    def _json(self, path: str) -> Mapping[str, Any]:
        try:
            page = json.loads(self._text(path))
        except ValueError as error:
            raise AdminError(f"{self.url}{path} is not JSON; is it Envoy's admin address?") from error
        if not isinstance(page, dict):
            raise AdminError(f"{self.url}{path} is not what Envoy answers")
        return page

    def _text(self, path: str) -> str:
        where = f"{self.url}{path.partition('?')[0]}"
        try:
            with within(self._timeout):
                answer = self._http.request(
                    "GET", self.url + path, timeout=self._timeout, redirect=False, preload_content=False
                )
                try:
                    body = answer.read(_MAX_BODY + 1)
                finally:
                    answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise AdminError(f"{where}: {type(error).__name__}") from error
        if answer.status != 200 or len(body) > _MAX_BODY:
            raise AdminError(f"{where}: HTTP {answer.status}")
        return str(body.decode(errors="replace"))


def _runtime_key(layers: Sequence[Any], entry: Mapping[str, Any]) -> RuntimeKey:
    said = {
        str(name): _number(text) for name, text in zip(layers, entry.get("layer_values") or [], strict=False) if text
    }
    setter = next(reversed(said), "")
    return RuntimeKey(_number(entry.get("final_value")), setter, said, tuple(map(str, layers)))


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


def writer(layer: str, admin: Admin) -> str:
    """Who set a key that is not in a layer of ours, for people."""
    return f"{_ADMIN_LAYER} of {admin.url}" if layer in ("admin", "") else f"runtime layer {layer} of {admin.url}"
