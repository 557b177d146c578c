"""Limits of AIBrix' users: tokens per minute in the user's key, which its gateway reads at every request.

AIBrix knows no expiry, and a time to live on the key would delete the user. So the key keeps beside the limit what it
was before (``governor``, which AIBrix ignores), and a cap is never above that.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actuators.batch import invalid, reject, wanted
from actuators.memory import Memory
from actuators.redis.schema import run_id
from actuators.redis.server import NoAnswer, RedisServer, Server, outcome_of, words
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target, TargetState
from controller.core.params import Unit, param
from controller.core.ports import Binding, Capability, Finding
from controller.core.rest import NO_LIMIT

_MARK = "governor"
_SWAP = """
for i, key in ipairs(KEYS) do
  if redis.call('GET', key) ~= ARGV[2 * i - 1] then return i end
end
for i, key in ipairs(KEYS) do redis.call('SET', key, ARGV[2 * i], 'KEEPTTL') end
return 0
"""


@dataclass(frozen=True, slots=True)
class AibrixConfig(RedisServer):
    """Where AIBrix keeps its users, and who they are."""

    users: Mapping[str, str] = param("AIBrix user of a tenant, where it is not called the same.", {})
    prefix: str = param("Beginning of the users' keys.", "aibrix-users/")
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)


@dataclass(frozen=True, slots=True)
class _User:
    """A user's key as it stands. `own` is the limit that is the owner's, 0 for AIBrix' default; `cap` ours in tokens/s,
    None without one; `strange` when somebody changed the limit beside our mark."""

    raw: str
    fields: Mapping[str, Any]
    own: int
    cap: float | None
    by: str = ""
    generation: int = 0
    strange: bool = False

    @property
    def value(self) -> float:
        return NO_LIMIT if self.cap is None else self.cap


class _NoUser(Exception):
    """The key is missing, or not what AIBrix writes; the message has the mend."""


class Aibrix:
    """All users of a batch in one compare-and-swap."""

    Config = AibrixConfig
    place = ("url", "prefix")

    def __init__(self, config: AibrixConfig, binding: Binding) -> None:
        self._config = config
        self._identity = binding.identity
        self._owns, self._targets = binding.owns, binding.targets
        self._server = Server(config)
        self._memory = Memory(config.yield_for)
        self._generations: dict[Target, int] = {}
        self._runs: dict[Target, str] = {}  # the run of Redis that was read last
        self._twice = _shared(binding.targets, config.users)

    @classmethod
    def describe(cls, config: AibrixConfig | None = None) -> Mapping[Lever, Capability]:  # noqa: ARG003 - always the same
        note = "tokens per minute of an AIBrix user, for all models together, counted by whole minutes"
        can = Capability("tokens/s", low=1.0, atomic=True, persistent=False, cas=True, note=note)
        return {Lever.TENANT_CAP: can}

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        try:
            run, users = self._load(targets)
        except NoAnswer as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        states = {}
        for target in targets:
            before = self._runs.get(target, run)
            states[target] = self._read_one(target, users[target], now, anew=bool(run) and run != before)
            self._runs[target] = run or before
        return states

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = invalid(decisions, self._owns, quantum=1.0, low=1.0)
        problems |= {d.target: self._twice[d.target] for d in decisions if d.target in self._twice}
        if problems:
            return reject(decisions, problems)
        if not decisions:
            return ()
        try:
            _, users = self._load([decision.target for decision in decisions])
        except NoAnswer as error:  # nothing but the question was sent
            outcome = Outcome.FAILED if error.outcome is Outcome.UNKNOWN else error.outcome
            return self._all(decisions, outcome, str(error), now)
        missing = {target: str(user) for target, user in users.items() if isinstance(user, _NoUser)}
        if missing:
            return reject(decisions, missing)
        held = {target: user for target, user in users.items() if isinstance(user, _User)}
        for decision in decisions:
            if decision.current is not None and held[decision.target].value not in (decision.current, decision.final):
                detail = f"{decision.target} was changed since the decision was made"
                return self._all(decisions, Outcome.FAILED, detail, now)
        try:
            return self._swap(decisions, held, now)
        except NoAnswer as error:
            return self._all(decisions, error.outcome, str(error), now)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        try:
            _, users = self._load([decision.target for decision in decisions]) if decisions else ("", {})
        except NoAnswer as error:
            return tuple(Applied(decision.target, Outcome.UNKNOWN, str(error)) for decision in decisions)
        return tuple(self._verified(decision, users[decision.target], now) for decision in decisions)

    def diagnose(self, now: float) -> Sequence[Finding]:
        try:
            _, users = self._load(self._targets)
        except NoAnswer as error:
            return (Finding("error", self._config.shown, str(error)),)
        found = [Finding("error", str(target), text) for target, text in sorted(self._twice.items())]
        for target, user in users.items():
            if isinstance(user, _NoUser):
                found.append(Finding("error", str(target), str(user)))
            elif user.by and user.by != self._identity:
                found.append(Finding("warning", str(target), f"is capped by {user.by}; one of you should let go of it"))
            elif not user.own:
                found.append(
                    Finding("info", str(target), "has no limit of its own; a cap may be above AIBrix' default")
                )
        return tuple(found)

    def close(self) -> None:
        self._server.close()

    # --- reading ------------------------------------------------------------------------------------------------

    def _key(self, target: Target) -> str:
        return self._config.prefix + self._config.users.get(target.member, target.member)

    def _load(self, targets: Sequence[Target]) -> tuple[str, dict[Target, "_User | _NoUser"]]:
        info, *rows = self._server.ask(("INFO", "server"), *(("GET", self._key(target)) for target in targets))
        return run_id(info), {t: self._user(t, row) for t, row in zip(targets, rows, strict=True)}

    def _user(self, target: Target, row: object) -> "_User | _NoUser":
        key = self._key(target)
        if row is None:
            return _NoUser(f"there is no {key}; create the user by AIBrix' metadata service")
        if not isinstance(row, str):
            return _NoUser(f"{key}: {words(row) if isinstance(row, Exception) else 'is no text'}")
        try:
            fields = json.loads(row)
            tpm, mark = int(fields.get("tpm") or 0), fields.get(_MARK)
            if mark is None:
                return _User(row, fields, tpm, None)
            by, generation = str(mark["by"]), int(mark["generation"])
            if int(mark["tpm"]) != tpm:
                return _User(row, fields, tpm, tpm / 60, by, generation, strange=True)
            return _User(row, fields, int(mark["own"]), float(mark["value"]), by, generation)
        except (ValueError, TypeError, KeyError, AttributeError):
            return _NoUser(f"{key} is not what AIBrix writes; look at it, and create the user anew")

    def _read_one(self, target: Target, user: "_User | _NoUser", now: float, *, anew: bool) -> TargetState:
        if isinstance(user, _NoUser):
            return self._memory.state(target, None, now, error=str(user))
        known = self._generations.get(target, user.generation)
        ours = user.by == self._identity and not user.strange and user.cap is not None
        if ours and user.generation > known and self._memory.value(target) is not None:
            self._memory.succeeded(target, user.value, now)
        drift = Drift.FOREIGN
        if anew:
            drift = Drift.RESTARTED
        elif ours and user.generation < known:
            drift = Drift.STALE
        writer = user.by if user.by and not user.strange and not ours else "somebody who wrote the user anew"
        self._memory.saw(target, user.value, now, writer, drift)
        self._generations[target] = user.generation
        return self._memory.state(target, user.value, now)

    # --- writing ------------------------------------------------------------------------------------------------

    def _swap(self, decisions: Sequence[Decision], users: Mapping[Target, _User], now: float) -> tuple[Applied, ...]:
        new = {decision.target: self._rewritten(users[decision.target], wanted(decision)) for decision in decisions}
        keys = [self._key(decision.target) for decision in decisions]
        swaps = [text for d in decisions for text in (users[d.target].raw, new[d.target])]
        (reply,) = self._server.ask(("EVAL", _SWAP, len(keys), *keys, *swaps))
        if isinstance(reply, Exception):
            return self._all(decisions, outcome_of(reply), f"{self._config.shown}: {words(reply)}", now)
        if reply != 0:
            outcome = Outcome.FAILED if isinstance(reply, int) else Outcome.UNKNOWN
            return self._all(decisions, outcome, "a user was changed while this was written", now)
        for decision in decisions:
            user, value = users[decision.target], wanted(decision)
            self._generations[decision.target] = 0 if value >= NO_LIMIT else user.generation + 1
            self._memory.sent(decision.target, value, Outcome.DONE, now, moved=user.value != value)
        return tuple(Applied(d.target, Outcome.DONE, f"tpm {json.loads(new[d.target])['tpm']}") for d in decisions)

    def _rewritten(self, user: _User, value: float) -> str:
        """The user with this cap, or as its owner left it. A limit of 0 would be AIBrix' default, not nothing."""
        fields = {name: one for name, one in user.fields.items() if name != _MARK}
        fields["tpm"] = user.own
        if value < NO_LIMIT:
            cap = int(value * 60)
            fields["tpm"] = min(cap, user.own) if user.own else cap
            fields[_MARK] = {"by": self._identity, "generation": user.generation + 1, "value": value, "own": user.own,
                             "tpm": fields["tpm"]}  # fmt: skip
        return json.dumps(fields, allow_nan=False)

    def _verified(self, decision: Decision, user: "_User | _NoUser", now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        if isinstance(user, _NoUser):
            return Applied(target, Outcome.UNKNOWN, str(user))
        outcome = Outcome.DONE if user.value == min(value, NO_LIMIT) else Outcome.FAILED
        if outcome is Outcome.DONE:
            self._generations[target] = user.generation
        self._memory.sent(target, value, outcome, now)
        return Applied(target, outcome, f"{target} is {user.value:g}")

    def _all(self, decisions: Sequence[Decision], outcome: Outcome, detail: str, now: float) -> tuple[Applied, ...]:
        for decision in decisions:
            self._memory.sent(decision.target, wanted(decision), outcome, now, over=decision.current)
        return tuple(Applied(decision.target, outcome, detail) for decision in decisions)


def _shared(targets: Sequence[Target], users: Mapping[str, str]) -> dict[Target, str]:
    """Targets of a user that another pool has already."""
    first: dict[str, Target] = {}
    twice: dict[Target, str] = {}
    for target in sorted(targets):
        user = users.get(target.member, target.member)
        if user in first:
            twice[target] = f"AIBrix has one limit of {user} for all models, and {first[user]} moves it already"
        first.setdefault(user, target)
    return twice
