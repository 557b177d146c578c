"""`governor pin`: whoever holds a value by hand at night must be told what is wrong with it before it is in force."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.cli.app import app
from controller.config import load
from controller.core.model import Lever, Pin, Target
from controller.core.observation import Observation, PoolFacts, ReplicaFacts
from controller.run import pins
from controller.run.assembly import RunMode, assemble
from tests.support.cli import governor

CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {folder}/ledger}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: chat}}
    labels: {{tenant: user}}
    tenants: {{acme: {{}}, beta/eu: {{}}}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      replicas:
        mode: auto
        min: 1
        max: 9
        policy: {{kind: capacity}}
        pin: {{value: 3, until: 2099-01-01T00:00:00Z, reason: from the config}}
      weight: {{policy: {{kind: pid}}}}
      tenant_cap: {{mode: protect, max: 10000, policy: {{kind: pid}}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "governor.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    return path


def run(config: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--config", str(config)])


def refused(config: Path, *words: str) -> str:
    result = run(config, *words)
    assert result.exception is not None
    assert not pins.file_of(config.parent / "ledger").exists()
    return str(result.exception)


def test_a_pin_is_written_listed_replaced_and_taken_away(config: Path) -> None:
    done = run(config, "pin", "chat/replicas", "4", "--for", "2h", "--reason", "launch")
    assert done.exit_code == 0, done.exception
    assert "chat/replicas pinned at 4 until" in done.stdout
    entry = pins.read(pins.file_of(config.parent / "ledger"))[Target("chat", Lever.REPLICAS)]
    assert (entry.pin.value, entry.pin.reason) == (4.0, "launch")
    assert entry.pin.until == pytest.approx(time.time() + 7200, abs=60)

    again = run(config, "pin", "chat/replicas", "5", "--until", "2098-01-01", "--reason", "longer launch")
    assert "It was pinned at 4: launch" in again.stdout
    rows = [json.loads(line) for line in run(config, "pins", "--json").stdout.splitlines()]
    assert [(r["target"], r["value"], r["from"], r["state"]) for r in rows] == [
        ("chat/replicas", 5.0, "command", "in force"),
        ("chat/replicas", 3.0, "config", "overruled"),
    ]
    gone = run(config, "unpin", "chat/replicas")
    assert "chat/replicas unpinned; it was pinned at 5: longer launch" in gone.stdout
    assert "(config, in force): from the config" in run(config, "pins").stdout


def test_a_member_with_a_slash_is_a_member(config: Path) -> None:
    done = run(config, "pin", "chat/tenant_cap/beta/eu", "500", "--for", "1h", "--reason", "flood")
    assert done.exit_code == 0, done.exception
    assert Target("chat", Lever.TENANT_CAP, "beta/eu") in pins.read(pins.file_of(config.parent / "ledger"))
    assert "may only tighten" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("caht/replicas 4", "there is no pool 'caht'; did you mean chat?"),
        ("chat 4", "'' is no lever; write POOL/LEVER"),
        ("chat/replica 4", "'replica' is no lever; did you mean replicas?"),
        ("chat/downgrade/small 0.5", "chat has no lever downgrade; it has replicas, weight, tenant_cap"),
        ("chat/replicas/pod-1 4", "replicas has no members; write chat/replicas"),
        ("chat/tenant_cap 4", "tenant_cap has no member ''; write one of acme, beta/eu behind it"),
        ("chat/tenant_cap/acne 4", "has no member 'acne'; did you mean acme?"),
        ("chat/weight 0.5", "says no replica; write chat/weight/REPLICA"),
        ("chat/replicas 40", "40 is outside min 1 and max 9"),
        ("chat/replicas nan", "'nan' is not a number"),
        ("chat/replicas 1_2", "'1_2' is not a number; write for example 1"),
        ("chat/replicas 50%", "'50%' is not a number; write for example 1"),
        ("chat/weight/pod-0 120%", "120% is outside min 0.05 and max 1"),
        ("chat/replicas four", "'four' is not a number"),
        ("chat/replicas 2.5", "2.5 is not a multiple of the quantum 1; write 2 or 3"),
        ("chat/weight/pod-0 0.555", "0.555 is not a multiple of the quantum 0.01; write 0.55 or 0.56"),
    ],
)
def test_what_cannot_be_pinned_is_refused_with_its_mend(config: Path, words: str, expected: str) -> None:
    assert expected in refused(config, "pin", *words.split(), "--for", "1h", "--reason", "x")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--for", "2h"), "--reason: is missing"),
        (("--for", "2h", "--reason", "  "), "--reason: is missing"),
        (("--for", "2h", "--reason", "launch\nchat/replicas 9 until"), "--reason: has a line break or a control "),
        (("--for", "2h", "--reason", "\x1b[31mred"), "--reason: has a line break or a control "),
        (("--for", "2h", "--reason", "x" * 501), "--reason: has 501 characters; write at most 500"),
        (("--reason", "x"), "give either --for 2h or --until"),
        (("--reason", "x", "--for", "2h", "--until", "2098-01-01"), "give either"),
        (("--reason", "x", "--until", "2020-01-01"), "is in the past (2020-01-01 00:00:00 UTC)"),
        (("--reason", "x", "--until", "2h"), "is in the past"),
        (("--reason", "x", "--until", "soon"), "is not a time"),
        (("--reason", "x", "--until", "9999-12-31T23:59:59-23:59"), "--until: '9999-12-31T23:59:59-23:59' is beyond"),
        (("--reason", "x", "--for", "0s"), "--for: 0s is no time at all"),
    ],
)
def test_a_pin_has_a_reason_and_an_end_that_is_to_come(config: Path, words: tuple[str, ...], expected: str) -> None:
    assert expected in refused(config, "pin", "chat/replicas", "4", *words)


GATED = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {folder}/ledger}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: chat}}
    labels: {{class: priority}}
    classes: {{first: {{rank: 0}}, last: {{rank: 1}}}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      admission: {{max: 64, setpoints: [concurrency, deadline, priority], policy: {{kind: gate}}}}
"""


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    path = tmp_path / "governor.yaml"
    path.write_text(GATED.format(folder=tmp_path))
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deadline 0.05", "0.05 is outside 0.1 and 1; write a value between them"),
        ("deadline 2", "2 is outside 0.1 and 1"),
        ("deadline 0.53", "0.53 is not a multiple of the quantum 0.05; write 0.5 or 0.55"),
        ("priority 101", "101 is outside 0 and 100"),
        ("priority 1.43", "1.43 is not a multiple of the quantum 0.05; write 1.4 or 1.45"),
        ("concurrency 0.5", "0.5 is outside min 1 and max 64; bounds hold for pins too"),
    ],
)
def test_a_set_point_with_bounds_of_its_own_is_not_pinned_beyond_them(gated: Path, words: str, expected: str) -> None:
    """A factor of 2 on the deadlines lets in what is late, whatever the gate has for requests in flight."""
    member, value = words.split()
    message = refused(gated, "pin", f"chat/admission/{member}", value, "--for", "2h", "--reason", "r")
    assert expected in message


@pytest.mark.parametrize("words", ["deadline 0.5", "priority 0", "priority 1.4", "priority 100", "concurrency 8"])
def test_a_person_can_pin_all_that_a_set_point_can_be(gated: Path, words: str) -> None:
    member, value = words.split()
    done = run(gated, "pin", f"chat/admission/{member}", value, "--for", "2h", "--reason", "r")
    assert done.exit_code == 0, done.exception


def test_a_share_is_pinned_as_the_config_writes_shares(config: Path) -> None:
    done = run(config, "pin", "chat/weight/pod-0", "50%", "--for", "1h", "--reason", "half")
    assert done.exit_code == 0, done.exception
    assert pins.read(pins.file_of(config.parent / "ledger"))[Target("chat", Lever.WEIGHT, "pod-0")].pin.value == 0.5


def put(config: Path, value: float, until: float) -> None:
    """A pin as it is left from before: set when it was right."""
    with pins.edit(pins.file_of(config.parent / "ledger")) as entries:
        entries[Target("chat", Lever.REPLICAS)] = pins.Entry(Pin(value, until, "before"), time.time())


def test_a_pin_from_before_the_bounds_were_lowered_is_not_said_to_be_in_force(config: Path) -> None:
    put(config, 12.0, time.time() + 3600)
    assert "(command, held at 9: max_bound): before" in run(config, "pins").stdout
    tick(config)
    assert "(command, held at 9: max_bound): before" in run(config, "pins").stdout
    told = CliRunner().invoke(app, ["explain", str(config.parent / "ledger"), "--target", "chat/replicas"]).stdout
    assert "the configured maximum held it at 9" in told
    assert "pinned at 12 until" in told
    assert "before (the configured maximum holds it at 9)" in told


def test_a_pin_of_the_config_that_has_ended_is_not_one_that_comes_back(config: Path) -> None:
    config.write_text(config.read_text().replace("2099-01-01", "2020-01-01"))
    put(config, 5.0, time.time() + 3600)
    assert "chat/replicas 3 until 2020-01-01 00:00:00 (config, ended): from the config" in run(config, "pins").stdout


def test_what_is_not_pinned_cannot_be_unpinned(config: Path) -> None:
    assert "is pinned in the config; remove the pin there" in str(run(config, "unpin", "chat/replicas").exception)
    assert "is not pinned; pinned are none" in str(run(config, "unpin", "chat/weight/pod-0").exception)


def test_a_replica_that_nobody_can_know_is_pinned_with_a_warning(config: Path) -> None:
    done = run(config, "pin", "chat/weight/pod-0", "0.5", "--for", "1h", "--reason", "canary")
    assert done.exit_code == 0
    assert "no replica of chat is in the ledger" in done.stderr
    assert "the lever is in mode observe, so the pin is not sent" in done.stderr


def test_a_pin_of_a_pool_that_left_the_config_is_listed_as_such_and_can_go(config: Path) -> None:
    run(config, "pin", "chat/weight/pod-0", "0.5", "--for", "1h", "--reason", "canary")
    text = config.read_text()
    config.write_text(text.replace("weight: {policy: {kind: pid}}", ""))
    assert "(command, no such target): canary" in run(config, "pins").stdout
    assert run(config, "unpin", "chat/weight/pod-0").exit_code == 0


class Seen:
    """A source that sees three replicas."""

    def observe(self, at: float, deadline: float) -> Observation:
        return Observation(at, at, {"chat": PoolFacts(replicas={f"pod-{i}": ReplicaFacts() for i in range(3)})})

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def recorded(config: Path) -> Path:
    """A ledger of two ticks with three replicas, the second with a pin."""
    loop = assemble(load(config), mode=RunMode.DRY_RUN, source=Seen())
    loop.tick(time.time())
    assert run(config, "pin", "chat/replicas", "4", "--for", "2h", "--reason", "launch").exit_code == 0
    loop.tick(time.time() + 15)
    loop.close()
    return config.parent / "ledger"


def test_the_ledger_tells_which_replicas_can_be_pinned(config: Path, recorded: Path) -> None:
    good = run(config, "pin", "chat/weight/pod-1", "0.5", "--for", "1h", "--reason", "canary")
    bad = run(config, "pin", "chat/weight/pod-7", "0.5", "--for", "1h", "--reason", "canary")

    assert good.exit_code == 0
    assert "no replica" not in good.stderr
    assert "chat/weight/pod-7: no such replica is seen; did you mean pod-" in str(bad.exception)


@pytest.fixture
def breakers(config: Path) -> Path:
    """A config with a breaker, and a ledger of three replicas."""
    text = config.read_text().replace(
        "weight: {policy", "breaker: {mode: auto, policy: {kind: breaker}}\n      weight: {policy"
    )
    config.write_text(text)
    tick(config)
    return config


def tick(config: Path, later: float = 0.0) -> None:
    loop = assemble(load(config), mode=RunMode.DRY_RUN, source=Seen())
    loop.tick(time.time() + later)
    loop.close()


def out(config: Path, member: str, value: str = "0", reason: str = "repair") -> Result:
    return run(config, "pin", f"chat/breaker/{member}", value, "--for", "1h", "--reason", reason)


def test_a_person_who_repairs_one_after_the_other_cannot_take_out_the_last(breakers: Path) -> None:
    """Two are out for repair, and at night somebody takes out the third."""
    assert (out(breakers, "pod-0").exit_code, out(breakers, "pod-1").exit_code) == (0, 0)
    last = out(breakers, "pod-2")

    assert last.exit_code != 0
    assert str(last.exception) == (
        "chat/breaker/pod-2: at 0 no replica of chat would be in rotation (pod-0, pod-1 pinned at 0); "
        "unpin chat/breaker/pod-0 first, or write more than 0"
    )
    assert Target("chat", Lever.BREAKER, "pod-2") not in pins.read(pins.file_of(breakers.parent / "ledger"))
    assert out(breakers, "pod-2", "0.05").exit_code == 0
    assert out(breakers, "pod-0", "0", "still").exit_code == 0  # pod-2 gets something
    words = ("pin", "chat/breaker/pod-2", "0", "--for", "1h", "--reason", "x", "--config", breakers)
    assert governor(*words).returncode == 2


def test_the_list_of_pins_does_not_say_that_what_is_held_is_in_force(breakers: Path) -> None:
    """Each was right when it was set, and the replicas between them have gone since."""
    with pins.edit(pins.file_of(breakers.parent / "ledger")) as entries:
        for number in (0, 1, 2, 7):
            target = Target("chat", Lever.BREAKER, f"pod-{number}")
            entries[target] = pins.Entry(Pin(0.0, time.time() + 3600, "repair"), time.time())
    tick(breakers, 15.0)
    states = {
        row["target"]: row["state"] for row in map(json.loads, run(breakers, "pins", "--json").stdout.splitlines())
    }

    assert states["chat/breaker/pod-0"] == "held at 1: ejection_cap"
    assert states["chat/breaker/pod-1"] == states["chat/breaker/pod-2"] == "in force"
    assert states["chat/breaker/pod-7"] == "no such replica is seen"


@pytest.fixture
def shared(config: Path) -> Path:
    """Two pools that share ten GPUs; the first is pinned at three by the config."""
    text = config.read_text().replace("ledger:", "budgets: {gpus: {max: 10}}\nledger:", 1)
    other = "{min: 1, max: 9, mode: auto, policy: {kind: capacity}}"
    config.write_text(
        f"{text}  code: {{engine: vllm, selector: {{model_name: code}}, levers: {{replicas: {other}}}}}\n"
    )
    return config


def test_two_people_who_pin_two_pools_are_told_that_both_cannot_have_it(shared: Path) -> None:
    """Each pin was within the budget alone, and at night the plan cut one of them."""

    def hold(pool: str, value: str) -> Result:
        return run(shared, "pin", f"{pool}/replicas", value, "--for", "1h", "--reason", "launch")

    assert str(hold("code", "8").exception) == (
        "code/replicas: at 8 this takes 11 GPUs (chat 3 x 1 pinned, code 8 x 1 pinned), and the budget gpus allows 10; "
        "budgets hold for pins too, so write less, unpin chat/replicas or raise the budget"
    )
    assert hold("code", "7").exit_code == 0
    assert "11 GPUs (chat 4 x 1 pinned, code 7 x 1 pinned)" in str(hold("chat", "4").exception)
    assert hold("code", "6").exit_code == 0
    assert hold("chat", "4").exit_code == 0


def test_whoever_makes_it_better_is_not_refused_because_it_is_not_good_yet(shared: Path) -> None:
    with pins.edit(pins.file_of(shared.parent / "ledger")) as entries:
        for pool in ("chat", "code"):
            entries[Target(pool, Lever.REPLICAS)] = pins.Entry(Pin(9.0, time.time() + 3600, "x"), time.time())

    assert run(shared, "pin", "chat/replicas", "8", "--for", "1h", "--reason", "less").exit_code == 0


def test_whoever_takes_out_more_than_the_breaker_may_is_told_what_it_means(breakers: Path) -> None:
    assert "held back" not in out(breakers, "pod-0").stderr
    done = out(breakers, "pod-1")

    assert done.exit_code == 0
    assert "with it 2 of 3 are held back, and group allows 1: no other can be, however bad it is" in done.stderr


def test_a_weight_cannot_be_pinned_at_nothing_at_all(config: Path, recorded: Path) -> None:
    done = run(config, "pin", "chat/weight/pod-1", "0", "--for", "1h", "--reason", "x")

    assert "0 is outside min 0.05 and max 1" in str(done.exception)


def test_a_ledger_with_a_moment_beyond_the_calendar_can_still_be_explained(config: Path) -> None:
    """`check` lets none through any more; what was recorded before stays recorded."""
    loop = assemble(load(config), mode=RunMode.DRY_RUN, source=Seen())
    owner = Target("chat", Lever.REPLICAS)
    loop.parts = replace(loop.parts, pins=pins.Pins({owner: Pin(3.0, 253_402_387_139.0, "for ever")}))
    loop.tick(time.time())
    loop.close()
    told = CliRunner().invoke(app, ["explain", str(config.parent / "ledger"), "--target", "chat/replicas"])

    assert told.exit_code == 0, told.exception
    assert "until beyond the calendar UTC: for ever" in told.stdout


def test_as_many_ticks_as_no_ledger_has_are_no_crash() -> None:
    done = governor("explain", "nowhere", "--last", "1" + "0" * 20)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--last" in done.stderr


def test_explain_tells_one_lever_with_its_members_and_who_pinned_what(recorded: Path) -> None:
    def explain(*words: str) -> Result:
        return CliRunner().invoke(app, ["explain", str(recorded), *words])

    weights = explain("--target", "chat/weight").stdout.splitlines()
    assert [line.split()[2] for line in weights] == [f"chat/weight/pod-{i}" for i in range(3)]
    assert explain("--target", "chat/weight/pod-2").stdout.count("\n") == 1
    pinned = explain("--target", "chat/replicas").stdout
    assert "chat/replicas 3 → 4" in pinned
    assert "UTC: launch" in pinned
    assert "UTC: launch" in explain("--target", "chat/replicas", "--table").stdout
    (line,) = explain("--target", "chat/replicas", "--json").stdout.splitlines()
    assert json.loads(line)["pin"]["reason"] == "launch"
    wrong = str(explain("--target", "chat/wieght").exception)
    assert wrong == (
        "--target chat/wieght: no such target in these records; there are chat/replicas, chat/tenant_cap, chat/weight"
    )


def test_mistakes_exit_with_2(config: Path) -> None:
    done = governor("pin", "chat/replicas", "40", "--for", "1h", "--reason", "x", "--config", config)
    assert done.returncode == 2
    assert done.stderr.startswith("governor: chat/replicas: 40 is outside min 1 and max 9; bounds hold for pins too")
