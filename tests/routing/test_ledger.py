"""The books of open work, whatever the order of events: they balance, and end at nothing."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from routing.strategies.ledger import NOTHING, Entry, Ledger
from tests.support.queues import ask, chain

PREFILL, DECODE = 0.5, 2.0
NAMES = ("a", "b", "c")


def entry(number: int, chance: Random, prefill_at: str, decode_at: str) -> Entry:
    request = ask(number, chance.randrange(64), 50, chain(*(chance.randrange(2) for _ in range(chance.randrange(5)))))
    return Entry(request, prefill_at, decode_at, chance.randrange(500), chance.randrange(300), chance.randrange(400))


@given(st.integers(0, 2**32))
def test_the_books_are_the_sums_of_what_is_open(seed: int) -> None:
    chance, ledger = Random(seed), Ledger(PREFILL, DECODE)
    open_: dict[int, Entry] = {}
    prefilled: set[int] = set()
    for number in range(60):
        what = chance.random()
        known = chance.choice(list(open_)) if open_ else 999
        if what < 0.5:
            again = known if known in open_ and chance.random() < 0.2 else number  # a retry keeps its id
            made = entry(again, chance, chance.choice(NAMES), chance.choice(NAMES))
            ledger.open(made)
            open_.pop(again, None)
            prefilled.discard(again)
            open_[again] = made
        elif what < 0.65:
            ledger.prefilled(known)
            prefilled.add(known)
        elif what < 0.9:
            closed = ledger.close(known)
            assert closed is open_.pop(known, None)
        else:
            name = chance.choice(NAMES)
            ledger.forget(name)
        for name in NAMES:
            mine = [one for one in open_.values() if one.decode_at == name]
            blocks = {block for one in mine for block in one.request.prefix}
            tails = sum(one.request.prompt_tokens - 64 * len(one.request.prefix) for one in mine)
            told = ledger.at.get(name, NOTHING)
            assert told.requests == len(mine)
            assert told.decode == sum(one.decode for one in mine)
            assert told.kv == 64 * len(blocks) + tails + sum(one.longest for one in mine)
            assert told.prefill == sum(
                one.prefill for key, one in open_.items() if one.prefill_at == name and key not in prefilled
            )
            assert told.work == PREFILL * told.prefill + DECODE * told.decode
    for number in list(open_):
        ledger.close(number)
    assert all(pending == NOTHING for pending in ledger.at.values())


def test_other_prices_are_for_what_is_open_too() -> None:
    ledger = Ledger(1.0)
    ledger.open(Entry(ask(1), "a", "a", 100, 10, 0))
    ledger.reprice(0.0, 3.0)

    assert ledger.at["a"].work == 30.0
