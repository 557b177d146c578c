"""Transport: one query over HTTP, in bounded time, with every failure named and every warning kept.

prometheus-api-client does the asking. Its defaults are made for notebooks (no time-out, hidden retries, warnings
dropped), so it gets a session of ours, which is a public argument of its constructor.
"""

import io
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect

from controller.core.address import place
from sources.body import read_body
from sources.bounded import BoundedAdapter
from sources.prometheus.auth import Credentials, check_files
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.errors import BadAnswer, BadQuery, PrometheusError, Refused, TimedOut, Unreachable
from sources.reasons import reason

Row: TypeAlias = tuple[Mapping[str, str], float]
Series: TypeAlias = tuple[Mapping[str, str], Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """An instant vector. `warnings` say that part of the backend did not answer; `dropped` are the labels of the
    samples that were NaN or infinite and are left out of `rows`."""

    rows: Sequence[Row]
    warnings: tuple[str, ...] = ()
    dropped: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """A range matrix; values may be NaN."""

    series: Sequence[Series]
    warnings: tuple[str, ...] = ()


class Transport:
    """Queries to one Prometheus. Safe to use from several threads."""

    def __init__(self, config: PrometheusConfig) -> None:
        check_files(config)
        self._url = config.url.rstrip("/")
        self._connect = config.connect_timeout
        self._session = _BoundedSession(config.max_bytes)
        self._session.verify = config.ca or not config.insecure
        self._session.cert = (config.cert, config.key) if config.key else (config.cert or None)
        # Any: the library's annotations are narrower than what it passes on to requests.
        connect: Any = PrometheusConnect
        self._client = connect(
            url=self._url,
            headers=dict(config.headers),
            auth=Credentials(config),
            session=self._session,
            method="POST",
        )
        # In the place of the one that the library has just mounted, which retries three times and says nothing of it.
        self._session.mount(self._url, BoundedAdapter())

    def query(self, promql: str, at: float, budget: float) -> Answer:
        """Evaluate at `at` (unix seconds), within `budget` seconds. Raises PrometheusError."""
        params = {"time": f"{at:.3f}", "timeout": f"{max(1, int(budget * 1000))}ms"}
        result = self._ask(budget, lambda timeout: self._client.custom_query(promql, params=params, timeout=timeout))
        rows: list[Row] = []
        dropped: list[Mapping[str, str]] = []
        try:
            for item in result:
                value = float(item["value"][1])
                if math.isfinite(value):
                    rows.append((item["metric"], value))
                else:
                    dropped.append(item["metric"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise BadAnswer(f"{self._url}: the answer is not an instant vector ({error!r})") from error
        return Answer(rows, self._session.seen.warnings, dropped)

    def query_range(self, promql: str, start: float, end: float, step: float, budget: float) -> RangeAnswer:
        """Evaluate at start, start + step, ... up to end (unix seconds), within `budget`.
        Raises PrometheusError."""
        # The library rounds times to whole seconds; what stands in params wins over it.
        params = {"start": f"{start:.3f}", "end": f"{end:.3f}", "timeout": f"{max(1, int(budget * 1000))}ms"}
        times = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC)
        result = self._ask(
            budget,
            lambda timeout: self._client.custom_query_range(
                promql, *times, f"{step:g}", params=params, timeout=timeout
            ),
        )
        try:
            series = [(item["metric"], [(float(t), float(v)) for t, v in item["values"]]) for item in result]
        except (KeyError, TypeError, ValueError) as error:
            raise BadAnswer(f"{self._url}: the answer is not a range matrix ({error!r})") from error
        return RangeAnswer(series, self._session.seen.warnings)

    @property
    def url(self) -> str:
        """Where it asks, without credentials."""
        return self._url

    @property
    def skew(self) -> float:
        """Seconds that the backend's clock is ahead of ours; 0 while that is within what its header can tell."""
        return self._session.skew

    def close(self) -> None:
        self._session.close()

    def _ask(self, budget: float, ask: Callable[[tuple[float, float]], Any]) -> list[Any]:
        found = self._bounded(budget, ask)
        if not isinstance(found, list):
            raise BadAnswer(f"{self._url}: the result is a {type(found).__name__}, not a list")
        return found

    def _bounded(self, budget: float, ask: Callable[[tuple[float, float]], Any]) -> Any:
        """Ask within the budget, every failure by its own name."""
        if budget <= 0:
            raise TimedOut(f"{self._url}: no time was left to ask")
        until = time.monotonic() + budget
        try:
            try:
                return ask((min(self._connect, budget), budget))
            except requests.ConnectionError as error:
                # A kept-alive connection that the server closed meanwhile is no outage: ask once more, never later.
                left = until - time.monotonic()
                if isinstance(error, requests.Timeout) or not _was_cut(error) or left <= 0:
                    raise
                return ask((min(self._connect, left), left))
        except PrometheusError:
            raise
        except requests.Timeout as error:
            raise TimedOut(f"{self._url}: no answer within {budget:.1f} s") from error
        except requests.exceptions.SSLError as error:
            raise Unreachable(f"{self._url}: TLS failed, check ca, cert and the host name: {reason(error)}") from error
        except (ValueError, KeyError, TypeError, PrometheusApiClientException) as error:
            raise BadAnswer(f"{self._url}: the answer is cut or not from a Prometheus API ({reason(error)})") from error
        except requests.RequestException as error:
            raise Unreachable(f"{self._url}: {reason(error)}; check url and network") from error


class _Seen(threading.local):
    """Warnings of the last answer of this thread."""

    warnings: tuple[str, ...] = ()


class _BoundedSession(requests.Session):
    """A session that reads the whole body within the read time-out and the size limit, follows no redirect, puts the
    parameters of a POST into its body, and judges the answer before the library sees it."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self.seen = _Seen()
        self.skew = 0.0

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        self.seen.warnings = ()
        _params_into_body(request)
        # A redirect is refused below: followed to another host it loses the credentials, and as GET it loses the query.
        kwargs |= {"stream": True, "allow_redirects": False}
        budget = float(kwargs["timeout"][1])
        until = time.monotonic() + budget
        with super().send(request, **kwargs) as response:
            body = self._read(response, until, budget)
        answer = requests.Response()
        answer.status_code, answer.headers, answer.url = response.status_code, response.headers, response.url
        answer.raw = io.BytesIO(body)
        _judge(answer, body)
        self.seen.warnings = _warnings(body)
        self._compare_clocks(response.headers.get("Date", ""))
        return answer

    def _compare_clocks(self, date: str) -> None:
        """The header has whole seconds, so an estimate is half a second wrong and moves only when it clearly must."""
        try:
            ahead = parsedate_to_datetime(date).timestamp() + 0.5 - time.time()
        except ValueError:
            return  # no date, or not one: clocks cannot be compared
        if abs(ahead - self.skew) > 1.0:
            self.skew = ahead if abs(ahead) > 1.0 else 0.0

    def _read(self, response: requests.Response, until: float, budget: float) -> bytes:
        try:
            return read_body(response, until, self._max_bytes)
        except TimeoutError as error:
            raise TimedOut(f"{_place(response)}: the answer was not complete after {budget:.1f} s") from error
        except OverflowError as error:
            raise BadAnswer(f"{_place(response)}: {error} (max_bytes)") from error
        except ConnectionError as error:
            raise Unreachable(f"{_place(response)}: {error}") from error


def _params_into_body(request: requests.PreparedRequest) -> None:
    """The library puts the query of a POST into its URL, where proxies cut it at a few kilobytes."""
    parts = urlsplit(request.url or "")
    if request.method == "POST" and parts.query and not request.body:
        request.url = urlunsplit(parts._replace(query=""))
        request.prepare_body(parts.query, None)
        request.headers["Content-Type"] = "application/x-www-form-urlencoded"


def _judge(answer: requests.Response, body: bytes) -> None:
    """Raise what this answer means unless it is a success in JSON."""
    status, where = answer.status_code, _place(answer)
    if status == 200 and body.lstrip()[:1] == b"{":
        return
    if status == 200:
        raise BadAnswer(f"{where}: 200 with {_kind(answer)}, not JSON; is this a login page or a proxy? {_head(body)}")
    if 300 <= status < 400:
        there = place(answer.headers.get("Location", "?"))
        raise Refused(f"{where}: redirects to {there}; put the final address into url")
    if status in (401, 403):
        raise Refused(f"{where}: {status}; check bearer, username/password and the tenant header")
    if status == 404:
        raise BadAnswer(f"{where}: 404; url must be the address before /api/v1")
    message = _message(body)
    if status in (400, 422):
        if "timed out" in message or "canceled" in message:
            raise TimedOut(f"{where}: {message}")
        raise BadQuery(f"{where}: {message or _head(body)}")
    if status == 503 and "timed out" in message:
        raise TimedOut(f"{where}: {message}")
    raise BadAnswer(f"{where}: {status} {answer.reason or ''} {message or _head(body)}".rstrip())


def _message(body: bytes) -> str:
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    return str(document.get("error", "")) if isinstance(document, dict) else ""


def _warnings(body: bytes) -> tuple[str, ...]:
    """Warnings that the backend put beside the data, which the library drops. The body is parsed for them only when the
    key occurs. Newer Prometheus adds remarks on the query itself ("PromQL ..."): these make no answer partial."""
    if b'"warnings"' not in body:
        return ()
    try:
        found = json.loads(body).get("warnings") or ()
    except ValueError:
        return ()  # the library is about to fail on the same body, and says so
    return tuple(str(warning) for warning in found if not str(warning).startswith("PromQL "))


def _was_cut(error: requests.ConnectionError) -> bool:
    return any(sign in str(error) for sign in ("RemoteDisconnected", "ConnectionResetError", "BrokenPipe"))


def _place(answer: requests.Response) -> str:
    parts = urlsplit(answer.url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _kind(answer: requests.Response) -> str:
    return answer.headers.get("Content-Type", "no content type").split(";")[0]


def _head(body: bytes) -> str:
    return repr(body[:120].decode("utf-8", "replace")) if body else "(empty)"
