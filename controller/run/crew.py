"""Crew: calls to several actuators side by side, under one budget of real time, so that one that hangs stops no other.

Python cannot end a call from outside, so one that has not returned is left behind on its daemon thread, which does not
keep the process alive, and its actuator is skipped as busy until it has returned. What answered fast is asked first: a
few slow ones cannot use up the budget of the others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from controller.core.ports import Actuator

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WORKERS = 16  # calls at a time: an API server that many pools share is not stormed
_SLOW = 0.25  # share of the budget from which an actuator counts as slow


@dataclass(frozen=True, slots=True)
class Answer(Generic[T_co]):
    """What one call gave: a value, the error that it raised, or `silence`, the reason why there is neither. `begun` is
    False when the call was not made, so that it cannot have changed anything."""

    value: T_co | None = None
    error: Exception | None = None
    silence: str = ""
    begun: bool = True


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    actuator: int
    work: Callable[[], T]
    answer: Answer[T] | None = None
    begun: bool = False


class Crew:
    """Remembers which actuators still run a call, and which were slow. `inline` are called in the caller's own thread:
    ends that live in this process, whose simulations stay single-threaded and repeatable."""

    def __init__(self, budget: float, inline: Sequence[object] = ()) -> None:
        self.budget = budget
        self._inline = frozenset(id(one) for one in inline)
        self._changed = threading.Condition()  # guards all that follows
        self._busy: set[int] = set()
        self._slow: set[int] = set()
        self._asked: dict[int, int] = {}
        self._round = 0

    def adopt(self, previous: "Crew") -> None:
        """Actuators that are handed on over a reload may be in a call."""
        self._changed = previous._changed  # noqa: SLF001 - one class
        self._busy, self._slow = previous._busy, previous._slow  # noqa: SLF001

    def call(self, calls: Sequence[tuple[Actuator, Callable[[], T]]]) -> list[Answer[T]]:
        """One answer per call, in their order; an actuator is called at most once. Returns within the budget, but for
        calls that are made inline."""
        made = [_Call(id(actuator), work) for actuator, work in calls]
        threaded = [call for call in made if call.actuator not in self._inline]
        if threaded:
            self._side_by_side(threaded)
        for call in made:
            if call.actuator in self._inline:
                call.answer = _answer(call.work)
        return [call.answer or self._silence(call) for call in made]

    def _side_by_side(self, calls: Sequence[_Call[T]]) -> None:
        until = time.monotonic() + self.budget
        with self._changed:
            self._round += 1
            free = [call for call in calls if call.actuator not in self._busy]
            free.sort(key=lambda call: (call.actuator in self._slow, self._asked.get(call.actuator, 0)))
            waiting = deque(free)
        for number in range(min(WORKERS, len(free))):
            name = f"hands-{self._round}-{number}"
            threading.Thread(target=self._work, args=(waiting,), name=name, daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: all(call.answer for call in free), max(0.0, until - time.monotonic()))
            waiting.clear()  # what was not begun by now is not begun any more

    def _work(self, waiting: "deque[_Call[T]]") -> None:
        while True:
            with self._changed:
                if not waiting:
                    return
                call = waiting.popleft()
                call.begun = True
                self._busy.add(call.actuator)
                self._asked[call.actuator] = self._round
            began = time.monotonic()
            answer = _answer(call.work)
            with self._changed:
                call.answer = answer
                self._busy.discard(call.actuator)
                slow = time.monotonic() - began > _SLOW * self.budget
                (self._slow.add if slow else self._slow.discard)(call.actuator)
                self._changed.notify_all()

    def _silence(self, call: _Call[T]) -> Answer[T]:
        with self._changed:
            if call.answer is not None:  # it came a moment too late, which is in time for this
                return call.answer
            if call.begun:
                return Answer(silence=f"did not answer within {self.budget:g} s")
            if call.actuator in self._busy:
                return Answer(silence="is busy: its previous call has not returned", begun=False)
        return Answer(silence=f"was not asked: others took the {self.budget:g} s that there are", begun=False)


def _answer(work: Callable[[], T]) -> Answer[T]:
    try:
        return Answer(work())
    except Exception as error:  # noqa: BLE001 - a plug-in that breaks its promise must not end the loop
        return Answer(error=error)
