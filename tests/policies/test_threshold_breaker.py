"""A threshold on breakers: what it takes out must come back, and not by silence."""

import json

from controller.core.model import Ask, Lever
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.threshold import Threshold
from tests.support.rotation import Rotation, Seen, named

SLOW = Seen(slow=4.0)
PROBED = Seen(batch=1.0, ended=1.0)
QUIET = Seen(traffic=False)


def rotation(count: int = 6, **more: object) -> Rotation:
    config = Threshold.Config(signal="itl", upper=0.03, lower=0.02, dwell_up=30.0, **more)  # type: ignore[arg-type]
    return Rotation(Threshold(config), Lever.BREAKER, named(count))


def why(fleet: Rotation) -> Why:
    return fleet.last["r0"].why


def test_what_a_threshold_takes_out_comes_back_by_a_probe_and_a_ramp() -> None:
    """A replica without traffic has no latency to fall below anything: it stayed out for ever."""
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    assert why(fleet) is Why.ABOVE_THRESHOLD
    steps = [0.0]
    while steps[-1] != 1.0:
        fleet.tick(r0=QUIET if fleet.factors["r0"] == 0.0 else PROBED)
        if fleet.factors["r0"] != steps[-1]:
            steps.append(fleet.factors["r0"])

    assert steps == [0.0, 0.05, 0.25, 1.0]
    assert why(fleet) is Why.WELL_AGAIN
    assert set(fleet.factors.values()) == {1.0}


def test_one_that_is_still_slow_goes_back_for_longer_each_time() -> None:
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    spans = []
    for _ in range(5):
        spans.append(fleet.until("r0", 0.05, 400.0, r0=QUIET))
        fleet.until("r0", 0.0, 60.0, r0=SLOW)

    assert spans == sorted(spans)
    assert spans[-1] > 4 * spans[0]


def test_silence_gives_a_probe_more_but_not_all() -> None:
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.run(900.0, r0=QUIET)

    assert fleet.factors["r0"] == 0.25


def test_a_page_that_is_not_read_lets_nobody_back() -> None:
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.run(900.0, r0=Seen(up=False))

    assert fleet.factors["r0"] == 0.0
    assert fleet.last["r0"].ask is Ask.AT_MOST


def test_between_the_thresholds_a_probe_waits() -> None:
    """Neither well nor ill: it is given the ramp after a minute, and no more."""
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.run(900.0, r0=Seen(slow=2.0))

    assert fleet.factors["r0"] == 0.25


def test_one_that_the_cap_kept_in_rotation_did_not_relapse() -> None:
    fleet = rotation()
    fleet.obeys = False
    fleet.run(300.0, r0=SLOW)
    assert fleet.last["r0"].value == 0.0
    fleet.obeys = True
    fleet.tick(r0=SLOW)

    assert fleet.state.stands[fleet.last["r0"].target].relapses <= 1
    fleet.until("r0", 0.05, 30.0, r0=QUIET)


def test_one_that_was_out_before_this_process_began_is_let_back() -> None:
    fleet = rotation()
    fleet.factors["r0"] = 0.0

    assert fleet.until("r0", 1.0, 120.0, r0=PROBED) >= 45.0
    assert decode(Threshold.State, json.loads(json.dumps(encode(fleet.state)))) == fleet.state


def test_a_target_that_cannot_be_read_for_a_tick_is_no_way_back() -> None:
    """Taken for in rotation, it came back whole after five minutes of silence, without a probe."""
    fleet = rotation()
    fleet.until("r0", 0.0, 60.0, r0=SLOW)
    fleet.unread = frozenset({"r0"})
    fleet.tick(r0=QUIET)
    fleet.unread = frozenset()

    fleet.until("r0", 0.05, 60.0, r0=QUIET)
    fleet.run(900.0, r0=QUIET)
    assert fleet.factors["r0"] == 0.25


def test_one_that_is_out_and_cannot_be_read_at_the_start_is_tried_before_it_is_back() -> None:
    fleet = rotation()
    fleet.factors["r0"], fleet.unread = 0.0, frozenset({"r0"})
    fleet.run(60.0, r0=QUIET)
    fleet.unread = frozenset()

    fleet.run(900.0, r0=QUIET)
    assert fleet.factors["r0"] == 0.25
