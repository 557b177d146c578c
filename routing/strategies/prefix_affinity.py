"""Prefix affinity by an explicit map: the leading blocks of a prompt have a home. The map follows the fleet: what a
replica leaves behind is given to the others at once, and a newcomer gets its part of it."""

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.strategy import CROWDED, Base, Choice

_SPARED: Final = "its home has had its share"


@dataclass(frozen=True, slots=True)
class PrefixAffinityParameters:
    """What a key is, how long it is believed, and how the map moves."""

    blocks: int = knob(
        "leading blocks that make the key; shorter prompts are keyed by all they have", 4, unit="blocks", ge=1
    )
    keys: int = knob("most keys remembered; the longest unused is forgotten", 65536, unit="keys", ge=1)
    idle: float = knob("a key unused for so long is placed anew", 900.0, unit="seconds", gt=0)
    migrate: float = knob("of a newcomer's fair share of the keys, how much it is given when it joins", 1.0, ge=0, le=1)


@dataclass(slots=True)
class _Home:
    name: str
    seen: float
    warm: int = 0  # tokens of the key that are cached there; 0 = just moved


class PrefixAffinity(Base[PrefixAffinityParameters]):
    """The home of the prompt's leading blocks, whatever its load; a new key gets the least loaded replica as its home.
    With less affinity a home that is crowded is left for the least loaded, for good: one miss, and hits from then on.
    At weight w a home serves the share w of its requests, and the rest go to the least loaded, without moving home.

    A home that leaves or drains: its keys go to the replicas with the fewest, in turn. A replica that joins is given
    its share of the keys, evenly picked from each and from old and new; keys of an earlier life of its name are void.
    """

    Parameters = PrefixAffinityParameters
    leans = True

    def __init__(self, parameters: PrefixAffinityParameters) -> None:
        super().__init__(parameters)
        self._homes: OrderedDict[int, _Home] = OrderedDict()
        self._keys: dict[str, dict[int, None]] = {}  # of each replica, the oldest first
        self._models: dict[str, str] = {}  # of each replica
        self._migrated = self._voided = 0

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        key = self._key(request)
        home = self._homes.get(key) if key is not None else None
        if home is None or now - home.seen > self.parameters.idle:
            return Choice(self.least_loaded(replicas).name, why="new prefix" if request.prefix else "no prefix")
        there = next((replica for replica in replicas if replica.name == home.name), None)
        if there is None:
            return Choice(self.least_loaded(replicas).name, why="prefix moved: its home is closed")
        if len(replicas) > 1 and not self.keeps(there):
            others = [replica for replica in replicas if replica is not there]
            return Choice(self.least_loaded(others).name, why=_SPARED)
        if self.crowded(there, replicas):
            return Choice(self.least_loaded(replicas).name, why=f"prefix moved: {CROWDED}")
        return Choice(there.name, why="home of its prefix", hit_tokens=min(home.warm, request.prompt_tokens))

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        key = self._key(request)
        home = self._homes.get(key) if key is not None else None
        if key is None or (home is not None and choice.why == _SPARED):
            return
        if home is None:
            self._homes[key] = home = _Home(choice.replica, now)
            self._of(home.name)[key] = None
            if len(self._homes) > self.parameters.keys:
                old, gone = self._homes.popitem(last=False)
                del self._keys[gone.name][old]
        elif home.name != choice.replica:
            self._move(key, home, choice.replica)
        # Of two prompts with this key only the key is common for sure; a longer match is for the trees to know.
        home.warm = min(len(request.prefix), self.parameters.blocks) * request.block
        home.seen = now
        self._homes.move_to_end(key)

    def joined(self, replica: Replica, now: float) -> None:
        """Of an earlier life of that name all keys are void; then it gets its share of the others'."""
        mine = self._of(replica.name)
        self._void(replica.name, list(mine))
        self._models[replica.name] = replica.ability.model
        peers = self._peers(replica.name)
        total = sum(len(self._keys[name]) for name in peers)
        share = self.parameters.migrate * total / (len(peers) + 1)
        for name in peers:
            keys = list(self._keys[name])
            part = round(share * len(keys) / total) if total else 0
            for place, key in enumerate(keys):
                if place * part // len(keys) != (place + 1) * part // len(keys):
                    self._move(key, self._homes[key], replica.name)

    def left(self, name: str, now: float) -> None:
        """What it leaves behind goes to those with the fewest keys, one by one."""
        super().left(name, now)
        keys = list(self._of(name))
        heirs = [(len(self._keys[other]), other) for other in self._peers(name)]
        heapq.heapify(heirs)
        if heirs:
            for key in keys:
                count, heir = heirs[0]
                self._move(key, self._homes[key], heir)
                heapq.heapreplace(heirs, (count + 1, heir))
        else:
            self._void(name, keys)
        del self._keys[name]
        self._models.pop(name, None)

    def evicted(self, name: str, blocks: Sequence[int], now: float) -> None:
        """A key whose block is no longer there is void: the next request with it is placed anew."""
        mine = self._keys.get(name, {})
        self._void(name, [block for block in blocks if block in mine])

    def extra(self) -> dict[str, int]:
        return {"keys": len(self._homes), "keys_migrated": self._migrated, "keys_voided": self._voided}

    def _key(self, request: Request) -> int | None:
        prefix = request.prefix
        return prefix[min(self.parameters.blocks, len(prefix)) - 1] if prefix else None

    def _of(self, name: str) -> dict[int, None]:
        return self._keys.setdefault(name, {})

    def _peers(self, name: str) -> list[str]:
        model = self._models.get(name, "")
        return [other for other in self._keys if other != name and self._models.get(other, "") == model]

    def _move(self, key: int, home: _Home, to: str) -> None:
        self._keys[home.name].pop(key, None)
        self._of(to)[key] = None
        home.name, home.warm = to, 0
        self._migrated += 1

    def _void(self, name: str, keys: list[int]) -> None:
        for key in keys:
            del self._keys[name][key]
            del self._homes[key]
        self._voided += len(keys)
