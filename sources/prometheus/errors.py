"""What can go wrong between Governor and a Prometheus. Nothing else leaves the transport."""

from controller.core.errors import InputError


class PrometheusError(InputError):
    """A query was not answered. The message names the address, the cause and, where there is one, the mend."""


class Unreachable(PrometheusError):
    """No connection, no name, no TLS, or the connection broke."""


class TimedOut(PrometheusError):
    """The answer did not come, or was not complete, within its time."""


class Refused(PrometheusError):
    """401, 403, or a redirect that would have carried the credentials elsewhere."""


class BadQuery(PrometheusError):
    """400 or 422: the backend understood us and will not evaluate this."""


class BadAnswer(PrometheusError):
    """5xx, HTML, cut or foreign JSON, or more bytes than we take."""
