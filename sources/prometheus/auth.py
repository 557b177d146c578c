"""Credentials of one request, read when they are needed so that a rotated token is used at once."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from requests import PreparedRequest
from requests.auth import AuthBase, HTTPBasicAuth

from controller.core.params import SecretRef
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.errors import Refused


class Credentials(AuthBase):
    """Bearer, basic or none. Always given to requests: without an ``auth`` it would look into the user's netrc."""

    def __init__(self, config: PrometheusConfig) -> None:
        self._config = config

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self._config.bearer is not None:
            request.headers["Authorization"] = f"Bearer {reveal(self._config.bearer)}"
        elif self._config.password is not None:
            HTTPBasicAuth(self._config.username.encode(), reveal(self._config.password).encode())(request)
        return request


def check_files(config: PrometheusConfig) -> None:
    """See at once that the files for TLS are there and hold what they should: requests tells it with the first query,
    and then of a path only. Raises Refused naming the key."""
    context = ssl.create_default_context()
    if config.ca:
        folder = Path(config.ca).is_dir()
        with _file("ca", config.ca):
            context.load_verify_locations(None if folder else config.ca, config.ca if folder else None)
    if config.cert:
        with _file("cert", config.cert):
            Path(config.cert).read_bytes()
        if config.key:
            with _file("key", config.key):
                Path(config.key).read_bytes()
        with _file("cert", config.cert):
            context.load_cert_chain(config.cert, config.key or None, _no_password)


@contextmanager
def _file(key: str, path: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        what = "certificate with its private key" if key == "cert" else "certificate"
        raise Refused(f"source.{key}: {path} holds no {what} in PEM ({error.reason or error})") from error
    except OSError as error:
        raise Refused(f"source.{key}: {path} cannot be read: {error.strerror or error}; check the path") from error


def _no_password() -> str:
    """Instead of OpenSSL's question at the terminal, which no daemon can answer."""
    return ""


def reveal(ref: SecretRef) -> str:
    """The secret, without the line break that editors leave. Raises Refused when it cannot be had, without it."""
    if ref.env is not None:
        value = os.environ.get(ref.env, "")
        where = f"environment variable {ref.env}"
    else:
        where = f"file {ref.file}"
        try:
            value = Path(ref.file or "").read_text()
        except OSError as error:
            raise Refused(f"the secret in {where} cannot be read: {error.strerror}") from error
    if not value.strip():
        raise Refused(f"the secret in {where} is empty or not set")
    return value.strip()
