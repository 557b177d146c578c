"""Regular expressions that mean the same to Prometheus (RE2) and to Python, which must both read them."""

import re
import warnings

from controller.config.errors import BadValue

# What Python knows and RE2 does not, or reads otherwise. Escapes and classes are stepped over as wholes.
_TOKEN = re.compile(
    r"""(?P<backreference> \\[1-9] | \(\?P= )
      | (?P<escape> \\[ZNuU] )
      | \\.
      | \[ \^? \]? (?: \\. | [^\]\\] )* \]
      | (?P<lookaround> \(\?<?[=!] )
      | (?P<atomic> \(\?> )
      | (?P<condition> \(\?\( )
      | (?P<comment> \(\?\# )
      | (?P<flag> \(\? [imsx]* [aLux] )
      | (?P<possessive> (?: [*+?] | \{\d+(?:,\d*)?\} ) \+ )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {
    "backreference": ("a backreference", "write the text out"),
    "escape": ("an escape of Python's", "write the character itself"),
    "lookaround": ("a lookaround", 'use {not_regex: "..."} for what must not match'),
    "atomic": ("an atomic group", "write (?:...)"),
    "condition": ("a condition", "write the alternatives out with |"),
    "comment": ("a comment", "put it behind # at the end of the line"),
    "flag": ("a flag that only Python knows", "use i, m and s only"),
    "possessive": ("a possessive quantifier", "remove the last +"),
}
_MOST = 1000  # repetitions that RE2 allows


def check_regex(text: str) -> None:
    """Raises BadValue unless Prometheus will take it, too."""
    try:
        with warnings.catch_warnings(action="error", category=FutureWarning):
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadValue(f"{text!r} is not a regular expression: {error}", "escape special characters with \\") from error
    except FutureWarning as error:
        raise BadValue(
            f"{text!r} has a [ within [...], which Python and Prometheus read differently", r"write \[ or a-z"
        ) from error
    for found in _TOKEN.finditer(text):
        if found.lastgroup is not None:
            what, mend = _WORDS[found.lastgroup]
            raise BadValue(f"{text!r} has {what} ({found[0]}), which Prometheus does not know", mend)
    for count in re.findall(r"\{(\d+)(?:,(\d*))?\}", text):
        if any(number and int(number) > _MOST for number in count):
            raise BadValue(f"{text!r} repeats more than {_MOST} times, which Prometheus refuses", "write fewer")
