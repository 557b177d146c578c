"""Questions to a target over HTTP: one connection each, no retries, no redirects, over by a certain time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from actuators import secret
from actuators.paced import begun, paced, within
from controller.core.address import shown
from controller.core.params import SecretRef

_MOST = 1 << 24  # bytes of an answer; more is not an answer


class NoAnswer(Exception):
    """Nothing usable came back; `sent` whether the request may have arrived."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes

    @property
    def document(self) -> Any:
        """The JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def words(self) -> str:
        """What it says of itself, for people: a message of its JSON, or its text, and not much of it."""
        document = self.document
        if isinstance(document, dict):
            said = document.get("message") or document.get("error") or document.get("detail")
            said = said.get("message") if isinstance(said, dict) else said
            return said[:200] if isinstance(said, str) else ""
        return self.body[:200].decode(errors="replace").strip() if document is None else ""


class Web:
    """One target. `bearer` goes with each request, where it is set, and is never told."""

    def __init__(self, timeout: float, bearer: SecretRef | None = None, ca_file: str = "") -> None:
        self._timeout, self._bearer = timeout, bearer
        self._session = requests.Session()
        self._session.trust_env = False  # a ~/.netrc must not overwrite the Authorization header
        # An idle connection that just broke would look like a lost write; a packed answer could unpack without end.
        self._session.headers.update({"Connection": "close", "Accept-Encoding": "identity"})
        self._session.verify = ca_file or True
        for scheme in ("http://", "https://"):
            adapter = HTTPAdapter()
            paced(adapter.poolmanager)
            self._session.mount(scheme, adapter)

    def ask(
        self, method: str, url: str, body: object = None, query: Mapping[str, str] | None = None, limit: float = 0.0
    ) -> Answer:
        """The answer, within `limit` seconds as a whole, or else the usual time-out. Raises NoAnswer."""
        where, limit = shown(url), limit or self._timeout
        headers = {}
        if self._bearer is not None:
            try:
                headers["Authorization"] = secret.bearer(self._bearer)
            except secret.SecretMissing as error:
                raise NoAnswer(str(error), sent=False) from error
        try:
            with (
                within(limit),
                self._session.request(
                    method, url, params=query, json=body, headers=headers, timeout=limit, allow_redirects=False,
                    stream=True,
                ) as answer,
            ):  # fmt: skip
                return Answer(answer.status_code, answer.raw.read(_MOST, decode_content=False))
        except requests.exceptions.ConnectTimeout as error:
            raise NoAnswer(f"{where}: {type(error).__name__}", sent=False) from error
        except requests.exceptions.SSLError as error:
            raise NoAnswer(f"{where}: {type(error).__name__}", sent=begun()) from error
        except requests.exceptions.ConnectionError as error:
            reason = getattr(error.args[0], "reason", None) if error.args else None
            never = type(reason).__name__ in ("NewConnectionError", "NameResolutionError")
            words = "cannot connect" if never else "the connection broke before an answer came"
            raise NoAnswer(f"{where}: {words}", sent=not never) from error
        except (requests.exceptions.Timeout, urllib3.exceptions.ReadTimeoutError, TimeoutError) as error:
            raise NoAnswer(f"{where}: no answer within {limit:g} s", sent=True) from error
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise NoAnswer(f"{where}: {type(error).__name__}", sent=True) from error

    def close(self) -> None:
        self._session.close()
