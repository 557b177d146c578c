"""The benchmark of the engine measures what it says; how fast it is, is for `make bench` on a quiet machine."""

from benchmarks import engine


def test_a_speed_that_is_not_of_the_load_it_names() -> None:
    rows = list(engine.measure(count=60, seeds=1))
    assert [row.load for row in rows] == list(engine.LOADS)
    for row in rows:
        assert min(row.macro, row.single, row.tokens) > 0
        assert 0.2 < row.hit_rate < 0.6
    light, over = rows[0], rows[-1]
    assert light.steps > 4 * over.steps  # a step of a full batch serves many
    page = engine.replaced("# Page\n", engine.section(rows))
    assert page.startswith("# Page\n\n## The simulated engine\n")
    assert engine.replaced(page, engine.section(rows)) == page
    assert page.count("| ≥ 8,000 |") == len(rows)
