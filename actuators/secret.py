"""Read a secret at the moment it is needed, so that rotation needs no restart and nothing holds it for long."""

import os
from pathlib import Path

from controller.core.params import SecretRef


class SecretMissing(Exception):
    """The secret is not where the config says; the message names the place and never the content."""


def read(ref: SecretRef) -> bytes:
    """The secret without surrounding white space (files end in a newline)."""
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
    return value
