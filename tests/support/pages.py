"""Generated pages: the same words, and the same numbers as far as another machine's arithmetic allows."""

import re

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def assert_same(written: str, given: str, *, share: float, least: float, mend: str) -> None:
    """The texts are equal but for numbers, and each number is within `share` of the other or `least` of it."""
    assert _NUMBER.sub("#", _plain(written)) == _NUMBER.sub("#", _plain(given)), mend
    for line, (old, new) in enumerate(zip(_plain(written).splitlines(), _plain(given).splitlines(), strict=True), 1):
        for one, other in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True):
            off = abs(float(one) - float(other))
            assert off <= max(least, share * float(one)), f"line {line}: {one} is now {other}; {mend}"


def _plain(text: str) -> str:
    """Without the signs of small numbers, which may turn, and without marks of what was held."""
    return re.sub(r"[+-](?=\d+\.\d%)", "", text)
