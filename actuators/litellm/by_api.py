"""Through the management API of an installation with a database: one request a deployment, one a key.

The answering proxy has a change at once, the others when they ask the database again: `settle`. Nothing expires there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from actuators.batch import decreases_first, wanted
from actuators.litellm import rows
from actuators.litellm.config import LiteLLMConfig
from actuators.litellm.rows import Deployment, Key, Strange
from actuators.memory import Memory
from actuators.web import NoAnswer, Web
from controller.core.address import shown
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target, TargetState
from controller.core.ports import Binding, Finding
from controller.core.rest import NO_LIMIT

_LATER = frozenset({408, 409, 425, 429})
_NO_DATABASE = ("No DB Connected", "DB not connected", "Database not connected", "STORE_MODEL_IN_DB")


@dataclass(frozen=True, slots=True)
class Missing:
    """Why it is not known what stands there; `outcome` is what that means for a write that was not sent."""

    words: str
    outcome: Outcome


Row = Deployment | Key
Found = dict[Target, Row | Missing]


class ByApi:
    """Decreases first. A write that was not clearly answered is read back."""

    def __init__(self, config: LiteLLMConfig, binding: Binding) -> None:
        self._config = config
        self._identity = binding.identity
        self._targets = binding.targets
        missing = [t.member for t in binding.targets if t.lever is Lever.TENANT_CAP and t.member not in config.keys]
        if missing:
            raise ValueError(f"keys: {missing[0]} has none; write the hashed token of its key")
        tokens = [config.keys[t.member] for t in binding.targets if t.lever is Lever.TENANT_CAP]
        if len(tokens) != len(set(tokens)):
            raise ValueError("keys: a key has one limit for all models, and two caps would move it; leave one")
        if any(t.lever is Lever.DOWNGRADE for t in binding.targets):
            raise ValueError("mode: the management API cannot downgrade a share of requests; use the plugin")
        self._base = config.url.rstrip("/")
        self._web = Web(config.timeout, config.master_key, config.ca_file)
        self._memory = Memory(config.yield_for)
        self._generations: dict[Target, int] = {}

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        found, _ = self._load(targets)
        return {target: self._read_one(target, found[target], now) for target in targets}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        found, everybody = self._load([decision.target for decision in decisions])
        applied: list[Applied] = []
        done: set[Target] = set()
        ordered = decreases_first(decisions)
        for decision in ordered:
            target, row = decision.target, found[decision.target]
            if target in done:
                continue
            if isinstance(row, Missing):
                applied.append(self._told(decision, row.outcome, row.words, now))
                continue
            alike = [d for d in ordered if found[d.target] is row]  # weight and breaker of one replica
            done.update(d.target for d in alike)
            applied += self._write(row, alike, everybody, now)
        return applied

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        found, _ = self._load([decision.target for decision in decisions])
        applied = []
        for decision in decisions:
            row, value = found[decision.target], wanted(decision)
            if isinstance(row, Missing):
                applied.append(Applied(decision.target, Outcome.UNKNOWN, row.words))
                continue
            got = _value(row, decision.target)
            outcome = Outcome.DONE if got == min(value, NO_LIMIT) else Outcome.FAILED
            if outcome is Outcome.DONE:
                self._generations[decision.target] = row.generation
            applied.append(self._told(decision, outcome, f"{decision.target} is {got:g}", now))
        return applied

    def diagnose(self, now: float) -> Sequence[Finding]:
        where = shown(self._base)
        try:
            answer = self._web.ask("GET", f"{self._base}/v1/model/info")
            if answer.status != 200:
                return (Finding("error", where, f"/v1/model/info: HTTP {answer.status}{_words(answer.document)}"),)
            everybody = rows.deployments(answer.document)
        except (NoAnswer, Strange) as error:
            return (Finding("error", where, str(error)),)
        found = []
        for pool, own in sorted(self._config.pools.items()):
            mine = [one for one in everybody if one.group == own.model]
            if not mine:
                found.append(Finding("error", f"pools.{pool}", f"LiteLLM has no deployment of {own.model!r}"))
            for one in mine:
                if not one.from_database:
                    text = "is in config.yaml, where the API cannot change it; add it by /model/new, or use the plugin"
                    found.append(Finding("error", f"{pool}: {one.id}", text))
                if one.by and one.by != self._identity:
                    found.append(Finding("warning", f"{pool}: {one.id}", f"is also weighed by {one.by}"))
        keys = [target for target in self._targets if target.lever is Lever.TENANT_CAP]
        told, _ = self._load(keys)
        found += [Finding("error", str(t), row.words) for t, row in told.items() if isinstance(row, Missing)]
        return tuple(found)

    def close(self) -> None:
        self._web.close()

    # --- reading ------------------------------------------------------------------------------------------------

    def _load(self, targets: Sequence[Target]) -> tuple[Found, list[Deployment]]:
        """By target, and all deployments there are."""
        found: Found = {}
        everybody: list[Deployment] = []
        if any(target.lever is not Lever.TENANT_CAP for target in targets):
            answer = self._get("/v1/model/info")
            try:
                if not isinstance(answer, Missing):
                    everybody = rows.deployments(answer)
            except Strange as error:
                answer = Missing(str(error), Outcome.FAILED)
            known = {(one.group, one.id): one for one in everybody}
            for target in (target for target in targets if target.lever is not Lever.TENANT_CAP):
                own = self._config.pools[target.pool]
                name = own.deployments.get(target.member, target.member)
                none = Missing(f"LiteLLM has no deployment {name} of {own.model}", Outcome.REFUSED)
                found[target] = known.get((own.model, name), answer if isinstance(answer, Missing) else none)
        tokens: dict[str, Row | Missing] = {}
        for target in targets:
            if target.lever is Lever.TENANT_CAP:
                token = self._config.keys[target.member]
                if token not in tokens:
                    tokens[token] = self._key(token)
                found[target] = tokens[token]
        return found, everybody

    def _key(self, token: str) -> Row | Missing:
        answer = self._get(f"/key/info?key={quote(token)}")
        try:
            return answer if isinstance(answer, Missing) else rows.key(answer)
        except Strange as error:
            return Missing(str(error), Outcome.FAILED)

    def _get(self, path: str) -> Any:
        """The answer's object, or Missing."""
        try:
            answer = self._web.ask("GET", self._base + path)
        except NoAnswer as error:
            return Missing(str(error), Outcome.FAILED)
        status, body = answer.status, answer.document
        if status == 200 and isinstance(body, dict):
            return body
        said = f"GET {shown(self._base)}{path.partition('?')[0]}: HTTP {status}{_words(body)}"
        final = 400 <= status < 500 and status not in _LATER
        return Missing(said, Outcome.REFUSED if final else Outcome.FAILED)

    def _read_one(self, target: Target, row: Row | Missing, now: float) -> TargetState:
        if isinstance(row, Missing):
            return self._memory.state(target, None, now, error=row.words)
        value = _value(row, target)
        known = self._generations.get(target, row.generation)
        ours = row.by == self._identity and not row.foreign
        if ours and row.generation > known and target in self._memory:
            self._memory.succeeded(target, value, now)
        drift = Drift.STALE if ours and row.generation < known else Drift.FOREIGN
        writer = row.by if row.by and row.by != self._identity else "somebody by LiteLLM's API or page"
        self._memory.saw(target, value, now, writer, drift)
        self._generations[target] = row.generation
        return self._memory.state(target, value, now)

    # --- writing ------------------------------------------------------------------------------------------------

    def _write(self, row: Row, decisions: Sequence[Decision], everybody: list[Deployment], now: float) -> list[Applied]:
        for decision in decisions:
            held = _value(row, decision.target)
            if decision.current is not None and held not in (decision.current, decision.final):
                detail = f"holds {held:g}, and that is not what was decided on"
                return [self._told(d, Outcome.FAILED, detail, now) for d in decisions]
        if isinstance(row, Key):
            tpm, metadata = row.told(wanted(decisions[0]), self._identity)
            body = {"key": self._config.keys[decisions[0].target.member], "tpm_limit": tpm, "metadata": metadata}
            outcome, detail = self._send("POST", "/key/update", body)
        else:
            values = {**row.values, **{d.target.lever: wanted(d) for d in decisions}}
            weight, mark = row.told(values, self._identity)
            others = [one for one in everybody if one.group == row.group and one.id != row.id]
            if weight <= 0 and not any((1.0 if one.weight is None else one.weight) > 0 for one in others):
                detail = f"{row.id} is the last deployment of {row.group} that has weight"
                return [self._told(d, Outcome.REFUSED, detail, now) for d in decisions]
            info = {"id": row.id, "db_model": True, rows.MARK: mark}
            body = {"litellm_params": {"weight": weight}, "model_info": info}
            outcome, detail = self._send("PATCH", f"/model/{quote(row.id, safe='')}/update", body)
            if outcome in (Outcome.DONE, Outcome.UNKNOWN):
                everybody[everybody.index(row)] = replace(row, weight=weight)
        for decision in decisions:
            if outcome is Outcome.DONE:
                self._generations[decision.target] = row.generation + 1
        return [self._told(d, outcome, detail, now, moved=_value(row, d.target) != d.final) for d in decisions]

    def _send(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[Outcome, str]:
        where = f"{method} {shown(self._base)}{path}"
        try:
            told = self._web.ask(method, self._base + path, body)
        except NoAnswer as error:
            return Outcome.UNKNOWN if error.sent else Outcome.FAILED, str(error)
        status, answer = told.status, told.document
        said = f"{where}: HTTP {status}{_words(answer)}"
        if status < 300:
            return (Outcome.DONE if isinstance(answer, dict) else Outcome.UNKNOWN), said
        if any(words in said for words in _NO_DATABASE):
            return Outcome.REFUSED, f"{said}; this LiteLLM has no database: use mode: plugin"
        if status in _LATER:
            return Outcome.FAILED, said
        # An error after the database was written is a 500 as well.
        return (Outcome.REFUSED if status < 500 else Outcome.UNKNOWN), said

    def _told(self, decision: Decision, outcome: Outcome, detail: str, now: float, *, moved: bool = True) -> Applied:
        target = decision.target
        self._memory.sent(target, wanted(decision), outcome, now, moved=moved, over=decision.current)
        return Applied(target, outcome, detail)


def _value(row: Row, target: Target) -> float:
    return row.value if isinstance(row, Key) else row.value(target.lever)


def _words(body: Any) -> str:
    """What LiteLLM says of an error, at any of the depths at which it does."""
    said = body
    for name in ("error", "detail", "error", "message"):
        if isinstance(said, dict) and name in said:
            said = said[name]
    return f": {said[:200]}" if isinstance(said, str) else ""
