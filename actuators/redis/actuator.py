"""Caps, set-points and shares as hashes in Redis, each with a time to live, and the buckets of tenants behind them.

A batch is one call of ``bucket.lua``: it compares what is there with what was decided on, settles the buckets whose
rate changes, and writes all or nothing. Redis drops each value at its expiry, whoever is still alive.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actuators.batch import invalid, reject, wanted
from actuators.memory import Memory
from actuators.redis.diagnosis import diagnose
from actuators.redis.schema import FIELDS, SCRIPT, Entry, Keys, entry, kept, run_id
from actuators.redis.server import NoAnswer, RedisServer, Server, outcome_of, words
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target, TargetState
from controller.core.params import Unit, param
from controller.core.ports import Binding, Capability, Finding
from controller.core.rest import NO_LIMIT, at_rest

_NOTE = "a hash that your gateway reads"
_CAN = {
    Lever.TENANT_CAP: Capability(
        "tokens/s", atomic=True, persistent=False, expiry=True, cas=True,
        note="rate of a token bucket that your gateway takes from by bucket.lua",
    ),
    Lever.ADMISSION: Capability(
        "requests, tokens, factor, rank", quantum=0.05, atomic=True, persistent=False, expiry=True, cas=True,
        note=_NOTE,
    ),
    Lever.DOWNGRADE: Capability(
        "share", high=1.0, quantum=0.01, atomic=True, persistent=False, expiry=True, cas=True, note=_NOTE, sizes=True,
    ),
    Lever.ROUTING: Capability(
        "share", high=1.0, quantum=0.01, atomic=True, persistent=False, expiry=True, cas=True, note=_NOTE
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RedisConfig(RedisServer):
    """Which Redis, under which names, and how deep the buckets are."""

    prefix: str = param("Beginning of all keys.", "governor:")
    burst: float = param("Tokens that a tenant may take at once, at least.", 32768.0, gt=0)
    burst_seconds: float = param(
        "So many seconds of its rate it may take at once.", 5.0, unit=Unit.DURATION, ge=0
    )  # fmt: skip
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)


@dataclass(frozen=True, slots=True)
class _Ours:
    """What we wrote last: its generation, and when it ends by our clock, None for never."""

    generation: int
    until: float | None


class Redis:
    """All targets of a batch in one call."""

    Config = RedisConfig
    place = ("url", "prefix")

    def __init__(self, config: RedisConfig, binding: Binding) -> None:
        self._config = config
        self._identity = binding.identity
        self._owns, self._targets = binding.owns, binding.targets
        self._keys = Keys(config.prefix)
        self._server = Server(config)
        self._memory = Memory(config.yield_for)
        self._ours: dict[Target, _Ours] = {}
        self._seen: dict[Target, int] = {}  # generation that was read or written last; absent when it is not known
        self._runs: dict[Target, str] = {}  # the run of Redis that was read last

    @classmethod
    def describe(cls, config: RedisConfig | None = None) -> Mapping[Lever, Capability]:  # noqa: ARG003 - the same for all
        return dict(_CAN)

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        try:
            run, found = self._load(targets)
        except NoAnswer as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        states = {}
        for target in targets:
            before = self._runs.get(target, run)
            states[target] = self._read_one(target, found[target], now, anew=bool(run) and run != before)
            self._runs[target] = run or before
        return states

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = self._problems(decisions)
        if problems:
            return reject(decisions, problems)
        if not decisions:
            return ()
        try:
            (reply,) = self._server.ask(self._call(decisions, now))
        except NoAnswer as error:
            return self._all(decisions, error.outcome, str(error), now)
        if isinstance(reply, Exception):
            return self._all(decisions, outcome_of(reply), f"{self._config.shown}: {words(reply)}", now)
        try:
            said: dict[str, Any] = json.loads(reply)
            if "conflicts" in said:
                return self._lost_to(decisions, said["conflicts"], now)
            return tuple(
                self._written(d, int(generation), float(before), now)
                for d, generation, before in zip(decisions, said["generations"], said["before"], strict=True)
            )
        except (TypeError, ValueError, KeyError, AttributeError):
            return self._all(decisions, Outcome.UNKNOWN, f"{self._config.shown}: an answer that is none of ours", now)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        targets = [decision.target for decision in decisions]
        try:
            _, found = self._load(targets) if targets else ("", {})
        except NoAnswer as error:
            return tuple(Applied(target, Outcome.UNKNOWN, str(error)) for target in targets)
        return tuple(self._verified(decision, found[decision.target], now) for decision in decisions)

    def diagnose(self, now: float) -> Sequence[Finding]:
        return diagnose(self._config, self._server, self._keys, self._targets, self._identity)

    def close(self) -> None:
        self._server.close()

    # --- reading ------------------------------------------------------------------------------------------------

    def _load(self, targets: Sequence[Target]) -> tuple[str, dict[Target, Entry | Exception]]:
        """Which run of Redis answers, "" where it does not tell, and what stands in the hashes."""
        asked = [("HMGET", self._keys.target(target), *FIELDS) for target in targets]
        info, *rows = self._server.ask(("INFO", "server"), *asked)
        found: dict[Target, Entry | Exception] = {}
        for target, row in zip(targets, rows, strict=True):
            found[target] = row if isinstance(row, Exception) else entry(row)
        return run_id(info), found

    def _read_one(self, target: Target, found: Entry | Exception, now: float, *, anew: bool) -> TargetState:
        if isinstance(found, Exception):
            return self._memory.state(target, None, now, error=f"{self._config.shown}: {words(found)}")
        if found.broken:
            mend = f"{self._keys.target(target)} holds {found.broken!r}, which is no limit; delete it"
            return self._memory.state(target, None, now, error=mend)
        value = at_rest(target) if found.value is None else found.value
        ours = self._ours.get(target)
        if self._expected(target, found, ours, now):
            if found.value is None:
                self._memory.settled(target, value)
            else:
                self._memory.succeeded(target, value, now)
        drift = Drift.FOREIGN
        if anew:
            drift = Drift.RESTARTED
        elif ours and found.by == self._identity and found.generation < ours.generation:
            drift = Drift.STALE
        self._memory.saw(target, value, now, self._writer(found), drift)
        self._seen[target] = found.generation
        return self._memory.state(target, value, now)

    def _expected(self, target: Target, found: Entry, ours: _Ours | None, now: float) -> bool:
        """Whether another value than the last is nobody's doing: ours ran out, or another process of ours wrote."""
        if self._memory.value(target) is None:
            return False
        if found.value is None:
            return ours is not None and ours.until is not None and now >= ours.until
        return found.by == self._identity and found.generation > self._seen.get(target, found.generation)

    def _writer(self, found: Entry) -> str:
        if found.value is None:
            return "somebody who deleted the key, or Redis that evicted it"
        return found.by if found.by and found.by != self._identity else "somebody who wrote the hash by hand"

    # --- writing ------------------------------------------------------------------------------------------------

    def _problems(self, decisions: Sequence[Decision]) -> dict[Target, str]:
        problems: dict[Target, str] = {}
        for lever in {decision.target.lever for decision in decisions}:
            can = _CAN.get(lever, Capability("?"))
            mine = [decision for decision in decisions if decision.target.lever is lever]
            problems |= invalid(mine, self._owns, quantum=can.quantum, low=can.low, high=can.high)
        return {d.target: problems[d.target] for d in decisions if d.target in problems}

    def _call(self, decisions: Sequence[Decision], now: float) -> tuple[str | int, ...]:
        """EVAL with the script, the keys and the batch; absent parts are left out, for Lua knows no null."""
        keys: list[str] = []
        counters: dict[str, int] = {}
        batch: list[dict[str, Any]] = []
        for decision in decisions:
            target, final = decision.target, wanted(decision)
            one: dict[str, Any] = {"first": len(keys) + 1, "neutral": at_rest(target)}
            keys.append(self._keys.target(target))
            if target.lever is Lever.TENANT_CAP:
                keys.append(self._keys.bucket(target.pool, target.member))
                keys.append(self._keys.standing(target.pool, target.member))
                one["burst"] = max(self._config.burst, self._config.burst_seconds * min(final, NO_LIMIT))
            if kept(target, final):
                one["value"], one["text"] = final, f"{final:.0f}" if final.is_integer() else repr(final)
                if decision.until is not None:
                    one["ttl"] = max(0.001, decision.until - now)  # by Redis' own clock from here on
            if decision.current is not None:
                one["held"] = [decision.current, final]
            if target in self._seen:
                one["generation"] = self._seen[target]
            batch.append(one)
            counters.setdefault(target.pool, 0)
        for pool in counters:
            keys.append(self._keys.generation(pool))
            counters[pool] = len(keys)
        for decision, one in zip(decisions, batch, strict=True):
            one["counter"] = counters[decision.target.pool]
        return ("EVAL", SCRIPT, len(keys), *keys, "set", json.dumps(batch, allow_nan=False), self._identity)

    def _written(self, decision: Decision, generation: int, before: float, now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        self._ours[target] = _Ours(generation, decision.until)
        self._seen[target] = generation if kept(target, value) else 0
        self._memory.sent(target, value, Outcome.DONE, now, moved=before != value)
        return Applied(target, Outcome.DONE, f"generation {generation}")

    def _lost_to(
        self, decisions: Sequence[Decision], conflicts: Sequence[Mapping[str, Any]], now: float
    ) -> tuple[Applied, ...]:
        """Somebody wrote between the reading and now, so that nothing was written."""
        told = {int(one["i"]) - 1: one for one in conflicts}
        first = decisions[min(told)].target
        applied = []
        for i, decision in enumerate(decisions):
            detail = f"not sent: {first} in the same batch was changed by somebody else"
            if i in told:
                by = told[i].get("by") or "somebody"
                detail = f"holds {told[i].get('value')} by {by}, and that is not what was decided on"
            self._memory.sent(decision.target, wanted(decision), Outcome.FAILED, now)
            applied.append(Applied(decision.target, Outcome.FAILED, detail))
        return tuple(applied)

    def _verified(self, decision: Decision, found: Entry | Exception, now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        if isinstance(found, Exception) or found.broken:
            why = words(found) if isinstance(found, Exception) else f"holds {found.broken!r}"
            return Applied(target, Outcome.UNKNOWN, f"{self._config.shown}: {why}")
        got = at_rest(target) if found.value is None else found.value
        outcome = Outcome.DONE if got == (value if kept(target, value) else at_rest(target)) else Outcome.FAILED
        if outcome is Outcome.DONE:
            self._ours[target] = _Ours(found.generation, decision.until)
            self._seen[target] = found.generation
        self._memory.sent(target, value, outcome, now)
        return Applied(target, outcome, f"{target} is {got:g}")

    def _all(self, decisions: Sequence[Decision], outcome: Outcome, detail: str, now: float) -> tuple[Applied, ...]:
        for decision in decisions:
            if outcome is Outcome.UNKNOWN:
                self._seen.pop(decision.target, None)
            self._memory.sent(decision.target, wanted(decision), outcome, now, over=decision.current)
        return tuple(Applied(decision.target, outcome, detail) for decision in decisions)
