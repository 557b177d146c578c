"""Whose replicas are seen: a canary beside the workload stays when that shrinks, and who was told to go does not."""

from collections.abc import Collection, Sequence

from controller.core.decide import DecideState
from controller.core.model import Ask, Lever, Proposal, Target
from controller.core.own import LEAVING
from controller.core.ports import Brief, View
from controller.core.slo import Objective
from controller.core.why import Why
from tests.core.test_ladder import Asks, Nothing, Told, lever, pool
from tests.support.cases import NOW

REPLICAS, BREAKER = lever(Lever.REPLICAS, 20.0), lever(Lever.BREAKER, 1.0)
RULES = pool(REPLICAS, BREAKER)


class Ejects(Asks):
    """A law that wants some out, and the others in rotation."""

    def __init__(self, out: Collection[str]) -> None:
        super().__init__(None)
        self.out = out

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        return [
            Proposal(t, Ask.SET, float(t.member not in self.out), "ejects", Why.FAILING_REPLICA)
            for t in sorted(view.targets)
        ], state


def out(seen: int, has: float, state: DecideState | None = None, at: float = NOW) -> tuple[int, DecideState]:
    """How many of those that are seen are out, of three that should be, where the workload has that many replicas."""
    names = [f"pod-{n}" for n in range(seen)]
    have = {Target("big", Lever.REPLICAS): has, **{Target("big", Lever.BREAKER, name): 1.0 for name in names}}
    laws = {"big/replicas": Asks(None), "big/breaker": Ejects(names[:3])}
    told = Told([RULES], {}, {}, have, state, at, laws=laws)
    return sum(d.final == 0.0 for t, d in told.decisions.items() if t.lever is Lever.BREAKER), told.state


def test_a_canary_of_another_workload_counts_in_how_many_may_be_out() -> None:
    """Of five replicas and ten of a canary the law asked for three, and the guard, which counted five, held two of them
    at 100 % errors for four minutes."""
    assert out(15, 5.0)[0] == 3
    assert out(5, 5.0)[0] == 1


def test_who_was_just_told_to_go_is_nobody_elses_replica() -> None:
    _, state = out(15, 15.0)
    assert out(15, 5.0, state, NOW + 15.0)[0] == 1
    gone, state = out(15, 5.0, state, NOW + LEAVING)
    assert gone == 1
    assert out(15, 5.0, state, NOW + LEAVING + 15.0)[0] == 3  # they are still there, so they are somebody's
