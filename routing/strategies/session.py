"""Session affinity: the turns of a conversation stay where its KV cache is."""

from collections import OrderedDict
from dataclasses import dataclass

from routing.hashing import mix, text_hash, unit
from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.strategy import CROWDED, Base, Choice


@dataclass(frozen=True, slots=True)
class SessionParameters:
    """How long a session is remembered, and what makes it move."""

    idle: float = knob("a session that was silent for so long is placed anew", 600.0, unit="seconds", gt=0)
    sessions: int = knob("most sessions remembered; the longest silent is forgotten", 65536, unit="sessions", ge=1)
    overload: float = knob(
        "a session moves when its replica has more than so many times the mean requests in flight (by weight); "
        "0 = never",
        0.0,
        unit="times",
        ge=0,
    )
    slack: int = knob("requests in flight that are no overload whatever the mean", 8, unit="requests", ge=0)


@dataclass(slots=True)
class _Stay:
    name: str
    seen: float
    prompt: int  # tokens of the last turn, which the next one will find cached


class Session(Base[SessionParameters]):
    """The replica that served the session's last turn; a new session, or a request without one, goes to the least
    loaded. At weight w a replica keeps the share w of its sessions, always the same ones; the others move for good."""

    Parameters = SessionParameters
    leans = True

    def __init__(self, parameters: SessionParameters) -> None:
        super().__init__(parameters)
        self._stays: OrderedDict[str, _Stay] = OrderedDict()
        self._moved = 0

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        stay = self._stays.get(request.session) if request.session else None
        if stay is not None and now - stay.seen <= self.parameters.idle:
            home = next((replica for replica in replicas if replica.name == stay.name), None)
            if home is not None and self._keeps_session(home, request.session):
                if self.crowded(home, replicas):
                    why = f"session moved: {CROWDED}"
                elif not self._overloaded(home, replicas):
                    return Choice(home.name, why="its session", hit_tokens=min(stay.prompt, request.prompt_tokens))
                else:
                    why = "session moved: its replica is overloaded"
            else:
                why = "session moved: its replica is closed to it"
            self._moved += 1
        else:
            why = "new session" if request.session else "no session"
        best = self.least_loaded(replicas)
        return Choice(best.name, why=why)

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        if request.session:
            self._stays[request.session] = _Stay(choice.replica, now, request.prompt_tokens)
            self._stays.move_to_end(request.session)
            while len(self._stays) > self.parameters.sessions:
                self._stays.popitem(last=False)

    def joined(self, replica: Replica, now: float) -> None:
        """Sessions of an earlier life of that name find no cache: they are placed anew."""
        self._drop(replica.name)

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self._drop(name)

    def extra(self) -> dict[str, int]:
        return {"sessions": len(self._stays), "sessions_moved": self._moved}

    def _keeps_session(self, home: Replica, session: str) -> bool:
        if home.weight >= self.top:
            return True
        return unit(mix(text_hash(session) ^ text_hash(home.name))) < home.weight / self.top

    def _overloaded(self, home: Replica, replicas: list[Replica]) -> bool:
        if not self.parameters.overload:
            return False
        mean = sum([one.inflight for one in replicas]) / sum([one.weight for one in replicas]) * home.weight
        return home.inflight > self.parameters.slack and home.inflight > self.parameters.overload * mean

    def _drop(self, name: str) -> None:
        for session in [session for session, stay in self._stays.items() if stay.name == name]:
            del self._stays[session]
