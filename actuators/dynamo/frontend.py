"""One frontend of Dynamo, as it is asked and told."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from actuators.dynamo.formula import FIELDS, Card
from actuators.several import Told
from actuators.web import Answer, NoAnswer, Web
from controller.core.address import shown
from controller.core.model import Outcome

_LATER = frozenset({408, 425, 429, 500, 503, 529})
_LOST = frozenset({502, 504})  # a proxy in between lost the answer, not necessarily the command
_DISABLED = "its admin API is off; start it without DYN_DISABLE_FRONTEND_ADMIN_API"
_FRESH = 60.0  # seconds after a start in which models may still come in one by one
_SAMPLE = re.compile(
    r'^dynamo_(?:component_(uptime)_seconds\{worker_id|frontend_model_(total_kv_blocks|kv_cache_block_size)\{model)="'
    r'((?:[^"\\]|\\.)*)"[^}]*\} (\S+)$',
    re.MULTILINE,
)
_COUNTED, _SERVED = "dynamo_frontend_worker_active_decode_blocks{", "dynamo_frontend_requests_total{"


class Unreadable(Exception):
    """It answered, and not with what was asked for; `refused` where asking again will not help."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Look:
    """One look. `process` is another after each start; `thresholds` are by model and field, None where none is set;
    `counts` whether it is seen to count blocks of workers, None where it has served nothing yet."""

    process: str
    thresholds: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    cards: Mapping[str, Card] = field(default_factory=dict)
    counts: bool | None = None


class Frontend:
    """`missed` are the models for which a command of ours did not come through; `told` those that have one of ours."""

    def __init__(self, url: str, web: Web) -> None:
        self.url, self._web = url.rstrip("/"), web
        self.missed: set[str] = set()
        self.told: set[str] = set()
        self._process = ""
        self._began: float | None = None

    def look(self, now: float) -> Look:
        """Raises NoAnswer or Unreadable; writes nothing."""
        answer = self._web.ask("GET", f"{self.url}/busy_threshold")
        if answer.status != 200:
            raise Unreadable(*_why(answer), refused=answer.status in (401, 403, 404))
        page = self._web.ask("GET", f"{self.url}/metrics")
        look = _parsed(answer.document, page.body.decode(errors="replace") if page.status == 200 else "", self.url)
        if self._process and look.process and look.process != self._process:
            self._began = now
        self._process = look.process or self._process
        return look

    def forgot(self, model: str, found: float | None, now: float) -> bool:
        """Whether it began anew, or forgot a model whose last worker went: what was set can be removed by nobody."""
        fresh = self._began is not None and now - self._began < _FRESH
        return fresh or (found is None and model in self.told)

    def set(self, model: str, name: str, value: float) -> Told:
        """One threshold of one model."""
        number: float | int = int(value) if name == FIELDS["prefill_tokens"] else value
        try:
            answer = self._web.ask("POST", f"{self.url}/busy_threshold", {"model": model, name: number})
        except NoAnswer as error:
            return (Outcome.UNKNOWN if error.sent else Outcome.FAILED), str(error)
        if answer.status == 200:
            document = answer.document
            got = document.get(name) if isinstance(document, dict) else None
            if got is None:
                return Outcome.UNKNOWN, "an answer that is none of Dynamo's"
            if got != number:
                return Outcome.FAILED, f"{name} of {model} is {got:g} there, not {number:g}"
            self.missed.discard(model)
            self.told.add(model)
            return Outcome.DONE, f"{name} {number:g}"
        (detail,) = _why(answer)
        if answer.status in _LOST:
            return Outcome.UNKNOWN, detail
        return (Outcome.FAILED if answer.status in _LATER else Outcome.REFUSED), detail


def _why(answer: Answer) -> tuple[str]:
    if answer.status == 404 and "Route not found" in answer.words:
        return (_DISABLED,)
    if answer.status in (401, 403):
        return (f"HTTP {answer.status}; the proxy in front wants another api_key",)
    return (f"HTTP {answer.status} {answer.words}".strip(),)


def _parsed(document: Any, page: str, url: str) -> Look:
    try:
        thresholds = {
            str(row["model"]): {name: _number(row.get(name)) for name in FIELDS.values()}
            for row in document["thresholds"]
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable(f"{shown(url)}: /busy_threshold is not answered as Dynamo does") from error
    process, sizes = "", dict[str, dict[str, float]]()
    for uptime, what, name, value in _SAMPLE.findall(page):
        if uptime:
            process = name
        else:
            sizes.setdefault(name, {})[what] = float(value)
    cards = {
        name: Card(one["total_kv_blocks"], one["kv_cache_block_size"]) for name, one in sizes.items() if len(one) == 2
    }
    counts = None if f"\n{_SERVED}" not in page else f"\n{_COUNTED}" in page
    return Look(process, thresholds, cards, counts)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
