"""Disasters of the dynamic configuration of vLLM's production-stack; the router is a stand-in, for none runs here."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actuators.file import File, FileConfig
from controller.config import load
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.production_stack import Router

SHIPPED = Path(__file__).parents[2] / "examples" / "targets" / "production-stack"
NOW = 1_704_067_800.0
B1, B2, B3 = (Target("chat", Lever.BREAKER, f"r{n}") for n in (1, 2, 3))
SMALL = Target("chat", Lever.DOWNGRADE, "small")
URLS = {name: f"http://{name}:8000" for name in ("r1", "r2", "r3", "small")}


@pytest.fixture
def router(tmp_path: Path) -> Router:
    one = Router(tmp_path / "dynamic.json")
    applied = hands(tmp_path).apply([decide(SMALL, 0, 0)], NOW)
    assert applied[0].outcome is Outcome.DONE
    one.poll()
    return one


def hands(folder: Path, **more: Any) -> File:
    values: dict[str, Any] = {
        "path": str(folder / "values.json"), "template": str(SHIPPED / "dynamic.json.j2"),
        "output": str(folder / "dynamic.json"), "variables": URLS, "settle": 10.0,
        "check": (sys.executable, str(SHIPPED / "check.py"), "{file}"),
    }  # fmt: skip
    return File(FileConfig(**values | more), Binding((SMALL,), scopes=(("chat", Lever.BREAKER),)))


def routed(router: Router) -> Counter[str]:
    return Counter(router.route("chat") for _ in range(30))


def test_a_breaker_takes_a_replica_off_the_list_and_puts_it_back(router: Router, tmp_path: Path) -> None:
    one = hands(tmp_path)
    assert routed(router) == {URLS[name]: 10 for name in ("r1", "r2", "r3")}
    assert one.apply([decide(B1, 1, 0)], NOW)[0].outcome is Outcome.DONE
    router.poll()
    assert routed(router) == {URLS["r2"]: 15, URLS["r3"]: 15}
    assert one.apply([decide(B1, 0, 1)], NOW)[0].outcome is Outcome.DONE
    router.poll()
    assert URLS["r1"] in routed(router)
    assert router.log == []


def test_a_list_is_never_empty(router: Router, tmp_path: Path) -> None:
    hands(tmp_path).apply([decide(one, 1, 0) for one in (B1, B2, B3)], NOW)
    router.poll()
    assert len(routed(router)) == 3


def test_a_downgrade_is_a_switch_and_a_share_is_refused(router: Router, tmp_path: Path) -> None:
    one = hands(tmp_path)
    assert one.apply([decide(SMALL, 0, 0.5)], NOW)[0].outcome is Outcome.REFUSED
    assert one.apply([decide(SMALL, 0, 1)], NOW)[0].outcome is Outcome.DONE
    router.poll()
    assert routed(router) == {URLS["small"]: 30}
    assert (one.apply([decide(SMALL, 1, 0)], NOW)[0].outcome, len(router.log)) == (Outcome.DONE, 0)
    router.poll()
    assert URLS["small"] not in routed(router)


def test_a_configuration_that_the_router_would_pass_over_in_silence_is_refused(router: Router, tmp_path: Path) -> None:
    odd = tmp_path / "odd.j2"
    shipped = (SHIPPED / "dynamic.json.j2").read_text()
    mistakes = {
        '"roundrobin"': '"roundrobin",,',
        '"routing_logic"': '"callbacks": "evil.module", "routing_logic"',
        "* urls | length": "* 1",
        "chat:{{": "chat:x{{",
    }
    one = hands(tmp_path, template=str(odd))
    before = router.config
    for right, wrong in mistakes.items():
        odd.write_text(shipped.replace(right, wrong, 1))
        (applied,) = one.apply([decide(B1, 1, 0)], NOW)
        assert applied.outcome is Outcome.REFUSED, (wrong, applied)
        router.poll()
    assert (router.config, router.log, router.rebuilt) == (before, [], 1)


def test_the_shipped_configurations_of_both_sides_fit_each_other(router: Router, tmp_path: Path) -> None:
    plugin = load(SHIPPED / "governor.yaml").actuator("chat", Lever.DOWNGRADE)
    assert plugin is not None
    mine = hands(tmp_path)._config  # noqa: SLF001
    here = {name: getattr(mine, name) for name in ("path", "template", "output", "check")}
    one = File(replace(plugin.settings, **here), Binding((SMALL,)))
    assert one.apply([decide(SMALL, 0, 1)], NOW)[0].outcome is Outcome.DONE
    router.poll()
    assert router.route("chat") == plugin.settings.variables["small"]


def test_a_router_that_polls_half_way_sees_the_old_one_whole(router: Router, tmp_path: Path) -> None:
    with (tmp_path / "dynamic.json").open() as reader:
        hands(tmp_path).apply([decide(B1, 1, 0)], NOW)
        assert '"llama-70b,llama-70b,llama-70b,llama-8b"' in reader.read()
    router.poll()
    assert (router.rebuilt, router.log) == (2, [])
