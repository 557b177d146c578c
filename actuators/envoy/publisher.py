"""Keeps what Envoys are told in step with what is wanted: values, where replicas listen, how many Envoys there are, and
the time, for a value that nobody renews is dropped by Governor too while it lives.
"""

import threading
import time
from collections.abc import Callable

from actuators.endpoints import Endpoint, Endpoints, is_ip
from actuators.envoy.book import Book
from actuators.envoy.config import EnvoyConfig, Grpc
from actuators.envoy.resources import Key, Resource, Scene, all_of
from actuators.envoy.transport import Transport


class Publisher:
    """For several threads. ``begin`` starts one of its own that looks after replicas, Envoys and expiry."""

    def __init__(self, config: EnvoyConfig, transport: Transport, book: Book) -> None:
        self._config, self._transport = config, transport
        self._lock = threading.RLock()
        self._origins = {
            name: Endpoints(pool.endpoints, config.refresh)
            for name, pool in config.pools.items()
            if pool.endpoints is not None
        }
        self._book = book
        self._mortal = isinstance(config.transport, Grpc)  # a file would be written anew for every renewal
        self._lease = time.monotonic() + config.lease
        self._told: dict[Key, Resource] = {}
        self._look = threading.Event()
        self._ended = False
        self.problem = ""  # why looking after it failed last
        self._thread: threading.Thread | None = None

    @property
    def book(self) -> Book:
        """The values that are wanted now."""
        with self._lock:
            return self._book.at(time.monotonic())

    def origin(self, pool: str) -> Endpoints | None:
        """Where a pool's replicas listen, as far as that was told."""
        return self._origins.get(pool)

    def scene(self) -> Scene:
        """What the resources depend on now."""
        known = {pool: _usable(origin.known) for pool, origin in self._origins.items()}
        return Scene(self.book, known, self._transport.envoys(), self._lease if self._mortal else None)

    def keys(self) -> set[Key]:
        """The resources that there are."""
        with self._lock:
            return set(self._told)

    def begin(self, there: Callable[[Resource], bool] | None = None) -> None:
        """Tell for the first time what is not `there` already."""
        with self._lock:
            for origin in self._origins.values():
                origin.refresh()
            made = all_of(self._config, self.scene())
            self._told = {key: one for key, one in made.items() if there is not None and there(one)}
            self._tell()
        self._thread = threading.Thread(target=self._watch, name="governor-envoy-keep", daemon=True)
        self._thread.start()

    def want(self, book: Book) -> None:
        """These values from now on."""
        with self._lock:
            self._book = book
            self._tell()
        self._look.set()  # one of them may end before what is waited for

    def adopt(self, book: Book) -> None:
        """These values are in force already: they are told with the next change."""
        with self._lock:
            self._book = book
            made = all_of(self._config, self.scene())
            self._told = {key: one for key, one in made.items() if key in self._told}

    def _tell(self) -> None:
        """Whatever is not as it was told last; with the lock."""
        made = {key: self._kept(one) for key, one in all_of(self._config, self.scene()).items()}
        changed = {key for key, one in made.items() if self._told.get(key) != one}
        self._told = made
        if changed:
            self._transport.tell(made, changed)

    def _kept(self, made: Resource) -> Resource:
        """With the body that was told, where it is the same: who turns it into messages knows it by its identity."""
        old = self._told.get(made.key)
        return Resource(made.key, old.body, made.until) if old is not None and old.body == made.body else made

    def look(self) -> None:
        """Something outside has changed; from any thread, and at once back."""
        self._look.set()

    def refresh(self) -> None:
        """Look where replicas listen, and tell what has changed."""
        for origin in self._origins.values():
            origin.refresh()
        with self._lock:
            self._book = self._book.at(time.monotonic())
            self._tell()

    def close(self) -> None:
        """Ends the thread."""
        self._ended = True
        self._look.set()
        if self._thread is not None:
            self._thread.join()

    def _renew(self) -> None:
        """Replicas come and go when Governor is dead as well: its list of them must not outlive it for long, even where
        all have their full share. Renewed by the thread alone, so that a read finds it acknowledged."""
        now = time.monotonic()
        if self._lease - now < self._config.lease * 2 / 3:
            self._lease = now + self._config.lease

    def _watch(self) -> None:
        while True:
            end = self._book.next_end()
            longest = min(self._config.refresh, self._config.lease / 6)
            self._look.wait(longest if end is None else min(longest, max(0.0, end - time.monotonic())))
            self._look.clear()
            if self._ended:
                return
            try:
                self._renew()
                self.refresh()
            except Exception as error:  # noqa: BLE001 - whatever an origin's client raises, the next look may be better
                self.problem = f"{type(error).__name__}: {error}"


def _usable(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """Envoy takes literal addresses alone, and refuses all endpoints of a cluster for one that is none."""
    return tuple(one for one in endpoints if is_ip(one.host))
