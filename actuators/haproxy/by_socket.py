"""HAProxy by its admin socket: the map in one atomic step, then server by server, then everything read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from actuators.atomic import replace_file
from actuators.batch import reject, wanted
from actuators.haproxy.cli import Cli, Lost, NotReached
from actuators.haproxy.common import Told, found, problems
from actuators.haproxy.config import HAProxyConfig, address
from actuators.haproxy.look import Garbled, View, look
from actuators.haproxy.names import SHARES, Names
from actuators.haproxy.orders import Orders, commands, orders
from actuators.haproxy.told import Reader
from actuators.memory import Memory
from controller.core.model import Applied, Decision, Drift, Outcome, Target, TargetState
from controller.core.ports import Binding
from controller.core.rest import at_rest

_AT_ONCE = 50  # commands that are under way at a time


class BySocket:
    """One HAProxy process. What it was told is in its map, so that a new Governor finds it there."""

    def __init__(self, config: HAProxyConfig, binding: Binding) -> None:
        self._config, self._binding = config, binding
        self._names = Names(config)
        self._reader = Reader(self._names, binding)
        self._memory = Memory(config.yield_for)
        self._until: dict[Target, float] = {}
        self._process: tuple[str, str] | None = None
        self._generation = 0
        self._unkept = ""

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        try:
            with self._cli() as cli:
                view = self._look(cli)
        except (NotReached, Lost, Garbled) as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        drift = self._drift(view)
        return {target: self._read_one(target, view, drift, now) for target in targets}

    def _read_one(self, target: Target, view: View, drift: Drift, now: float) -> TargetState:
        expected = self._memory.value(target)
        try:
            value = self._reader.value(target, view, now, expected)
        except LookupError as error:
            return self._memory.state(target, None, now, error=str(error))
        until = self._until.get(target)
        if until is not None and until <= now and value == at_rest(target):
            self._memory.settled(target, value)  # it ended in time, by HAProxy's own hand
            del self._until[target]
        self._memory.saw(target, value, now, "by HAProxy's socket", drift)
        server = self._names.server(target, view) if target.lever in SHARES else None
        owner = "maintenance in HAProxy" if server is not None and server.maintained else ""
        return self._memory.state(target, value, now, owner=owner)

    def _drift(self, view: View) -> Drift:
        """What another value than the last would mean in this look."""
        before, self._process = self._process, view.process
        if before is None or before == view.process:
            return Drift.FOREIGN
        kept = view.generation
        return Drift.STALE if kept is not None and kept < self._generation else Drift.RESTARTED

    # --- writing ------------------------------------------------------------------------------------------------

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        if wrong := problems(decisions, self._reader):
            return reject(decisions, wrong)
        if not decisions:
            return ()
        try:
            with self._cli() as cli:
                try:
                    view = self._look(cli)
                except (Lost, Garbled) as error:
                    return self._all(decisions, Outcome.FAILED, f"nothing was written: {error}", now)
                return self._carry_out(cli, view, decisions, now)
        except NotReached as error:
            return self._all(decisions, Outcome.FAILED, str(error), now)

    def _carry_out(self, cli: Cli, view: View, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        moved = self._moved(view, decisions, now)
        if moved is not None:
            detail = f"{moved} was changed by HAProxy's socket since the decision was made; nothing was written"
            return self._all(decisions, Outcome.FAILED, detail, now)
        self._generation = max(self._generation, view.generation or 0) + 1
        todo = orders(decisions, self._reader, view, now, self._generation)
        told: dict[Target, Told] = dict(todo.refused)
        if not self._write_map(cli, todo, told):
            return self._recorded(todo.decisions, told, view, now)
        self._command(cli, todo, view, told, now)
        self._read_back(cli, todo, told, now)
        return self._recorded(todo.decisions, told, view, now)

    def _write_map(self, cli: Cli, todo: Orders, told: dict[Target, Told]) -> bool:
        """Whether the rest may follow. Until its last word, a map that is being replaced is seen by nobody."""
        if not todo.changed:
            return True
        path, open_ = self._config.map, [d.target for d in todo.kept]
        try:
            made = cli.ask(f"prepare map {path}")
            version = made.rpartition(": ")[2]
            if not version.isdigit():
                told.update(dict.fromkeys(open_, (Outcome.REFUSED, f"map {path}: {made[:200]}")))
                return False
            lines = [f"{key} {value}" for key, value in sorted(todo.map.items())]
            answer = cli.load(f"add map @{version} {path}", lines)
            if answer:
                cli.ask(f"clear map @{version} {path}")
                told.update(dict.fromkeys(open_, (Outcome.REFUSED, f"map {path}: {answer[:200]}")))
                return False
        except Lost as error:
            told.update(dict.fromkeys(open_, (Outcome.FAILED, f"nothing is in force: {error}")))
            return False
        try:
            answer = cli.ask(f"commit map @{version} {path}")
        except Lost as error:
            told.update(dict.fromkeys(open_, (Outcome.UNKNOWN, str(error))))
            return False
        if answer:  # somebody else replaced the map meanwhile; the next tick sees theirs
            told.update(dict.fromkeys(open_, (Outcome.FAILED, f"map {path}: {answer[:200]}")))
        return not answer

    def _command(self, cli: Cli, todo: Orders, view: View, told: dict[Target, Told], now: float) -> None:
        """Each command has an outcome of its own: one that fails neither stops nor undoes the others."""
        lines = [(d.target, line) for d in todo.kept for line in commands(d, todo, self._reader, view, now)]
        for start in range(0, len(lines), _AT_ONCE):
            chunk = lines[start : start + _AT_ONCE]
            try:
                answers = cli.ask_all([line for _, line in chunk])
            except Lost as error:
                self._heard(chunk, error.answers, told)
                for target, _ in chunk[len(error.answers) :]:
                    told.setdefault(target, (Outcome.UNKNOWN, str(error)))
                for target, _ in lines[start + _AT_ONCE :]:
                    told.setdefault(target, (Outcome.FAILED, f"not sent: {error}"))
                return
            self._heard(chunk, answers, told)

    def _heard(self, chunk: Sequence[tuple[Target, str]], answers: Sequence[str], told: dict[Target, Told]) -> None:
        for (target, line), answer in zip(chunk, answers, strict=False):
            if answer:
                told.setdefault(target, (Outcome.REFUSED, f"`{line}`: {answer[:200]}"))

    def _read_back(self, cli: Cli, todo: Orders, told: dict[Target, Told], now: float) -> None:
        """HAProxy's silence means yes; that it is so is seen in the same breath. What stands is kept for a restart."""
        open_ = [d for d in todo.decisions if d.target not in told]
        if any(outcome is Outcome.UNKNOWN for outcome, _ in told.values()):
            told.update({d.target: (Outcome.UNKNOWN, "HAProxy fell silent before it was read back") for d in open_})
            return
        try:
            after = self._look(cli)
            state = cli.ask("show servers state") + "\n" if self._config.state_file else ""
        except (Lost, Garbled) as error:
            told.update({d.target: (Outcome.UNKNOWN, str(error)) for d in open_})
            return
        self._process = after.process
        for decision in open_:
            told[decision.target] = found(decision, self._reader, after, now, Outcome.FAILED)
        self._keep(after, state)
        if self._unkept:
            for target, (outcome, detail) in told.items():
                if outcome is Outcome.DONE:
                    told[target] = (outcome, f"{detail}; {self._unkept}")

    def _keep(self, view: View, state: str) -> None:
        """The map and the server states as files, for HAProxy's next start. What cannot be kept is in force all the
        same, and is said."""
        lines = "".join(f"{key} {value}\n" for key, value in sorted(view.map.items()))
        self._unkept = ""
        for path, data in ((self._config.map_file, lines), (self._config.state_file, state)):
            try:
                if path:
                    replace_file(Path(path), data.encode())
            except OSError as error:
                self._unkept = f"lost when HAProxy restarts, for {path} cannot be written: {error.strerror or error}"

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        if not decisions:
            return ()
        try:
            with self._cli() as cli:
                view = self._look(cli)
        except (NotReached, Lost, Garbled) as error:
            return tuple(Applied(d.target, Outcome.UNKNOWN, str(error)) for d in decisions)
        told = {d.target: found(d, self._reader, view, now, Outcome.FAILED) for d in decisions}
        return self._recorded(decisions, told, view, now)

    def close(self) -> None:
        """No connection is held open."""

    # --- shared -------------------------------------------------------------------------------------------------

    def _cli(self) -> Cli:
        return Cli(address(self._config.socket), self._config.timeout)

    def _look(self, cli: Cli) -> View:
        return look(cli, self._config)

    def _moved(self, view: View, decisions: Sequence[Decision], now: float) -> Target | None:
        """A target that stands neither where the decision found it nor where it leads."""
        for decision in decisions:
            try:
                stands = [self._reader.value(decision.target, view, now, v) for v in (decision.current, decision.final)]
            except LookupError:
                continue
            if decision.current is not None and decision.current != stands[0] and decision.final != stands[1]:
                return decision.target
        return None

    def _recorded(
        self, decisions: Sequence[Decision], told: Mapping[Target, Told], before: View, now: float
    ) -> tuple[Applied, ...]:
        out = []
        for decision in decisions:
            outcome, detail = told[decision.target]
            out.append(Applied(decision.target, outcome, detail))
            self._memory.sent(decision.target, wanted(decision), outcome, now, moved=self._moves(decision, before, now))
            if outcome in (Outcome.DONE, Outcome.UNKNOWN) and decision.until is not None and self._config.expires:
                self._until[decision.target] = decision.until
        return tuple(out)

    def _moves(self, decision: Decision, before: View, now: float) -> bool:
        try:
            return self._reader.value(decision.target, before, now, wanted(decision)) != wanted(decision)
        except LookupError:
            return True

    def _all(self, decisions: Sequence[Decision], outcome: Outcome, detail: str, now: float) -> tuple[Applied, ...]:
        for decision in decisions:
            self._memory.sent(decision.target, wanted(decision), outcome, now, moved=False)
        return tuple(Applied(d.target, outcome, detail) for d in decisions)
