"""Decisions as sentences and as a table. The chain of steps is the explanation; nothing is inferred here."""

from collections.abc import Iterable, Mapping

from controller.core.drain import listed
from controller.core.model import Applied, Decision, Lever, Mode, Outcome, Pin, Plan, Step, Target, TargetState
from controller.core.signals import SignalInfo
from controller.core.telling import TIMES, alike, because, holds_until, recent, signal_of, until
from controller.core.why import SENTENCE, Why
from controller.core.words import clock, counted, number

# What a policy may ask for. Every other reason is a hand that held, bent or replaced what was asked.
ASKED = frozenset(
    {
        Why.DEMAND, Why.FORECAST, Why.BACKLOG, Why.QUEUE_CLEARS, Why.TRIM, Why.LATENCY_HIGH, Why.LATENCY_LOW,
        Why.LATENCY_FALLS, Why.NOBODY_WAITS, Why.ABOVE_THRESHOLD, Why.BELOW_THRESHOLD, Why.KV_PRESSURE,
        Why.BUDGET_BURN, Why.SURPLUS, Why.STEADY, Why.NO_TRAFFIC, Why.TIMETABLE, Why.CAPACITY_UNAVAILABLE,
        Why.PACE, Why.SLOW_START, Why.HIT_RATE_LOST, Why.ROUTER_BALANCES, Why.LEAVES, Why.STAYS,
        Why.SLOW_REPLICA, Why.FAILING_REPLICA, Why.WORSE_VERSION,
        Why.STUCK_REPLICA, Why.FAULTY_REPLICA, Why.RESTARTED, Why.PROBE, Why.WELL_AGAIN, Why.FLEET_SLOW,
        Why.STANDING_CAP, Why.FAIR_SHARE, Why.GUARANTEE_INFEASIBLE, Why.OPERATING_POINT, Why.PROMPT_FITS,
        Why.OUT_OF_MEMORY, Why.SHORTFALL, Why.CARRIED, Why.NO_CONSENT, Why.NO_ROOM,
        Why.UNEVEN, Why.OTHERS_BUSY, Why.EVEN,
    }
)  # fmt: skip
# Nothing was asked, so nothing can have been held.
IDLE = frozenset({Why.STEADY, Why.NO_TRAFFIC, Why.NOT_DUE, Why.MODE_OFF})

# The guards that read well as the subject of "... held it at 12".
_SUBJECT: dict[Why, str] = {
    Why.IN_FLIGHT: "the previous change, not settled yet,",
    Why.PENDING_CAPACITY: "capacity still on its way",
    Why.REPLICAS_OUT: "replicas out of rotation",
    Why.DRAINING: "the drain of the replicas that go",
    Why.COOLDOWN: "the cool-down since the last change",
    Why.RATE: "the rate limit",
    Why.GROUP_BUDGET: "the shared budget",
    Why.MIN_BOUND: "the configured minimum",
    Why.MAX_BOUND: "the configured maximum",
    Why.FLEET_GUARD: "the fleet-wide guard",
    Why.DAMPED: "the damping of a lever that was swinging by itself",
    Why.RATIO: "the ratio of prefill and decode",
    Why.UNDO: "the undo of a change that made things worse",
    Why.PIN: "a person's pin",
    Why.MODE_PROTECT: "the lever's mode (protect)",
}

_BOUNDS = (Why.MIN_BOUND, Why.MAX_BOUND)
FEW = 3  # members of a lever that are told one by one
_SHOWN = 4  # numbers in a sentence
_USUAL = ("need", "serving", "demand", "forecast", "offered")
_TELLING: dict[Why, tuple[str, ...]] = {
    Why.DEMAND: ("demand", "need", "spare", "serving", "offered", "unit_rate"),
    Why.FORECAST: ("demand", "forecast", "need", "spare", "serving", "forecast_rate", "horizon"),
    Why.BACKLOG: ("waiting", "backlog", "need", "spare", "serving"),
    Why.TRIM: ("trim", "need", "spare", "serving"),
    Why.SURPLUS: ("need", "spare", "serving"),
    Why.TIMETABLE: ("floor", "need", "serving"),
    Why.WORK_WAITING: ("waiting",),
    Why.STANDING_CAP: ("demand", "p99", "spare", "guarantee"),
    Why.FAIR_SHARE: ("demand", "floods", "level", "weight", "guarantee", "trim"),
    Why.GUARANTEE_INFEASIBLE: ("guarantee", "demand"),
    Why.OPERATING_POINT: ("unit_sequences", "aim", "per_minute", "trim"),
    Why.PROMPT_FITS: ("kv_tokens", "cut"),
    Why.OUT_OF_MEMORY: ("oom_restarts", "cut", "kv_tokens"),
    Why.WORSE_VERSION: ("version_errors", "rest_errors", "slowness", "errors"),
    Why.SHORTFALL: ("left", "consenting", "need", "ramp"),
    Why.LATENCY_HIGH: ("unit_sequences", "aim", "per_minute", "trim"),
    Why.CARRIED: ("left", "consenting", "need"),
    Why.NO_ROOM: ("left", "consenting", "need"),
    Why.UNEVEN: ("imbalance", "fullest"),
    Why.OTHERS_BUSY: ("imbalance", "fullest"),
    Why.EVEN: ("imbalance", "hit_rate", "hit_rate_at_full"),
}


def asked(decision: Decision) -> float | None:
    """What the policies wanted before any guard; the final value where no policy left a step."""
    wanted = [step.after for step in decision.steps if step.why in ASKED]
    return wanted[-1] if wanted else decision.final


def held_by(decision: Decision) -> Why | None:
    """The reason that kept or bent what was asked, or None when the decision is as asked (or nothing was asked)."""
    if decision.why in IDLE:
        return None
    for step in reversed(decision.steps):
        if step.why not in ASKED and step.why is not Why.QUANTUM and step.after != step.before:
            return step.why
    return decision.why if decision.why not in ASKED and not decision.changed else None


def reason(decision: Decision, state: TargetState | None = None) -> str:
    """The chain as one phrase, without time and target. `state` is the target as it was read, where that is known."""
    parts: list[str] = []
    told = False
    for step in decision.steps:
        if not step.by and step.before == step.after:
            continue  # no policy spoke; the guards after it did
        if step.why in ASKED:
            evidence = "" if told else _evidence(step.why, decision.evidence)
            told = True
            parts.append(
                f"{step.by} asked {number(step.after)} ({because(decision, step.why)}{evidence}){_detail(step)}"
            )
        elif step.why is Why.QUANTUM:
            parts.append(f"{SENTENCE[step.why]}: {number(step.after)}")
        else:
            parts.append(_guard(step, decision))
    if not decision.steps:
        parts.append(f"{because(decision, state=state)}{_evidence(decision.why, decision.evidence)}")
    elif decision.why not in {step.why for step in decision.steps}:
        parts.append(because(decision))
    if decision.leaving:
        parts.append(f"first {listed(decision.leaving)}")
    if when := until([decision]):
        parts.append(when)
    text = "; ".join(parts)
    if decision.mode is Mode.OBSERVE:
        text += "; not sent: " + SENTENCE[Why.MODE_OBSERVE]
    return text


def sentence(decision: Decision, at: float, *, date: bool = False, state: TargetState | None = None) -> str:
    """One line: `14:02:15 llama-70b/replicas 8 → 12: ...`."""
    return f"{clock(at, date=date)} {decision.target} {movement(decision)}: {reason(decision, state)}"


def movement(decision: Decision) -> str:
    """`8 → 12`, or `8` when it stays."""
    if decision.final is None or decision.final == decision.current:
        return number(decision.current)
    return f"{number(decision.current)} → {number(decision.final)}"


def outcome_words(applied: Applied) -> str:
    """What became of it, with the actuator's own words."""
    words = {
        Outcome.DONE: "done",
        Outcome.DRY_RUN: "not sent (dry run)",
        Outcome.REFUSED: "refused",
        Outcome.FAILED: "failed",
        Outcome.UNKNOWN: "outcome unknown",
    }[applied.outcome]
    if applied.waits:
        words = "put off"
    return f"{words}: {applied.detail}" if applied.detail else words


def explain(
    plan: Plan,
    applied: Iterable[Applied] = (),
    *,
    states: Mapping[Target, TargetState] | None = None,
    folded: bool = True,
    date: bool = False,
) -> list[str]:
    """The sentences of one plan, one line per decision (and one more where it is pinned, or an actuator had something
    to say). `states` are the targets as they were read. When `folded`, members of a lever that stay for the same reason
    share a line where they are many."""
    outcomes: dict[Target, Applied] = {one.target: one for one in applied}
    alike: dict[tuple[str, str, Why, str], list[Decision]] = {}
    for decision in plan.decisions:
        if folded and decision.target.member and not decision.changed and decision.target not in outcomes:
            alike.setdefault(_kind(decision), []).append(decision)
    many = [same for same in alike.values() if len(same) > FEW]
    first = {same[0].target: same for same in many}
    hidden = {decision.target for same in many for decision in same}
    lines: list[str] = []
    for decision in plan.decisions:
        if decision.target in hidden:
            if decision.target in first:
                lines.append(_folded(first[decision.target], plan.at, date=date))
            continue
        state = states.get(decision.target) if states else None
        lines.append(sentence(decision, plan.at, date=date, state=state))
        if state is not None and state.pin is not None:
            lines.append(f"    {pin_words(state.pin, decision)}")
        one = outcomes.get(decision.target)
        if one is not None:
            lines.append(f"    {outcome_words(one)}")
    return lines


def pin_words(pin: Pin, decision: Decision) -> str:
    """`pinned at 4 until 2026-01-01 02:00:00 UTC: launch day`, and which bound holds where it is beyond one."""
    text = f"pinned at {number(pin.value)} until {clock(pin.until, date=True)} UTC: {pin.reason}"
    if decision.why in _BOUNDS and decision.final != pin.value:
        text += f" ({_SUBJECT[decision.why]} holds it at {number(decision.final)})"
    return text


def _kind(decision: Decision) -> tuple[str, str, Why, str]:
    """What is told in one line. Set-points of a gate are of several units, and never told together."""
    lever, member = decision.target.lever, decision.target.member
    name = f"{lever}/{member}" if lever is Lever.ADMISSION else lever.value
    return decision.target.pool, name, decision.why, decision.mode.value


def _folded(same: list[Decision], at: float, *, date: bool) -> str:
    values = sorted(decision.current for decision in same if decision.current is not None)
    span = ""
    if values:
        ends = dict.fromkeys((number(values[0]), number(values[-1])))
        span = f" at {' ... '.join(ends)}"
    first = same[0].target
    told = f"{first.pool}/{first.lever}: {len(same)} members stay{span}"
    return f"{clock(at, date=date)} {told}: {alike(same, same[0].why)}"


def chain(decision: Decision) -> list[tuple[str, str, str, str]]:
    """The steps as rows of a table: by, before, after, reason."""
    return [
        (step.by, number(step.before), number(step.after), _words(step, decision) + _detail(step))
        for step in decision.steps
    ]


def decision_json(decision: Decision, state: TargetState | None = None) -> dict[str, object]:
    """A decision for `--json`: plain values, reasons by their catalogue name, and the sentence. `until` is when the
    target drops the value by itself, `holds_until` until when the reason for it holds, where that is known."""
    return {
        "target": str(decision.target),
        "pool": decision.target.pool,
        "lever": decision.target.lever.value,
        "member": decision.target.member,
        "current": decision.current,
        "final": decision.final,
        "why": decision.why.value,
        "held_by": held.value if (held := held_by(decision)) else None,
        "send": decision.send,
        "mode": decision.mode.value,
        "until": decision.until,
        "holds_until": holds_until(decision, state),
        "steps": [
            {"by": s.by, "before": s.before, "after": s.after, "why": s.why.value, "detail": s.detail}
            for s in decision.steps
        ],
        "evidence": dict(decision.evidence),
        "sentence": reason(decision, state),
    }


def reasons_page() -> str:
    """`docs/reasons.md`, generated from the catalogue so that the two cannot differ."""
    lines = [
        "# Reasons",
        "",
        "<!-- Generated by `controller.explain.reasons_page`; a test keeps it equal. Do not edit. -->",
        "",
        "Every decision carries one reason from this closed list. The same name is the `why` label of Governor's own",
        "metrics, the reason of Kubernetes events, the `why` in the ledger and in `--json`, and the anchor here.",
    ]
    for title, members in _chapters().items():
        lines += ["", f"## {title}", ""]
        for why in members:
            lines += [f"### {why.value}", "", SENTENCE[why][0].upper() + SENTENCE[why][1:] + ".", ""]
        lines.pop()
    return "\n".join(lines) + "\n"


def _chapters() -> Mapping[str, list[Why]]:
    blind = {
        Why.STALE, Why.MISSING, Why.PARTIAL, Why.UNDERFILLED, Why.UNSUPPORTED, Why.WORK_WAITING, Why.STUCK_ENGINE
    }  # fmt: skip
    people = {
        Why.PIN, Why.BY_HAND, Why.MODE_OFF, Why.MODE_OBSERVE, Why.MODE_PROTECT, Why.FOREIGN_WRITER,
        Why.UNREADABLE_TARGET, Why.BOOT, Why.POLICY_ERROR,
    }  # fmt: skip
    guards = set(Why) - ASKED - blind - people
    return {
        "Asked by policies": [w for w in Why if w in ASKED],
        "No relaxing without evidence": [w for w in Why if w in blind],
        "Guards": [w for w in Why if w in guards],
        "People and ownership": [w for w in Why if w in people],
    }


def _evidence(why: Why, evidence: Mapping[str, float]) -> str:
    """The few numbers that a person checks the reason by; `--table` and `--json` give all of them."""
    if not evidence:
        return ""
    named = signal_of(evidence)
    if named is not None:
        return _of_signal(*named, evidence)
    telling = [name for name in (*_TELLING.get(why, ()), *_USUAL) if name in evidence]
    names = [name for name in dict.fromkeys(telling or evidence) if name not in TIMES][:_SHOWN]
    told = ", ".join(f"{name.replace('_', ' ')} {number(evidence[name])}" for name in names)
    return f": {told}" if told else ""


def _of_signal(name: str, info: SignalInfo, evidence: Mapping[str, float]) -> str:
    """What was measured of a signal and what it is held against, in its unit."""
    told = [f"{name} {counted(evidence['measure'], info.unit)}"]
    told += [f"{one} {counted(evidence[one], info.unit)}" for one in ("target", "upper", "lower") if one in evidence]
    return ": " + ", ".join(told)


def _detail(step: Step) -> str:
    return f" [{step.detail}]" if step.detail else ""


def _hand(why: Why, lever: Lever) -> str | None:
    """A guard as the subject of what it did, where it reads well as one."""
    return recent(lever) if why is Why.STABILISE else _SUBJECT.get(why)


def _words(step: Step, decision: Decision) -> str:
    """The reason of one step, in the words that the sentence has for it."""
    return (_hand(step.why, decision.target.lever) or because(decision, step.why)).rstrip(",")


def _guard(step: Step, decision: Decision) -> str:
    subject = _hand(step.why, decision.target.lever)
    verb = _verb(step, decision.current)
    if subject is not None:
        return f"{subject} {verb} {number(step.after)}{_detail(step)}"
    passive = {"held it at": "held at", "raised it to": "raised to", "lowered it to": "lowered to"}[verb]
    return f"{passive} {number(step.after)}: {because(decision, step.why)}{_detail(step)}"


def _verb(step: Step, current: float | None) -> str:
    # Towards the current value is holding; past it, or away from it, is moving.
    if current is not None and min(step.before, current) <= step.after <= max(step.before, current):
        return "held it at"
    return "raised it to" if step.after > step.before else "lowered it to"


def is_replicas(target: Target) -> bool:
    """Whether the target is the replica count of a pool."""
    return target.lever is Lever.REPLICAS and not target.member
