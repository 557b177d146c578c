"""Through the plugin: a document that each proxy looks at before each request."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from actuators.batch import wanted
from actuators.litellm.config import LiteLLMConfig
from actuators.litellm.document import Document, Entry, InFile, InRedis, Store, Trouble, written
from actuators.memory import Memory
from actuators.web import NoAnswer, Web
from controller.core.address import shown
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target, TargetState
from controller.core.ports import Binding, Finding
from controller.core.rest import at_rest


class ByPlugin:
    """A batch is one document."""

    def __init__(self, config: LiteLLMConfig, binding: Binding) -> None:
        self._config = _consenting(config, binding)
        self._identity = binding.identity
        for target in binding.targets:
            if target.lever is Lever.DOWNGRADE and target.member not in config.pools:
                raise ValueError(f"pools: {target.member}, which receives from {target.pool}, is not among them")
        self._store: Store = InFile(config.document)
        if config.redis is not None:
            self._store = InRedis(config.redis, config.key)
        self._web = Web(config.timeout, ca_file=config.ca_file)
        self._memory = Memory(config.yield_for)
        self._generation = 0  # the last that was read or written
        self._until: dict[Target, float | None] = {}
        self._runs: dict[Target, str] = {}  # the run of Redis that was read last

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        try:
            document = self._store.load()
        except Trouble as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        older = document.by == self._identity and document.generation < self._generation
        ours = document.by == self._identity and document.generation > self._generation > 0
        self._generation = document.generation
        states = {}
        for target in targets:
            value = document.value(target, now)
            until = self._until.get(target)
            if target in self._memory and until is not None and now >= until:
                self._memory.settled(target, value)  # it ran out
            elif target in self._memory and ours:
                self._memory.succeeded(target, value, now)
            writer = document.by if document.by not in ("", self._identity) else "somebody who changed the document"
            drift = Drift.STALE if older else Drift.FOREIGN
            if document.run and document.run != self._runs.get(target, document.run):
                drift = Drift.RESTARTED
            self._runs[target] = document.run
            self._memory.saw(target, value, now, writer, drift)
            states[target] = self._memory.state(target, value, now)
        return states

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        try:
            document = self._store.load()
        except Trouble as error:
            return self._all(decisions, error.outcome, str(error), now)
        before = {d.target: document.value(d.target, now) for d in decisions}
        for decision in decisions:
            if decision.current is not None and before[decision.target] not in (decision.current, decision.final):
                detail = f"{decision.target} was changed since the decision was made"
                return self._all(decisions, Outcome.FAILED, detail, now)
        entries = {d.target: Entry(wanted(d), d.until) for d in decisions}
        after = written(document, self._config, entries, self._identity, now)
        try:
            self._store.save(document, after, now)
        except Trouble as error:
            return self._all(decisions, error.outcome, str(error), now)
        self._generation = after.generation
        self._until.update({d.target: d.until for d in decisions})
        detail = f"generation {after.generation} is written"
        lagging = self._lagging(after.generation)
        if lagging:
            return self._all(decisions, Outcome.UNKNOWN, f"{detail}; {lagging}", now)
        for decision in decisions:
            moved = before[decision.target] != decision.final
            self._memory.sent(decision.target, wanted(decision), Outcome.DONE, now, moved=moved)
        return tuple(Applied(decision.target, Outcome.DONE, detail) for decision in decisions)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        if not decisions:
            return ()
        try:
            document = self._store.load()
        except Trouble as error:
            return tuple(Applied(decision.target, Outcome.UNKNOWN, str(error)) for decision in decisions)
        lagging = self._lagging(document.generation)
        return tuple(self._verified(decision, document, lagging, now) for decision in decisions)

    def diagnose(self, now: float) -> Sequence[Finding]:
        found = []
        try:
            document = self._store.load()
            if document.by not in ("", self._identity):
                text = f"the document is written by {document.by}; give each of you one of its own"
                found.append(Finding("warning", self._place, text))
            if not document.raw:
                found.append(Finding("info", self._place, "there is no document yet; the first write makes it"))
        except Trouble as error:
            document = Document()
            found.append(Finding("error", self._place, str(error)))
        if not self._config.status:
            text = "nothing tells whether a proxy reads the document; set status"
            found.append(Finding("warning", self._place, text))
        elif lagging := self._lagging(document.generation):
            found.append(Finding("error", self._place, lagging))
        return tuple(found)

    def close(self) -> None:
        self._store.close()
        self._web.close()

    @property
    def _place(self) -> str:
        return self._config.document or f"{self._config.key} in Redis"

    def _lagging(self, generation: int) -> str:
        """Which proxy does not run this generation, and why as far as it is told; "" when all do. All of
        them together have the time of one answer."""
        until = time.monotonic() + self._config.timeout
        for url in self._config.status:
            left = until - time.monotonic()
            if left <= 0:
                return f"there was no time left to ask {shown(url)}; take the slow proxy before it out of status"
            try:
                answer = self._web.ask("GET", url, limit=left)
            except NoAnswer as error:
                return f"whether the proxy runs it is not known: {error}"
            body = answer.document
            if answer.status != 200 or not isinstance(body, dict) or not isinstance(body.get("generation"), int):
                return f"{shown(url)} has no /governor/status (HTTP {answer.status}); load the plugin there"
            if body["generation"] < generation:
                why = body.get("problem") or "does it read the same document?"
                return f"{shown(url)} runs generation {body['generation']}: {why}"
        return ""

    def _verified(self, decision: Decision, document: Document, lagging: str, now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        got = document.value(target, now)
        if got == value and lagging:
            return Applied(target, Outcome.UNKNOWN, lagging)
        outcome = Outcome.DONE if got == value or value >= at_rest(target) == got else Outcome.FAILED
        if outcome is Outcome.DONE:
            self._until[target] = decision.until
        self._memory.sent(target, value, outcome, now)
        return Applied(target, outcome, f"{target} is {got:g}")

    def _all(self, decisions: Sequence[Decision], outcome: Outcome, detail: str, now: float) -> tuple[Applied, ...]:
        for decision in decisions:
            self._memory.sent(decision.target, wanted(decision), outcome, now, over=decision.current)
        return tuple(Applied(decision.target, outcome, detail) for decision in decisions)


def _consenting(config: LiteLLMConfig, binding: Binding) -> LiteLLMConfig:
    """With those that consent in the pools, where the actuator's own part names nobody."""
    agreed = {(pool, kind): who for pool, kind, who in binding.consents}
    pools = {
        name: own
        if own.tenants or own.classes
        else replace(own, tenants=agreed.get((name, "tenants"), ()), classes=agreed.get((name, "classes"), ()))
        for name, own in config.pools.items()
    }
    return replace(config, pools=pools)
