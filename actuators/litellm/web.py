"""Questions to LiteLLM over HTTP: one connection each, no retries, no redirects, over by a certain time."""

import json
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from actuators import secret
from actuators.litellm.config import LiteLLMConfig
from actuators.paced import paced, within

_MOST = 1 << 24  # bytes of an answer


class NoAnswer(Exception):
    """Nothing usable came back; `sent` whether the request may have arrived."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Web:
    """`config.master_key` goes with each request, where it is set."""

    def __init__(self, config: LiteLLMConfig) -> None:
        self._config = config
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update({"Connection": "close", "Accept-Encoding": "identity"})
        self._session.verify = config.ca_file or True
        for scheme in ("http://", "https://"):
            adapter = HTTPAdapter()
            paced(adapter.poolmanager)
            self._session.mount(scheme, adapter)

    def ask(self, method: str, url: str, body: object = None) -> tuple[int, Any]:
        """Status, and the answer's JSON; None where it has none. Raises NoAnswer."""
        where, limit = shown(url), self._config.timeout
        headers = {}
        if self._config.master_key is not None:
            try:
                headers["Authorization"] = f"Bearer {secret.read(self._config.master_key).decode()}"
            except secret.SecretMissing as error:
                raise NoAnswer(str(error), sent=False) from error
        try:
            with (
                within(limit),
                self._session.request(
                    method, url, json=body, headers=headers, timeout=limit, allow_redirects=False, stream=True
                ) as answer,
            ):
                content = answer.raw.read(_MOST, decode_content=False)
                return answer.status_code, _json(content)
        except (requests.exceptions.ConnectTimeout, requests.exceptions.SSLError) as error:
            raise NoAnswer(f"{where}: {type(error).__name__}", sent=False) from error
        except requests.exceptions.ConnectionError as error:
            reason = getattr(error.args[0], "reason", None) if error.args else None
            never = type(reason).__name__ in ("NewConnectionError", "NameResolutionError")
            words = "cannot connect" if never else "the connection broke before an answer came"
            raise NoAnswer(f"{where}: {words}", sent=not never) from error
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise NoAnswer(f"{where}: {type(error).__name__}", sent=True) from error

    def close(self) -> None:
        self._session.close()


def shown(url: str) -> str:
    """The server alone."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
