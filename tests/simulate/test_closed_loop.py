"""The past answers back: a twin in a recording's image, and what Governor would have come to."""

import math
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest

from controller.config import GovernorConfig, loads
from controller.core.errors import InputError
from controller.core.interval import Interval
from controller.simulate import closed_loop, mirror
from controller.simulate.closed_loop import Pair
from controller.simulate.demand import demand

CONFIG = """
version: 1
interval: 30s
source: {kind: prometheus, url: "http://127.0.0.1:1"}
pools:
  chat:
    engine: vllm
    selector: {model_name: llama, cluster: east}
    window: 60s
    objectives:
      - {signal: ttft, percentile: p95, target: 2s}
      - {signal: itl, percentile: p95, target: 60ms}
    profile: {base: 10ms, prefill_token: 20us, sequence: 100us, kv_token: 0s, attention: 0s, max_num_seqs: 32}
    cold_start: 60s
    levers: {replicas: {mode: observe, min: 1, max: 8, policy: {kind: capacity}}}
"""


def config(text: str = CONFIG) -> GovernorConfig:
    return loads(text)


def at(minute: float, **told: Any) -> Interval:
    fields: dict[str, Any] = {
        "replicas": 1.0, "finished": 4.0, "prompt": 300.0, "output": 100.0, "itl": 0.012, "ttft": 0.03, "running": 5.0,
        "waiting": 0.0, "kv_usage": 0.1,
    }  # fmt: skip
    return Interval(at=1000.0 + 60 * minute, **{**fields, **told})


# --- demand -----------------------------------------------------------------------------------------------------------


def test_demand_that_seems_to_fall_while_a_queue_builds() -> None:
    """Completions fall when an engine drowns; a twin that is driven with them would never drown."""
    found = demand([at(0), at(1, finished=3.0, waiting=120.0, running=35.0)])
    assert found[0].rate == pytest.approx(3.0 + (120.0 + 30.0) / 60)
    assert (found[0].begin, found[0].end) == (0.0, 60.0)


def test_a_queue_that_drains_is_no_demand() -> None:
    assert demand([at(0, waiting=600.0), at(1, finished=5.0)])[0].rate == 0.0


def test_a_hole_in_the_recording_is_no_silence_of_the_clients() -> None:
    found = demand([at(0), at(1, finished=6.0), at(2, finished=None, prompt=None, output=None), at(3, finished=2.0)])
    assert [(one.rate, one.assumed) for one in found] == [(6.0, False), (6.0, True), (2.0, False)]


def test_a_recording_without_lengths_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="what was asked of the fleet"):
        demand([at(0, prompt=None), at(1, prompt=None)])


# --- the mirror -------------------------------------------------------------------------------------------------------


class Fit:
    """What `calibrate-recording` gives, as far as it is looked at here."""

    def __init__(self, profile: Any, typical: float = 0.05) -> None:
        self.profile, self.calm, self.intervals, self.notes = profile, 10, 20, ("a note",)
        self.errors = (type("E", (), {"signal": "itl", "typical": typical})(),)


def image(intervals: list[Interval], typical: float = 0.05) -> mirror.Image:
    profile = config().pools["chat"].profile
    assert profile is not None
    own = replace(profile.to_profile(), kv_tokens=60_000.0)
    return mirror.Image("chat", tuple(intervals), Fit(own, typical), demand(intervals))


def steady(minutes: int, rate: float = 4.0, replicas: float = 1.0) -> list[Interval]:
    return [at(minute, finished=rate, replicas=replicas) for minute in range(minutes)]


def test_a_replica_that_comes_between_two_samples_is_taken_to_come_in_the_middle() -> None:
    found = image([at(0), at(1, replicas=3.0), at(2, replicas=None), at(3, replicas=2.0)])
    assert found.replicas == ((0.0, 1), (30.0, 3), (120.0, 2))


def test_a_twin_whose_labels_its_controller_does_not_select() -> None:
    plain = mirror.scenario(config(), [image(steady(3))])
    pool = plain["fleet"]["pools"]["chat"]
    assert (pool["model_name"], pool["labels"]) == ("llama", {"cluster": "east"})
    with pytest.raises(InputError, match="cannot have labels by a pattern"):
        mirror.scenario(config(CONFIG.replace("model_name: llama", 'model_name: {regex: "ll.*"}')), [image(steady(3))])
    with pytest.raises(InputError, match=r"pools.chat.selector.job: the twin sets this label itself; for the closed"):
        mirror.scenario(config(CONFIG.replace("model_name: llama", "model_name: llama, job: vllm")), [image(steady(3))])


def test_the_strictest_target_of_each_kind_makes_an_answer_good() -> None:
    assert mirror.promise(config()) == {"ttft": "2.0s", "tpot": "0.06s"}
    queue = CONFIG.replace("signal: ttft", "signal: queue_time").replace(
        "signal: itl, percentile: p95, target: 60ms", "signal: error_ratio, target: 1%"
    )
    with pytest.raises(InputError, match="judges single answers"):
        mirror.promise(config(queue))


def test_a_likeness_that_compares_what_one_side_does_not_know() -> None:
    ours = [at(0, itl=0.024), at(1, itl=None), at(2, waiting=3.0)]
    theirs = [at(0), at(1), at(2)]
    found = {one.signal: one for one in mirror.likeness(theirs, ours)}
    assert (found["itl"].intervals, found["itl"].bias, found["itl"].relative) == (2, 0.5, True)
    assert (found["waiting"].bias, found["waiting"].relative) == (1.0, False)


def test_a_twin_that_is_driven_with_its_own_past_looks_as_that_past_did() -> None:
    """Its metrics, fed back as a recording, must give it back: otherwise demand or replicas are lost on the way."""
    past = image([*steady(5, 3.0), *(at(5 + m, finished=9.0, replicas=2.0) for m in range(6))])
    first = reflected(past)
    second = reflected(image(first))
    found = {one.signal: one for one in mirror.likeness(first, second)}
    assert abs(found["itl"].bias) < 0.05
    assert abs(found["waiting"].bias) < 1.0
    assert [one.replicas for one in first[1:]] == [one.replicas for one in second[1:]]
    offered = [sum(part.rate for part in one.demand) for one in (past, image(first))]
    assert offered[1] == pytest.approx(offered[0], rel=0.1)


def reflected(one: mirror.Image) -> list[Interval]:
    study = closed_loop.mirrored(config(), [one], 1.0, 0.0)
    return mirror.reflect(config(), [one], study.scenario.world(1), study.scenario.start)["chat"]


# --- the answer -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flooded() -> closed_loop.Answer:
    """One replica serves about 20 requests/s at most; from minute 5 on 30 come."""
    past = [*steady(5), *(at(5 + m, finished=18.0, waiting=700.0 * (m + 1), running=32.0) for m in range(8))]
    return closed_loop.ask(config(), [image(past)], seeds=1)


def test_a_fleet_that_drowned_would_have_been_helped(flooded: closed_loop.Answer) -> None:
    assert len(flooded.pairs) == 3
    gains = [pair.gain for pair in flooded.pairs]
    assert all(gain is not None and gain > 0.1 for gain in gains), gains
    assert all(pair.governor.score.gpu_hours > pair.recorded.score.gpu_hours for pair in flooded.pairs)


def test_a_rehearsal_that_observes_still_shows_what_acting_would_do(flooded: closed_loop.Answer) -> None:
    assert config().pools["chat"].levers
    assert all(pair.governor.changed > 0 for pair in flooded.pairs)


def test_the_same_demand_meets_both_sides_of_a_pair(flooded: closed_loop.Answer) -> None:
    for pair in flooded.pairs:
        recorded, governor = pair.recorded.score.all, pair.governor.score.all
        assert recorded.offered + recorded.open == governor.offered + governor.open
    assert [pair.slower for pair in flooded.pairs] == pytest.approx([1.0, 1.05, 1 / 1.05])


def test_a_band_that_is_narrower_than_the_fit_allows() -> None:
    assert closed_loop.error_of([image(steady(3), 0.17), image(steady(3), 0.08)]) == 0.17
    assert closed_loop.error_of([image(steady(3), 0.0001)]) == 0.02
    assert closed_loop.error_of([image(steady(3), math.inf)]) == 0.3


def pairs(*gains: float) -> Iterator[Pair]:
    class Half:
        def __init__(self, attainment: float) -> None:
            share = type("Share", (), {"attainment": attainment})()
            self.score = type("Score", (), {"all": share, "gpu_hours": 2.0})()

    for gain in gains:
        yield Pair(1.0, 1, Half(0.5), Half(0.5 + gain))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ((0.1, 0.2), "It would have helped: +10.00 to +20.00 points"),
        ((-0.1, -0.2), "It would have done harm: -20.00 to -10.00 points"),
        ((0.0, 0.0), "It would have changed nothing"),
        ((0.1, -0.2), "It cannot be told: better in 1 of 2 runs, worse in 1"),
        ((0.1, 0.0), "It cannot be told: better in 1 of 2 runs, worse in 0"),
        ((), "Nothing was asked"),
    ],
)
def test_one_good_run_of_two_is_no_yes(gains: tuple[float, ...], said: str) -> None:
    from controller.cli.closed_loop import verdict

    assert verdict(tuple(pairs(*gains))).startswith(said)


def test_a_twin_that_does_not_queue_where_the_fleet_did_gives_no_answer(flooded: closed_loop.Answer) -> None:
    assert not flooded.unlike
    bias = -flooded.images[0].intervals[-1].waiting  # type: ignore[operator]
    blind = replace(flooded, likeness={"chat": (mirror.Likeness("waiting", 12, bias, 10.0, False),)})
    assert "the twin of chat has 0 requests waiting" in blind.unlike[0]
    fast = replace(flooded, likeness={"chat": (mirror.Likeness("itl", 12, -0.4, 0.4, True),)})
    assert "off by -40%" in fast.unlike[0]

    from controller.cli.closed_loop import verdict

    assert verdict(flooded.pairs, blind.unlike).startswith("It cannot be told: the twin of chat")


def test_a_report_that_shows_gains_without_what_they_are_worth(flooded: closed_loop.Answer, tmp_path: Path) -> None:
    from controller.cli.closed_loop import lines, write

    write(tmp_path / "report.html", flooded, quiet=True)
    shown = (tmp_path / "report.html").read_text(encoding="utf-8")
    said = list(lines(flooded))
    assert any("it is off by" in line for line in said)
    assert any(line.startswith("It would have helped") for line in said)
    assert all(escape(line) in shown for line in said)


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    from tests.support.cli import governor

    file = tmp_path / "governor.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    absent = str(tmp_path / "absent.jsonl.gz")
    done = governor("dry-run", "-c", str(file), "-r", absent, "--closed-loop", "--step", "5s")
    assert (done.returncode, "leave out --step" in done.stderr) == (2, True)
    done = governor("dry-run", "-c", str(file), "-r", absent, "--library", "x")
    assert (done.returncode, "for --closed-loop alone" in done.stderr) == (2, True)
    done = governor("dry-run", "-c", str(file), "-r", absent, "--closed-loop")
    assert (done.returncode, absent in done.stderr) == (2, True)
