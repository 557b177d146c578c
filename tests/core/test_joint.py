"""Prefill never runs ahead of decode, the cheapest GPU is used first, and the important pool gets the last one."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.fleet import FleetHold, share
from controller.core.joint import LEARNED, Facts, least_prefill, most_prefill, restrain, size, within
from controller.core.model import Decision, Lever, Mode, Step, Target
from controller.core.ports import Limits
from controller.core.rules import Budget, FleetGuard, FleetRules, LeverRules, Pair, PoolRules, Variants
from controller.core.why import Why

PAIR = Pair("llama", "prefill", "decode", 0.4, 0.6)
RULES = FleetRules((), pairs=(PAIR,))


def replicas(pool: str) -> Target:
    return Target(pool, Lever.REPLICAS)


def decision(pool: str, current: float, final: float, **changes: object) -> Decision:
    made = Decision(replicas(pool), current, final, Why.DEMAND, (Step("capacity", current, final, Why.DEMAND),))
    return made._replace(**changes)  # type: ignore[arg-type]


def facts(serving: Mapping[str, float], **changes: object) -> Facts:
    made = Facts(
        serving, dict.fromkeys(serving, 0.0), dict.fromkeys(serving, 50.0), dict.fromkeys(serving, 1.0),
        dict.fromkeys(serving, True), lambda target, wish: wish,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def sized(
    prefill: tuple[float, float], decode: tuple[float, float], pair: Pair = PAIR, known: Facts | None = None
) -> tuple[float, float]:
    """Finals of (current, final) of both."""
    known = known or facts({"prefill": prefill[0], "decode": decode[0]})
    made = {replicas("prefill"): decision("prefill", *prefill), replicas("decode"): decision("decode", *decode)}
    out = size(made, FleetRules((), pairs=(pair,)), known)
    for one in out.values():
        assert one.steps[-1].after == one.final
    return out[replicas("prefill")].final or 0.0, out[replicas("decode")].final or 0.0


def test_what_stays_within_the_band_is_left_alone() -> None:
    assert sized((5.0, 6.0), (10.0, 12.0)) == (6.0, 12.0)
    assert sized((5.0, 5.0), (10.0, 10.0)) == (5.0, 10.0)


def test_decode_grows_with_a_prefill_that_would_outrun_it() -> None:
    """Prompts piled up in the transfer queue of a decode pool that nobody had told."""
    prefill, decode = sized((5.0, 12.0), (10.0, 10.0))

    assert prefill == 12.0
    assert decode == 19.0, "the smallest that 12 prefill replicas suit, give or take one"


def test_prefill_waits_for_a_decode_that_cannot_grow() -> None:
    known = facts({"prefill": 5.0, "decode": 10.0}, most={"prefill": 50.0, "decode": 10.0})

    assert sized((5.0, 12.0), (10.0, 10.0), known=known) == (7.0, 10.0)


def test_a_raise_waits_while_the_other_pool_is_behind_and_the_other_does_not() -> None:
    late = facts({"prefill": 10.0, "decode": 8.0})

    assert sized((10.0, 12.0), (20.0, 24.0), known=late) == (10.0, 24.0)
    assert sized((10.0, 12.0), (20.0, 24.0)) == (12.0, 24.0)


def test_nobody_waits_for_capacity_that_is_given_up() -> None:
    """A quota for one GPU type must not freeze the other pool within the band of what serves."""
    lost = facts({"prefill": 4.0, "decode": 8.0}, awaited={"prefill": True, "decode": False})

    assert sized((4.0, 5.0), (20.0, 20.0), known=lost) == (5.0, 20.0)


def test_prefill_does_not_outrun_a_decode_that_gave_up_nor_raise_it() -> None:
    """Decode had 4 of 8 and asked for no more. The ratio asked for a ninth, and six prefill replicas fed four."""
    lost = facts({"prefill": 2.0, "decode": 4.0}, awaited={"prefill": True, "decode": False})
    made = {replicas("prefill"): decision("prefill", 2.0, 6.0), replicas("decode"): decision("decode", 8.0, 8.0)}
    out = size(made, RULES, lost)

    assert out[replicas("decode")].final == 8.0
    assert out[replicas("prefill")].final == most_prefill(PAIR, 4.0) == 3.0
    assert out[replicas("prefill")].why is Why.RATIO
    assert "decode does not come" in out[replicas("prefill")].steps[-1].detail
    assert restrain(out, RULES, lost) == out


def test_decode_does_not_outrun_a_prefill_that_gave_up() -> None:
    lost = facts({"prefill": 2.0, "decode": 4.0}, awaited={"prefill": False, "decode": True})

    assert sized((4.0, 4.0), (4.0, 14.0), known=lost) == (4.0, 7.0)


def test_both_pools_never_fall_at_once() -> None:
    prefill, decode = sized((6.0, 4.0), (10.0, 8.0))

    assert (prefill < 6.0) != (decode < 10.0)


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.3, 2.0, 3.0])
def test_a_pair_shrinks_to_what_is_needed_however_narrow_the_band(ratio: float) -> None:
    pair = Pair("p", "prefill", "decode", ratio, ratio)
    prefill, decode = math.ceil(12 * ratio), 12.0
    goal = (math.ceil(3 * ratio), 3.0)
    for _ in range(200):
        falls = max(goal[0], prefill - 1), max(goal[1], decode - 1)
        prefill, decode = sized((prefill, falls[0]), (decode, falls[1]), pair)  # type: ignore[assignment]

    assert abs(prefill - goal[0]) <= 1 + ratio
    assert abs(decode - goal[1]) <= 2 + 1 / ratio
    assert prefill < 12 * ratio


def test_a_pair_grows_at_once_when_both_are_asked() -> None:
    """Staging must not turn a flash into one cold start per replica."""
    pair = Pair("p", "prefill", "decode", 1.0, 1.0)

    assert sized((4.0, 16.0), (4.0, 16.0), pair) == (16.0, 16.0)


def test_neither_goes_to_zero_alone() -> None:
    assert sized((1.0, 0.0), (1.0, 0.0)) == (0.0, 0.0)
    assert sized((1.0, 0.0), (1.0, 1.0)) == (1.0, 1.0)
    assert sized((1.0, 1.0), (1.0, 0.0)) == (1.0, 1.0)


def test_a_pace_limit_holds_for_growth_by_ratio_too() -> None:
    slow = facts({"prefill": 5.0, "decode": 10.0}, guarded=lambda t, wish: min(wish, 11.0))

    assert sized((5.0, 9.0), (10.0, 10.0), known=slow) == (7.0, 11.0)


def test_a_pinned_or_foreign_pool_is_not_moved_by_its_partner() -> None:
    made = {
        replicas("prefill"): decision("prefill", 5.0, 12.0),
        replicas("decode"): decision("decode", 10.0, 10.0, blocked=True),
    }
    assert size(made, RULES, facts({"prefill": 5.0, "decode": 10.0}))[replicas("decode")].final == 10.0
    pinned = decision("decode", 10.0, 8.0, steps=(Step("pin", 10.0, 8.0, Why.PIN),), why=Why.PIN)
    out = size({**made, replicas("decode"): pinned}, RULES, facts({"prefill": 5.0, "decode": 10.0}))
    assert out[replicas("decode")].final == 8.0
    assert out[replicas("prefill")].final == most_prefill(PAIR, 8.0)


def test_what_the_budget_took_from_decode_is_not_raised_in_prefill() -> None:
    made = {
        replicas("prefill"): decision("prefill", 5.0, 12.0), replicas("decode"): decision("decode", 10.0, 11.0)
    }  # fmt: skip
    out = restrain(made, RULES, facts({"prefill": 5.0, "decode": 10.0}))

    assert out[replicas("prefill")].final == most_prefill(PAIR, 11.0)
    assert out[replicas("decode")].final == 11.0


def test_what_a_pair_takes_back_is_not_spent_by_another_pool() -> None:
    """Both went to nothing, the fleet guard let prefill and held decode, and the pair kept prefill up: its GPUs were
    given away already, and pods stayed Pending."""
    pools = ("decode", "prefill", "x")
    lever = LeverRules(Lever.REPLICAS, "p", "a", limits=Limits(0, 100))
    rules = FleetRules(
        tuple(PoolRules(p, (), (lever,), (replicas(p),)) for p in pools), (Budget("gpus", 25.0, frozenset(pools)),),
        FleetGuard(0.2, 0.0, 2), (PAIR,),
    )  # fmt: skip
    wished = {
        replicas(p): decision(p, *of) for p, of in zip(pools, ((10.0, 0.0), (5.0, 0.0), (10.0, 20.0)), strict=True)
    }
    known = facts({"prefill": 5.0, "decode": 10.0})
    shared, _ = share(size(wished, rules, known), rules, {}, 1000.0, FleetHold(0.0, 0.0, 2000.0))
    out = within(shared, rules, known, {})

    assert shared[replicas("prefill")].final == 0.0
    assert [out[replicas(p)].final for p in pools] == [10.0, 3.0, 12.0]


WHOLE = st.integers(0, 30).map(float)


@settings(max_examples=150)
@given(WHOLE, WHOLE, WHOLE, WHOLE, st.floats(0.1, 3.0), st.floats(1.0, 2.0), WHOLE, WHOLE)
def test_a_pair_never_leaves_its_band_by_our_hand(
    p: float, d: float, want_p: float, want_d: float, least: float, spread: float, serve_p: float, serve_d: float
) -> None:
    pair = Pair("p", "prefill", "decode", least, least * spread)
    known = facts({"prefill": min(p, serve_p), "decode": min(d, serve_d)})
    prefill, decode = sized((p, want_p), (d, want_d), pair, known)

    assert not (prefill < p and decode < d) or (prefill == decode == 0)
    if prefill > p:
        assert prefill <= max(p, most_prefill(pair, decode))
    if prefill < p:
        assert prefill >= min(p, least_prefill(pair, decode))
    if decode < d:
        assert prefill <= most_prefill(pair, decode), "decode is not taken from under its prefill"


# --- variants ------------------------------------------------------------------------------------------------------

COST = {"h100": 4.0, "l40s": 1.0}
GROUP = FleetRules((), variants=(Variants("llama", COST),))
RATE: Mapping[str, float | None] = {"h100": 6.0, "l40s": 2.0}


def moved(
    h100: tuple[float, float],
    l40s: tuple[float, float],
    *,
    room: float = 50.0,
    rate: Mapping[str, float | None] = RATE,
    guarded: Callable[[Target, float], float] = lambda target, wish: wish,
) -> tuple[float, float]:
    most = {"h100": 50.0, "l40s": room}
    base = facts({"h100": h100[0], "l40s": l40s[0]}, rate=rate, most=most, guarded=guarded)
    made = {replicas("h100"): decision("h100", *h100), replicas("l40s"): decision("l40s", *l40s)}
    out = size(made, GROUP, base)
    return out[replicas("h100")].final or 0.0, out[replicas("l40s")].final or 0.0


def test_more_is_asked_of_the_cheapest_work_not_of_the_cheapest_gpu() -> None:
    assert moved((4.0, 6.0), (3.0, 3.0)) == (4.0, 9.0)
    assert moved((4.0, 4.0), (3.0, 6.0), rate={"h100": 9.0, "l40s": 2.0}) == (4.0, 6.0), "1.5 dear ones do not exist"
    assert moved((4.0, 4.0), (3.0, 12.0), rate={"h100": 9.0, "l40s": 2.0}) == (6.0, 3.0)


def test_what_the_cheap_pool_has_no_room_for_goes_to_the_dear_one() -> None:
    assert moved((4.0, 6.0), (3.0, 3.0), room=7.0) == (5.0, 6.0)
    assert moved((4.0, 6.0), (3.0, 3.0), room=3.0) == (6.0, 3.0)


def test_the_dearest_shrinks_first_when_its_guards_let_it() -> None:
    assert moved((4.0, 4.0), (9.0, 6.0)) == (3.0, 9.0)

    def held(target: Target, wish: float) -> float:
        return max(wish, 4.0) if target.pool == "h100" else wish

    assert moved((4.0, 4.0), (9.0, 6.0), guarded=held) == (4.0, 6.0), "a held dear pool does not lock the cheap one"


def test_pools_whose_capacity_is_unknown_keep_their_own_wishes() -> None:
    assert moved((4.0, 6.0), (3.0, 3.0), rate={"h100": 6.0, "l40s": None}) == (6.0, 3.0)


def test_a_dear_pool_that_only_observes_is_no_place_to_shrink() -> None:
    made = {
        replicas("h100"): decision("h100", 4.0, 4.0, mode=Mode.OBSERVE),
        replicas("l40s"): decision("l40s", 9.0, 6.0),
    }
    out = size(made, GROUP, facts({"h100": 4.0, "l40s": 9.0}, rate=RATE))

    assert [out[replicas(p)].final for p in COST] == [4.0, 6.0]


@settings(max_examples=150)
@given(
    st.tuples(*[st.integers(0, 20).map(float)] * 3), st.tuples(*[st.integers(0, 20).map(float)] * 3),
    st.tuples(*[st.floats(0.5, 9.0)] * 3), st.tuples(*[st.floats(0.5, 9.0)] * 3), st.integers(5, 25),
)  # fmt: skip
def test_variants_give_at_least_the_work_that_was_asked_for_at_no_more_cost(
    have: tuple[float, ...], want: tuple[float, ...], rates: tuple[float, ...], costs: tuple[float, ...], top: int
) -> None:
    names = ("a", "b", "c")
    rate, cost = dict(zip(names, rates, strict=True)), dict(zip(names, costs, strict=True))
    made = {replicas(n): decision(n, h, w) for n, h, w in zip(names, have, want, strict=True)}
    known = facts(dict.fromkeys(names, 1.0), rate=rate, most=dict.fromkeys(names, float(top)))
    rules = FleetRules((), variants=(Variants("v", cost),))
    out = size(made, rules, known)

    finals = {n: out[replicas(n)].final or 0.0 for n in names}
    asked = dict(zip(names, want, strict=True))
    work = [math.fsum(n_of[n] * rate[n] for n in names) for n_of in (finals, asked)]
    bill = [math.fsum(n_of[n] * cost[n] for n in names) for n_of in (finals, asked)]
    assert work[0] >= work[1] - 1e-6
    assert bill[0] <= bill[1] + 1e-6
    assert all(finals[n] <= max(float(top), asked[n]) for n in names)
    assert all(v == int(v) and v >= 0 for v in finals.values())
    again = size({t: made[t] for t in sorted(made, reverse=True)}, rules, known)
    assert {t: d.final for t, d in again.items()} == {t: d.final for t, d in out.items()}


def ask(pool: str, current: float, wish: float, ready: float, held: bool = True) -> Decision:
    """What a law and its guards make of a wish: nothing falls while something is on its way."""
    steps = [Step("capacity", current, wish, Why.DEMAND)] if wish != current else []
    final = wish
    if wish < current and ready < current and held:
        final = current
        steps.append(Step("guard", wish, current, Why.PENDING_CAPACITY))
    return decision(pool, current, final, steps=tuple(steps), why=steps[-1].why if steps else Why.DEMAND)


def known_of(names: tuple[str, ...], ready: Mapping[str, float], **changes: object) -> Facts:
    return facts(ready, **{"absolute": frozenset(names), **changes})


EVEN: Mapping[str, float | None] = {"h100": 1.0, "l40s": 1.0}


def ticks(
    wishes: Mapping[str, float], have: Mapping[str, float], known: Callable[[Mapping[str, float]], Facts],
    arrive: Callable[[int], bool] = lambda tick: False, count: int = 8, rules: FleetRules = GROUP,
) -> list[dict[str, float]]:  # fmt: skip
    """Constant wishes, tick after tick; what is asked for comes when `arrive` says so."""
    now, ready, seen = dict(have), dict(have), []
    for tick in range(count):
        if arrive(tick):
            ready = dict(now)
        made = {replicas(n): ask(n, now[n], wishes[n], ready[n]) for n in sorted(now)}
        out = size(made, rules, known(ready))
        now = {n: out[replicas(n)].final or 0.0 for n in now}
        ready = {n: min(ready[n], now[n]) for n in now}
        seen.append(dict(now))
    return seen


def test_a_raise_that_the_cheap_pool_answers_is_not_paid_again_at_every_tick() -> None:
    """Two dear replicas were wanted, and while two cheap ones were loading, two more were asked for at every tick."""
    seen = ticks(
        {"h100": 4.0, "l40s": 4.0}, {"h100": 2.0, "l40s": 4.0}, lambda r: known_of(("h100", "l40s"), r, rate=EVEN)
    )

    assert seen == [{"h100": 2.0, "l40s": 6.0}] * 8


def test_what_has_come_still_answers_and_the_dear_pool_is_not_raised_for_what_would_fall() -> None:
    """The cheap ones came, went again as surplus, and the dear ones were started: a cold start for nothing."""
    seen = ticks(
        {"h100": 4.0, "l40s": 4.0}, {"h100": 2.0, "l40s": 4.0}, lambda r: known_of(("h100", "l40s"), r, rate=EVEN),
        lambda tick: tick == 4,
    )  # fmt: skip

    assert seen == [{"h100": 2.0, "l40s": 6.0}] * 8


def test_a_step_law_does_not_raise_the_cheap_pool_at_every_tick() -> None:
    """PID asks from where it is, so nothing tells whose the replicas are that load; it asked for one more a tick."""
    ready = {"h100": 2.0, "l40s": 4.0}
    cheap, dear = 4.0, 2.0
    for _ in range(8):
        made = {replicas("h100"): ask("h100", 2.0, 3.0, 2.0), replicas("l40s"): ask("l40s", cheap, cheap, 4.0)}
        out = size(made, GROUP, facts(ready, rate=EVEN))
        cheap, dear = out[replicas("l40s")].final or 0.0, out[replicas("h100")].final or 0.0

    assert cheap == 5.0
    assert dear == 3.0, "its own raise, at its own pace"


@pytest.mark.parametrize("doubt", [Why.STALE, Why.MISSING, Why.PARTIAL])
def test_a_cheap_pool_in_doubt_is_not_raised_for_others_again_and_again(doubt: Why) -> None:
    made = {
        replicas("h100"): ask("h100", 2.0, 4.0, 2.0),
        replicas("l40s"): decision("l40s", 6.0, 6.0, steps=(), why=doubt),
    }
    out = size(made, GROUP, known_of(("h100", "l40s"), {"h100": 2.0, "l40s": 4.0}, rate=EVEN))

    assert [out[replicas(p)].final for p in COST] == [4.0, 6.0]


def test_a_pool_that_gave_up_is_not_raised_instead_of_one_that_can_be() -> None:
    """Quota: the cheap pool had 2 of 4 for half an hour, and the raise of the dear one went to it."""
    made = {replicas("h100"): ask("h100", 2.0, 4.0, 2.0), replicas("l40s"): ask("l40s", 4.0, 4.0, 2.0)}
    lost = known_of(("h100", "l40s"), {"h100": 2.0, "l40s": 2.0}, rate=EVEN, awaited={"h100": True, "l40s": False})
    out = size(made, GROUP, lost)

    assert [out[replicas(p)].final for p in COST] == [4.0, 4.0]
    assert out[replicas("h100")].why is Why.NEXT_BEST
    assert "l40s does not come" in out[replicas("h100")].steps[-1].detail


def test_why_the_dear_pool_grows_while_the_cheap_one_is_still_rising_is_told() -> None:
    made = {replicas("h100"): ask("h100", 2.0, 4.0, 2.0), replicas("l40s"): ask("l40s", 2.0, 4.0, 4.0)}
    slow = known_of(("h100", "l40s"), {"h100": 2.0, "l40s": 2.0}, rate=EVEN, guarded=lambda _target, _wish: 4.0)
    out = size(made, GROUP, slow)

    assert [out[replicas(p)].final for p in COST] == [4.0, 4.0]
    assert out[replicas("h100")].why is Why.NEXT_BEST
    assert "l40s may not rise faster" in out[replicas("h100")].steps[-1].detail


def test_what_was_asked_of_a_pool_that_gave_up_answers_nobody() -> None:
    made = {replicas("h100"): ask("h100", 2.0, 4.0, 2.0), replicas("l40s"): ask("l40s", 6.0, 4.0, 4.0)}
    lost = known_of(("h100", "l40s"), {"h100": 2.0, "l40s": 4.0}, rate=EVEN, awaited={"h100": True, "l40s": False})

    assert size(made, GROUP, lost)[replicas("h100")].final == 4.0


def test_idle_replicas_elsewhere_are_no_answer_to_broken_promises() -> None:
    """A router that did not send the work there: the dear pool stood in flames beside an idle cheap one."""
    made = {replicas("h100"): ask("h100", 2.0, 4.0, 2.0), replicas("l40s"): ask("l40s", 6.0, 4.0, 6.0)}
    known = known_of(("h100", "l40s"), {"h100": 2.0, "l40s": 6.0}, rate=EVEN)

    assert size(made, GROUP, known)[replicas("h100")].final == 2.0
    assert size(made, GROUP, replace(known, burning=frozenset({"h100"})))[replicas("h100")].final == 4.0


@settings(max_examples=200)
@given(
    st.tuples(*[st.integers(0, 12).map(float)] * 3), st.tuples(*[st.integers(0, 12).map(float)] * 3),
    st.tuples(*[st.sampled_from([0.5, 1.0, 1.7, 2.0, 3.3])] * 3), st.tuples(*[st.floats(0.5, 9.0)] * 3),
    st.integers(3, 20), st.integers(0, 2**24 - 1), st.tuples(*[st.sampled_from([True, True, True, False])] * 3),
)  # fmt: skip
def test_variants_never_have_more_than_was_asked_for_together_and_settle(
    have: tuple[float, ...], want: tuple[float, ...], rates: tuple[float, ...], costs: tuple[float, ...], top: int,
    arrivals: int, awaited: tuple[bool, ...],
) -> None:  # fmt: skip
    """Constant wishes, capacity that comes when it likes, one tick after another."""
    names = ("a", "b", "c")
    rate, comes = dict(zip(names, rates, strict=True)), dict(zip(names, awaited, strict=True))
    start = {n: min(h, w, float(top)) for n, h, w in zip(names, have, want, strict=True)}
    wishes = {n: min(w, float(top)) for n, w in zip(names, want, strict=True)}
    rules = FleetRules((), variants=(Variants("v", dict(zip(names, costs, strict=True))),))

    def known(ready: Mapping[str, float]) -> Facts:
        return known_of(names, ready, rate=rate, awaited=comes, most=dict.fromkeys(names, float(top)))

    seen = ticks(wishes, start, known, lambda tick: bool(arrivals >> tick & 1), 40, rules)
    asked = math.fsum(wishes[n] * rate[n] for n in names)
    for now in seen:
        work = math.fsum(now[n] * rate[n] for n in names)
        # Whole replicas: what stands in for another may be up to one too many, of each pool that stands in.
        assert work < asked + math.fsum(rate[n] for n in names if now[n] > wishes[n]) + 1e-6
        assert all(now[n] <= max(start[n], wishes[n]) for n in names if not comes[n])
        assert work >= asked - LEARNED * math.fsum(rates) - 1e-6
    assert seen[-8:] == [seen[-1]] * 8


# --- budgets with ranks --------------------------------------------------------------------------------------------

POOLS = ("a", "b", "c", "d")


def budgeted(
    have: tuple[float, ...], want: tuple[float, ...], top: float, ranks: Mapping[str, int],
    gpus: tuple[int, ...] = (1, 1, 1, 1), order: tuple[str, ...] = POOLS,
) -> dict[str, float]:  # fmt: skip
    """What each pool is given."""
    index = {p: i for i, p in enumerate(POOLS)}
    lever = LeverRules(Lever.REPLICAS, "p", "a", limits=Limits(0, 100))
    pools = tuple(PoolRules(p, (), (lever,), (replicas(p),), weight=float(gpus[index[p]])) for p in order)
    rules = FleetRules(pools, (Budget("gpus", top, frozenset(POOLS), ranks),))
    made = {replicas(p): decision(p, have[index[p]], want[index[p]]) for p in order}
    out, _ = share(made, rules, {}, 0.0, None)
    return {p: out[replicas(p)].final or 0.0 for p in POOLS}


def test_the_last_gpus_go_to_the_pool_of_the_lowest_rank() -> None:
    """Batch took the GPUs that came free, a replica at a time, while chat waited."""
    given_ = budgeted((2.0, 2.0, 0.0, 0.0), (8.0, 8.0, 0.0, 0.0), 10.0, {"a": 1, "b": 0})

    assert (given_["a"], given_["b"]) == (2.0, 8.0)


def test_without_ranks_a_short_budget_is_shared_as_ever() -> None:
    given_ = budgeted((2.0, 2.0, 0.0, 0.0), (8.0, 8.0, 0.0, 0.0), 10.0, {})

    assert (given_["a"], given_["b"]) == (5.0, 5.0)


@settings(max_examples=200)
@given(
    st.tuples(*[st.integers(0, 12).map(float)] * 4), st.tuples(*[st.integers(0, 20).map(float)] * 4),
    st.integers(1, 60).map(float), st.tuples(*[st.integers(0, 2)] * 4), st.tuples(*[st.integers(1, 4)] * 4),
)  # fmt: skip
def test_a_budget_holds_after_every_step_and_ranks_are_respected(
    have: tuple[float, ...], want: tuple[float, ...], top: float, ranks: tuple[int, ...], gpus: tuple[int, ...]
) -> None:
    rank = dict(zip(POOLS, ranks, strict=True))
    got = budgeted(have, want, top, rank, gpus)
    weight, now, asked = (dict(zip(POOLS, values, strict=True)) for values in (gpus, have, want))

    total = math.fsum(now[p] * weight[p] for p in POOLS)
    # As they are sent: who falls first, then who rises.
    for pool in sorted(POOLS, key=lambda p: got[p] > now[p]):
        total += (got[pool] - now[pool]) * weight[pool]
        assert got[pool] <= now[pool] or total <= top + 1e-6
    room = top - math.fsum(got[p] * weight[p] for p in POOLS)
    for low in POOLS:
        if got[low] + 1 <= asked[low] and got[low] >= now[low]:
            assert room < weight[low], "nothing is left lying"
            higher = [p for p in POOLS if rank[p] > rank[low] and got[p] > now[p]]
            assert all(weight[p] < weight[low] for p in higher), "only what is too small for it"
    for order in list(permutations(POOLS))[::5]:
        assert budgeted(have, want, top, rank, gpus, order) == got
