"""What deciding with all levers costs: measured on a fleet in which every lever has something to do."""

from benchmarks import levers
from benchmarks.levers import Deciding, Size


def test_every_lever_has_a_target_for_each_of_its_members() -> None:
    size = Size(pools=3, replicas=4, tenants=5)

    (one,) = levers.measure((size,), seeds=1, ticks=1, warm=1)

    # Two pools with weights and breakers of four replicas, five caps, two set-points, a share and the replicas; and one
    # that only receives.
    assert one.targets == 2 * (4 + 4 + 5 + 2 + 1 + 1) + 1
    assert one.seconds > 0


def test_a_missed_bound_is_said_on_the_page() -> None:
    page = levers.section([Deciding(Size(100), 4000, 0.09), Deciding(Size(1000), 39_000, 1.2)])

    assert "| 100 | 4,000 | 0.09 |" in page
    assert "| 1,000 | 39,000 | 1.20 **(missed)** |" in page
