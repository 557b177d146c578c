"""Read a secret at the moment it is needed, so that rotation needs no restart and nothing holds it for long."""

import os
from pathlib import Path

from controller.core.params import SecretRef


class SecretMissing(Exception):
    """The secret is not where the config says; the message names the place and never the content."""


def read(ref: SecretRef) -> bytes:
    """The secret without surrounding white space (files end in a newline)."""
    return _found(ref)[0]


def bearer(ref: SecretRef) -> str:
    """The value of an Authorization header. A client's own error about one that cannot be sent would quote it."""
    value, place = _found(ref)
    if not all(0x21 <= byte <= 0x7E for byte in value):
        raise SecretMissing(f"the secret in {place} is no token: it has white space, or is not plain ASCII")
    return f"Bearer {value.decode()}"


def _found(ref: SecretRef) -> tuple[bytes, str]:
    """The secret, and where it is from, for people."""
    if ref.env is not None:
        value = os.environ.get(ref.env, "").strip().encode()
        place = f"environment variable {ref.env}"
    elif ref.file is not None:
        place = f"file {ref.file}"
        try:
            value = Path(ref.file).read_bytes().strip()
        except OSError as error:
            raise SecretMissing(f"cannot read the secret from {place}: {error.strerror}") from error
    else:
        raise SecretMissing("the secret names neither an environment variable nor a file")
    if not value:
        raise SecretMissing(f"the secret in {place} is empty or not set")
    return value, place
