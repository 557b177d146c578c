"""Seeded loads for tests of routing, each made so that one thing about it is hard."""

from random import Random

from tests.support.queues import Arrival, ask, chain


def mixed_lengths(count: int, rate: float, seed: int, *, share: float = 0.1, ratio: int = 100) -> list[Arrival]:
    """Answers of 10 tokens, and a share of them `ratio` times as long. What is asked for is what is needed."""
    chance, at, arrivals = Random(seed), 0.0, []
    for number in range(count):
        at += chance.expovariate(rate)
        output = 10 * ratio if chance.random() < share else 10
        arrivals.append(Arrival(at, ask(number, 100, output), output))
    return arrivals


def shared_prefixes(count: int, rate: float, seed: int = 1, *, hot: float = 0.0, groups: int = 40) -> list[Arrival]:
    """Prompts of 32 shared blocks and 64 own tokens, answers of 10; `hot` is the share of the first prefix."""
    chance, at, arrivals = Random(seed), 0.0, []
    for number in range(count):
        at += chance.expovariate(rate)
        group = 0 if chance.random() < hot else chance.randrange(1, groups)
        prefix = chain(*(group * 1000 + place for place in range(32)))
        arrivals.append(Arrival(at, ask(number, 64, 10, prefix, session=f"g{group}"), 10))
    return arrivals


def two_kinds(count: int, rate: float, seed: int, *, swap_every: int = 0, prompt: int = 100) -> list[Arrival]:
    """A fifth of the answers are some 400 tokens, the rest some 8, and the class says which; what is asked for is
    always 1000. With `swap_every`, the classes trade places again and again."""
    chance, at, arrivals = Random(seed), 0.0, []
    for number in range(count):
        at += chance.expovariate(rate)
        long = chance.random() < 0.2
        swapped = bool(swap_every) and number // swap_every % 2 == 1
        output = max(1, min(1000, int((400 if long else 8) * chance.lognormvariate(0.0, 0.4))))
        arrivals.append(Arrival(at, ask(number, prompt, 1000, klass="report" if long != swapped else "chat"), output))
    return arrivals


def changed_kind(count: int, rate: float, seed: int, *, after: int) -> list[Arrival]:
    """Reports of some 400 tokens, a fifth, and chats of some 8, until request `after`; from then on chats are as long
    as reports, which no history knows."""
    chance, at, arrivals = Random(seed), 0.0, []
    for number in range(count):
        at += chance.expovariate(rate)
        report = chance.random() < 0.2
        output = max(1, min(1000, int((400 if report or number >= after else 8) * chance.lognormvariate(0.0, 0.4))))
        arrivals.append(Arrival(at, ask(number, 100, 1000, klass="report" if report else "chat"), output))
    return arrivals
