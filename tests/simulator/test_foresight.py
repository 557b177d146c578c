"""What a clairvoyant knows: the work of the requests as they are, not of one of mean length."""

import pytest

from controller.core.step_model import Profile
from routing.model import Request
from simulator.foresight import Need, foresee
from simulator.job import Job
from simulator.spec import LifeSpec

PROFILE = Profile(a=22e-3, b=75e-6, c=54e-6, d=40e-9, e=3.5e-9, max_num_seqs=32)
MINUTES = 600.0


def need(*sizes: tuple[int, int]) -> Need:
    """Of requests of these prompts and answers (tokens) in turn, one a second."""
    jobs = []
    for i in range(int(MINUTES)):
        prompt, answer = sizes[i % len(sizes)]
        jobs.append(Job(Request(i, prompt_tokens=prompt, max_tokens=8000), answer, float(i)))
    return foresee(jobs, PROFILE, LifeSpec(), 0.0, MINUTES, 0.12)


def middle(found: Need) -> float:
    """Replicas that are needed when all is settled."""
    return found.replicas[len(found.replicas) // 2]


def test_prompts_of_mixed_lengths_need_more_than_as_many_of_their_mean() -> None:
    """Attention grows with the square: no replica could have carried what the floor of a flash took for granted."""
    even, mixed = middle(need((8000, 500))), middle(need((2000, 500), (14_000, 500)))

    assert mixed == pytest.approx(even * (1 + 32 * 0.5625 * 0.224e-3 / 0.0799), rel=0.02)


def test_a_prompt_keeps_a_place_while_it_is_read() -> None:
    short, long = need((8000, 1)), need((16_000, 1))
    read = [75e-6 * p + 3.5e-9 * p * p / 2 for p in (8000, 16_000)]

    assert middle(long) > read[1] / 32
    assert middle(short) > read[0] / 32
