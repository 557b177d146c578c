"""What is asked for and can never come about passed `governor check`, and was found out when it was needed."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from controller.config import ConfigError, GovernorConfig, hints, load, loads
from controller.config.errors import dotted
from tests.support.levers import ROOT
from tests.support.written import pool, written

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PROMISE = "objectives: [{signal: ttft, percentile: p95, target: 2s}]"
FREE = "min: 1, max: 8, policy: {kind: capacity}"


def text(replicas: str = FREE, *levers: str, write: str = FREE, more: str = "") -> str:
    keys = PROMISE, "gpus_per_replica: 2", "tenants: {ann: {consents: true}}", "labels: {tenant: user}"
    read = pool("read", *keys, levers=[f"replicas: {{{replicas}}}", *levers])
    return written(read, pool("write", PROMISE, levers=[f"replicas: {{{write}}}"])) + more


def config(replicas: str = FREE, *levers: str, write: int = 8, more: str = "") -> GovernorConfig:
    return loads(text(replicas, *levers, write=f"min: 1, max: {write}, policy: {{kind: capacity}}", more=more))


def mistakes(replicas: str = FREE, *levers: str, write: int = 8, more: str = "") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config(replicas, *levers, write=write, more=more)
    assert all(one.mend and one.line for one in caught.value.problems)
    return [str(one) for one in caught.value.problems]


def law(text: str) -> str:
    return f"min: 1, max: 8, policy: {{kind: capacity, {text}}}"


PIN = "pin: {value: 8, until: 2030-01-01T00:00:00Z, reason: fair}"


def pair(ratio: str) -> str:
    return f"pairs: {{llama: {{prefill: read, decode: write, ratio: {ratio}}}}}"


@pytest.mark.parametrize(
    ("replicas", "levers", "write", "more", "expected"),
    [
        (
            law('floors: [{replicas: 50, begin: "08:00", end: "09:00"}]'), (), 8, "",
            "pools.read.levers.replicas.policy.floors[0].replicas: 50 is above max 8, which holds; lower the floor or",
        ),
        (law("spare: 20"), (), 8, "", "pools.read.levers.replicas.policy.spare: 20 is above max 8, so that "),
        (
            FREE, ("breaker: {min: 0.5, policy: {kind: breaker}}",), 8, "",
            "pools.read.levers.breaker.min: 0.5 never takes a replica out, and one that hangs keeps that part",
        ),
        (
            FREE, ("breaker: {min: 0.1, policy: {kind: breaker}}",), 8, "",
            "pools.read.levers.breaker.min: 0.1 never takes a replica out, and one that hangs keeps that part",
        ),
        (
            f"{FREE}, {PIN}", (), 8, "budgets: {gpus: {max: 15}}",
            "pools.read.levers.replicas.pin.value: 8 replicas take 16 GPUs, and the budget gpus allows 15; budgets",
        ),
        (
            "min: 8, max: 8, policy: {kind: capacity}", (), 2, pair("[0.4, 0.6]"),
            "pairs.llama.ratio: no 8 to 8 prefill replicas (read) are 0.4 to 0.6 times 1 to 2 decode replicas (write)",
        ),
        (FREE, (), 1, pair("[0.4, 0.6]"), "pairs.llama.ratio: no 1 to 8 prefill replicas (read) are 0.4 to 0.6 times"),
        (FREE, (), 8, pair("[0.4, 0.5, 0.6]"), "pairs.llama.ratio: has 3 entries, and 2 are meant; write 2"),
    ],
)  # fmt: skip
def test_what_can_never_come_about_is_refused(
    replicas: str, levers: tuple[str, ...], write: int, more: str, expected: str
) -> None:
    (found,) = mistakes(replicas, *levers, write=write, more=more)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("replicas", "levers", "write", "more"),
    [
        (law('floors: [{replicas: 8, begin: "08:00", end: "09:00"}], spare: 8'), (), 8, ""),
        (FREE, ("breaker: {min: 0.05, policy: {kind: breaker}}",), 8, ""),
        (f"{FREE}, {PIN}", (), 8, "budgets: {gpus: {max: 17}}"),
        (f"{FREE}, {PIN}", (), 8, "budgets: {gpus: {max: 8, pools: [write]}}"),
        (FREE, (), 2, pair("[0.4, 0.6]")),
        ("min: 8, max: 8, policy: {kind: capacity}", (), 20, pair("[0.4, 0.4]")),
    ],
)  # fmt: skip
def test_what_just_can_is_taken(replicas: str, levers: tuple[str, ...], write: int, more: str) -> None:
    assert config(replicas, *levers, write=write, more=more).pools


def test_a_promise_of_three_hundred_digits_is_told_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"add up to 1e\+300 tokens/s, and 8 replicas serve at most 16,000,000"):
        loads(text().replace("consents: true", "guarantee: 1e300"))


def told(made: GovernorConfig) -> list[str]:
    return [f"{dotted(one.path)}: {one.mistake}; {one.mend}" for one in hints(made, NOW)]


def test_a_pin_that_ended_years_ago_is_told() -> None:
    """Somebody reads the file and believes that the pool is held at four."""
    (found,) = told(config(f"{FREE}, {PIN.replace('2030', '2020')}"))

    assert found.startswith(
        "pools.read.levers.replicas.pin: ended at 2020-01-01T00:00Z and holds nothing any more; rem"
    )
    assert told(config(f"{FREE}, {PIN}")) == []


def pins_of(read: int, write: int, until: str = "2030") -> str:
    """Eight GPUs for a pool of two each and one of one."""
    pins = [f"pin: {{value: {one}, until: {until}-01-01T00:00:00Z, reason: fair}}" for one in (read, write)]
    return text(f"{FREE}, {pins[0]}", write=f"{FREE}, {pins[1]}", more="budgets: {gpus: {max: 8}}")


def test_pins_that_fit_alone_and_not_together_are_told() -> None:
    """Each was within the budget, and the one of the launch day was cut by the plan."""
    (found,) = told(loads(pins_of(3, 3)))

    assert found == (
        "pools.write.levers.replicas.pin.value: with the other pools this takes 9 GPUs (read 3 x 2 pinned, write 3 x 1 "
        "pinned), and the budget gpus allows 8; budgets hold for pins too, so not all of this will stand; lower a pin "
        "or raise the budget"
    )
    assert told(loads(pins_of(3, 2))) == []
    assert not any("budget" in one for one in told(loads(pins_of(3, 3, "2020"))))


def test_a_pin_that_leaves_another_pool_less_than_its_minimum_is_told() -> None:
    pin = "pin: {value: 4, until: 2030-01-01T00:00:00Z, reason: fair}"
    (found,) = told(config(f"{FREE}, {pin}", more="budgets: {gpus: {max: 8}}"))

    assert "9 GPUs (read 4 x 2 pinned, write 1 x 1 at least)" in found


def test_a_breaker_whose_least_is_a_probe_is_told() -> None:
    (found,) = told(config(FREE, "breaker: {min: 0.05, policy: {kind: breaker}}"))

    assert found.startswith("pools.read.levers.breaker.min: 0.05 is what a probe gets, so a replica that hangs goes on")
    assert told(config(FREE, "breaker: {policy: {kind: breaker}}")) == []


def test_a_ladder_that_leaves_nothing_to_downgrade_is_told() -> None:
    gate, less = "admission: {policy: {kind: gate}}", "downgrade: {receivers: [write], policy: {kind: downgrade}}"
    (found,) = told(config(FREE, gate, less))

    assert found.startswith("pools.read.levers: admission stands before downgrade, and what the gate may refuse")
    assert told(config(FREE, less, gate)) == []
    assert told(config(FREE, gate.replace("{policy", "{mode: off, policy"), less)) == []


def test_a_ladder_that_downgrades_all_for_the_flood_of_one_is_told() -> None:
    caps, less = (
        "tenant_cap: {policy: {kind: fair_share}}",
        "downgrade: {receivers: [write], policy: {kind: downgrade}}",
    )
    (found,) = told(config(FREE, less, caps))

    assert found.startswith(
        "pools.read.levers: downgrade stands before tenant_cap, so one tenant's flood sends whoever"
    )
    assert told(config(FREE, caps, less)) == []
    assert told(config(FREE, less, caps.replace("{policy", "{mode: off, policy"))) == []
    assert (
        told(config(FREE, less, "tenant_cap: {max: 1e6, policy: {kind: pid, signal: queue_delay, target: 1.0}}")) == []
    )


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.stem)
def test_nothing_that_is_shipped_is_hardly_meant(path: Path) -> None:
    keys = path.read_text(encoding="utf-8").splitlines()
    if {"version: 1", "pools:"} <= set(keys) and any(line.startswith("source:") for line in keys):
        assert told(load(path)) == []
