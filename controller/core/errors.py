"""The one error that every room may raise at a person."""


class InputError(Exception):
    """Something a person gave (a file, an address, a range) cannot be used. The message names the place, the mistake
    and the mend; the command line prints it without a traceback and exits 2."""
