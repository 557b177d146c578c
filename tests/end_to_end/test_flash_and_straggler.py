"""The whole of it, as users run it, in real time: simulated engines, a real Prometheus, a real Envoy, clients that do
not wait for each other, and `governor run` between them. A second fleet has the same Envoy and the same clients alone.

What it measured is left in build/end-to-end.md; `make end-to-end` shows it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.lines import Program
from tests.support.open_loop import Clients, Crowd, clients
from tests.support.prometheus import needs_prometheus
from tests.support.real import program as real_program
from tests.support.stage import ROOT, Desk, Site, Steered, desk, scraping, sites, soon, steered

pytestmark = [pytest.mark.end_to_end, needs_prometheus]
real_program("envoy")

SEED = 1
CALM, FLASH = 6.0, 25.0  # requests/s; three replicas serve 13
LONG = 14.0  # seconds of the flash
PATIENCE = 15.0
TTFT, TPOT = 1.0, 0.12  # seconds, as promised in examples/end-to-end/fleet.yaml
EXPIRY = 4.0
WITH, WITHOUT = "with", "without"
SLOW, SLOW_FOR = "chat-v1-0", 25  # the first replica is four times as slow for so many seconds


@dataclass
class Story:
    """The two fleets, their clients, and what is noted on the way."""

    steered: Steered
    site: Site
    other: Site
    desk: Desk
    clients: Clients
    begun: dict[str, float] = field(default_factory=dict)  # scenes by name, on the clients' clock
    notes: dict[str, str] = field(default_factory=dict)

    def begins(self, scene: str) -> None:
        self.begun[scene] = self.clients.now

    def attained(self, place: str, begin: str, end: str) -> float:
        """Of all that were due from the begin of one scene to that of another, the share whose promises were kept."""
        stretch = self.begun[begin], self.begun[end]
        kept = sum(one.good(TTFT, TPOT) for one in self.clients.between(place, *stretch))
        return kept / max(1, self.clients.came(*stretch))

    def refused(self, place: str, begin: float, end: float) -> int:
        return sum(one.status == 503 for one in self.clients.between(place, begin, end))

    def known(self) -> object:
        """For whoever reads that something did not come."""
        return self.site.capacity(), self.site.limit(), self.site.shares(), self.steered.page()["targets"]


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with (
        sites(tmp_path, WITH, WITHOUT) as (site, other),
        scraping(site) as metrics,
        desk(site.replicas) as orders,
        clients(
            {WITH: site.url, WITHOUT: other.url},
            Crowd(SEED, CALM, prompt=200, answer=30),
            model="chat",
            patience=PATIENCE,
        ) as asking,
    ):
        yield Story(steered(site, metrics, orders.url), site, other, orders, asking)


def test_a_fleet_that_is_worse_off_with_governor_than_without(story: Story) -> None:
    with story.steered.governor() as governor:
        story.begins("calm")
        soon(lambda: story.site.limit() is not None, "the gate is armed", 30, story.known)
        a_slow_replica_goes_out_and_comes_back(story)
        a_flash_is_bridged_and_released(story)
        clients_are_better_off(story)
        governor_is_killed_in_a_flash(story, governor)
    another_takes_over(story)
    write_down(story)


def a_slow_replica_goes_out_and_comes_back(story: Story) -> None:
    slow = story.site.addresses()[SLOW]
    story.begins("straggler")
    soon(lambda: story.site.shares()[slow] == 0, "the slow replica is out", 60, story.known)
    story.notes["slow replica out, s after it became slow"] = f"{story.clients.now - slow_at(story):.0f}"
    others = [share for address, share in story.site.shares().items() if address != slow]
    assert min(others) > 0, "only the slow one is out"
    soon(lambda: story.site.shares()[slow] >= 50, "it is back in rotation", 90, story.known)
    story.notes["back in rotation, s after it was quick again"] = f"{story.clients.now - slow_at(story) - SLOW_FOR:.0f}"


def slow_at(story: Story) -> float:
    """When the fleet's clock is at 18 s, on the clients' clock."""
    return story.site.heard(story.site.since + 18.0, story.clients.begun)


def a_flash_is_bridged_and_released(story: Story) -> None:
    soon(lambda: story.site.capacity() == (3, 3), "calm", 60, story.known)
    story.begins("flash")
    story.clients.crowd.rate = FLASH
    begin = story.clients.now
    soon(lambda: story.site.capacity()[1] > 3, "more replicas serve", 30, story.known)
    soon(lambda: story.clients.now >= begin + LONG, "the flash is over", LONG + 5)
    story.notes["replicas at the end of the flash"] = f"{story.site.capacity()[1]}"
    story.clients.crowd.rate = CALM
    story.begins("after")
    bridged = story.refused(WITH, begin, story.begun["after"])
    story.notes["refused in the flash by Envoy at Governor's limit"] = f"{bridged}"
    soon(lambda: released(story), "all levers are back", 90, story.known)
    story.notes["orders, s since the flash began"] = ", ".join(
        f"{order['value']:.0f} at {story.site.heard(order['at'], story.clients.begun) - begin:.0f}"
        for order in story.desk.orders
    )
    story.notes["all levers back, s after the flash"] = f"{story.clients.now - story.begun['after']:.0f}"


def released(story: Story) -> bool:
    """The replicas of the calm, all with nearly a full share, the gate at its standing value, nobody refused."""
    limit, now = story.site.limit(), story.clients.now
    return (
        story.site.capacity() == (3, 3)
        and len(story.site.shares()) == 3
        and min(story.site.shares().values()) >= 75
        and limit is not None
        and limit <= 3 * 10
        and not story.refused(WITH, now - 3, now)
    )


def clients_are_better_off(story: Story) -> None:
    story.begins("end")
    story.notes["scenes, s"] = ", ".join(f"{name} {at:.0f}" for name, at in story.begun.items())
    governed, alone = (story.attained(place, "flash", "end") for place in (WITH, WITHOUT))
    assert governed >= 1.5 * alone, f"from the flash on {governed:.0%} with Governor, {alone:.0%} without"
    governed, alone = (story.attained(place, "calm", "end") for place in (WITH, WITHOUT))
    assert governed > alone, f"in all {governed:.0%} with Governor, {alone:.0%} without"


def governor_is_killed_in_a_flash(story: Story, governor: Program) -> None:
    """Between an order and its answer. Nobody renews what Envoy was told, and the fleet keeps what was ordered."""
    story.desk.withholds = True
    story.clients.crowd.rate = FLASH
    story.begins("second flash")
    assert story.desk.withheld.wait(30), f"no order in the second flash; {story.known()}"
    governor.process.kill()
    governor.process.wait()
    killed = story.clients.now
    ordered = story.desk.values[-1]
    assert ordered > 3
    assert story.site.limit() is not None
    took = soon(story.site.neutral, "Envoy is neutral", EXPIRY + 2, lambda: (story.site.limit(), story.site.shares()))
    story.notes["Envoy neutral, s after kill -9"] = f"{took:.1f}"
    assert story.site.capacity()[0] == ordered
    soon(lambda: story.site.capacity()[1] == ordered, "what was ordered serves", 30)
    soon(lambda: story.site.asked() >= set(story.site.addresses().values()), "and is asked", 10, story.site.asked)
    story.clients.crowd.rate = CALM
    ended = [one for one in story.clients.between(WITH, killed - 3, story.clients.now) if one.last < PATIENCE - 1]
    assert all(one.status in (200, 503) for one in ended), "requests died with Governor"


def another_takes_over(story: Story) -> None:
    talk, orders = len(story.desk.talk), len(story.desk.orders)
    before = story.desk.values[-1]
    with story.steered.governor():
        soon(lambda: story.site.limit() is not None, "the new Governor steers", 30, story.known)
        soon(lambda: story.steered.page()["last_tick"]["number"] >= 5, "it ticks", 30, story.known)
    assert story.desk.talk[talk] == "GET", "it asks before it orders"
    values = [before, *story.desk.values[orders:]]
    assert all(one != other for one, other in pairwise(values)), f"sent twice: {values}"
    for order in story.desk.orders[orders : orders + 1]:
        assert order["previous"] == before, "it knew what its predecessor had ordered"


def write_down(story: Story) -> None:
    """For people."""
    rows = [("calm and slow replica", "calm", "flash"), ("flash", "flash", "after"), ("in all", "calm", "end")]
    table = ["| promises kept | with Governor | without |", "| --- | --- | --- |"]
    for name, begin, end in rows:
        one, other = (story.attained(place, begin, end) for place in (WITH, WITHOUT))
        table.append(f"| {name} | {one:.0%} | {other:.0%} |")
    table += ["", "| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in story.notes.items()), ""]
    file = ROOT / "build" / "end-to-end.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(table))
