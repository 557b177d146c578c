"""What is wrong and no lever is moved for: the plan must not say that all is well."""

from dataclasses import replace

import pytest

from controller.core.model import Lever, PoolReadings
from controller.core.rules import FleetRules, PoolRules
from controller.core.wrong import wrong
from tests.core.test_ladder import lever
from tests.core.test_versions import OLD, fleet
from tests.core.test_worse import ending

MOST = dict.fromkeys(OLD, (1.0, 400.0))


def said(readings: PoolReadings, group: float = 0.5) -> list[str]:
    rules = PoolRules("chat", (), (replace(lever(Lever.BREAKER, 1.0), version_group=group),), ())
    return wrong(FleetRules((rules,)), {"chat": readings})


def test_a_rollout_that_fails_everywhere_is_not_kept_as_it_is_in_silence() -> None:
    """All four replicas were new and failed all they got, and nothing needed to change."""
    (text,) = said(ending(fleet(**OLD), **MOST))
    whole = f"{len(OLD)} of {len(OLD)} replicas of chat fail, 100 % of {400 * len(OLD)} requests"
    assert text == f"{whole}: most of them do, so that is no reason to take one out"
    assert said(ending(fleet(**OLD))) == []
    assert said(ending(fleet(**OLD), v1_0=(1.0, 4000.0))) == []  # one that is to be taken out
    assert said(ending(fleet(**OLD), **dict.fromkeys(OLD, (1.0, 2.0)))) == []  # too few to say


@pytest.mark.parametrize(
    ("untold", "expected"),
    [
        (len(OLD), "no replica of chat has the label of its version, so a bad one is not told apart; name in labels"),
        (1, f"1 of {len(OLD)} replicas of chat do not have the label of their version; name in labels.version one"),
        (0, ""),
    ],
)
def test_a_version_label_that_replicas_do_not_have_is_told(untold: int, expected: str) -> None:
    """A bad canary went out one replica at a time, and nobody knew that the label was another one."""
    pool = fleet(**OLD)
    pool = replace(pool, versions=dict(sorted(pool.versions.items())[untold:]))
    assert [text[: len(expected)] for text in said(pool)] == ([expected] if expected else [])
    assert said(pool, group=0.0) == []
