"""What a peer is tuned by is one rule, the same for all."""

from pathlib import Path

import pytest

from benchmarks.peers.hpa import Hpa
from benchmarks.peers.tune import FIRST_SEED, Trial, chosen, once, tuned
from tests.support.scenarios import written


def test_of_those_that_attain_enough_the_cheapest_and_else_the_one_that_attains_most() -> None:
    trials = [Trial(10, 0.999, 9.0), Trial(20, 0.991, 7.0), Trial(30, 0.97, 5.0)]
    assert chosen(trials, 0.99).value == 20
    assert chosen(trials, 0.96).value == 30
    assert chosen(trials, 1.0).value == 10
    assert chosen([Trial(1, 0.99, 7.0), Trial(2, 0.995, 7.0)], 0.99).value == 2


def test_a_peer_that_sheds_what_is_critical_is_no_cheap_peer() -> None:
    trials = [Trial(10, 0.97, 9.0, 0.999), Trial(20, 0.97, 7.0, 0.96), Trial(30, 0.94, 5.0, 0.999)]
    assert chosen(trials, 0.96, 0.99).value == 10
    assert chosen(trials, 0.96).value == 20
    # Nobody reaches both marks: the one that comes closest where it is farther off.
    assert chosen(trials, 0.98, 1.0).value == 10
    assert chosen(trials[1:], 0.97, 1.0).value == 30


def test_a_peer_says_what_is_tuned_in_it(tmp_path: Path) -> None:
    name, grid = tuned(written(tmp_path), "hpa")
    assert name == Hpa.TUNED
    assert grid == Hpa.GRID
    with pytest.raises(ValueError, match="names no parameter"):
        tuned(written(tmp_path), "governor")


def test_peers_and_governor_are_tried_on_seeds_that_no_scoreboard_uses(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert FIRST_SEED > 100
    loose, tight = (once(path, "hpa", "target", value, FIRST_SEED) for value in (30.0, 4.0))
    assert tight[1] > loose[1]  # a lower target costs more
    bold, careful = (once(path, "governor", "utilisation", value, FIRST_SEED + 1) for value in (1.0, 0.1))
    assert careful[1] > bold[1]
