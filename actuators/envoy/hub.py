"""The control plane's memory: resources with their generations, and the streams of connected Envoys.

Knows no gRPC. Threads wait here: those that write to streams for something to send, those that apply for an answer.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from actuators.envoy.resources import Key, Kind, Resource
from actuators.envoy.stream import Stream
from actuators.envoy.transport import Verdict
from controller.core.model import Outcome

_ABSENCE = 30.0  # seconds for which an Envoy that left is still counted: it is more likely to be back than gone


@dataclass(frozen=True, slots=True)
class Told:
    """A resource with its generation."""

    resource: Resource
    generation: int


@dataclass(frozen=True, slots=True)
class Parcel:
    """What goes out in one answer; `lasting` by name are seconds after which Envoy drops a resource."""

    kind: Kind
    nonce: str
    version: str
    told: tuple[Told, ...]
    lasting: Mapping[str, float]


class Hub:
    """`changed` is called, without the lock, when an Envoy comes or goes. A `dry` one listens to Envoys and tells them
    nothing, not even where replicas are: they keep what they have."""

    def __init__(self, changed: Callable[[], None], *, dry: bool = False) -> None:
        self._changed, self._dry = changed, dry
        self._news = threading.Condition()
        self._began = time.time_ns()  # two Governors never tell the same version
        self._generation = 0
        self._told: dict[Key, Told] = {}
        self._streams: list[Stream] = []
        self._left: dict[str, float] = {}  # node: when its last stream ended
        self._ours: set[Key] = set()
        self._closed = False

    # --- what there is ---------------------------------------------------------------------------------------------

    def tell(self, resources: Mapping[Key, Resource], changed: Collection[Key]) -> None:
        """See ``Transport``."""
        with self._news:
            self._generation += 1
            self._told = {
                key: self._told[key]
                if key not in changed and key in self._told
                else Told(one, self._generation)
                for key, one in resources.items()
            }  # fmt: skip
            self._news.notify_all()

    def take_over(self, keys: Collection[Key]) -> None:
        """From now on, what an Envoy was told of these by another Governor is replaced. Until then those that come with
        such a thing keep it: this process does not know yet what of it is still wanted."""
        with self._news:
            self._ours.update(keys)
            self._news.notify_all()

    # --- who is there ----------------------------------------------------------------------------------------------

    @contextmanager
    def stream(self, node: str) -> Iterator[Stream]:
        """A stream from its first request to its end."""
        made = Stream(node)
        with self._news:
            self._streams.append(made)
            self._left.pop(node, None)
        self._changed()
        try:
            yield made
        finally:
            with self._news:
                self._streams.remove(made)
                if all(one.node != node for one in self._streams):
                    self._left[node] = time.monotonic()
                self._news.notify_all()
            self._changed()

    def arrived(self, keys: Collection[Key], within: float) -> None:
        """Waits until somebody asks for each of these, `within` seconds at most."""
        end = time.monotonic() + within
        with self._news:
            while not self._closed and (left := end - time.monotonic()) > 0:
                if all(any(one.wanting(key.kind, key.name) for one in self._streams) for key in keys):
                    return
                self._news.wait(left)

    def streams(self) -> tuple[Stream, ...]:
        """Those that are open now."""
        with self._news:
            return tuple(self._streams)

    def nodes(self) -> frozenset[str]:
        """The Envoys that are connected, by their ids."""
        return frozenset(one.node for one in self.streams())

    def sharing(self) -> int:
        """How many Envoys share the load, those that left a moment ago included."""
        now = time.monotonic()
        with self._news:
            self._left = {node: at for node, at in self._left.items() if now - at < _ABSENCE}
            return max(1, len({one.node for one in self._streams} | self._left.keys()))

    # --- for the threads of streams --------------------------------------------------------------------------------

    def asked(
        self, stream: Stream, type_url: str, names: Collection[str], version: str, nonce: str, error: str
    ) -> None:
        """A request came in on a stream."""
        with self._news:
            stream.asked(type_url, frozenset(names), version, nonce, error)
            self._news.notify_all()

    def wake(self) -> None:
        """Something outside changed that a waiting thread should look at."""
        with self._news:
            self._news.notify_all()

    def next(self, stream: Stream, ended: Callable[[], bool]) -> Parcel | None:
        """Waits for something to send on a stream; None when it is over."""
        with self._news:
            while not (self._closed or ended()):
                parcel = self._parcel(stream)
                if parcel is not None:
                    return parcel
                self._news.wait()
            return None

    def _parcel(self, stream: Stream) -> Parcel | None:
        for kind in Kind:
            if self._dry or kind not in stream.wants:
                continue
            fresh = not stream.wants[kind].predecessor
            there = {
                key.name: told.generation
                for key, told in self._told.items()
                if key.kind is kind and (fresh or key in self._ours)
            }
            due = stream.due(kind, there)
            if not due:
                continue
            told = tuple(self._told[Key(kind, name)] for name in due)
            lasting = self._lasting(stream, kind, told)
            version = f"{self._began:x}-{max(due.values())}"
            return Parcel(kind, stream.sending(kind, due), version, told, lasting)
        return None

    def _lasting(self, stream: Stream, kind: Kind, told: Collection[Told]) -> dict[str, float]:
        """Envoy ends itself when two resources of one type and stream expire (its issue 24271), so such a stream gets
        no times; ``verdicts`` refuses what would need them."""
        if alone(stream, kind):
            now = time.monotonic()
            ends = {one.resource.key.name: one.resource.until for one in told}
            return {name: max(0.001, until - now) for name, until in ends.items() if until is not None}
        return {}

    # --- for the threads that apply --------------------------------------------------------------------------------

    def verdicts(self, keys: Collection[Key], within: float) -> dict[Key, Verdict]:
        """See ``Transport``. One wait for all."""
        end = time.monotonic() + within
        with self._news:
            while not self._closed:
                found = {key: self._verdict(key) for key in keys}
                left = end - time.monotonic()
                if left <= 0 or all(one.outcome is not Outcome.UNKNOWN for one in found.values()):
                    return found
                self._news.wait(left)
        return {key: Verdict(Outcome.UNKNOWN, "Governor is stopping") for key in keys}

    def _verdict(self, key: Key) -> Verdict:
        told = self._told.get(key)
        if told is None:
            return Verdict(Outcome.FAILED, f"there is nothing to tell of {key.name}: no replica is known")
        streams = [one for one in self._streams if one.wanting(key.kind, key.name)]
        if not streams:
            who = "no Envoy is connected" if not self._streams else f"no connected Envoy asks for {key.name}"
            return Verdict(Outcome.FAILED, who)
        if self._dry:
            return Verdict(Outcome.DONE, "nothing is told in a dry run")
        if told.resource.until is not None and not all(alone(one, key.kind) for one in streams):
            mend = "give each its own api_config_source instead of ads, else Envoy ends itself when they expire"
            return Verdict(Outcome.REFUSED, f"{key.name} and others share one stream; {mend}")
        said = [(one, one.took(key.kind, key.name, told.generation)) for one in streams]
        refused = [one for one, took in said if took is False]
        if refused:
            words = f"{refused[0].node}: {refused[0].words(key.kind, key.name)}"
            return Verdict(Outcome.REFUSED, f"{len(refused)} of {len(said)} Envoys refused {key.name}; {words}")
        silent = [one.node for one, took in said if took is None]
        if silent:
            return Verdict(Outcome.UNKNOWN, f"{len(silent)} of {len(said)} Envoys have not answered: {silent[0]}")
        nodes = len({one.node for one in streams})
        return Verdict(Outcome.DONE, f"{nodes} Envoy{'s' if nodes > 1 else ''} took version {told.generation}")

    def close(self) -> None:
        """Ends every wait."""
        with self._news:
            self._closed = True
            self._news.notify_all()


def alone(stream: Stream, kind: Kind) -> bool:
    """Whether what expires may be sent: endpoints carry their own time, and anything else must be its stream's only one
    of its type."""
    return kind is Kind.ENDPOINTS or len(stream.wants[kind].names) <= 1
