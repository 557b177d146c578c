"""HAProxy as the one that asks: weights, breakers and limits that every HAProxy fetches from Governor, again and again.

What was fetched is read back from one HAProxy, by a stats socket without any right to write.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from actuators.batch import reject, wanted
from actuators.haproxy.agent import AgentServer, Answers
from actuators.haproxy.cli import Cli, Lost, NotReached
from actuators.haproxy.common import Told, found, problems
from actuators.haproxy.config import HAProxyConfig, address, listen_at
from actuators.haproxy.look import Garbled, Server, View, look
from actuators.haproxy.names import CONCURRENCY, Names, weight_of
from actuators.haproxy.orders import Orders, orders, percent
from actuators.haproxy.told import Reader, backend_of
from actuators.memory import Memory
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target, TargetState
from controller.core.ports import Binding

_AGAIN = 0.02  # seconds between two looks at whether HAProxy follows the line that it has fetched
_DRAIN = "drain"
_SILENT = (NotReached, Lost, Garbled)


class ByAgent:
    """Answers to HAProxy's questions. A Governor that has just begun is silent until its first decision, and HAProxy
    keeps what it was told last."""

    def __init__(self, config: HAProxyConfig, binding: Binding) -> None:
        self._config = config
        self._reader = Reader(Names(config), binding)
        self._memory = Memory(config.yield_for)
        self._answers = Answers()
        self._entries: Mapping[str, str] = {}  # what a map would hold
        self._server: AgentServer | None = None
        self._process: tuple[str, str] | None = None

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        try:
            view = self._look()
        except _SILENT as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        drift = Drift.FOREIGN if self._process in (None, view.process) else Drift.RESTARTED
        self._process = view.process
        return {target: self._read_one(target, view, drift, now) for target in targets}

    def _read_one(self, target: Target, view: View, drift: Drift, now: float) -> TargetState:
        try:
            value = self._reader.value(target, view, now, self._memory.value(target))
        except LookupError as error:
            return self._memory.state(target, None, now, error=str(error))
        self._memory.saw(target, value, now, "by HAProxy's socket", drift)
        return self._memory.state(target, value, now)

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        if wrong := problems(decisions, self._reader):
            return reject(decisions, wrong)
        if not decisions:
            return ()
        try:
            view = self._look()
        except _SILENT as error:
            return self._recorded(decisions, {d.target: (Outcome.FAILED, str(error)) for d in decisions}, now)
        todo = orders(decisions, self._reader, view, now, None)
        told: dict[Target, Told] = dict(todo.refused)
        if todo.kept:
            told |= self._offer(todo, view, now)
        return self._recorded(todo.decisions, told, now)

    def _offer(self, todo: Orders, view: View, now: float) -> dict[Target, Told]:
        """Put the new lines up, and wait until HAProxy has fetched them and follows."""
        serves = {d.target: [backend_of(s) for s in self._servers(d.target, view)] for d in todo.kept}
        servers = {backend_of(s): (d.target, s) for d in todo.kept for s in self._servers(d.target, view)}
        lines = {name: self._line(target, server, todo, view, now) for name, (target, server) in servers.items()}
        drains = {name: line for name, line in lines.items() if line.startswith(_DRAIN)}
        others = {name: line for name, line in lines.items() if name not in drains}
        late = self._answers.tell(others, self._config.timeout)  # first, so that a swap has no moment without a server
        late |= self._answers.tell(drains, self._config.timeout)
        told: dict[Target, Told] = {}
        before, self._entries = self._entries, todo.map
        for decision in todo.kept:
            silent = sorted(late.intersection(serves[decision.target]))
            words = f"HAProxy did not ask for {', '.join(silent)} within {self._config.timeout:g} s"
            if len(silent) == len(serves[decision.target]):
                told[decision.target] = (Outcome.FAILED, f"{words}; taken back")
                self._forget(decision.target, before, view)
            elif silent:
                told[decision.target] = (Outcome.UNKNOWN, words)
        return told | self._followed([d for d in todo.kept if d.target not in told], now)

    def _followed(self, fetched: Sequence[Decision], now: float) -> dict[Target, Told]:
        told: dict[Target, Told] = {}
        until = time.monotonic() + self._config.timeout / 2
        while fetched:
            try:
                view = self._look()
            except _SILENT as error:
                return {d.target: (Outcome.UNKNOWN, str(error)) for d in fetched}
            told = {d.target: found(d, self._reader, view, now, Outcome.UNKNOWN) for d in fetched}
            done = all(outcome is Outcome.DONE for outcome, _ in told.values())
            if time.monotonic() > until or (done and all(self._reader.settled(target, view, now) for target in told)):
                break
            self._answers.wait(_AGAIN)
        return told

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        if not decisions:
            return ()
        try:
            view = self._look()
        except _SILENT as error:
            return tuple(Applied(d.target, Outcome.UNKNOWN, str(error)) for d in decisions)
        told = {d.target: found(d, self._reader, view, now, Outcome.FAILED) for d in decisions}
        return self._recorded(decisions, told, now)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    # --- shared -------------------------------------------------------------------------------------------------

    def _look(self) -> View:
        """Also opens the port at which HAProxy asks, the first time."""
        if self._server is None:
            try:
                self._server = AgentServer(listen_at(self._config.listen), self._answers)
            except OSError as error:
                raise NotReached(f"cannot listen at {self._config.listen}: {error.strerror}") from error
        with Cli(address(self._config.socket), self._config.timeout) as cli:
            return replace(look(cli, self._config), map=self._entries)

    def _servers(self, target: Target, view: View) -> list[Server]:
        if target.lever is Lever.ADMISSION:
            return view.of(self._reader.names.pool(target).backend)
        return [self._reader.found(target, view)]

    def _line(self, target: Target, server: Server, todo: Orders, view: View, now: float) -> str:
        """All that a server is told, in one line: HAProxy knows percents of the initial weight, and cuts the rest."""
        of_server = self._named(target, server)
        share = percent(of_server, todo.map, self._reader, view, now)
        weight = weight_of(share, server.initial)
        words = [f"ready {-(-weight * 100 // server.initial)}%" if weight else _DRAIN]
        limit = todo.map.get(self._reader.names.key(Target(target.pool, Lever.ADMISSION, CONCURRENCY), view))
        if limit is not None:
            words.append(f"maxconn:{limit}")
        return " ".join(words) + "\n"

    def _named(self, target: Target, server: Server) -> Target:
        """A target of this one server, as a replica is called."""
        if target.lever is not Lever.ADMISSION:
            return target
        pool = self._reader.names.pool(target)
        called = next((replica for replica, name in pool.servers.items() if name == server.name), None)
        return Target(target.pool, Lever.WEIGHT, called or (server.address if pool.by == "address" else server.name))

    def _forget(self, target: Target, before: Mapping[str, str], view: View) -> None:
        key = self._reader.names.key(target, view)
        kept = {name: value for name, value in self._entries.items() if name != key}
        self._entries = kept | ({key: before[key]} if key in before else {})

    def _recorded(self, decisions: Sequence[Decision], told: Mapping[Target, Told], now: float) -> tuple[Applied, ...]:
        return tuple(self._record(d, *told[d.target], now) for d in decisions)

    def _record(self, decision: Decision, outcome: Outcome, detail: str, now: float) -> Applied:
        moved = self._memory.value(decision.target) != wanted(decision)
        self._memory.sent(decision.target, wanted(decision), outcome, now, moved=moved)
        return Applied(decision.target, outcome, detail)
