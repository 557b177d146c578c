"""A twin that is nothing like the engine it stands for, and a page that says otherwise."""

from collections.abc import Mapping

import pytest

from benchmarks import collapse, fidelity
from simulator.calibrate.requests import Calibration
from tests.support.pages import assert_same
from tests.support.streams import shared

WRITTEN = fidelity.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def calibrated() -> Mapping[str, Calibration]:
    shared("recordings/vllm019_llama31_8b_rtxpro6000_requests.csv.gz")
    return fidelity.requests()


@pytest.fixture(scope="module")
def loops() -> Mapping[int, tuple[fidelity.Recorded, fidelity.Full]]:
    shared("recordings/inferencex_vllm_server_metrics_1hz.csv.gz")
    return fidelity.saturated()


def test_fitted_on_the_first_half_of_a_real_log_the_second_comes_within_five_percent(
    calibrated: Mapping[str, Calibration],
) -> None:
    for prior, one in calibrated.items():
        assert (one.fitted, one.requests) == (150, 300)
        assert one.held == ()
        for score in one.held_out:
            assert score.requests == 150
            assert abs(score.mean_error) < 0.05, (prior, score)
            assert abs(score.p99_error) < 0.05, (prior, score)


def test_the_logs_own_limit_is_read_off(calibrated: Mapping[str, Calibration]) -> None:
    assert all(one.profile.max_num_seqs == 128 for one in calibrated.values())


def test_with_a_full_kv_cache_running_falls_waiting_grows_and_preemptions_count(
    loops: Mapping[int, tuple[fidelity.Recorded, fidelity.Full]],
) -> None:
    calm, full = loops[128], loops[512]
    for one in (calm[0].full, calm[1]):
        assert one.preempted == 0
        assert one.running == pytest.approx(128, abs=1.5)
        assert 0.5 < one.usage < 0.65
    for one in (full[0].full, full[1]):
        assert one.usage > 0.98
        assert one.running < 240  # of 512 that want to
        assert one.waiting > 270
        assert one.preempted > 500
    for users in (256, 512):
        real, twin = loops[users][0].full, loops[users][1]
        assert twin.running == pytest.approx(real.running, rel=0.1)
        assert twin.preempted == pytest.approx(real.preempted, rel=0.3)


def test_mirrored_fleets_collapse_when_the_recorded_ones_did_and_calm_ones_never_queue() -> None:
    """All 33 runs with the first seed; the page has more."""
    shared("recordings/wva_llama31_8b_h100_autoscaling.csv.gz")
    found = collapse.runs()
    driven = collapse.drive_all(found, collapse.profile(found), collapse.SEEDS[:1])
    full = [pair.alike for (pair,) in driven.values() if pair.real.full is not None]
    calm = [pair.alike for (pair,) in driven.values() if pair.real.full is None]
    assert (len(full), len(calm)) == (9, 24)
    assert sum(full) >= 8
    assert sum(calm) >= 22
    rows = {cells[1].strip(): cells for line in WRITTEN.splitlines() if len(cells := line.split("|")) == 9}
    for name, (pair,) in driven.items():
        assert collapse.row(name, [pair]).split("|")[2:4] == rows[name][2:4]  # recorded
    near = [_near(rows[name][4].split()[0], pair.twin.full) for name, (pair,) in driven.items()]
    assert sum(near) >= 31  # another processor's arithmetic may move who is at the edge


def _near(written: str, full: int | None) -> bool:
    return full is None if written == "-" else full is not None and abs(full - int(written)) <= 1


def test_the_page_says_what_the_code_gives(
    calibrated: Mapping[str, Calibration],
    loops: Mapping[int, tuple[fidelity.Recorded, fidelity.Full]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fidelity, "requests", lambda: calibrated)
    monkeypatch.setattr(fidelity, "saturated", lambda: loops)
    monkeypatch.setattr(collapse, "section", lambda: [WRITTEN[WRITTEN.index("\n## Who collapses") :]])  # see above
    # Runs of a fit end elsewhere on another processor's arithmetic: half a point of an error, a third of a weak term.
    assert_same(
        WRITTEN, fidelity.text(), share=0.35, least=3.0,
        mend="run `make fidelity` and read what changed",
    )  # fmt: skip
