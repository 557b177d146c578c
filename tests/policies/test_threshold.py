"""Two thresholds, two dwell times: the law that everybody can check by eye."""

from dataclasses import replace

import pytest

from controller.core.model import Ask, Lever, Scope, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.why import Why
from policies.threshold import Threshold
from tests.support.cases import NOW, healthy

TARGET = Target("llm", Lever.REPLICAS)
BRIEF = Brief(Balance(0.0, 0.0), 0.0)
KV = Threshold.Config(signal="kv_usage", upper=0.8, lower=0.5, dwell_up=30.0, dwell_down=300.0)


def run(
    config: Threshold.Config, *readings: tuple[float, Reading], begins: float = 0.0
) -> list[tuple[float, Why]]:  # fmt: skip
    """(seconds, reading) pairs; the value stays at 4. At `begins` a new process takes the memory over."""
    law = Threshold(config)
    state, out, before = law.initial(), [], 0.0
    for at, reading in readings:
        pool = healthy(**{config.signal: reading})
        since, before = None if at == begins else at - before, at
        view = View(Tick(1, NOW + at, since), pool, {TARGET: TargetState(4.0)}, {TARGET: Limits(1, 9)}, Estimate())
        proposals, state = law.propose(view, (), BRIEF, state)
        out.append((proposals[0].value if proposals[0].ask == Ask.SET else -proposals[0].value, proposals[0].why))
    return out


def test_the_signal_must_stay_above_for_the_whole_dwell() -> None:
    held = run(KV, (0, ok(0.9)), (15, ok(0.9)), (30, ok(0.9)))
    broken = run(KV, (0, ok(0.9)), (15, ok(0.7)), (30, ok(0.9)))

    assert [value for value, _ in held] == [4.0, 4.0, 5.0]
    assert held[-1][1] == Why.ABOVE_THRESHOLD
    assert [value for value, _ in broken] == [4.0, 4.0, 4.0]


def test_dwell_is_time_and_not_ticks() -> None:
    """ray: delays counted in ticks were wrong whenever ticks were late."""
    assert run(KV, (0, ok(0.9)), (600, ok(0.9)))[-1][0] == 5.0
    assert run(KV, *[(i * 0.1, ok(0.9)) for i in range(100)])[-1][0] == 4.0


def test_between_the_thresholds_nothing_moves() -> None:
    assert {value for value, _ in run(KV, *[(i * 60.0, ok(0.65)) for i in range(20)])} == {4.0}


def test_below_for_long_enough_relaxes() -> None:
    assert run(KV, (0, ok(0.1)), (300, ok(0.1)))[-1] == (3.0, Why.BELOW_THRESHOLD)


def test_a_gap_starts_the_dwell_anew_and_asks_for_a_floor() -> None:
    """Dwell must not run while nobody looks."""
    seen = run(KV, (0, ok(0.1)), (200, Reading(State.MISSING)), (310, ok(0.1)))

    assert seen[1] == (-4.0, Why.MISSING)
    assert seen[2] == (4.0, Why.STEADY)


def test_an_hour_without_a_controller_counts_as_an_hour_above() -> None:
    """Two readings of a new process, and nobody knows what was between them."""
    whys = [why for _, why in run(KV, (0, ok(0.9)), (3600, ok(0.9)), (3615, ok(0.9)), (3630, ok(0.9)), begins=3600.0)]

    assert [why is Why.ABOVE_THRESHOLD for why in whys] == [False, False, False, True]


def test_a_window_that_is_not_full_is_not_called_missing() -> None:
    """Who was told that data is missing looked for it; it came by itself."""
    assert run(KV, (0, Reading(State.UNDERFILLED)), (15, Reading(State.PARTIAL))) == [
        (-4.0, Why.UNDERFILLED), (-4.0, Why.PARTIAL),
    ]  # fmt: skip


def test_an_untrusted_low_signal_does_not_relax() -> None:
    seen = run(KV, (0, Reading(State.PARTIAL, 0.1)), (300, Reading(State.PARTIAL, 0.1)))

    assert seen[-1][0] == -4.0


def test_a_step_of_a_tenth_is_told_as_more_than_was_asked() -> None:
    """0.2 and 0.1 are 0.30000000000000004, which is then rounded to what the target can take: 0.3."""
    law = Threshold(Threshold.Config(signal="kv_usage", upper=0.8, lower=0.5))
    share, weight = Target("llm", Lever.DOWNGRADE, "small"), Target("llm", Lever.WEIGHT, "a")
    pool = healthy(kv_usage=ok(0.9))
    pool = replace(pool, replicas={"a": Scope({Signal.KV_USAGE: ok(0.9)})})
    targets = {share: TargetState(0.2), weight: TargetState(0.05)}
    seen = View(Tick(1, NOW), pool, targets, dict.fromkeys(targets, Limits(0.0, 1.0, 0.01)), Estimate())
    proposals, _ = law.propose(seen, (), BRIEF, law.initial())

    assert {one.target: one.value for one in proposals} == {share: 0.3, weight: 0.0}


def test_a_queue_is_judged_per_replica() -> None:
    config = Threshold.Config(signal="queue_depth", upper=5.0, lower=1.0, per_replica=True)

    assert run(config, (0, ok(19.0)))[-1][0] == 4.0
    assert run(config, (0, ok(21.0)))[-1][0] == 5.0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"signal": "kv", "upper": 0.8, "lower": 0.5}, "unknown signal 'kv'"),
        ({"signal": "kv_usage", "upper": 0.5, "lower": 0.8}, "must be below upper"),
    ],
)
def test_a_config_that_would_swing_is_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Threshold(Threshold.Config(**config))  # type: ignore[arg-type]


def test_a_step_of_less_than_a_replica_still_moves() -> None:
    config = Threshold.Config(signal="kv_usage", upper=0.8, lower=0.5, step_up=0.5)

    assert run(config, (0, ok(0.9)))[-1][0] == 5.0


@pytest.mark.parametrize(
    ("lever", "limits", "current", "then"),
    [
        (Lever.TENANT_CAP, Limits(0.0, 40_000.0, 1.0), 40_000.0, 38_000.0),
        (Lever.ADMISSION, Limits(1.0, 60.0, 1.0), 60.0, 57.0),
        (Lever.DOWNGRADE, Limits(0.0, 1.0, 0.01), 0.0, 0.1),
    ],
)
def test_a_step_that_nobody_wrote_makes_sense_for_the_lever(
    lever: Lever, limits: Limits, current: float, then: float
) -> None:
    """One token a second would never end a flood, and 1 of a share is all of it at once."""
    target = Target("llm", lever, "one")
    law = Threshold(Threshold.Config(signal="kv_usage", upper=0.8, lower=0.5))
    pool = healthy(kv_usage=ok(0.95))
    view = View(Tick(1, NOW), pool, {target: TargetState(current)}, {target: limits}, Estimate())
    (made,), _ = law.propose(view, (), BRIEF, law.initial())

    assert made.value == pytest.approx(then)


def test_a_threshold_in_milliseconds_is_refused() -> None:
    """2000 for a first token within two seconds: it would never have been passed."""
    with pytest.raises(ValueError, match=r"upper: 2000 s of ttft is longer than anybody waits.*write 2 for 2000 ms"):
        Threshold(Threshold.Config(signal="ttft", upper=2000.0, lower=1000.0))
    Threshold(Threshold.Config(signal="queue_depth", upper=2000.0, lower=1000.0))


def test_the_evidence_names_the_signal_and_tells_a_share_per_replica_from_the_whole() -> None:
    law = Threshold(Threshold.Config(signal="queue_depth", upper=2.0, lower=1.0, per_replica=True))
    seen = View(
        Tick(1, NOW, None), healthy(queue_depth=ok(36.0)), {TARGET: TargetState(4.0)}, {TARGET: Limits(1, 9)},
        Estimate(),
    )  # fmt: skip
    made, _ = law.propose(seen, (), BRIEF, law.initial())

    assert (made[0].evidence["queue_depth"], made[0].evidence["measure"]) == (36.0, 9.0)
