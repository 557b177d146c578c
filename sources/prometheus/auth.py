"""Credentials of one request, read when they are needed so that a rotated token is used at once."""

import os
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
