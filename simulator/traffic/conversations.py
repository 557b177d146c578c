"""Conversations: how many turns, when each comes, and how its prompt grows."""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from simulator.traffic import chance
from simulator.traffic.chance import Floats, Ints
from simulator.traffic.spec import Conversations, Generated

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
    """Draws conversations, each whole."""

    def __init__(self, stream: Generated, law: Conversations, seed: int) -> None:
        self._law = law
        self._stream = stream
        self._most = stream.answer.most if stream.max_tokens is None else stream.max_tokens
        self._of_turns = chance.stream(seed, stream.name, "turns")
        self._of_think = chance.stream(seed, stream.name, "think")
        self._of_prompt = chance.stream(seed, stream.name, "prompt")
        self._of_follow = chance.stream(seed, stream.name, "follow")
        self._of_answer = chance.stream(seed, stream.name, "answer")

    @property
    def lasting(self) -> float:
        """Seconds that 99 % of conversations do not outlast, roughly: their turns, each after a mean pause."""
        law = self._law
        if law.turns <= 1:
            return 0.0
        turns = math.ceil(math.log(0.01) / math.log(1 - 1 / law.turns))
        answers = self._stream.answer.draw(np.random.Generator(np.random.PCG64(0)), 1000)
        return turns * (law.think + law.pace * float(np.minimum(answers, self._most).mean()))

    def turns(self, starts: Floats, system: Ints) -> Turns:
        """Conversations that begin at `starts` with a system prompt of `system` tokens each."""
        law = self._law
        count = len(starts)
        lengths = self._of_turns.geometric(1 / law.turns, count)
        total = int(lengths.sum())
        owner = np.repeat(np.arange(count), lengths)
        first = np.cumsum(lengths) - lengths  # where each conversation begins
        answer = np.minimum(self._stream.answer.draw(self._of_answer, total), self._most)
        think = np.zeros(total)
        if law.think > 0:
            shape = law.think_cv**-2
            think = self._of_think.standard_gamma(shape, total) * (law.think / shape)
        new = (law.follow or self._stream.prompt).draw(self._of_follow, total)
        new[first] = self._stream.prompt.draw(self._of_prompt, count) + system
        # What a turn adds to the next one's prompt, and to its time.
        prompt = _within(new, first, lengths) + _within(answer, first, lengths) - answer
        pause = think + law.pace * answer
        at = starts[owner] + _within(pause, first, lengths) - pause
        fits = prompt <= law.context
        fits[first] = True  # a first prompt is asked whatever its length
        return Turns(owner[fits], at[fits], prompt[fits], answer[fits])


def _within(values: _Number, first: Ints, lengths: Ints) -> _Number:
    """Cumulated sums that begin anew with each conversation."""
    sums = np.cumsum(values)
    return sums - np.repeat(sums[first] - values[first], lengths)
