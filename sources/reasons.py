"""Why something that was asked over HTTP did not answer, in a few words that may be logged."""

import re

from controller.core.address import without_credentials

_MOST = 200  # letters


def reason(error: Exception) -> str:
    """The reason behind the wrappings of requests and urllib3, without the query, whose URL may hold a token, and
    without credentials, which stand in the address of a proxy."""
    wrapped = error.args[0] if error.args else error
    text = str(getattr(wrapped, "reason", None) or error.__cause__ or error)
    text = re.sub(r"^\w+\([^)]*\): ", "", without_credentials(text))
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
