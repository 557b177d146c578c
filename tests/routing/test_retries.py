"""Retries: a share of arrivals and no more, however many fail; and those refused together do not come back together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.downgrade import consents, pool_for
from routing.knobs import Downgrade
from routing.model import Request
from routing.retries import LONGEST, SPARE_SECONDS, RetryBudget, retry_after
from routing.thinning import Thinner


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 1.0)), max_size=300), st.floats(0.0, 1.0), st.floats(0.0, 20.0))
def test_a_storm_of_failures_makes_no_storm_of_retries(
    events: list[tuple[bool, float]], share: float, spare: float
) -> None:
    budget, now, arrived, retried = RetryBudget(share, spare, 0.0), 0.0, 0, 0
    for fails, dt in events:
        now += dt
        if fails:
            retried += budget.take(now)
        else:
            budget.arrived()
            arrived += 1
        assert retried <= spare + share * arrived + spare * now / SPARE_SECONDS + 1e-3


def test_a_share_of_arrivals_may_be_retried_for_ever() -> None:
    budget = RetryBudget(0.1, 0.0, 0.0)
    retried = 0
    for _ in range(1000):
        budget.arrived()
        retried += budget.take(0.0)

    assert 98 <= retried <= 100


def test_a_quiet_fleet_may_retry_at_all_and_a_budget_of_nothing_never() -> None:
    assert RetryBudget(0.0, 1.0, 0.0).take(0.0)
    budget = RetryBudget(0.0, 0.0, 0.0)
    budget.arrived()
    assert not budget.take(1e9)


def test_a_smaller_budget_holds_at_once() -> None:
    budget = RetryBudget(0.1, 100.0, 0.0)
    budget.tune(0.1, 2.0)

    assert [budget.take(0.0) for _ in range(3)] == [True, True, False]


def test_retry_after_spreads_those_refused_together_and_is_bounded() -> None:
    times = [retry_after(10.0, id_) for id_ in range(1000)]

    assert all(10.0 <= each <= 15.0 for each in times)
    assert len({round(each, 6) for each in times}) > 900
    assert sorted(times)[900] > 14.0
    assert retry_after(0.0, 1) >= 1.0
    assert retry_after(1e9, 1) <= 1.5 * LONGEST
    assert retry_after(10.0, 7) == retry_after(10.0, 7)


RULE = Downgrade("small", 0.5, frozenset({"t"}), frozenset({"batch"}), longest_prompt=1000)


def request(tenant: str = "t", klass: str = "batch", prompt: int = 100) -> Request:
    return Request(0, prompt, 100, tenant=tenant, klass=klass)


def test_nobody_is_downgraded_without_the_consent_of_tenant_and_class() -> None:
    assert consents(RULE, request())
    assert not consents(RULE, request(tenant="other"))
    assert not consents(RULE, request(klass="critical"))
    assert not consents(RULE, request(prompt=1001))
    assert not consents(Downgrade("small", 1.0), request())  # empty sets are nobody
    assert consents(Downgrade("small", 1.0, frozenset("*"), frozenset("*")), request())


def test_only_prompts_of_a_size_that_may_go_do() -> None:
    everybody = (frozenset("*"), frozenset("*"))
    long = Downgrade("far", 1.0, *everybody, shortest_prompt=1001)
    assert [consents(long, request(prompt=size)) for size in (1000, 1001, 99_999)] == [False, True, True]

    thinner, rules = Thinner(), (Downgrade("small", 0.5, *everybody, longest_prompt=1000),)
    pools = [pool_for(request(prompt=100 if i % 2 else 5000), rules, thinner) for i in range(200)]
    assert pools.count("small") == 50  # half of those that may, not of all
    with pytest.raises(ValueError, match="shortest_prompt: is above longest_prompt; write at most 10"):
        Downgrade("small", 1.0, *everybody, longest_prompt=10, shortest_prompt=11)


def test_a_share_of_those_that_consent_goes_to_the_first_rule_that_fits() -> None:
    thinner = Thinner()
    rules = (RULE, Downgrade("small", 1.0, frozenset("*"), frozenset("*")))
    pools = [pool_for(request(), rules, thinner) for _ in range(100)]

    assert pools.count("small") == 50
    assert pools.count("") == 50
    assert pool_for(request(tenant="other"), rules, thinner) == "small"


def test_the_shares_of_two_pools_add_up() -> None:
    """If the first pool alone decided, a controller that fills it and then the next would ask the next in vain."""
    thinner = Thinner()
    everybody = (frozenset("*"), frozenset("*"))
    rules = (Downgrade("small", 0.5, *everybody), Downgrade("tiny", 0.3, *everybody))
    pools = [pool_for(request(), rules, thinner) for _ in range(1000)]

    assert pools.count("small") == pytest.approx(500, abs=1)
    assert pools.count("tiny") == pytest.approx(300, abs=2)
    assert pools.count("") == pytest.approx(200, abs=2)


def test_shares_that_add_up_to_more_than_all_fill_the_first_first() -> None:
    thinner = Thinner()
    everybody = (frozenset("*"), frozenset("*"))
    rules = (
        Downgrade("small", 0.8, *everybody),
        Downgrade("tiny", 0.8, *everybody),
        Downgrade("mini", 1.0, *everybody),
    )
    pools = [pool_for(request(), rules, thinner) for _ in range(1000)]

    assert pools.count("small") == pytest.approx(800, abs=1)
    assert pools.count("tiny") == pytest.approx(200, abs=1)
