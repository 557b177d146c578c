"""The library entry that a fit begins with, by the name that a person types."""

from controller.core.errors import InputError
from simulator import library


def find(entry: str) -> library.Entry:
    """The library's entry model/gpu/tp/precision[/engine]. Raises InputError."""
    # Makers' names have a slash in them, so the parts are counted from the number of GPUs on.
    parts = entry.strip("/").split("/")
    at = next((i for i in range(len(parts) - 1, -1, -1) if parts[i].isdigit()), -1)
    if at < 2 or len(parts) - at > 3:
        raise InputError(f"--library {entry}: write model/gpu/tp/precision, for example llama-3.1-8b/h100/1/bf16")
    precision, engine = (*parts[at + 1 :], "", "")[:2]
    try:
        return library.find("/".join(parts[: at - 1]), parts[at - 1], int(parts[at]), precision, engine or "vllm")
    except library.NotInLibrary as error:
        raise InputError(f"--library {entry}: {error}") from error
