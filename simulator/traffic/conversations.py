"""Conversations: how many turns, when each comes, and how its prompt grows."""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from simulator.traffic import chance
from simulator.traffic.chance import Floats, Ints
from simulator.traffic.lengths import Sizes
from simulator.traffic.spec import Conversations

_Number = TypeVar("_Number", Ints, Floats)


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns of several conversations as columns, those of one conversation together and in order. `owner` is the
    conversation's index among those asked for."""

    owner: Ints
    at: Floats
    prompt: Ints
    answer: Ints


class Talk:
    """Draws conversations, each whole. No answer is longer than `most`, tokens."""

    def __init__(self, law: Conversations, sizes: Sizes, most: int, seed: int, stream: str) -> None:
        self._law = law
        self._sizes = sizes
        self._most = most
        self._of_turns = chance.stream(seed, stream, "turns")
        self._of_think = chance.stream(seed, stream, "think")
        self._of_follow = chance.stream(seed, stream, "follow")

    def lasting(self, answer: float) -> float:
        """Seconds that 99 % of conversations do not outlast, roughly: their turns, each after a mean pause. `answer` is
        the mean answer, tokens."""
        law = self._law
        turns = math.ceil(math.log(0.01) / math.log1p(-1 / law.turns)) if law.turns > 1 else 1
        return (turns - 1) * (law.think + law.pace * answer)

    def turns(self, starts: Floats, system: Ints) -> Turns:
        """Conversations that begin at `starts` with a system prompt of `system` tokens each."""
        law = self._law
        count = len(starts)
        lengths = self._of_turns.geometric(1 / law.turns, count)
        total = int(lengths.sum())
        owner = np.repeat(np.arange(count), lengths)
        first = np.cumsum(lengths) - lengths  # where each conversation begins
        new, answer = self._sizes.draw(total)
        answer = np.minimum(answer, self._most)
        if law.follow is not None:
            later = law.follow.draw(self._of_follow, total)
            later[first] = new[first]
            new = later
        new[first] += system
        think = np.zeros(total)
        if law.think > 0:
            shape = law.think_cv**-2
            think = self._of_think.standard_gamma(shape, total) * (law.think / shape)
        # An answer and the pause after it count from the next turn on.
        prompt = _within(new + answer, first, lengths) - answer
        pause = think + law.pace * answer
        at = starts[owner] + _within(pause, first, lengths) - pause
        fits = prompt <= law.context
        fits[first] = True  # a first prompt is asked whatever its length
        return Turns(owner[fits], at[fits], prompt[fits], answer[fits])


def _within(values: _Number, first: Ints, lengths: Ints) -> _Number:
    """Cumulated sums that begin anew with each conversation."""
    sums = np.cumsum(values)
    return np.asarray(sums - np.repeat(sums[first] - values[first], lengths))
