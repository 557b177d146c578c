"""Outcomes of the control bench made by hand."""

from typing import Any

from benchmarks.control.task import Counted, Outcome, Within


def counted(good: int, offered: int = 1000, **missed: int) -> Counted:
    return Counted(offered, good, 0, 0, missed or ({"late": offered - good} if good < offered else {}))


def outcome(critical: float = 1.0, everything: float | None = None, hours: float = 10.0, **more: Any) -> Outcome:
    """700 critical requests of 1,000; `everything` is the attainment of all, as the critical one when not given."""
    whole = counted(round(1000 * (critical if everything is None else everything)))
    made: dict[str, Any] = {
        "seconds": 3600.0, "all": whole, "critical": counted(round(700 * critical), 700), "events": {},
        "gpu_hours": hours, "bad_minutes": 0, "reversals_per_hour": 1.0, "fairness": {}, "hit_rate": None,
        "tenants": {}, "tenants_in": {}, "replicas": {"chat": ((0.0, 3, 3), (60.0, 5, 3), (240.0, 5, 5))},
        "offered": (1.0,) * 5, "attained": (1.0, None, 0.5, 1.0, 1.0), "breaks": (), "relaxed": (), "settings": {},
        "floor": None, "cpu": 1.0, **more,
    }  # fmt: skip
    return Outcome(**made)


def within(critical: float, shed: int = 0) -> Within:
    """An event with 1,000 requests, of which so many were shed."""
    good = round(1000 * critical)
    missed = {why: n for why, n in (("rejected", shed), ("late", max(0, 1000 - good - shed))) if n}
    return Within(Counted(1000, good, 0, 0, missed), Counted(1000, good, 0, 0, missed), 0.0)
