"""A share of a stream taken without chance: error diffusion, so that a rehearsal repeats to the request.

Each key has a debt that grows by the share and pays 1 for each that is taken: of any n requests, |taken - n·share| < 1.
Keys start at different phases, so that of many keys with one request each the same share is taken. Keys are tenants
in a class: one debt for all would, at a share of a half, hit the same one of two tenants that take turns every time.
"""

from routing.hashing import text_hash, unit

MANY = 10_000  # keys that are remembered; then all start anew, at their phases


class Thinner:
    """Takes a share of each key's requests."""

    def __init__(self, salt: str = "") -> None:
        self._salt = salt
        self._debts: dict[tuple[str, ...], float] = {}

    def take(self, key: tuple[str, ...], share: float) -> bool:
        """Whether this one is taken; `share` 0..1."""
        if share <= 0.0:
            return False
        if share >= 1.0:
            return True
        debt = self._debts.get(key)
        if debt is None:
            if len(self._debts) >= MANY:
                self._debts.clear()
            debt = unit(text_hash("\0".join((self._salt, *key))))
        debt += share
        taken = debt >= 1.0
        self._debts[key] = debt - 1.0 if taken else debt
        return taken
