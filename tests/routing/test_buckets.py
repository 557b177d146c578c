"""Tenant buckets: never more than rate · t + burst, whatever the controller does to the rate meanwhile."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.actions import Reason
from routing.buckets import Buckets, Debit, Refusal
from routing.knobs import Tenant

CAPS = Tenant(tokens_per_s=100.0, token_burst=1000.0)


def take(
    buckets: Buckets, now: float, tokens: float = 100.0, caps: Tenant = CAPS, tenant: str = "t"
) -> Debit | Refusal:
    return buckets.take(tenant, caps, int(tokens) // 2, tokens - int(tokens) // 2, now)


def passed(buckets: Buckets, now: float, tokens: float = 100.0, caps: Tenant = CAPS) -> int:
    """How many come through at once."""
    count = 0
    while isinstance(take(buckets, now, tokens, caps), Debit):
        count += 1
    return count


def test_a_burst_passes_and_then_the_rate() -> None:
    buckets = Buckets()

    assert passed(buckets, 0.0) == 10
    assert passed(buckets, 0.5) == 0
    assert passed(buckets, 3.0) == 3
    assert passed(buckets, 1e6) == 10  # and never more than the burst


def test_a_refusal_says_why_and_when_it_would_pass() -> None:
    buckets = Buckets()
    passed(buckets, 0.0)

    assert take(buckets, 0.0, 250.0) == Refusal(Reason.TENANT_TOKENS, 2.5)
    assert isinstance(take(buckets, 2.5, 250.0), Debit)
    assert take(buckets, 2.5, 1001.0) == Refusal(Reason.TENANT_BURST, None)  # larger than the bucket: never
    shut = Tenant(tokens_per_s=0.0, token_burst=50.0)
    assert take(buckets, 0.0, 60.0, shut, "u") == Refusal(Reason.TENANT_BURST, None)


def test_requests_are_counted_beside_tokens() -> None:
    buckets = Buckets()
    caps = Tenant(requests_per_s=1.0, request_burst=2.0, tokens_per_s=1000.0, token_burst=10_000.0)

    assert passed(buckets, 0.0, 10.0, caps) == 2
    assert take(buckets, 0.0, 10.0, caps) == Refusal(Reason.TENANT_REQUESTS, 1.0)
    assert buckets.levels(0.0)["t"] == (0.0, 9980.0)  # the refused one took no tokens


def test_tenants_do_not_share_a_bucket() -> None:
    buckets = Buckets()
    passed(buckets, 0.0)

    assert isinstance(take(buckets, 0.0, tenant="other"), Debit)


def test_the_answer_s_true_length_is_settled_at_the_end() -> None:
    buckets = Buckets()
    short = buckets.take("t", CAPS, 100, 300.0, 0.0)
    assert isinstance(short, Debit)
    buckets.served(short, 50, 0.0)
    assert buckets.levels(0.0)["t"] == (None, 850.0)

    long = buckets.take("t", CAPS, 100, 300.0, 0.0)
    assert isinstance(long, Debit)
    buckets.served(long, 2000, 0.0)
    assert buckets.levels(0.0)["t"] == (None, -1250.0)  # a debt that the rate pays first
    assert passed(buckets, 13.0, 50.0) == 1


def test_what_was_not_served_is_given_back_but_never_above_the_burst() -> None:
    buckets = Buckets()
    debit = take(buckets, 0.0, 800.0)
    assert isinstance(debit, Debit)
    buckets.undo(debit, 60.0)

    assert buckets.levels(60.0)["t"] == (None, 1000.0)


def test_a_new_rate_refills_nothing() -> None:
    """Envoy's trap: a controller that moves a rate each tick must not hand out a burst each tick."""
    buckets = Buckets()
    now, through = 0.0, passed(buckets, 0.0)
    for tick in range(100):
        now += 1.0
        caps = Tenant(tokens_per_s=100.0 + tick % 2, token_burst=1000.0)
        buckets.tune({"t": caps}, Tenant(), now)
        through += passed(buckets, now, 100.0, caps)

    assert through <= 10 + 101


def test_a_cap_taken_off_and_put_back_refills_nothing() -> None:
    buckets = Buckets()
    passed(buckets, 0.0)
    buckets.tune({}, Tenant(), 0.0)
    buckets.tune({"t": CAPS}, Tenant(), 0.0)

    assert passed(buckets, 0.0) == 0


def test_a_clock_that_goes_back_earns_nothing() -> None:
    buckets = Buckets()
    passed(buckets, 100.0)
    for _ in range(10):
        assert passed(buckets, 50.0) == 0
        assert passed(buckets, 100.0) == 0


def test_requests_that_come_close_together_by_chance_do_not_cost_a_tenant_that_is_far_below_its_cap() -> None:
    """A burst of a few requests whatever the rate refused one in thirty of a tenant at six tenths of its cap."""
    caps = Tenant(tokens_per_s=20_000.0, token_burst=32_768.0)

    assert passed(Buckets(), 0.0, 8500.0, caps) == 8  # four seconds of the rate, less what each has to find
    assert passed(Buckets(), 0.0, 8500.0, Tenant(tokens_per_s=2000.0, token_burst=32_768.0)) == 3


def test_a_raised_rate_hands_out_no_part_of_the_larger_burst() -> None:
    buckets, small, large = Buckets(), Tenant(tokens_per_s=1000.0), Tenant(tokens_per_s=1e6)
    passed(buckets, 0.0, 1000.0, small)
    buckets.tune({"t": large}, Tenant(), 0.0)

    assert passed(buckets, 0.0, 1000.0, large) == 0


def test_a_cap_does_not_choose_the_small_requests() -> None:
    """Else what is served looks shorter than what is asked for, and replicas stronger than they are."""
    caps, buckets, dice, now = Tenant(tokens_per_s=20_000.0), Buckets(), random.Random(1), 0.0
    asked, through = {500.0: 0, 8000.0: 0}, {500.0: 0, 8000.0: 0}
    for _ in range(30_000):
        now += dice.expovariate(20.0)  # 85,000 tokens/s
        size = dice.choice((500.0, 8000.0))
        asked[size] += 1
        through[size] += isinstance(take(buckets, now, size, caps), Debit)

    shares = {size: through[size] / asked[size] for size in asked}
    assert shares[8000.0] == pytest.approx(shares[500.0], rel=0.1)


@pytest.mark.parametrize(("ask", "left"), [(5000.0, 5000.0), (20_000.0, 0.0)])
def test_the_lower_class_gives_way_first_under_a_cap_and_gets_what_the_higher_one_leaves(
    ask: float, left: float
) -> None:
    """Both classes of a tenant used to be refused alike, so that a cap cost critical requests for sheddable ones."""
    caps, buckets, high, low = Tenant(tokens_per_s=10_000.0), Buckets(), 0.0, 0.0
    for i in range(6000):
        now = i * 0.05
        paid = buckets.take("t", caps, 0, ask * 0.05, now)
        high += paid.tokens if isinstance(paid, Debit) else 0.0
        paid = buckets.take("t", caps, 0, 1000.0, now, 0.5)
        low += paid.tokens if isinstance(paid, Debit) else 0.0

    assert high / 300.0 == pytest.approx(min(ask, 10_000.0), abs=200.0)
    assert low / 300.0 == pytest.approx(left, abs=200.0)


def test_a_full_bucket_serves_the_lowest_class_too() -> None:
    """A reserve is no ban: a request as large as the burst still passes when nobody else wanted anything."""
    buckets = Buckets()

    assert isinstance(buckets.take("t", CAPS, 500, 500.0, 0.0, 0.5), Debit)
    assert buckets.take("t", CAPS, 50, 50.0, 4.0, 0.5) == Refusal(Reason.TENANT_TOKENS, 2.0)
    assert isinstance(buckets.take("t", CAPS, 50, 50.0, 6.0, 0.5), Debit)


STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 5.0),  # seconds until it
        st.sampled_from(["take", "take", "take", "served", "undo", "tune"]),
        st.floats(1.0, 600.0),  # tokens, or a new rate
    ),
    max_size=100,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_a_tenant_never_gets_more_than_rate_times_time_and_a_burst(steps: list[tuple[float, str, float]]) -> None:
    buckets, caps, now = Buckets(), CAPS, 0.0
    earned, used = caps.token_burst, 0.0  # used: taken, less given back
    take(buckets, now, 0.0)
    open_: list[Debit] = []
    for dt, what, amount in steps:
        now += dt
        earned += dt * (caps.tokens_per_s or 0.0)
        if what == "take":
            paid = take(buckets, now, amount, caps)
            if isinstance(paid, Debit):
                used += paid.tokens
                open_.append(paid)
                assert used <= earned + 1e-6
        elif what == "tune":
            caps = Tenant(tokens_per_s=amount, token_burst=1000.0)
            buckets.tune({"t": caps}, Tenant(), now)
        elif open_:
            debit = open_.pop(0)
            before = buckets.levels(now)["t"][1]
            if what == "undo":
                buckets.undo(debit, now)
            else:
                buckets.served(debit, amount, now)
            after = buckets.levels(now)["t"][1]
            assert before is not None
            assert after is not None
            assert after <= caps.depth
            used -= after - before
