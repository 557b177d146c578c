"""Below: caps that stand before a downgrade are told what it can take, and no more than it can."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.core.below import sendable
from controller.core.decide import DecideState
from controller.core.effect import PoolEffect
from controller.core.hindsight import Hindsight
from controller.core.model import Lever, Mode, Pin, Snapshot, Target, TargetState, Tick
from controller.core.ports import Balance, Estimate
from controller.core.relief import Here
from controller.core.rules import PoolRules
from controller.core.tenancy import ClassRules, TenantRules
from tests.core.test_ladder import CAPS, SHARE, SHORT, SMALL, TENANTS, UNIT, Asks, Told, at_rest, pool
from tests.support.cases import NOW

SENT = Target("big", Lever.DOWNGRADE, "small")
ROOM = 0.95 * 4.0 - 1.0  # of the small pool, where this pool's work costs half


class Follows(Asks):
    """A law that takes what is left."""

    absolute = True


def told(
    rules: PoolRules, have: Mapping[Target, float] | None = None, law: type[Asks] = Follows, cap: float | None = None,
    state: DecideState | None = None,
) -> Told:  # fmt: skip
    laws = {"big/tenant_cap": Asks(cap), "big/downgrade": law(None)}
    return Told([rules], {}, {"big": SHORT, "small": SMALL}, have or at_rest(rules), state, laws=laws)


def below(*args: object, **more: object) -> float:
    return told(*args, **more).laws["big/tenant_cap"].briefs[-1].below  # type: ignore[arg-type]


FIRST = pool(CAPS, SHARE, tenants=TENANTS)


def test_caps_before_a_downgrade_are_told_what_it_can_take() -> None:
    """They refused what the smaller model had room for."""
    assert below(FIRST) == pytest.approx(ROOM / 0.5)


def test_what_is_sent_already_counts_with_the_room_beyond_it() -> None:
    assert below(FIRST, {**at_rest(FIRST), SENT: 0.25}) == pytest.approx(0.25 * 8.0 + ROOM / 0.5)


def test_no_more_is_below_than_consents() -> None:
    one = pool(CAPS, SHARE, tenants={"ann": TenantRules(), "bob": TenantRules(consents=True)})

    assert below(one) == pytest.approx(4.0)


def test_what_nobody_agreed_to_is_not_below() -> None:
    nobody = pool(CAPS, SHARE, tenants={"ann": TenantRules(), "bob": TenantRules()})
    classes = pool(CAPS, SHARE, tenants=TENANTS, classes={"chat": ClassRules()})

    assert below(nobody) == below(classes) == 0.0


def test_a_downgrade_above_is_not_below() -> None:
    assert below(pool(SHARE, CAPS, tenants=TENANTS)) == 0.0


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_a_downgrade_that_does_not_act_takes_nothing_off_the_caps(mode: Mode) -> None:
    """Everybody waited for a lever that only looks on."""
    assert below(pool(CAPS, replace(SHARE, mode=mode), tenants=TENANTS)) == 0.0


def test_a_law_that_does_not_look_at_what_is_left_is_not_counted_on_for_more_than_it_sends() -> None:
    """A threshold on latency moves when it is late, whatever the caps wait for."""
    assert below(FIRST, {**at_rest(FIRST), SENT: 0.25}, Asks) == pytest.approx(0.25 * 8.0)


def test_a_downgrade_of_which_nothing_comes_is_not_waited_for() -> None:
    seen = Hindsight(effect=PoolEffect(passed_over={Lever.DOWNGRADE: NOW + 600.0}))

    assert below(FIRST, state=DecideState(hindsight={"big": seen})) == 0.0


def test_caps_are_told_nothing_while_nothing_is_short() -> None:
    calm = Told(
        [FIRST], {}, {"big": replace(SHORT, demand=9.0), "small": SMALL}, at_rest(FIRST),
        laws={"big/tenant_cap": Asks(None), "big/downgrade": Follows(None)},
    )  # fmt: skip

    assert calm.laws["big/tenant_cap"].briefs[-1].below == 0.0


def test_a_share_is_of_what_caps_let_through() -> None:
    """Counted of all demand, half of a tenant that is cut to a quarter would be thought to be elsewhere, and its cap
    would be opened for that."""
    have = {**at_rest(FIRST), SENT: 0.25, Target("big", Lever.TENANT_CAP, "ann"): 2000.0}

    assert below(FIRST, have) == pytest.approx(0.25 * 2.0 + ROOM / 0.5)


def test_a_downgrade_after_caps_asks_for_what_is_left_of_those_who_are_there() -> None:
    """Its share was made from the demand of all, and relieved half of what it should."""
    seen = told(FIRST, cap=7000.0).laws["big/downgrade"].briefs[-1]

    assert seen.left == pytest.approx(1.5)
    assert seen.balance.by_flow == {"ann": pytest.approx(7.0), "bob": 4.0}
    assert seen.balance.demand == 12.0


def test_the_quantum_of_a_cap_is_no_shortage() -> None:
    """A cap that was rounded up left a ten-thousandth of a replica, of which a downgrade made one percent of everybody,
    and kept it for as long as the flood went on."""
    whole = replace(CAPS, limits=replace(CAPS.limits, quantum=1.0))
    rules = pool(whole, SHARE, tenants=TENANTS)

    assert told(rules, cap=5501.0).laws["big/downgrade"].briefs[-1].left == 0.0  # ann is cut from 8 to 5.501
    assert told(rules, cap=5510.0).laws["big/downgrade"].briefs[-1].left == pytest.approx(0.01)


def alone(owner: TargetState, **more: object) -> float:
    snapshot = Snapshot(Tick(9, NOW, 15.0), {}, {SENT: owner})
    estimate = Estimate(unit_tokens=UNIT)
    balance = Balance(12.0, 10.0, by_flow={"ann": 8.0}, room={"small": 1.0}, exchange={"small": 0.5})
    share = replace(SHARE, **more)  # type: ignore[arg-type]
    return sendable(
        share, pool(CAPS, share, tenants=TENANTS), snapshot, estimate, balance, Here(), follows=True
    )  # fmt: skip


def test_what_cannot_move_is_counted_on_where_it_is() -> None:
    """Pinned, foreign, unread, or at its bound: caps that wait for it would wait for ever."""
    pinned = TargetState(0.25, 0.25, pin=Pin(0.125, NOW + 60.0, "trial"))
    ended = TargetState(0.25, 0.25, pin=Pin(0.125, NOW - 60.0, "trial"))

    assert alone(TargetState(0.25, 0.25)) == pytest.approx(0.25 * 8.0 + 2.0)
    assert alone(pinned) == pytest.approx(0.125 * 8.0)
    assert alone(ended) == pytest.approx(0.25 * 8.0 + 2.0)
    assert alone(TargetState(0.25, 0.25, foreign_writer="another")) == pytest.approx(0.25 * 8.0)
    assert alone(TargetState(None, error="gone")) == 0.0
    assert alone(TargetState(0.25, 0.25), limits=replace(SHARE.limits, max=0.375)) == pytest.approx(0.375 * 8.0)
