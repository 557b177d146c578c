"""Where commands write, looked at before the work: what cannot be written afterwards is told at once, and nothing that
is not a plain file is ever replaced by one."""

import tempfile
from pathlib import Path

from controller.core.errors import InputError
from controller.run.ledger import ledger_files


def to_file(path: Path, option: str, *read: Path | None) -> None:
    """Make the folder of `path` and see that a file can be made in it. Raises InputError that names the `option`, also
    when the file is one that the command has `read` or is about to."""
    if path.is_dir():
        raise InputError(f"{option} {path}: is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise InputError(f"{option} {path}: is a device or a pipe, which would be replaced; name a plain file")
    if any(one is not None and one.exists() and path.exists() and path.samefile(one) for one in read):
        raise InputError(f"{option} {path}: is read by the same command; name another file")
    _probe(path.parent, f"{option} {path}", "name a file in a folder that you may write to")


def to_file_or_folder(path: Path, option: str, *read: Path | None) -> None:
    """The same where only the work tells whether `path` will be a file, or a folder of several."""
    if path.is_dir():
        _probe(path, f"{option} {path}", "name a file or folder that you may write to")
    else:
        to_file(path, option, *read)


def to_folder(folder: Path, option: str) -> None:
    """Make the folder, and see that a file can be made in it. Raises InputError that names the `option`."""
    mend = "name a folder that you may write to"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{option} {folder}: is not a folder; {mend}")
    _probe(folder, f"{option} {folder}", mend)


def to_new_ledger(path: str, option: str) -> Path:
    """The folder for a ledger of its own. Raises InputError, also where another run has written one."""
    folder, mend = Path(path), "name a folder that you may write to"
    if not path:
        raise InputError(f"{option}: is empty; {mend}")
    to_folder(folder, option)
    if ledger_files(folder):
        raise InputError(f"{option} {path}: holds a ledger already, and two runs would be mixed; name another folder")
    return folder


def _probe(folder: Path, place: str, mend: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Rights alone do not tell: a full disk, a read-only mount and /proc answer to the attempt only.
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".governor-") as probe:
            probe.write(b"?")
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {error.strerror or error}; {mend}") from error
