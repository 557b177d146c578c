"""What all tests share: hypothesis without deadlines (cores are shared), no quiet skips where all must run, and a
Ctrl-C that is heard."""

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A shell that runs `make test &` has its children ignore Ctrl-C, and theirs: tests that send one would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Public data stays outside the repository, so these skips are right even where all must run.
MAY_BE_ABSENT = "shared/data"


def _skips_must_not_hide(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Under GOVERNOR_REQUIRE_REAL=1 what skips fails, unless what it lacks is the public data."""
    if not report.skipped or hasattr(report, "wasxfail") or os.environ.get("GOVERNOR_REQUIRE_REAL") != "1":
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if MAY_BE_ABSENT not in reason:
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: {reason} (GOVERNOR_REQUIRE_REAL=1 forbids this skip)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _skips_must_not_hide(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips as a whole."""
    report = yield
    _skips_must_not_hide(report)
    return report
