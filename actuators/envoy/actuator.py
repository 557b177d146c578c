"""Moves weights, breakers, gates, downgrades and tenants' caps of a fleet of Envoys."""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

from actuators.batch import invalid, reject, wanted
from actuators.endpoints import Endpoint, is_ip
from actuators.envoy.admin import Admin
from actuators.envoy.book import Book, Entry
from actuators.envoy.checks import PER_ENDPOINT, capabilities, check, refused
from actuators.envoy.config import EnvoyConfig, Files
from actuators.envoy.doctor import findings
from actuators.envoy.files import FilesTransport
from actuators.envoy.hub import Hub
from actuators.envoy.look import PREDECESSOR, Look, Seen
from actuators.envoy.publisher import Publisher
from actuators.envoy.resources import Key, carrier
from actuators.envoy.server import GrpcTransport
from actuators.envoy.transport import Transport, Verdict
from actuators.memory import Memory
from controller.core.model import Applied, Decision, Lever, Outcome, Target, TargetState
from controller.core.ports import ActuatorError, Binding, Capability, Finding
from controller.core.rest import at_rest


class Envoy:
    """All values of a batch are told together: what one Envoy takes, it takes whole for each kind of value."""

    Config = EnvoyConfig
    place = ()  # Envoys come to Governor, wherever it is, and are told anew at every tick

    def __init__(self, config: EnvoyConfig, binding: Binding) -> None:
        check(config, binding)
        self._config, self._binding = config, binding
        self._can = capabilities(config)
        self._memory = Memory(config.yield_for)
        self._admins = [Admin(url, config.timeout) for url in config.admin]
        self._files: FilesTransport | None = None
        self._hub: Hub | None = None
        self._transport: Transport
        if isinstance(config.transport, Files):
            folder = config.transport.folder
            self._transport = self._files = FilesTransport(folder, self._admins, dry=binding.dry)
        else:
            self._hub = Hub(self._envoy_came_or_went, dry=binding.dry)
            self._transport = GrpcTransport(config.transport, self._hub)
        self._publisher: Publisher | None = None
        self._opening = threading.Lock()
        self._first: dict[Key, float] = {}  # the tick at which a resource could be read first
        self._before: dict[Target, Entry | None] = {}  # what stood before a write of unknown outcome
        self._raw: dict[Target, float | None] = {}  # what a stranger's key said when it was seen last
        self._ours: set[Key] = set()  # resources that were told by this process, and by none before it

    @classmethod
    def describe(cls, config: EnvoyConfig | None = None) -> Mapping[Lever, Capability]:
        return capabilities(config)

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        publisher = self._open()
        publisher.refresh()
        look = self._look(publisher)
        states: dict[Target, TargetState] = {}
        found: dict[Target, Entry] = {}
        for target in targets:
            seen = look.seen(target)
            value = self._steady(target, seen)
            if value is not None and not seen.assumed:
                self._memory.saw(target, value, now, seen.writer)
                if self._files is not None or seen.writer == PREDECESSOR:
                    found[target] = Entry(value)
            state = self._memory.state(target, value, now, error=seen.error)
            states[target] = replace(state, assumed=seen.assumed)
        self._adopt(publisher, found)
        self._another_tick({carrier(self._config, t) for t, state in states.items() if not state.error}, now)
        return states

    def _steady(self, target: Target, seen: Seen) -> float | None:
        """The value that was seen; the one known already where a stranger's key behind it has not changed."""
        known = self._memory.value(target)
        if seen.raw is not None and self._raw.get(target) == seen.raw and known is not None:
            return known
        self._raw[target] = seen.raw
        return seen.value

    def _open(self) -> Publisher:
        with self._opening:
            if self._publisher is None:
                self._transport.open()
                book = self._files.load() if self._files is not None else Book()
                publisher = Publisher(self._config, self._transport, book)
                publisher.begin(self._files.there if self._files is not None else None)
                self._publisher = publisher
                self._take_over(publisher.keys() - self._carriers())
                if self._hub is not None:
                    self._hub.arrived(self._carriers(), self._config.arrival)
            return self._publisher

    def _carriers(self) -> set[Key]:
        """The resources that carry targets of ours; nobody decides on what the others say."""
        targets = [*self._binding.targets, *(Target(pool, lever) for pool, lever in self._binding.scopes)]
        return {carrier(self._config, target) for target in targets}

    def _another_tick(self, keys: Collection[Key], now: float) -> None:
        """What is not neutral is sent at every tick, so after a whole one everything that is still wanted is known, and
        replaces what a Governor before this one told."""
        self._take_over({key for key in keys if self._first.setdefault(key, now) != now})

    def _take_over(self, keys: Collection[Key]) -> None:
        if self._hub is not None and not self._binding.dry and not self._ours.issuperset(keys):
            self._ours.update(keys)
            self._hub.take_over(keys)

    def _told_by_us(self, key: Key) -> bool:
        """Whether Envoys have this from this process alone. A file may be anybody's."""
        return key in self._ours

    def _adopt(self, publisher: Publisher, entries: Mapping[Target, Entry]) -> None:
        """Values that are in force without our doing are told on beside ours, for a resource is told as a whole. In a
        file they stand already; an Envoy that was told by another Governor hears of them when it is taken over."""
        book = publisher.book
        strange = {target: entry for target, entry in entries.items() if entry.value != book.value(target)}
        if strange and self._files is not None:
            publisher.adopt(book.having(strange))
        elif strange:
            publisher.want(book.having(strange))

    def _look(self, publisher: Publisher) -> Look:
        @cache
        def verdict(key: Key) -> Verdict:
            return self._transport.verdicts((key,), 0.0)[key]

        scene = publisher.scene()
        ours = self._told_by_us
        return Look(self._config, scene, self._endpoint, verdict, self._admins, self._files, ours=ours)

    def _endpoint(self, target: Target) -> Endpoint:
        """Where a replica listens; raises ActuatorError."""
        origin = self._publisher.origin(target.pool) if self._publisher is not None else None
        found = origin.find(target.member) if origin is not None else None
        if found is None:
            problem = f" ({origin.problem})" if origin is not None and origin.problem else ""
            raise ActuatorError(f"the endpoints of {target.pool} have no address of {target.member}{problem}")
        if not is_ip(found.host):
            raise ActuatorError(f"{found.host} of {target.member} is a name; Envoy takes addresses, so write its IP")
        return found

    # --- writing ---------------------------------------------------------------------------------------------------

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = self._invalid(decisions)
        if problems:
            return reject(decisions, problems)
        if not decisions:
            return ()
        publisher = self._open()
        before = publisher.book
        book = before.having({d.target: _entry(d, now) for d in decisions})
        applied = self._out_of_reach(publisher, book, decisions)
        left = [d for d in decisions if d.target not in applied]
        for decision in decisions:
            if decision.target in applied:
                self._memory.sent(decision.target, wanted(decision), applied[decision.target].outcome, now)
        if left:
            publisher.want(before.having({d.target: _entry(d, now) for d in left}))
            self._take_over({carrier(self._config, d.target) for d in left})
            applied.update(self._told(publisher, before, left, now))
        return tuple(applied[d.target] for d in decisions)

    def _invalid(self, decisions: Sequence[Decision]) -> dict[Target, str]:
        problems: dict[Target, str] = {}
        for lever in {d.target.lever for d in decisions}:
            can, mine = self._can.get(lever), [d for d in decisions if d.target.lever is lever]
            if can is None:
                problems |= {d.target: "not a target of this actuator" for d in mine}
            else:
                problems |= invalid(mine, self._binding.owns, quantum=can.quantum, low=can.low, high=can.high)
        return problems

    def _out_of_reach(self, publisher: Publisher, book: Book, decisions: Sequence[Decision]) -> dict[Target, Applied]:
        """Decisions that are not told, with why; each is a matter of its own pool or replica alone."""
        out: dict[Target, Applied] = {}
        unfit = refused(self._config, publisher.scene(), book, decisions)
        look = self._look(publisher) if self._files is not None else None
        for decision in decisions:
            target = decision.target
            try:
                if target.lever in PER_ENDPOINT:
                    self._endpoint(target)
            except ActuatorError as error:
                out[target] = Applied(target, Outcome.FAILED, str(error))
                continue
            seen = look.seen(target) if look is not None else None
            if target in unfit:
                out[target] = Applied(target, Outcome.REFUSED, unfit[target])
            elif seen is not None and seen.error:
                out[target] = Applied(target, Outcome.FAILED, seen.error)
            elif (
                seen is not None
                and decision.current is not None
                and seen.value not in (decision.current, decision.final)
            ):
                out[target] = Applied(target, Outcome.FAILED, f"{target} was changed to {seen.value} by {seen.writer}")
        return out

    def _told(
        self, publisher: Publisher, before: Book, decisions: Sequence[Decision], now: float
    ) -> dict[Target, Applied]:
        """What became of values that were told. Those that Envoy refused, or that nobody heard, are taken back, so that
        an Envoy that comes later does not get them after all."""
        carriers = {d.target: carrier(self._config, d.target) for d in decisions}
        verdicts = self._transport.verdicts(set(carriers.values()), self._config.timeout)
        applied: dict[Target, Applied] = {}
        back: dict[Target, Entry | None] = {}
        for decision in decisions:
            target, verdict = decision.target, verdicts[carriers[decision.target]]
            if verdict.outcome in (Outcome.REFUSED, Outcome.FAILED):
                back[target] = before.get(target)
            elif verdict.outcome is Outcome.UNKNOWN:
                self._before[target] = before.get(target)
            moved = verdict.outcome is Outcome.DONE and before.value(target) != wanted(decision)
            self._memory.sent(target, wanted(decision), verdict.outcome, now, moved=moved)
            applied[target] = Applied(target, verdict.outcome, verdict.detail)
        self._take_back(publisher, back)
        if self._files is not None:
            try:
                self._files.save(publisher.book)
            except OSError as error:
                note = f"; the values behind it were not kept: {error.strerror or error}"
                applied = {target: replace(one, detail=one.detail + note) for target, one in applied.items()}
        return applied

    def _take_back(self, publisher: Publisher, entries: Mapping[Target, Entry | None]) -> None:
        """What stood there before is told again."""
        if entries:
            kept = {target: entry for target, entry in entries.items() if entry is not None}
            publisher.want(publisher.book.without(entries).having(kept))

    # --- asking afterwards -----------------------------------------------------------------------------------------

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        if not decisions:
            return ()
        publisher = self._open()
        look = self._look(publisher)
        return tuple(self._verified(publisher, look, decision, now) for decision in decisions)

    def _verified(self, publisher: Publisher, look: Look, decision: Decision, now: float) -> Applied:
        target, value, key = decision.target, wanted(decision), carrier(self._config, decision.target)
        seen = look.seen(target)
        if seen.assumed or (seen.value is None and self._files is None and not self._told_by_us(key)):
            # Sent by the Governor before this one: let it stand until the next decision.
            self._adopt(publisher, {target: _entry(decision, now)})
            return Applied(target, Outcome.UNKNOWN, "another Governor sent it; told anew with the next tick")
        if seen.value is None:
            verdict = self._transport.verdicts((key,), 0.0)[key]
            if verdict.outcome is Outcome.REFUSED:
                self._take_back(publisher, {target: self._before.pop(target, None)})
                self._memory.sent(target, value, Outcome.REFUSED, now)
                return Applied(target, Outcome.REFUSED, verdict.detail)
            return Applied(target, Outcome.UNKNOWN, seen.error)
        self._before.pop(target, None)
        if self._files is not None and seen.value == value:  # in the file: has Envoy taken it?
            written = self._files.verdict_of_written(key, self._config.timeout)
            if written is not None and written.outcome is not Outcome.DONE:
                return Applied(target, written.outcome, written.detail)
        outcome = Outcome.DONE if seen.value == value else Outcome.FAILED
        self._memory.sent(target, value, outcome, now)
        return Applied(
            target, outcome, f"{target} is {seen.value:g}" + ("" if seen.value == value else f", not {value:g}")
        )

    # --- the rest --------------------------------------------------------------------------------------------------

    def diagnose(self, now: float) -> Sequence[Finding]:
        """What a person should know of Envoys, replicas and other writers; writes nothing."""
        return findings(self._config, self._binding, self._publisher, self._hub, self._admins)

    def close(self) -> None:
        """What Envoys were told lasts until it expires."""
        if self._publisher is not None:
            self._publisher.close()
        self._transport.close()
        for admin in self._admins:
            admin.close()

    def _envoy_came_or_went(self) -> None:
        if self._publisher is not None:
            self._publisher.look()


def _entry(decision: Decision, now: float) -> Entry:
    """A value with its expiry on our own clock, which no step of the wall clock moves."""
    value, until = wanted(decision), None
    demand = decision.evidence.get("demand", 0.0) if decision.target.lever is Lever.TENANT_CAP else 0.0
    if decision.until is not None and value != at_rest(decision.target):
        until = time.monotonic() + decision.until - now
    return Entry(value, until, max(0.0, 1.0 - value / demand) if demand > 0 else 0.0)
