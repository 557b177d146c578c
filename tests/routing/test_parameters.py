"""Parameters of strategies: what is wrong is said with its place and its mend, and nothing has changed then."""

import dataclasses

import pytest

from routing.strategies import NAMES, STRATEGIES, make


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("round-robbin", {}, "strategy: 'round-robbin' is unknown; did you mean round-robin?"),
        ("zzz", {}, f"strategy: 'zzz' is unknown; write one of {', '.join(NAMES)}"),
        ("round-robin", {"seed": 1}, "seed: is not a parameter; it has none"),
        ("bounded-load", {"bond": 2.0}, "bond: is not a parameter; did you mean bound?"),
        ("random", {"q": 2.0}, "q: is not a parameter; write one of seed"),
        ("bounded-load", {"bound": 1.0}, "bound: 1.0 is out of bounds; write a number of times > 1 and <= 100"),
        (
            "bounded-load",
            {"bound": float("nan")},
            "bound: nan is out of bounds; write a number of times > 1 and <= 100",
        ),
        ("bounded-load", {"bound": "much"}, "bound: 'much' is not a number; write a number of times > 1 and <= 100"),
        ("bounded-load", {"bound": True}, "bound: True is not a number; write a number of times > 1 and <= 100"),
        ("bounded-load", {"by": "prompt"}, "by: 'prompt' is unknown; write prefix or session or tenant or adapter"),
        ("bounded-load", {"by": 3.0}, "by: 3.0 is not text; write prefix or session or tenant or adapter"),
        ("bounded-load", {"blocks": 1.5}, "blocks: 1.5 is not whole; write a whole number of blocks >= 1"),
        ("least-loaded", {"reported": 1.0}, "reported: 1.0 is neither true nor false; write true or false"),
        ("direct", {"replica": 1.0}, "replica: 1.0 is not text; write text"),
    ],
)
def test_mistakes(name: str, parameters: dict[str, float | str | bool], words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole of it is compared
        make(name, parameters)
    assert str(caught.value) == words


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_unit_or_none_a_sentence_and_a_default_within_its_bounds(name: str) -> None:
    fields = dataclasses.fields(STRATEGIES[name].Parameters)
    make(name, {field.name: field.default for field in fields})  # type: ignore[misc]
    for field in fields:
        assert field.metadata["doc"]
        assert not field.metadata["doc"].endswith(".")


@pytest.mark.parametrize("name", [name for name in NAMES if dataclasses.fields(STRATEGIES[name].Parameters)])
def test_a_bad_change_changes_nothing(name: str) -> None:
    strategy = STRATEGIES[name](STRATEGIES[name].Parameters())
    before = strategy.parameters
    with pytest.raises(ValueError, match=r"^no-such: is not a parameter; "):
        strategy.tune({"no-such": 1.0})
    assert strategy.parameters == before


def test_whole_numbers_may_come_as_json_s_floats() -> None:
    strategy = STRATEGIES["random"](STRATEGIES["random"].Parameters())
    strategy.tune({"seed": 7.0})
    assert strategy.parameters.seed == 7
    assert isinstance(strategy.parameters.seed, int)


def test_tuning_is_absolute() -> None:
    """What is not named is at its default, so that the same knobs mean the same whatever came before."""
    strategy = STRATEGIES["hybrid"](STRATEGIES["hybrid"].Parameters())
    strategy.tune({"narrow": 0.9, "slack": 2.0})
    strategy.tune({"slack": 1.0})
    assert (strategy.parameters.narrow, strategy.parameters.slack) == (0.7, 1.0)
