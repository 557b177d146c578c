"""Each law against the disaster that it is for, in a small fleet: 64 slots, about 31 requests/s of 2 s each.

Each test first shows the disaster without the law, so that it cannot pass for want of one.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from routing.knobs import Admission, Concurrency, Klass, Knobs, Queue, Retries, Tenant
from routing.model import Request
from tests.support.gateway_plant import Client, GatewayPlant, attained, poisson

TARGET = 2.0  # s to the first token
CAP = Knobs(concurrency=Concurrency(per_slot=1.0))
CRITICAL, BATCH = Klass(rank=0), Klass(rank=2)
RAMPS = {
    "critical": Klass(rank=0, target=TARGET, delay_lo=1.6, delay_hi=2.4, load_lo=1.05, load_hi=1.25),
    "batch": Klass(rank=2, target=TARGET, delay_lo=0.25, delay_hi=1.0, load_lo=0.85, load_hi=1.0),
}

Rate = Callable[[float], float]


def flash(base: float, peak: float) -> Rate:
    return lambda t: peak if 30 <= t < 90 else base


def served(clients: list[Client]) -> float:
    return sum(client.finished for client in clients) / len(clients)


def two_classes(knobs: Knobs, critical: Rate, batch: Rate, until: float = 120.0) -> tuple[list[Client], list[Client]]:
    high = poisson(critical, until, klass="critical")
    low = poisson(batch, until, klass="batch")
    GatewayPlant(knobs).run([*high, *low])
    return high, low


def test_a_flash_crowd_drowns_critical_requests_and_class_admission_saves_them() -> None:
    """48 requests/s come and 31 fit. Without a law everybody waits; with one, what fits of batch is still served."""
    critical, _ = two_classes(Knobs(), flash(10, 24), flash(10, 24))
    assert attained(critical, TARGET) < 0.5

    knobs = replace(CAP, queue=Queue(fair=True), classes=RAMPS, admission=Admission(prefill_rate=20_000.0))
    critical, batch = two_classes(knobs, flash(10, 24), flash(10, 24))
    assert attained(critical, TARGET) > 0.97
    assert attained(batch, TARGET) > 0.9 * (10 * 60 + 7 * 60) / (10 * 60 + 24 * 60)
    assert served(batch) == attained(batch, TARGET)  # who was let in was in time


@pytest.mark.parametrize("ramps", [False, True], ids=["queue alone", "with class admission"])
def test_low_priority_starves_under_strict_order_and_lives_on_its_floor(ramps: bool) -> None:
    """Critical alone is more than fits, for a long time."""

    def run(floor: float) -> tuple[float, float]:
        critical_, batch_ = (RAMPS["critical"], RAMPS["batch"]) if ramps else (CRITICAL, BATCH)
        classes = {"critical": critical_, "batch": replace(batch_, floor=floor)}
        knobs = replace(CAP, queue=Queue(fair=True, length=60, wait=20.0), classes=classes)
        critical, batch = two_classes(knobs, lambda t: 40.0, lambda t: 5.0)
        late = [client for client in batch if client.arrived > 20.0]
        return served(critical), sum(client.finished for client in late) / 100.0

    alone, starved = run(0.0)
    with_floor, fed = run(0.1)
    assert starved < 0.1  # requests/s
    assert fed == pytest.approx(0.1 * 31, rel=0.25)
    assert with_floor > alone - 0.12  # and critical lost no more than that share


def test_late_work_is_dropped_early_so_that_what_is_served_is_in_time() -> None:
    """45 requests/s come: first come, first served, soon everybody is late, and the fleet works for nobody."""
    clients = poisson(lambda t: 45.0, 90.0, deadline=TARGET)
    GatewayPlant(CAP).run(clients)
    assert attained(clients, TARGET) < 0.2

    clients = poisson(lambda t: 45.0, 90.0, deadline=TARGET)
    GatewayPlant(replace(CAP, admission=Admission(deadlines=True, prefill_rate=20_000.0))).run(clients)
    assert attained(clients, TARGET) > 0.95 * 31 / 45
    assert served(clients) == attained(clients, TARGET)


@pytest.mark.parametrize("rate", [None, 20_000.0], ids=["measured alone", "with the prefill rate"])
def test_engines_that_run_less_than_their_slots_say_are_found_out(rate: float | None) -> None:
    """As with a full KV memory: 16 run, 64 were told, and requests wait where nobody can reach them. Of what is known
    of slots and prefill nothing tells; the measured wait does."""
    knobs = replace(CAP, queue=Queue(fair=True), classes=RAMPS, admission=Admission(prefill_rate=rate))
    critical, batch = poisson(lambda t: 20.0, 90.0, klass="critical"), poisson(lambda t: 24.0, 90.0, klass="batch")
    GatewayPlant(knobs, told=64).run([*critical, *batch])

    assert attained(critical, TARGET) > 0.9
    assert attained(batch, TARGET) > 0.8 * 11 / 24


def tenants() -> dict[str, list[Client]]:
    rates: dict[str, Rate] = {"a": lambda t: 4.0, "b": lambda t: 4.0, "flooder": lambda t: 80.0 if t > 20.0 else 4.0}
    return {name: poisson(rate, 80.0, tenant=name) for name, rate in rates.items()}


@pytest.mark.parametrize(
    "knobs",
    [
        replace(CAP, queue=Queue(fair=True)),
        Knobs(other_tenants=Tenant(tokens_per_s=16 * 600.0, token_burst=20 * 600.0)),
    ],
    ids=["fair queue", "buckets"],
)
def test_a_tenant_that_floods_drowns_the_others_without_fairness(knobs: Knobs) -> None:
    drowned = tenants()
    GatewayPlant(CAP).run([client for group in drowned.values() for client in group])
    assert attained(drowned["a"], TARGET) < 0.5

    safe = tenants()
    GatewayPlant(knobs).run([client for group in safe.values() for client in group])
    assert attained(safe["a"], TARGET) > 0.99
    assert attained(safe["b"], TARGET) > 0.99
    assert sum(client.finished for client in safe["flooder"]) > 16 * 60 * 0.8  # and the flooder keeps its share


def test_a_retry_storm_outlives_its_trigger_and_a_budget_ends_it() -> None:
    """22 requests/s fit easily; half a minute of 60 fills the engines with work that nobody waits for any more."""

    def run(knobs: Knobs) -> float:
        clients = poisson(lambda t: 60.0 if 20 <= t < 50 else 22.0, 150.0, patience=4.0, retries=5, obedient=False)
        GatewayPlant(knobs).run(clients)
        return attained([client for client in clients if client.arrived > 90.0], TARGET)

    assert run(Knobs()) < 0.5  # long after the trigger
    guarded = replace(CAP, queue=Queue(length=40), retries=Retries(client_budget=0.1))
    assert run(guarded) > 0.98


def test_requests_wait_for_a_cold_start_instead_of_failing() -> None:
    def run(hold: bool) -> float:
        plant = GatewayPlant(replace(CAP, queue=Queue(hold=hold, wait=90.0)), replicas=0)
        clients = poisson(lambda t: 0.5, 60.0)
        plant.at(30.0, lambda: plant.join("r0"))
        plant.run(clients)
        return served(clients)

    assert run(False) < 0.7
    assert run(True) == 1.0


def test_a_few_huge_prompts_stop_everybody_and_the_longest_prompt_stops_them() -> None:
    """60 000 tokens are 3 s of prefill, in which nobody else gets a first token there."""

    def run(knobs: Knobs) -> float:
        normal = poisson(lambda t: 20.0, 60.0)
        huge = poisson(lambda t: 1.0, 60.0, tenant="huge", prompt=60_000)
        GatewayPlant(knobs).run([*normal, *huge])
        return attained(normal, TARGET)

    assert run(CAP) < 0.8
    assert run(replace(CAP, longest_prompt=8000)) > 0.99


def test_the_same_load_has_the_same_fate_twice() -> None:
    knobs = replace(CAP, queue=Queue(fair=True), classes=RAMPS)
    runs = [two_classes(knobs, flash(10, 24), flash(10, 24), 60.0) for _ in range(2)]

    assert [client.ttft for client in runs[0][0]] == [client.ttft for client in runs[1][0]]
    assert [client.ttft for client in runs[0][1]] == [client.ttft for client in runs[1][1]]


def test_a_plant_of_one_is_what_it_says() -> None:
    """One request alone: its prefill, then its answer at the pace."""
    plant = GatewayPlant(Knobs(), replicas=1)
    client = Client(Request(0, 2000, 100), 50, 5.0)
    plant.run([client])

    assert client.ttft == pytest.approx(0.1)
    assert plant.now == pytest.approx(5.0 + 0.1 + 50 * 0.02)
