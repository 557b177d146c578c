"""The command line. `main` is the console script `governor`."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """The console script; see `controller.cli.app`."""
    # The rooms take a moment to import. Ctrl-C meanwhile ends the process as it ends any other, without a traceback.
    own = signal.getsignal(signal.SIGINT)
    if own is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from controller.cli.app import main as run

    if own is signal.default_int_handler:
        signal.signal(signal.SIGINT, own)
    run()


__all__ = ["main"]
