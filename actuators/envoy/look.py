"""What the targets stand at: by Envoys' admin pages, by the files, or by what Envoys have acknowledged."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from actuators.endpoints import Endpoint
from actuators.envoy.admin import Admin, AdminError, RuntimeKey, writer
from actuators.envoy.checks import PER_ENDPOINT
from actuators.envoy.config import EnvoyConfig
from actuators.envoy.files import FilesTransport
from actuators.envoy.readback import of_endpoints, of_filter, of_runtime, runtime_keys
from actuators.envoy.resources import Key, Kind, Scene, carrier
from actuators.envoy.transport import Verdict
from controller.core.model import Outcome, Target
from controller.core.ports import ActuatorError
from controller.core.rest import at_rest

PREDECESSOR = "another Governor"


@dataclass(frozen=True, slots=True)
class Seen:
    """A target's value, None where `error` says why there is none. `assumed` where nothing tells it, and `writer` is
    who wrote it should it turn out to be a stranger's. `raw` is what a stranger's runtime key says: the value for each
    replica that comes of it moves with the replicas, and that is nobody's doing."""

    value: float | None
    error: str = ""
    assumed: bool = False
    writer: str = ""
    raw: float | None = None


class Look:
    """One look at everything. Admin pages are asked once. `ours` is whether a resource was told by this process."""

    def __init__(
        self, config: EnvoyConfig, scene: Scene, find: Callable[[Target], Endpoint], verdict: Callable[[Key], Verdict],
        admins: Sequence[Admin], files: FilesTransport | None, *, ours: Callable[[Key], bool],
    ) -> None:  # fmt: skip
        self._config, self._scene, self._find, self._verdict = config, scene, find, verdict
        self._admins, self._files, self._ours = admins, files, ours
        self._pages: list[tuple[Admin, Mapping[str, RuntimeKey]]] | None = None

    def seen(self, target: Target) -> Seen:
        """One target."""
        try:
            endpoint = self._find(target) if target.lever in PER_ENDPOINT else None
            told = self._by_admin(target)
            if told is not None:
                return told
            if self._files is not None:
                return self._by_file(self._files, target, endpoint)
        except ActuatorError as error:
            return Seen(None, str(error))
        return self._by_stream(target)

    def _by_admin(self, target: Target) -> Seen | None:
        """By the runtime keys in force, whichever layer they are from; None where they tell nothing, or where what we
        told is still on its way. A stranger's key in one Envoy counts before what the others say."""
        found: list[Seen] = []
        wanted, told = runtime_keys(self._config, self._scene, target), self._scene.book.value(target)
        ours = self._ours(carrier(self._config, target))
        for admin, keys in self._runtime() if wanted else ():
            there = {name: key.value for name, key in keys.items() if name in wanted and key.value is not None}
            value = of_runtime(self._config, self._scene, target, there)
            if value is None:
                continue
            key = keys[wanted[0]]
            if key.layer != self._config.layer(target.lever):
                found.append(Seen(value, writer=writer(key.layer, admin), raw=key.value))
            elif value == told or not (ours or self._files is not None):
                found.append(Seen(value, writer=PREDECESSOR))
        strange = [one for one in found if one.raw is not None and one.value != told]
        return next(iter((*strange, *found)), None) if len(found) == len(self._admins) or strange else None

    def _runtime(self) -> list[tuple[Admin, Mapping[str, RuntimeKey]]]:
        if self._pages is None:
            self._pages = []
            for admin in self._admins:
                with suppress(AdminError):  # the doctor tells it; what Envoys acknowledge tells as much
                    self._pages.append((admin, admin.runtime()))
        return self._pages

    def _by_file(self, files: FilesTransport, target: Target, endpoint: Endpoint | None) -> Seen:
        body = files.body(carrier(self._config, target))
        who = f"whoever writes in {files.folder}"
        if body is None:
            return Seen(at_rest(target))
        if endpoint is not None:
            value = of_endpoints(self._scene, target, endpoint, body)
            return Seen(at_rest(target) if value is None else value, writer=who)
        if carrier(self._config, target).kind is Kind.FILTER:
            return Seen(of_filter(self._config, self._scene, target, body), writer=who)
        value = of_runtime(self._config, self._scene, target, body.get("layer", {}))
        return Seen(at_rest(target) if value is None else value, writer=who)

    def _by_stream(self, target: Target) -> Seen:
        key = carrier(self._config, target)
        verdict, ours = self._verdict(key), self._ours(key)
        if verdict.outcome is Outcome.FAILED or (ours and verdict.outcome is not Outcome.DONE):
            return Seen(None, verdict.detail)
        return Seen(self._scene.book.value(target), assumed=not ours)
