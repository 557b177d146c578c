"""How each make of router is asked and told. Nothing is sent twice, and what was told is read back."""

from collections.abc import Mapping
from threading import Event
from time import monotonic
from typing import Protocol

from actuators import secret
from actuators.router.workers import REGULAR, Garbled, Worker, address, workers
from actuators.several import Told
from actuators.web import Answer, NoAnswer, Web
from controller.core.address import shown
from controller.core.model import Outcome
from controller.core.params import SecretRef

_PAUSE = 0.02  # seconds between looks at what is being done
_LATER = frozenset({408, 409, 425, 429, 500, 503})
_LOST = frozenset({502, 504})  # a proxy in between lost the answer, not necessarily the command


class Router(Protocol):
    """One router process. `look` raises NoAnswer or Garbled; the others tell."""

    url: str

    def look(self) -> Mapping[str, Worker]:
        """Its workers by host:port."""

    def add(self, worker: Worker) -> Told: ...

    def remove(self, worker: Worker) -> Told: ...

    def settle(self, place: str, *, inside: bool) -> Told:
        """What became of a command that nobody heard of, for a worker that is not where it was told to be. Writes
        nothing."""


class Sglang:
    """Its commands are queued: 202 says that one was taken, and the workers tell when it is done. A second command on
    the same worker may overtake the first, so there is none before that."""

    def __init__(self, url: str, web: Web, timeout: float, worker_key: SecretRef | None) -> None:
        self.url, self._web, self._timeout, self._worker_key = url.rstrip("/"), web, timeout, worker_key
        self._open: dict[str, tuple[float, str]] = {}  # commands not known to be over: since when, the worker's id

    def look(self) -> Mapping[str, Worker]:
        return _look(self._web, self.url)

    def add(self, worker: Worker) -> Told:
        body = {"url": worker.url, **worker.more}
        end = monotonic() + self._timeout
        try:
            if self._worker_key is not None:
                body["api_key"] = secret.read(self._worker_key).decode()
            answer = self._web.ask("POST", f"{self.url}/workers", body)
        except secret.SecretMissing as error:
            return Outcome.FAILED, str(error)
        except NoAnswer as error:
            return self._lost(worker, error)
        if answer.status >= 300:
            return _said(answer, "POST /workers")
        document = answer.document
        number = document.get("worker_id") if isinstance(document, dict) else None
        return self._until(address(worker.url), end, str(number or ""), inside=True)

    def remove(self, worker: Worker) -> Told:
        end = monotonic() + self._timeout
        try:
            while (busy := self._job(worker.id)) not in ("", "failed") and monotonic() < end:
                Event().wait(_PAUSE)
        except NoAnswer as error:
            return Outcome.FAILED, f"nothing was sent: {error}"
        if busy not in ("", "failed"):
            return Outcome.FAILED, f"nothing was sent: the router is still busy with {shown(worker.url)}"
        try:
            answer = self._web.ask("DELETE", f"{self.url}/workers/{worker.id}")
        except NoAnswer as error:
            return self._lost(worker, error)
        if answer.status >= 300 and answer.status != 404:
            return _said(answer, "DELETE /workers")
        return self._until(address(worker.url), end, "", inside=False)

    def settle(self, place: str, *, inside: bool) -> Told:
        if place not in self._open:
            return Outcome.FAILED, f"{place} is {'out' if inside else 'in'}"
        since, number = self._open[place]
        outcome, detail = self._until(place, since + self._timeout, number, inside=inside)
        if outcome is Outcome.UNKNOWN and not number and monotonic() >= since + self._timeout:
            del self._open[place]
            return Outcome.FAILED, detail
        return outcome, detail

    def _lost(self, worker: Worker, error: NoAnswer) -> Told:
        if error.sent:
            self._open[address(worker.url)] = (monotonic(), "")
        return _lost(error)

    def _until(self, place: str, end: float, number: str, *, inside: bool) -> Told:
        """Waits until the router has done what it took on, or says that it could not."""
        verb = "let in" if inside else "taken out"
        self._open[place] = (end - self._timeout, number)
        try:
            while True:
                if (place in self.look()) is inside:
                    del self._open[place]
                    return Outcome.DONE, f"{place} is {'in' if inside else 'out'}"
                if number and self._job(number) == "failed":
                    del self._open[place]
                    return Outcome.FAILED, f"{place} is not {verb}: the router cannot reach it"
                if monotonic() >= end:
                    break
                Event().wait(_PAUSE)
        except (NoAnswer, Garbled) as error:
            return Outcome.UNKNOWN, str(error)
        return Outcome.UNKNOWN, f"{place} is queued, and not {verb} after {self._timeout:g} s"

    def _job(self, number: str) -> str:
        """The status of what the router still has to do with a worker, "" where there is nothing. Raises NoAnswer."""
        document = self._web.ask("GET", f"{self.url}/workers/{number}").document
        job = document.get("job_status") if isinstance(document, dict) else None
        return str(job.get("status", "")) if isinstance(job, dict) else ""


class Vllm:
    """It answers when a command is done. One that it is left alone with is given up: an add whose caller has gone is
    not carried out."""

    def __init__(self, url: str, web: Web) -> None:
        self.url, self._web = url.rstrip("/"), web

    def look(self) -> Mapping[str, Worker]:
        return _look(self._web, self.url)

    def add(self, worker: Worker) -> Told:
        if worker.kind != REGULAR:
            return Outcome.REFUSED, f"{shown(worker.url)} is of kind {worker.kind}, which /add_worker cannot put back"
        return self._command("add_worker", worker, inside=True)

    def remove(self, worker: Worker) -> Told:
        if worker.kind != REGULAR:
            return Outcome.REFUSED, f"{shown(worker.url)} is of kind {worker.kind}, which could not be put back"
        return self._command("remove_worker", worker, inside=False)

    def settle(self, place: str, *, inside: bool) -> Told:
        return Outcome.FAILED, f"{place} is {'out' if inside else 'in'}"

    def _command(self, what: str, worker: Worker, *, inside: bool) -> Told:
        try:
            answer = self._web.ask("POST", f"{self.url}/{what}", query={"url": worker.url})
            if answer.status >= 300 and "already exists" not in answer.words:
                if "become healthy" in answer.words:
                    return Outcome.FAILED, f"{shown(worker.url)} is not let in: the router cannot reach it"
                return _said(answer, f"POST /{what}")
        except NoAnswer as error:
            return _lost(error)
        try:
            if (address(worker.url) in self.look()) is inside:
                return Outcome.DONE, f"{shown(worker.url)} is {'in' if inside else 'out'}"
        except (NoAnswer, Garbled) as error:
            return Outcome.UNKNOWN, str(error)
        return Outcome.FAILED, f"{shown(worker.url)} is still {'out' if inside else 'in'}, though the router said yes"


def _look(web: Web, url: str) -> Mapping[str, Worker]:
    answer = web.ask("GET", f"{url}/workers")
    if answer.status in (401, 403):
        raise Garbled(
            f"{shown(url)}: HTTP {answer.status}: {answer.words}; set api_key to one of role admin", refused=True
        )
    if answer.status != 200:
        raise Garbled(f"{shown(url)}: GET /workers: HTTP {answer.status} {answer.words}")
    return workers(answer.document, shown(url))


def _lost(error: NoAnswer) -> Told:
    return (Outcome.UNKNOWN if error.sent else Outcome.FAILED), str(error)


def _said(answer: Answer, what: str) -> Told:
    detail = f"{what}: HTTP {answer.status} {answer.words}".strip()
    if answer.status in (401, 403):
        return Outcome.REFUSED, f"{detail}; set api_key to one of role admin"
    if answer.status in _LOST:
        return Outcome.UNKNOWN, detail
    return (Outcome.FAILED if answer.status in _LATER else Outcome.REFUSED), detail
