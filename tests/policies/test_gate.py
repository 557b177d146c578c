"""The gate stands before the overload, comes down fast and goes up slowly, and never on data that is not there."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Ask, Lever, PoolReadings, Proposal, Target, TargetState, Tick
from controller.core.operating import CONCURRENCY
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.gate import LONGEST_PROMPT, Gate
from tests.support.cases import NOW, bad, healthy

NO_LIMIT = 1e12
LIMITS = Limits(1.0, NO_LIMIT, 1.0)
ITL = (Objective("itl", Signal.ITL, 0.05, 0.95, 60.0),)
GATE = Target("llm", Lever.ADMISSION, CONCURRENCY)
PROMPT = Target("llm", Lever.ADMISSION, LONGEST_PROMPT)
LAW = Gate(Gate.Config())
BRIEF = Brief(Balance(4.0, 4.0), 0.0)


def pool(itl: Reading | None = None, *, running: float = 200.0, **signals: Reading) -> PoolReadings:
    made = healthy(running=ok(running), **signals)
    return replace(made, latencies={Signal.ITL: {"p95": itl}}) if itl is not None else made


def view(
    at: float = 0.0, *, gate: float | None = NO_LIMIT, prompt: float | None = NO_LIMIT, holds: float | None = 40.0,
    kv: float | None = None, readings: PoolReadings | None = None, trusted: bool = True,
) -> View:  # fmt: skip
    """Four replicas, each of which holds so many requests."""
    evidence = {"serving": 4.0} if kv is None else {"serving": 4.0, "kv_tokens": kv}
    return View(
        Tick(5, NOW + at, 15.0),
        readings if readings is not None else pool(oom_restarts=ok(0.0)),
        {GATE: TargetState(gate), PROMPT: TargetState(prompt)},
        {GATE: LIMITS, PROMPT: LIMITS},
        Estimate(demand=4.0, unit_sequences=holds, trusted=trusted, evidence=evidence),
    )


def step(seen: View, state: Gate.State | None = None, law: Gate = LAW) -> tuple[Proposal, Proposal, Gate.State]:
    """Proposals for concurrency and longest prompt."""
    proposals, after = law.propose(seen, ITL, BRIEF, state if state is not None else law.initial())
    by_member = {p.target.member: p for p in proposals}
    return by_member[CONCURRENCY], by_member[LONGEST_PROMPT], after


def run(
    gate: float, seconds: float, holds: float = 40.0, readings: PoolReadings | None = None, every: float = 15.0,
    state: Gate.State | None = None,
) -> tuple[float, Gate.State]:  # fmt: skip
    """The set-point after some time, when every proposal is taken as it is."""
    state, at = state if state is not None else Gate.State(at=NOW), 0.0
    while at < seconds - 1e-9:
        at += every
        made, _, state = step(view(at, gate=gate, holds=holds, readings=readings), state)
        gate = made.value
    return gate, state


# --- concurrency -----------------------------------------------------------------------------------------------------


def test_from_no_limit_it_is_armed_at_once_and_in_a_calm_too() -> None:
    """A flash is over the fleet before the next tick."""
    made, _, _ = step(view())

    assert (made.ask, made.value, made.why) == (Ask.SET, 46.0, Why.OPERATING_POINT)


def test_down_is_fast_and_up_is_slow() -> None:
    assert run(46.0, 60.0, holds=20.0)[0] == pytest.approx(23.0, abs=6)
    assert run(46.0, 300.0, holds=20.0)[0] == 23.0
    assert run(23.0, 60.0)[0] == pytest.approx(25.3, abs=0.8)
    assert run(23.0, 1200.0)[0] == 46.0


def test_a_set_point_on_its_way_tells_its_pace() -> None:
    """ "gate asked 206 (... aim 105)", and nothing said why not 105."""
    down, _, _ = step(view(15.0, gate=400.0), Gate.State(at=NOW))
    up, _, _ = step(view(30.0, gate=30.0), Gate.State(at=NOW))
    at_once, _, _ = step(view())

    assert (down.evidence["per_minute"], up.evidence["per_minute"]) == (-0.5, 0.1)
    assert "per_minute" not in at_once.evidence


def test_a_slow_raise_is_not_lost_in_rounding() -> None:
    """A tenth of 6 a minute is less than a request per tick, at any tick."""
    for every in (1.0, 5.0, 15.0):
        assert run(6.0, 600.0, holds=10.0, every=every)[0] >= 11.0


def test_it_rests_between_two_whole_numbers() -> None:
    values, state = set(), Gate.State(at=NOW)
    for i in range(1, 40):
        made, _, state = step(view(i * 15.0, gate=46.0, holds=40.0 + 0.45 * (i % 2)), state)
        values.add(made.value)

    assert values == {46.0}


def test_never_below_the_least() -> None:
    assert step(view(holds=0.5))[0].value == 4.0
    assert run(46.0, 600.0, holds=0.5)[0] == 4.0


def test_latency_over_its_target_at_that_batch_trims_a_little() -> None:
    """The rest is for kappa, which moves the operating point itself."""
    made, _, state = step(view(60.0, gate=46.0, readings=pool(ok(0.055))), Gate.State(at=NOW))
    assert state.trim == pytest.approx(-math.log(1.1))
    assert made.why is Why.LATENCY_HIGH
    gate, state = run(46.0, 900.0, readings=pool(ok(0.2)))
    assert gate == round(46.0 * math.exp(-0.2))
    assert run(gate, 6000.0, readings=pool(ok(0.03)), state=state._replace(at=NOW))[0] == 46.0


def test_latency_at_a_small_batch_says_nothing_of_the_cap() -> None:
    """A slow disk or a long prompt is not mended by fewer requests in flight."""
    assert run(46.0, 900.0, readings=pool(ok(0.2), running=40.0))[0] == 46.0


@pytest.mark.parametrize("holds", [None, math.nan, math.inf, -3.0, 0.0])
def test_an_unknown_operating_point_keeps_what_stands(holds: float | None) -> None:
    made, _, _ = step(view(gate=20.0, holds=holds))

    assert (made.ask, made.value) == (Ask.AT_MOST, 20.0)


def test_doubtful_numbers_tighten_and_do_not_relax() -> None:
    stale = pool(offered_rate=bad(State.STALE))
    up, _, _ = step(view(60.0, gate=20.0, readings=stale, trusted=False), Gate.State(at=NOW))
    assert (up.ask, up.value, up.why) == (Ask.AT_MOST, 20.0, Why.STALE)
    down, _, _ = step(view(60.0, gate=60.0, readings=stale, trusted=False), Gate.State(at=NOW))
    assert down.ask is Ask.SET
    assert down.value < 60.0


# --- longest prompt --------------------------------------------------------------------------------------------------


def test_a_prompt_that_fills_a_replica_is_too_long() -> None:
    assert step(view(kv=100_000.0))[1].value == 80_000.0
    assert step(view(kv=None))[1].value == NO_LIMIT
    assert step(view(kv=104_000.0, prompt=80_000.0))[1].value == 80_000.0  # not worth a write


def test_an_oom_halves_once_per_window_and_not_below_the_shortest() -> None:
    """One OOM is counted for a whole window; it must not cut at every tick of it."""
    killed = pool(oom_restarts=ok(1.0))
    values, state, prompt = [], Gate.State(at=NOW), 80_000.0
    for i in range(1, 202):
        _, made, state = step(view(i * 15.0, prompt=prompt, kv=100_000.0, readings=killed), state)
        prompt = made.value
        values.append(prompt)

    assert values[0] == values[19] == 40_000.0
    assert values[20] == 20_000.0
    assert values[-1] == 4096.0


def test_an_oom_without_a_known_cache_is_cut_from_the_context() -> None:
    _, made, state = step(view(readings=pool(oom_restarts=ok(2.0))))
    assert (made.value, made.why) == (65_536.0, Why.OUT_OF_MEMORY)
    assert made.value == 131_072.0 * state.cut


def test_after_an_oom_it_is_released_slowly_and_only_while_nothing_is_killed() -> None:
    state, prompt, calm = Gate.State(NOW, cut=0.5, cut_at=NOW, told=True), 40_000.0, []
    for i in range(1, 4 * 60 + 1):
        _, made, state = step(view(i * 15.0, prompt=prompt, kv=100_000.0), state)
        prompt = made.value
        calm.append(prompt)
    assert calm[3] == 40_000.0
    assert calm[60] < 60_000.0
    assert calm[-1] == pytest.approx(80_000.0, rel=0.1)

    blind = pool(oom_restarts=Reading(State.MISSING))
    _, made, _ = step(view(15.0, prompt=20_000.0, kv=100_000.0, readings=blind), Gate.State(NOW, cut=0.5, told=True))
    assert (made.ask, made.value, made.why) == (Ask.AT_MOST, 20_000.0, Why.MISSING)


def test_where_nobody_ever_tells_of_restarts_the_cache_alone_decides() -> None:
    assert step(view(prompt=20_000.0, kv=100_000.0, readings=pool()))[1].value == 80_000.0


# --- all -------------------------------------------------------------------------------------------------------------


def test_its_memory_goes_to_the_ledger_and_back() -> None:
    _, _, state = step(view(60.0, gate=46.0, readings=pool(ok(0.055), oom_restarts=ok(1.0))), Gate.State(at=NOW))

    assert state.trim < 0 and state.cut < 1  # noqa: PT018
    assert decode(Gate.State, encode(state)) == state


def test_a_floor_above_the_start_is_refused() -> None:
    with pytest.raises(ValueError, match="shortest: is above context"):
        Gate(Gate.Config(shortest=8192.0, context=4096.0))


numbers = st.one_of(st.none(), st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0]), st.floats(0.1, 500.0))


@given(st.floats(4.0, 500.0), st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_what_is_left_moves_nothing(gate: float, left: float, more: float) -> None:
    """So it is monotone in it: the gate stands for what a replica holds."""
    seen, state = view(15.0, gate=gate), Gate.State(at=NOW)
    here, _ = LAW.propose(seen, ITL, replace(BRIEF, left=left), state)
    there, _ = LAW.propose(seen, ITL, replace(BRIEF, left=left + more), state)

    assert here == there


@given(
    numbers, numbers, st.sampled_from(list(State)), st.floats(1.0, 1e4), st.floats(1.0, 1e6), st.booleans(),
)  # fmt: skip
def test_bad_data_never_relaxes(
    holds: float | None, kv: float | None, state: State, gate: float, prompt: float, trusted: bool
) -> None:
    readings = pool(bad(state), oom_restarts=bad(state), offered_rate=bad(state))
    seen = view(15.0, gate=gate, prompt=prompt, holds=holds, kv=kv, readings=readings, trusted=trusted)
    concurrency, longest, after = step(seen, Gate.State(at=NOW, cut=0.5, cut_at=NOW, told=True))

    sound = trusted and holds is not None and math.isfinite(holds) and holds > 0
    if not sound:
        assert concurrency.value <= gate
    if not trusted or state not in (State.OK, State.NO_TRAFFIC, State.BELOW_FIRST):
        assert longest.value <= prompt
    for made in (concurrency, longest):
        assert math.isfinite(made.value)
        assert all(map(math.isfinite, made.evidence.values()))
    assert decode(Gate.State, encode(after)) == after


# --- what the gate stands on -----------------------------------------------------------------------------------------


def known(seen: View, **evidence: float) -> View:
    """With what is known of the batch."""
    return replace(seen, estimate=replace(seen.estimate, evidence={**seen.estimate.evidence, **evidence}))


def test_beyond_the_slots_of_an_engine_one_is_let_in_to_show_if_there_are_more() -> None:
    """15 % above 32 slots waited inside, where no class goes first and no deadline is kept."""
    made, _, _ = step(known(view(holds=32.0), slots=32.0, in_time=37.0))

    assert made.value == 33.0


def test_late_tokens_take_no_slot_away_that_the_model_says_is_in_time() -> None:
    """Tokens are late for the prompts between them; two slots fewer in each engine only made the queue longer."""
    gate, state = 33.0, Gate.State(at=NOW)
    for i in range(1, 20):
        made, _, state = step(
            known(view(i * 15.0, gate=gate, holds=32.0, readings=pool(ok(0.08))), slots=32.0, in_time=37.0), state
        )
        gate = made.value

    assert state.trim == pytest.approx(-0.2)
    assert gate >= 32.0


def test_one_slow_replica_does_not_close_the_gate_of_all() -> None:
    """Its late tokens are the worst of all percentiles, and fewer requests at the others make it no quicker."""
    late = view(60.0, gate=46.0, readings=pool(ok(0.12)))
    assert step(late, Gate.State(at=NOW))[2].trim == pytest.approx(-0.2)

    assert step(known(late, stragglers=1.0), Gate.State(at=NOW))[2].trim == 0.0
