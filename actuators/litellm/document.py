"""The document that the plugin reads: what is in it, and where it is kept.

It is written whole and never in place: a reader sees the old one or the new one. In Redis it is compared and swapped.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from actuators.atomic import replace_file
from actuators.litellm.config import LiteLLMConfig
from actuators.redis.schema import run_id
from actuators.redis.server import NoAnswer, RedisServer, Server, outcome_of, words
from controller.core.model import Lever, Outcome, Target
from controller.core.rest import NO_LIMIT, at_rest

FORMAT = 1
_LEVERS = {lever.value: lever for lever in (Lever.WEIGHT, Lever.BREAKER, Lever.TENANT_CAP, Lever.DOWNGRADE)}
_SWAP = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


class Trouble(Exception):
    """The document cannot be read or written; `outcome` is what that means for a write."""

    def __init__(self, message: str, outcome: Outcome = Outcome.FAILED) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, and until when it holds: unix seconds, None for good."""

    value: float
    until: float | None

    def lives(self, now: float) -> bool:
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Document:
    """What stands there. `raw` is the text it was read from, "" when there was none; `run` which run of Redis told it,
    "" where nothing tells."""

    raw: str = ""
    generation: int = 0
    by: str = ""
    entries: Mapping[Target, Entry] = field(default_factory=dict)
    run: str = ""

    def value(self, target: Target, now: float) -> float:
        """The value in force. What is not told is neutral."""
        entry = self.entries.get(target)
        return entry.value if entry is not None and entry.lives(now) else at_rest(target)


def parse(raw: str) -> Document:
    """Raises Trouble for anything but a document of ours."""
    try:
        body = json.loads(raw)
        entries = {}
        for pool, parts in body["pools"].items():
            for name, lever in _LEVERS.items():
                for member, one in parts.get(name, {}).items():
                    entries[Target(pool, lever, member)] = _entry(one)
        return Document(raw, int(body["generation"]), str(body["by"]), entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Trouble(f"the document is not what Governor writes ({type(error).__name__}); delete it") from error


def _entry(one: Mapping[str, Any]) -> Entry:
    value, until = float(one["value"]), one.get("expires_at")
    if not math.isfinite(value) or value < 0 or isinstance(one["value"], bool):
        raise ValueError(value)
    return Entry(value, None if until is None else float(until))


def written(document: Document, config: LiteLLMConfig, values: Mapping[Target, Entry], by: str, now: float) -> Document:
    """The next generation: with these values, without neutral ones and those that ran out."""
    entries = {t: e for t, e in {**document.entries, **values}.items() if e.lives(now) and e.value != at_rest(t)}
    entries = {t: e for t, e in entries.items() if t.lever is not Lever.TENANT_CAP or e.value < NO_LIMIT}
    pools = {pool: _pool(pool, config, entries) for pool in config.pools}
    body = {
        "version": FORMAT, "generation": document.generation + 1, "by": by, "written_at": now, "tenant": config.tenant,
        "class": config.klass, "processes": config.processes, "pools": pools,
    }  # fmt: skip
    raw = json.dumps(body, indent=1, sort_keys=True, allow_nan=False) + "\n"
    return replace(document, raw=raw, generation=document.generation + 1, by=by, entries=entries)


def _pool(pool: str, config: LiteLLMConfig, entries: Mapping[Target, Entry]) -> dict[str, Any]:
    own = config.pools[pool]
    consents = {"tenants": list(own.tenants), "classes": list(own.classes)}
    body: dict[str, Any] = {
        "model": own.model, "burst": config.burst, "burst_seconds": config.burst_seconds,
        "consents": {kind: who for kind, who in consents.items() if who},
    }  # fmt: skip
    for target, entry in sorted(entries.items()):
        if target.pool == pool:
            one: dict[str, Any] = {"value": entry.value, "expires_at": entry.until}
            if target.lever is Lever.DOWNGRADE:
                one["model"] = config.pools[target.member].model
            body.setdefault(target.lever.value, {})[target.member] = one
    return body


class Store(Protocol):
    """Where a document is kept. Both raise Trouble."""

    def load(self) -> Document: ...

    def save(self, before: Document, after: Document, now: float) -> None: ...

    def close(self) -> None: ...


class InFile:
    """A file, replaced by rename."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def load(self) -> Document:
        try:
            raw = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Document()
        except (OSError, UnicodeDecodeError) as error:
            raise Trouble(f"cannot read {self._path}: {getattr(error, 'strerror', None) or 'is no text'}") from error
        try:
            return parse(raw)
        except Trouble as error:
            raise Trouble(f"{self._path}: {error}") from error

    def save(self, before: Document, after: Document, now: float) -> None:
        if self.load().raw != before.raw:
            raise Trouble(f"{self._path} was changed by somebody else at this moment")
        try:
            replace_file(self._path, after.raw.encode())
        except OSError as error:
            raise Trouble(f"{self._path} is unchanged: {error.strerror or error}") from error

    def close(self) -> None:
        """Nothing is held open."""


class InRedis:
    """A key in Redis. It goes with the last of its values."""

    def __init__(self, server: RedisServer, key: str) -> None:
        self._server, self._key, self._shown = Server(server), key, server.shown

    def load(self) -> Document:
        try:
            info, raw = self._server.ask(("INFO", "server"), ("GET", self._key))
        except NoAnswer as error:  # nothing but the question was sent
            outcome = error.outcome if error.outcome is Outcome.REFUSED else Outcome.FAILED
            raise Trouble(str(error), outcome) from error
        if isinstance(raw, Exception):
            raise Trouble(f"{self._shown}: {words(raw)}", outcome_of(raw))
        return replace(Document() if raw is None else parse(str(raw)), run=run_id(info))

    def save(self, before: Document, after: Document, now: float) -> None:
        ends = [entry.until for entry in after.entries.values()]
        last = max((end for end in ends if end is not None), default=None)
        life = "" if last is None or None in ends else str(max(1, math.ceil(1000 * (last - now))))
        try:
            (reply,) = self._server.ask(("EVAL", _SWAP, 1, self._key, before.raw, after.raw, life))
        except NoAnswer as error:
            raise Trouble(str(error), error.outcome) from error
        if isinstance(reply, Exception):
            raise Trouble(f"{self._shown}: {words(reply)}", outcome_of(reply))
        if reply != 1:
            outcome = Outcome.FAILED if reply == 0 else Outcome.UNKNOWN
            raise Trouble(f"{self._shown}: the document was changed by somebody else at this moment", outcome)

    def close(self) -> None:
        self._server.close()
