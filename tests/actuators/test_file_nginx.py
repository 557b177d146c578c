"""Disasters of a real nginx whose configuration is made from the values and loaded anew."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actuators.file import File, FileConfig
from actuators.file.__main__ import main
from controller.config import load
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.nginx import TEMPLATE, Nginx, nginx
from tests.support.slow_engine import Client, slow_engine
from tests.support.waiting import until

NOW = 1_704_067_800.0
R1, R2, R3 = (Target("chat", Lever.WEIGHT, f"r{n}") for n in (1, 2, 3))
B1, B2, B3 = (Target("chat", Lever.BREAKER, f"r{n}") for n in (1, 2, 3))
ACME, SMALL = Target("chat", Lever.TENANT_CAP, "acme"), Target("chat", Lever.DOWNGRADE, "small")
BINDING = Binding((ACME, SMALL), scopes=(("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Nginx]:
    with nginx(tmp_path) as one:
        yield one


def hands(server: Nginx, **more: Any) -> File:
    """As the page of nginx configures it."""
    values: dict[str, Any] = {
        "path": str(server.values), "template": str(TEMPLATE), "output": str(server.output),
        "variables": server.variables, "check": server.command("-t", "-c", "{file}"),
        "reload": server.command("-s", "reload", "-c", str(server.output)), "quantum": 0.01,
    }  # fmt: skip
    return File(FileConfig(**values | more), BINDING)


def done(server: Nginx, one: File, *decisions: Decision, now: float = NOW) -> None:
    before = server.workers()
    applied = one.apply(decisions, now)
    assert {a.outcome for a in applied} == {Outcome.DONE}, applied
    until(lambda: server.reloaded(before))


def test_traffic_follows_the_weights_within_a_point(server: Nginx) -> None:
    done(server, hands(server), decide(R1, 1, 1), decide(R2, 1, 0.5), decide(R3, 1, 0.25))
    seen = server.traffic(1400)
    for engine, share in (("r1", 4 / 7), ("r2", 2 / 7), ("r3", 1 / 7)):
        assert abs(seen[engine] / 1400 - share) < 0.01, seen


def test_a_weight_is_never_0_and_a_breaker_takes_out_without_a_word_of_weight(server: Nginx) -> None:
    one = hands(server)
    done(server, one, decide(R1, 1, 0.5), decide(B1, 1, 0), decide(B2, 1, 0.05))
    text = server.output.read_text()
    assert f"server {server.places['r1']} down" in text
    assert "weight=0" not in text
    seen = server.traffic(210)
    assert (seen["r1"], seen["r2"]) == (0, 10)
    states = one.read([R1, B1, R3, SMALL], NOW)
    assert [states[t].accepted for t in (R1, B1, R3, SMALL)] == [0.5, 0, 1, 0]


def test_downgraded_requests_are_the_share_of_those_that_consent(server: Nginx) -> None:
    done(server, hands(server), decide(SMALL, 0, 0.3))
    count, share = 5000, 0.3
    seen = server.traffic(count, x_consents_to_downgrade="yes")["small"]
    assert abs(seen - count * share) < 3 * (count * share * (1 - share)) ** 0.5
    assert server.traffic(200)["small"] == 0


def test_a_tenant_gets_its_bucket_and_others_all(server: Nginx) -> None:
    done(server, hands(server), decide(ACME, 1e12, 14_000))  # 20 requests/s, and as many at once
    seen = server.traffic(100, x_tenant="acme")
    assert 21 <= seen.total() - seen["429"] <= 25
    assert server.traffic(100, x_tenant="other")["429"] == 0


def test_what_is_in_flight_outlives_a_reload(tmp_path: Path) -> None:
    with slow_engine() as engine, nginx(tmp_path, {str(B2): 0, str(B3): 0}, r1=engine.place) as server:
        clients = [Client(server.port) for _ in range(4)]
        until(lambda: engine.got == 4)
        old = server.workers()
        done(server, hands(server), decide(B1, 1, 0), decide(B2, 0, 1))
        assert server.traffic(20) == {"r2": 20}
        assert old & server.workers(), "the old worker ended with its streams"
        engine.let_go()
        assert all(client.whole() for client in clients)
        until(lambda: not old & server.workers())


def test_a_configuration_that_nginx_refuses_never_takes_the_place_of_one_that_runs(
    server: Nginx, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.j2"
    broken.write_text(TEMPLATE.read_text().replace("limit_req_status 429;", "limit_req_statsu 429;"))
    files = (server.values, server.output)
    before, workers = [path.read_bytes() for path in files], server.workers()
    (applied,) = hands(server, template=str(broken)).apply([decide(R1, 1, 0.5)], NOW)
    assert (applied.outcome, "limit_req_statsu" in applied.detail) == (Outcome.REFUSED, True)
    assert [path.read_bytes() for path in files] == before
    assert server.workers() == workers
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ nowhere }}", "'nowhere' is undefined"),
        ("{% if %}", "line 1"),
        ('{{ value("chat", "admission", "concurrency") }}', "there is no chat/admission/concurrency"),
        ('{{ value("chat", "teleport", "x", 1) }}', "teleport"),
        ("{{ 1 / 0 }}", "division by zero"),
        ('{{ "".__class__.__mro__ }}', "unsafe"),
    ],
)
def test_a_template_that_cannot_be_filled_in_changes_nothing(
    server: Nginx, tmp_path: Path, text: str, words: str
) -> None:
    template = tmp_path / "odd.j2"
    template.write_text(text)
    before = server.output.read_bytes()
    (applied,) = hands(server, template=str(template)).apply([decide(R1, 1, 0.5)], NOW)
    assert (applied.outcome, words in applied.detail) == (Outcome.FAILED, True), applied
    assert server.output.read_bytes() == before
    assert server.values.read_text() == "{}"


def test_a_replica_that_the_template_does_not_know_is_told_and_not_claimed(tmp_path: Path) -> None:
    """Its values would be written and read back, and move nothing."""
    stranger = Target("chat", Lever.BREAKER, "llama-7c9f-x2")
    variables = dict.fromkeys(("listen", "r1", "r2", "r3", "small"), "127.0.0.1:9")
    config = FileConfig(
        str(tmp_path / "values.json"), template=str(TEMPLATE), output=str(tmp_path / "nginx.conf"), variables=variables
    )
    states = File(config, BINDING).read([stranger, B1, R1, ACME, SMALL], NOW)
    assert "does not look at chat/breaker/llama-7c9f-x2" in states[stranger].error
    assert not [state.error for target, state in states.items() if state.error and target != stranger]


def test_the_first_output_is_made_by_a_command(
    server: Nginx, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else neither could begin: nginx needs the file, and Governor an nginx that it may tell to reload."""
    assert main([str(TEMPLATE), *(f"{name}={value}" for name, value in server.variables.items())]) == 0
    first = tmp_path / "first.conf"
    first.write_text(capsys.readouterr().out)
    assert first.read_text() == server.output.read_text()
    assert main([str(TEMPLATE)]) == 2
    assert "is undefined" in capsys.readouterr().err
    assert main([]) == main([str(TEMPLATE), "r1"]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_reload_that_fails_puts_both_files_back(server: Nginx) -> None:
    before = server.output.read_bytes()
    (applied,) = hands(server, reload=("false",)).apply([decide(R1, 1, 0.5)], NOW)
    assert applied.outcome is Outcome.FAILED
    assert (server.output.read_bytes(), server.values.read_text()) == (before, "{}")


def test_reloads_keep_their_distance_or_old_workers_pile_up(server: Nginx) -> None:
    one = hands(server, min_interval=60.0)
    done(server, one, decide(R1, 1, 0.5))
    done(server, one, decide(R2, 1, 0.6))  # what raises follows what lowers at the same moment
    (applied,) = one.apply([decide(R1, 0.5, 0.4)], NOW + 15)
    assert (applied.outcome, "60 s apart" in applied.detail) == (Outcome.FAILED, True)
    assert json.loads(server.values.read_text()) == {str(R1): 0.5, str(R2): 0.6}
    (same,) = one.apply([decide(R1, 0.5, 0.5)], NOW + 15)
    assert same.outcome is Outcome.DONE, "what stands already needs no reload"
    done(server, one, decide(R1, 0.5, 0.4), now=NOW + 60)


def test_an_output_that_was_edited_by_hand_is_told_and_made_anew(server: Nginx) -> None:
    one = hands(server)
    done(server, one, decide(R1, 1, 0.5))
    server.output.write_text(server.output.read_text().replace("weight=50", "weight=7"))
    assert "is not what the template makes" in one.diagnose(NOW)[0].text
    assert one.verify([decide(R1, 1, 0.5)], NOW)[0].outcome is Outcome.FAILED
    done(server, one, decide(R1, 0.5, 0.5))
    assert "weight=50" in server.output.read_text()
    assert one.diagnose(NOW) == []


def test_a_governor_killed_between_the_two_files_claims_nothing(server: Nginx) -> None:
    """The output came first: the values still tell what nginx was last loaded with."""
    one = hands(server)
    server.output.write_text(server.output.read_text().replace("weight=100", "weight=50", 1))
    assert one.read([R1], NOW)[R1].accepted == 1.0
    assert one.verify([decide(R1, 1, 0.5)], NOW)[0].outcome is Outcome.FAILED
    done(server, one, decide(R1, 1, 0.5))


def test_the_shipped_configurations_of_both_sides_fit_each_other(server: Nginx) -> None:
    plugin = load(TEMPLATE.parent / "governor.yaml").actuator("chat", Lever.WEIGHT)
    assert plugin is not None
    mine = hands(server)._config  # noqa: SLF001
    here = {name: getattr(mine, name) for name in ("path", "template", "output", "check", "reload")}
    assert set(plugin.settings.variables) == set(server.variables)
    one = File(replace(plugin.settings, **here, variables=server.variables), BINDING)
    states = one.read([R1, ACME, SMALL], NOW)
    assert [states[t].accepted for t in (R1, ACME, SMALL)] == [1, 1e12, 0]
    done(server, one, decide(R1, 1, 0.5), decide(ACME, 1e12, 7000), decide(SMALL, 0, 0.25))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"output": ""}, "output: is missing"),
        ({"template": ""}, "template: is missing"),
        ({"template": "", "output": ""}, "check: judges what a template makes"),
        ({"check": ("nginx", "-t")}, "write {file} where"),
        ({"template": "nginx.conf.j2"}, "template: is relative"),
    ],
)
def test_an_unusable_config_is_refused_before_it_matters(config: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {
        "path": "/etc/v.json", "template": "/etc/n.j2", "output": "/etc/n.conf", "check": ("nginx", "-t", "{file}"),
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        FileConfig(**values | config)
