"""Chance: one random stream per purpose, made from the seed and the names of what draws from it.

A name more, or a consumer more, shifts no other stream; neither does the order in which they are made.
"""

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Keys: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]

_MASK = (1 << 64) - 1


def number(*names: str | int) -> int:
    """64 bits that stand for `names`, the same on every machine."""
    text = "\x1f".join(str(name) for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random stream of `names` under `seed`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number(*names)])))


def uniform(*keys: int) -> float:
    """A number in [0, 1) that depends on `keys` alone, and not on what was drawn before."""
    state = 0
    for key in keys:
        state = _mix((state ^ (key & _MASK)) + 0x9E3779B97F4A7C15)
    return (state >> 11) * 2.0**-53


def _mix(value: int) -> int:
    """The finaliser of splitmix64."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix(values: Keys) -> Keys:
    """`_mix` of a whole array of uint64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
