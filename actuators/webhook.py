"""Values posted as signed JSON to an endpoint of the user's own.

The contract with the endpoint (``docs/actuators.md``): values are absolute and a repeated idempotency key changes
nothing; 2xx with an empty body or a JSON object means accepted, 4xx never, 500 and 503 not applied. Only an answer that
proves that nothing was applied is retried; a lost one is ``unknown``.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from actuators import secret
from actuators.batch import decreases_first, invalid, reject, wanted
from actuators.memory import Memory
from actuators.paced import begun, paced, within
from controller.core.address import shown, unusable
from controller.core.model import Applied, Decision, Lever, Outcome, Target, TargetState
from controller.core.params import SecretRef, Unit, param, refuse
from controller.core.ports import Ack, Binding, Capability, Finding

_MAX_BODY = 1 << 20  # bytes of an answer; more is not an answer
_LATER_4XX = frozenset({408, 409, 425, 429})
_UNCERTAIN_5XX = frozenset({502, 504})  # a proxy in between lost the answer, not necessarily the request


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """Where to post, how to sign, where to read back."""

    url: str = param("URL that values are posted to.")
    read_url: str = param("URL that tells the values in force; strongly advised.", "")
    initial: float | None = param("Value in force before the first acknowledged one, where read_url is not set.", None)
    secret: SecretRef | None = param("Key of the HMAC-SHA256 signature.", None, unit=Unit.SECRET)
    bearer: SecretRef | None = param("Bearer token for both URLs.", None, unit=Unit.SECRET)
    ca_file: str = param("CA bundle for https; by default the usual public ones.", "")
    timeout: float = param("Longest wait for one answer.", 5.0, unit=Unit.DURATION, gt=0, le=3600)
    retries: int = param("How often a post that was certainly not applied is repeated at once.", 1, ge=0, le=5)
    unit: str = param("Unit of the value, for people.", "replicas")
    quantum: float = param("Smallest step of the value.", 1.0, gt=0)
    settle: float = param("Time until a new value can show an effect.", 0.0, unit=Unit.DURATION, ge=0)
    hot: bool = param("Whether a new value takes effect without a restart.", True)
    honours_expiry: bool = param("Whether the endpoint drops a value at its expires_at by itself.", False)
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        for name, url in (("url", self.url), ("read_url", self.read_url)):
            if not url and name == "read_url":
                continue
            if problem := unusable(url, "use bearer or secret", example="https://host/path"):
                yield f"{name}: {problem}"
        if not self.read_url and self.initial is None:
            yield "read_url: nothing tells which value is in force; set read_url, or else initial"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes


class _NoAnswer(Exception):
    """Nothing usable came back; `sent` whether the request may have arrived."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Webhook:
    """Posts one request per decision, decreases first."""

    Config = WebhookConfig
    place = ("url",)

    def __init__(self, config: WebhookConfig, binding: Binding) -> None:
        self._config = config
        self._identity = binding.identity
        self._owns = binding.owns
        self._targets = binding.targets
        self._memory = Memory(config.yield_for)
        self._session = requests.Session()
        self._session.trust_env = False  # a ~/.netrc must not overwrite the Authorization header
        # An idle connection that just broke would look like a lost post; a packed answer could unpack without end.
        self._session.headers.update({"Connection": "close", "Accept-Encoding": "identity"})
        self._session.verify = config.ca_file or True
        for scheme in ("http://", "https://"):
            adapter = HTTPAdapter()
            paced(adapter.poolmanager)
            self._session.mount(scheme, adapter)

    @classmethod
    def describe(cls, config: WebhookConfig | None = None) -> Mapping[Lever, Capability]:
        c, note = config, "what your endpoint makes of it"
        if c is None:
            return dict.fromkeys(Lever, Capability("yours", expiry=True, note=note, sizes=True))
        ack = Ack.VALUE if c.read_url else Ack.ANSWER
        one = Capability(
            c.unit, quantum=c.quantum, settle=c.settle, hot=c.hot, expiry=c.honours_expiry, ack=ack, sizes=True
        )
        return dict.fromkeys(Lever, replace(one, note=note))

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        """From ``read_url``; without one the value that was acknowledged last, and before there was one `initial`."""
        if not self._config.read_url:
            return {target: self._remembered(target, now) for target in targets}
        try:
            rows = self._read_back()
        except (_NoAnswer, ValueError, secret.SecretMissing) as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        return {target: self._from_row(target, rows.get(target), now) for target in targets}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = invalid(decisions, self._owns, quantum=self._config.quantum)
        if problems:
            return reject(decisions, problems)
        applied = []
        for decision in decreases_first(decisions):
            outcome, detail = self._post(decision, now)
            self._memory.sent(decision.target, wanted(decision), outcome, now, over=decision.current)
            applied.append(Applied(decision.target, outcome, detail))
        return tuple(applied)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        if not self._config.read_url:
            mend = "set read_url, so that Governor can ask what became of a lost request"
            return tuple(Applied(d.target, Outcome.UNKNOWN, mend) for d in decisions)
        try:
            rows = self._read_back()
        except (_NoAnswer, ValueError, secret.SecretMissing) as error:
            return tuple(Applied(d.target, Outcome.UNKNOWN, str(error)) for d in decisions)
        return tuple(self._verified(decision, rows.get(decision.target), now) for decision in decisions)

    def diagnose(self, now: float) -> Sequence[Finding]:
        """Whether secrets are there and `read_url` answers for every target. `url` is not asked: that would order."""
        found: list[Finding] = []
        where = shown(self._config.url)
        for name, ref in (("secret", self._config.secret), ("bearer", self._config.bearer)):
            try:
                if ref is not None:
                    (secret.bearer if name == "bearer" else secret.read)(ref)
            except secret.SecretMissing as error:
                found.append(Finding("error", name, str(error)))
        if self._config.bearer is not None and where.startswith("http://"):
            found.append(Finding("warning", where, "the bearer token is sent in the clear; write https"))
        if not self._config.read_url:
            text = "without read_url a lost answer blocks its target, and nothing tells who else writes; set it"
            return [*found, Finding("warning", where, text)]
        try:
            rows = self._read_back()
        except (_NoAnswer, ValueError, secret.SecretMissing) as error:
            return [*found, Finding("error", shown(self._config.read_url), str(error))]
        asked = shown(self._config.read_url)
        for target in self._targets:
            writer = str((rows.get(target) or {}).get("writer") or "")
            if _number(rows.get(target), "value") is None:
                found.append(Finding("error", str(target), f"{asked} tells no finite value of it"))
            elif writer not in ("", self._identity):
                found.append(Finding("warning", str(target), f"was written last by {writer}"))
        return found

    def close(self) -> None:
        self._session.close()

    # --- reading ------------------------------------------------------------------------------------------------

    def _remembered(self, target: Target, now: float) -> TargetState:
        if target not in self._memory and self._config.initial is not None:
            return replace(self._memory.state(target, self._config.initial, now), assumed=True)
        value = self._memory.value(target)
        error = "" if value is not None else "the last post has an unknown outcome and there is no read_url to ask"
        return self._memory.state(target, value, now, error=error)

    def _read_back(self) -> dict[Target, Mapping[str, Any]]:
        answer = self._request("GET", self._config.read_url, None, {})
        where = shown(self._config.read_url)
        if answer.status != requests.codes.ok:
            raise ValueError(f"GET {where}: HTTP {answer.status}")
        try:
            document = json.loads(answer.body)
            return {Target(r["pool"], Lever(r["lever"]), r.get("member", "")): r for r in document["targets"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'GET {where}: not of the form {{"targets": [{{"pool", "lever", "value"}}]}}') from error

    def _from_row(self, target: Target, row: Mapping[str, Any] | None, now: float) -> TargetState:
        value = _number(row, "value")
        if row is None or value is None:
            error = f"{shown(self._config.read_url)} tells no finite value of {target}"
            return self._memory.state(target, None, now, error=error)
        self._memory.saw(target, value, now, str(row.get("writer") or ""))
        return self._memory.state(target, value, now, ready=_number(row, "ready"))

    def _verified(self, decision: Decision, row: Mapping[str, Any] | None, now: float) -> Applied:
        target, value, got = decision.target, wanted(decision), _number(row, "value")
        if got is None:
            return Applied(target, Outcome.UNKNOWN, f"{shown(self._config.read_url)} tells no value of {target}")
        outcome = Outcome.DONE if got == value else Outcome.FAILED
        self._memory.sent(target, value, outcome, now)
        return Applied(target, outcome, f"{target} is {got:g}" + ("" if got == value else f", not {value:g}"))

    # --- writing ------------------------------------------------------------------------------------------------

    def _post(self, decision: Decision, now: float) -> tuple[Outcome, str]:
        body = self._body(decision, now)
        for _ in range(self._config.retries):
            outcome, detail, again = self._post_once(decision, body)
            if not again:
                return outcome, detail
        outcome, detail, _ = self._post_once(decision, body)
        return outcome, detail

    def _post_once(self, decision: Decision, body: bytes) -> tuple[Outcome, str, bool]:
        """Outcome, detail, and whether trying again at once is safe and may help."""
        where = f"POST to {shown(self._config.url)}"
        try:
            answer = self._request("POST", self._config.url, body, self._signature(body))
        except secret.SecretMissing as error:
            return Outcome.FAILED, str(error), False
        except _NoAnswer as error:
            return (Outcome.UNKNOWN, str(error), False) if error.sent else (Outcome.FAILED, str(error), True)
        status = answer.status
        if status < 300:
            return (*self._acknowledged(decision, where, answer), False)
        if status < 400:
            return Outcome.REFUSED, f"{where}: HTTP {status}: redirects are not followed; use the final URL", False
        if status in _LATER_4XX:
            return Outcome.FAILED, f"{where}: HTTP {status}", False
        if status < 500:
            return Outcome.REFUSED, f"{where}: HTTP {status}{_words(answer.body)}", False
        if status in _UNCERTAIN_5XX:
            return Outcome.UNKNOWN, f"{where}: HTTP {status}: a proxy lost the answer", False
        return Outcome.FAILED, f"{where}: HTTP {status}", True

    def _acknowledged(self, decision: Decision, where: str, answer: _Answer) -> tuple[Outcome, str]:
        if not answer.body.strip():
            return Outcome.DONE, f"{where}: HTTP {answer.status}"
        try:
            document = json.loads(answer.body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            return Outcome.UNKNOWN, f"{where}: HTTP {answer.status} with a body that is not a JSON object"
        got = _number(document, "value")
        if got is not None and got != wanted(decision):
            self._memory.settled(decision.target, got)
            return Outcome.REFUSED, f"{where}: asked for {wanted(decision):g}, the endpoint took {got:g}"
        return Outcome.DONE, f"{where}: HTTP {answer.status}"

    def _body(self, decision: Decision, now: float) -> bytes:
        target, value = decision.target, wanted(decision)
        key = hashlib.sha256(json.dumps([str(target), value, now]).encode()).hexdigest()[:32]
        return json.dumps(
            {
                "version": 1,
                "idempotency_key": key,
                "pool": target.pool,
                "lever": target.lever.value,
                "member": target.member,
                "value": value,
                "previous": decision.current,
                "why": decision.why.value,
                "at": now,
                "expires_at": decision.until,
                "by": self._identity,
            },
            allow_nan=False,
        ).encode()

    def _signature(self, body: bytes) -> dict[str, str]:
        """The time of signing is signed too, so that a recorded request cannot be replayed later."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": json.loads(body)["idempotency_key"]}
        if self._config.secret is not None:
            stamp = str(int(time.time()))
            mac = hmac.new(secret.read(self._config.secret), stamp.encode() + b"." + body, hashlib.sha256)
            headers |= {"X-Governor-Timestamp": stamp, "X-Governor-Signature": f"sha256={mac.hexdigest()}"}
        return headers

    def _request(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> _Answer:
        """One request, answered within the time-out as a whole, however slowly its headers and body drip."""
        where = f"{method} to {shown(url)}"
        if self._config.bearer is not None:
            headers["Authorization"] = secret.bearer(self._config.bearer)
        limit = self._config.timeout
        ask = partial(self._session.request, method, url, data=body, headers=headers, timeout=limit)
        try:
            with within(limit), ask(allow_redirects=False, stream=True) as response:
                content = bytearray()
                while chunk := response.raw.read1(1 << 14):  # not iter_content, which waits until its chunk is full
                    content += chunk
                    if len(content) > _MAX_BODY:
                        raise _NoAnswer(f"{where}: the answer is too long", sent=True)
                return _Answer(response.status_code, bytes(content))
        except requests.exceptions.ConnectTimeout as error:
            raise _NoAnswer(f"{where}: {type(error).__name__}", sent=False) from error
        except requests.exceptions.SSLError as error:
            raise _NoAnswer(f"{where}: {type(error).__name__}", sent=begun()) from error
        except requests.exceptions.ConnectionError as error:
            raise _NoAnswer(f"{where}: {_cause(error)}", sent=not _never_connected(error)) from error
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _NoAnswer(f"{where}: {type(error).__name__}", sent=True) from error


def _never_connected(error: requests.exceptions.ConnectionError) -> bool:
    """Whether the connection was refused or the name unknown; a connection that broke later may have carried it."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return type(reason).__name__ in ("NewConnectionError", "NameResolutionError")


def _cause(error: requests.exceptions.ConnectionError) -> str:
    return "cannot connect" if _never_connected(error) else "the connection broke before an answer came"


def _words(body: bytes) -> str:
    """What the endpoint says of its refusal, from "message" or "error" of a JSON object and from nothing else: an
    endpoint that echoes a request must not carry its credentials into a log."""
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    said = (document.get("message") or document.get("error")) if isinstance(document, dict) else None
    return f": {said[:200]}" if isinstance(said, str) else ""


def _number(row: Mapping[str, Any] | None, key: str) -> float | None:
    value = row.get(key) if row is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        return None
    return float(value)
