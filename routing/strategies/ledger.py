"""What a strategy has sent and not seen the end of: tokens of work and memory per replica, from its own estimates."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from routing.model import Request


@dataclass(slots=True)
class Pending:
    """Open work at one replica, tokens: `prefill` prompt tokens not yet computed, `decode` answer tokens expected of
    all that is open, `kv` memory that all that is open may come to need, blocks in common once; `requests` of them."""

    requests: int = 0
    prefill: int = 0
    decode: int = 0
    kv: int = 0
    work: float = 0.0  # all of it at the ledger's prices, seconds


NOTHING: Final = Pending()


@dataclass(slots=True)
class Entry:
    """One open request. `prefill_at` is the replica of its prefill, `decode_at` that of its answer; `prefill` prompt
    tokens are to be computed, `decode` tokens of answer are expected, `longest` is what memory is promised for."""

    request: Request
    prefill_at: str
    decode_at: str
    prefill: int
    decode: int
    longest: int
    kv: int = 0  # promised to it alone: what is not in blocks, and the answer
    prefilled: bool = False


class Ledger:
    """Open requests by id, and their sums per replica. As many entries as there are requests in flight. Prices are
    seconds per token; without `memory`, KV memory is not booked, which saves time."""

    def __init__(self, prefill_cost: float, decode_cost: float = 0.0, *, memory: bool = True) -> None:
        self._memory = memory
        self._prices = (prefill_cost, decode_cost)
        self.at: dict[str, Pending] = {}
        self._open: dict[int, Entry] = {}
        self._users: dict[str, Counter[int]] = {}  # replica -> block -> open requests that use it

    def open(self, entry: Entry) -> None:
        """A request has been sent. Blocks that open requests have in common are promised once."""
        request = entry.request
        self.close(request.id)
        self._open[request.id] = entry
        self._prefill(entry.prefill_at, entry.prefill)
        pending = self._of(entry.decode_at)
        pending.requests += 1
        pending.decode += entry.decode
        if self._memory:
            users = self._users.setdefault(entry.decode_at, Counter())
            before = len(users)
            users.update(request.prefix)
            new = len(users) - before
            entry.kv = max(0, request.prompt_tokens - len(request.prefix) * request.block) + entry.longest
            pending.kv += entry.kv + new * request.block
        self._price(pending)

    def prefilled(self, request_id: int) -> None:
        """Its first token has come."""
        entry = self._open.get(request_id)
        if entry is not None and not entry.prefilled:
            entry.prefilled = True
            if entry.prefill_at in self.at:
                self._prefill(entry.prefill_at, -entry.prefill)

    def close(self, request_id: int) -> Entry | None:
        """It has ended, in whatever way."""
        self.prefilled(request_id)
        entry = self._open.pop(request_id, None)
        if entry is not None and entry.decode_at in self.at:
            pending = self.at[entry.decode_at]
            pending.requests -= 1
            pending.decode -= entry.decode
            if self._memory:
                pending.kv -= entry.kv + self._freed(entry) * entry.request.block
            self._price(pending)
        return entry

    def forget(self, name: str) -> None:
        """A replica is gone with all it was working on; ends that are told later find nothing to subtract from."""
        self.at.pop(name, None)
        self._users.pop(name, None)
        for entry in self._open.values():
            if entry.prefill_at == name:
                entry.prefilled, entry.prefill_at = True, ""
            if entry.decode_at == name:
                entry.decode_at = ""

    def reprice(self, prefill_cost: float, decode_cost: float = 0.0) -> None:
        """Other prices, seconds per token."""
        self._prices = (prefill_cost, decode_cost)
        for pending in self.at.values():
            self._price(pending)

    def _freed(self, entry: Entry) -> int:
        """Blocks that no other open request uses."""
        users, freed = self._users[entry.decode_at], 0
        for block in entry.request.prefix:
            users[block] -= 1
            if not users[block]:
                del users[block]
                freed += 1
        return freed

    def _prefill(self, name: str, tokens: int) -> None:
        pending = self._of(name)
        pending.prefill += tokens
        self._price(pending)

    def _price(self, pending: Pending) -> None:
        """Anew from whole tokens each time: sums of seconds would drift."""
        pending.work = self._prices[0] * pending.prefill + self._prices[1] * pending.decode

    def _of(self, name: str) -> Pending:
        pending = self.at.get(name)
        if pending is None:
            self.at[name] = pending = Pending()
        return pending
