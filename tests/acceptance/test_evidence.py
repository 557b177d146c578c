"""A page of numbers that nobody recomputes is a page of wrong numbers."""

from benchmarks import evidence
from tests.support.streams import shared


def test_the_page_says_what_the_code_gives() -> None:
    shared("recordings/wva_llama31_8b_h100_autoscaling.csv.gz")
    assert evidence.PAGE.read_text(encoding="utf-8") == evidence.text(), "run `make evidence` and read what changed"
