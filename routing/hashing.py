"""Hashes and chance that are the same on every machine: `hash()` of a string is salted, so it is never used."""

import hashlib

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, the step of splitmix64


def text_hash(text: str) -> int:
    """64 bits of a string."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def mix(number: int) -> int:
    """The finaliser of splitmix64: 64 well-mixed bits of a number."""
    number = (number + _GOLDEN) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def unit(bits: int) -> float:
    """64 bits as a number in [0, 1)."""
    return (bits >> 11) * 2.0**-53


class Chance:
    """A counter-based generator: the n-th draw depends on the seed and n alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._drawn = 0
        self._base = mix(seed)

    def draw(self) -> float:
        """The next number in [0, 1)."""
        self._drawn += 1
        return unit(mix(self._base + self._drawn * _GOLDEN))

    def below(self, limit: int) -> int:
        """The next whole number in [0, limit)."""
        return int(self.draw() * limit)
