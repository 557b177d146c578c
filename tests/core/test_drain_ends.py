"""How a drain ends other than by its fall: what it took is given back, and who has begun to go goes first."""

from collections.abc import Sequence
from dataclasses import replace

from controller.core.decide import decide
from controller.core.drain import Drain
from controller.core.model import Ask, Lever, Mode, Pin, Proposal, Target
from controller.core.ports import Brief, View
from controller.core.rules import FleetRules, PoolRules, Rate
from controller.core.slo import Objective
from controller.core.why import Why
from controller.explain import reason
from tests.core.test_drain import Law, Nothing, World, four, rules
from tests.support.cases import NOW, estimate


def weight(name: str) -> Target:
    return Target("llm", Lever.WEIGHT, name)


class Stands(Law):
    """Sets what stands, as a threshold or a PID does of a signal within its bounds."""

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        asked, state = super().propose(view, objectives, brief, state)
        return [one._replace(value=view.targets[one.target].accepted or 0.0) for one in asked], state


def drained(world: World) -> World:
    """In the middle of a drain: the weight of one is 0, and it still holds work."""
    world.work["d"] = 1.0
    for _ in range(3):
        world.tick(3.0)
    assert (world.weights["d"], world.drain.victims) == (0.0, ("d",))
    return world


def test_a_law_that_sets_what_stands_does_not_leave_it_at_five_percent() -> None:
    world = drained(World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 1.0}, weigher=Stands()))
    seen = []
    for _ in range(7):
        world.tick(4.0)
        seen.append(world.weights["d"])
    assert seen == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0]
    assert world.state.drains == {}


def test_a_config_without_drain_gives_back_whatever_law_drives_the_weights() -> None:
    world = drained(World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 1.0}, weigher=Stands()))
    world.pool = rules(drain=0.0)
    for _ in range(7):
        world.tick(4.0)
    assert (world.weights["d"], world.state.drains) == (1.0, {})


def test_it_comes_back_to_what_it_was_and_no_further() -> None:
    world = World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 1.0}, weigher=Stands())
    world.weights["d"] = 0.5
    drained(world)
    for _ in range(8):
        world.tick(4.0)
    assert world.weights["d"] == 0.5


def test_the_plan_of_the_upturn_does_not_raise_the_count_and_take_traffic_away() -> None:
    world = four()
    world.tick(3.0)  # chosen; its weight is asked for at the next tick
    made, world.state = world.decide(6.0)
    plan_of_d = made[weight("d")]
    assert (plan_of_d.current, plan_of_d.final, plan_of_d.why) == (1.0, 1.0, Why.STAYS)

    world = drained(four())
    made, _ = world.decide(6.0)
    assert (made[weight("d")].final, made[weight("d")].why) == (0.0, Why.STAYS)


def test_a_drain_that_begins_anew_takes_those_that_have_nothing_yet() -> None:
    """Those that nobody reads would stay, at nothing, and those that serve would be ended with what they hold."""
    world = four()
    world.work["a"] = 0.0
    world.tick(2.0)
    world.tick(2.0)
    world.tick(4.0)
    world.unread = {"a", "d"}
    fall = world.tick(2.0)
    assert (fall.final, world.drain.victims) == (4.0, ("a", "d"))


def test_an_outage_at_the_end_of_a_drain_leaves_nobody_at_the_least_weight() -> None:
    """A law that knows nothing asks for no more than there is, and where nothing comes it never knows more."""
    world = drained(World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 1.0}, weigher=Law(Ask.AT_MOST)))
    world.tick(4.0)
    world.weigher.value = 0.0
    world.unread = {"d"}
    for _ in range(4):
        world.tick(4.0)
        assert world.weights["d"] == 0.0  # nothing is given back while nothing is read
    world.unread = set()
    for _ in range(6):
        world.tick(4.0)
        world.weigher.value = 0.0 if world.weights["d"] < 1.0 else 1.0
    assert world.weights["d"] == 1.0


def test_a_scrape_that_misses_a_replica_does_not_make_it_forgotten() -> None:
    world = drained(four())
    world.tick(4.0)
    kept = {one: world.weights.pop(one) for one in ("d",)}
    work = world.work.pop("d")
    made, world.state = world.decide(4.0)
    assert weight("d") not in made
    world.now += 15.0
    world.weights |= kept
    world.work["d"] = work
    for _ in range(6):
        world.tick(4.0)
    assert (world.weights["d"], world.state.drains) == (1.0, {})


def test_a_pin_below_takes_those_first_that_have_begun_to_go() -> None:
    world = drained(four())
    world.pins[Target("llm", Lever.REPLICAS)] = Pin(2.0, NOW + 900.0, "night")
    fall = world.tick(3.0)
    assert (fall.final, fall.leaving) == (2.0, ("d",))
    assert "d" not in world.work


def test_a_reload_without_drain_takes_those_first_that_have_begun_to_go() -> None:
    world = drained(four())
    world.pool = rules(drain=0.0)
    world.lowers = False
    assert [world.tick(3.0).leaving for _ in range(2)] == [("d",), ("d",)]  # again where the write failed
    world.lowers = True
    world.tick(3.0)
    assert sorted(world.work) == ["a", "b", "c"]
    world.work["d"], world.weights["d"] = 0.0, 0.0  # its pod is ending
    world.tick(3.0)
    assert world.weights["d"] == 0.0


def test_a_person_who_gives_a_victim_requests_keeps_it() -> None:
    world = drained(four())
    world.pins[weight("d")] = Pin(1.0, NOW + 900.0, "canary")
    falls = [world.tick(3.0) for _ in range(3)]
    assert world.drain.victims == ("b",)
    assert all("d" not in fall.leaving for fall in falls)


def test_weights_that_are_taken_from_the_config_are_told_and_given_back_when_they_return() -> None:
    world = drained(four())
    whole = world.pool
    world.pool = replace(whole, levers=(replace(whole.levers[0], drain=0.0),))
    shot = world.snapshot()
    shot = replace(shot, targets={t: s for t, s in shot.targets.items() if t.lever is Lever.REPLICAS})
    laws = {"llm/replicas": world.law}
    world.law.value = 4.0
    plan, world.state = decide(shot, {"llm": estimate(0.5)}, FleetRules((world.pool,)), laws, world.state)
    assert "d of llm got a weight of 0 by a drain, and no lever gives it back" in plan.summary

    world.pool, world.now = whole, world.now + 15.0
    for _ in range(7):
        world.tick(4.0)
    assert (world.weights["d"], world.state.drains) == (1.0, {})


def named(deployment: str, *names: str) -> World:
    made = rules()
    pool = replace(made, levers=(replace(made.levers[0], workload=deployment), made.levers[1]))
    return World({name: float(place) for place, name in enumerate(names)}, pool)


def test_the_canary_behind_the_same_selector_is_no_victim_of_the_others_fall() -> None:
    """Its pods would be emptied, and an undrained one of the Deployment that falls would end."""
    names = ("chat-canary-7d9f-aaaaa", "chat-canary-7d9f-bbbbb", "chat-5c8b-ccccc", "chat-5c8b-ddddd")
    world = named("chat", *names)
    world.tick(3.0)
    assert world.drain.victims == ("chat-5c8b-ccccc",)


def test_names_that_are_called_otherwise_are_all_looked_at() -> None:
    world = named("chat", "a", "b", "c")
    world.tick(2.0)
    assert world.drain.victims == ("a",)


def test_a_drain_that_begins_is_told_in_the_sentence_of_the_plan() -> None:
    world = four()
    world.law.value = 3.0
    laws = {"llm/replicas": world.law, "llm/weight": world.weigher}
    known = estimate(0.5, evidence={"serving": 4.0, "proven_rate": 5.0})
    plan, _ = decide(world.snapshot(), {"llm": known}, FleetRules((world.pool,)), laws, world.state)
    assert plan.summary == (
        "keeps llm/replicas at 4 because the replicas that go finish their requests first: d may still hold work, for "
        "at most 120 s more"
    )


def slow_law(amount: float) -> PoolRules:
    made = rules()
    return replace(made, levers=(made.levers[0], replace(made.levers[1], rate_up=Rate(amount, 15.0))))


def test_what_is_owed_waits_while_the_weights_only_observe() -> None:
    world = drained(World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 1.0}, slow_law(0.5), weigher=Stands()))
    levers = world.pool.levers
    world.pool = replace(world.pool, levers=(levers[0], replace(levers[1], mode=Mode.OBSERVE)))
    for _ in range(3):
        world.tick(4.0)
    assert world.weights["d"] == 0.0
    world.pool = replace(world.pool, levers=levers)
    for _ in range(3):
        world.tick(4.0)
    assert (world.weights["d"], world.drain) == (1.0, Drain())


def test_who_goes_first_is_said_once() -> None:
    """One was to go when the drain began; by its end two are too many."""
    world = drained(four())
    world.work["d"] = 0.0
    fall = world.tick(2.0)
    assert (fall.final, fall.leaving) == (3.0, ("d",))
    assert reason(fall).endswith("the drain of the replicas that go held it at 3; first d")
