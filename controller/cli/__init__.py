"""The command line. `main` is the console script `governor`."""

from controller.cli.app import main

__all__ = ["main"]
