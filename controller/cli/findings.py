"""What a config says that is no mistake and hardly meant, told to whoever is about to rely on it."""

from collections.abc import Iterable

from controller.cli.terminal import warn
from controller.config.errors import Finding, Path, dotted


def tell(file: object, findings: Iterable[Finding], inside: Path = (), unless: str = "") -> None:
    """A line for each; the config is `inside` the file at that path, and `unless` says when it does not matter."""
    for finding in findings:
        warn(f"{file}: {dotted((*inside, *finding.path))}: {finding.mistake}; {finding.mend}{unless}")
