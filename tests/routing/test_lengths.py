"""Estimates of answer length: what they learn, how wrong they know themselves to be, and that they stay small."""

from random import Random

import pytest

from routing.lengths import Lengths
from tests.support.queues import ask


def taught(
    count: int, output: int, *, klass: str = "chat", prompt: int = 100, lengths: Lengths | None = None
) -> Lengths:
    lengths = lengths or Lengths()
    for number in range(count):
        request = ask(number, prompt, 4000, klass=klass)
        lengths.observe(request, output, lengths.expect(request).expected)
    return lengths


def test_before_anything_was_seen_there_is_the_prior_and_never_more_than_was_asked_for() -> None:
    lengths = Lengths(prior=256.0)

    assert lengths.expect(ask(1, 100, 4000)).expected == 256.0
    assert lengths.expect(ask(1, 100, 40)).expected == 40.0
    assert lengths.expect(ask(1, 100, 300)).high == 300.0
    assert lengths.error == 1.0


def test_a_kind_is_believed_once_it_was_seen_often_enough() -> None:
    lengths = taught(19, 900)
    assert lengths.expect(ask(1, 100, 4000, klass="chat")).expected == 256.0
    taught(1, 900, lengths=lengths)
    assert lengths.expect(ask(1, 100, 4000, klass="chat")).expected == pytest.approx(900.0)
    assert lengths.expect(ask(1, 100, 4000, klass="unheard-of")).expected == pytest.approx(900.0)  # as all others are


def test_kinds_are_kept_apart() -> None:
    lengths = taught(50, 1000, klass="report", lengths=taught(50, 10))

    assert lengths.expect(ask(1, 100, 4000, klass="chat")).expected == pytest.approx(10.0)
    assert lengths.expect(ask(1, 100, 4000, klass="report")).expected == pytest.approx(1000.0)


def test_what_is_asked_for_tells_where_nothing_else_does() -> None:
    """Clients that set max_tokens with care are kept apart from those that always ask for the most."""
    lengths = Lengths()
    for number in range(100):
        for most, output in ((16, 12), (4000, 900)):
            request = ask(number, 100, most, klass="chat")
            lengths.observe(request, output, lengths.expect(request).expected)

    assert lengths.expect(ask(1, 100, 15, klass="chat")).expected == pytest.approx(15.0)  # of a doubling below: all
    assert lengths.expect(ask(1, 100, 17, klass="chat")).expected == pytest.approx(12.0)
    assert lengths.expect(ask(1, 100, 3000, klass="chat")).expected == pytest.approx(900.0)


def test_the_quantile_covers_its_share() -> None:
    chance, lengths = Random(1), Lengths(half_life=1e6)
    outputs = [max(1, int(chance.lognormvariate(5.0, 1.0))) for _ in range(4000)]
    for number, output in enumerate(outputs):
        lengths.observe(ask(number, 100, 10**6), output, 100.0)
    for quantile in (0.5, 0.8, 0.95):
        high = lengths.expect(ask(1, 100, 10**6), quantile).high
        covered = sum(output <= high for output in outputs) / len(outputs)
        # Bins are a quarter of a doubling wide, and the mean is never undercut.
        assert covered >= quantile
        assert covered < quantile + (0.06 if quantile > 0.6 else 0.25)


def test_regression_wins_where_the_prompt_tells_and_loses_where_it_does_not() -> None:
    chance = Random(2)
    telling, silent = Lengths(), Lengths()
    for number in range(600):
        prompt = chance.randrange(100, 4000)
        request = ask(number, prompt, 10_000)
        telling.observe(request, prompt // 4 + 20, telling.expect(request).expected)
        silent.observe(request, chance.choice((20, 400)), silent.expect(request).expected)

    assert telling.expect(ask(1, 400, 10_000)).expected == pytest.approx(120, rel=0.05)
    assert telling.expect(ask(1, 3600, 10_000)).expected == pytest.approx(920, rel=0.05)
    assert silent.expect(ask(1, 3600, 10_000)).expected == pytest.approx(210, rel=0.25)


def test_a_line_is_not_drawn_beyond_what_was_ever_seen() -> None:
    """A prompt of a hundred thousand tokens does not mean an answer of twenty-five thousand."""
    lengths = Lengths()
    for number in range(300):
        prompt = 100 + number * 10
        lengths.observe(ask(number, prompt, 10**6), prompt // 4, lengths.expect(ask(1, prompt, 10**6)).expected)

    assert lengths.expect(ask(1, 100_000, 10**6)).expected < 2.5 * 775
    assert lengths.expect(ask(1, 1, 10**6)).expected >= 1.0


def test_the_past_is_unlearned_by_half_lives() -> None:
    lengths = taught(200, 1000, lengths=taught(1000, 10, lengths=Lengths(half_life=200.0)))

    # Of the thousand, half is gone: 1 - 2^-5 of the weight was there, and half of all that is left.
    assert lengths.expect(ask(1, 100, 4000, klass="chat")).expected == pytest.approx(510, rel=0.05)


def test_it_knows_how_wrong_it_is_and_forgets_that_soonest() -> None:
    lengths = taught(300, 100)
    assert lengths.error < 1.1
    taught(60, 3000, lengths=lengths)
    assert lengths.error > 3.0
    taught(1500, 3000, lengths=lengths)
    assert lengths.error < 1.2


def test_weights_do_not_overflow_in_a_year() -> None:
    lengths = taught(30_000, 50, lengths=Lengths(half_life=5.0))

    assert lengths.expect(ask(1, 100, 4000, klass="chat")).expected == pytest.approx(50.0)
    assert lengths.error < 1.01


def test_memory_is_bounded_by_kinds() -> None:
    lengths = Lengths()
    for number in range(5000):
        lengths.observe(ask(number, 10, 10, tenant=f"t{number}", klass="c"), 5, 5.0)

    assert len(lengths._kinds) == 1024  # noqa: SLF001 - the bound is the point
    assert lengths.expect(ask(1, 10, 10, tenant="t0", klass="c")).expected == pytest.approx(5.0)  # by its class
