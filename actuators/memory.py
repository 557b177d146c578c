"""What an actuator remembers of its targets: which value is ours, what became of the last write, who interfered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.core.model import Drift, Outcome, Pending, Target, TargetState


@dataclass(frozen=True, slots=True)
class _Known:
    """`expected` are the values that would surprise nobody: what was seen or written last, and while a write has an
    unknown outcome both what it replaced and what it wanted."""

    expected: frozenset[float] = frozenset()
    outcome: Outcome | None = None
    changed_at: float | None = None
    drift: Drift | None = None
    drifted_at: float = 0.0
    foreign: str = ""
    foreign_at: float = 0.0
    twin_at: float | None = None  # when another process of ours moved it


class Memory:
    """One entry per target. A foreign write is reported for `yield_for` seconds after it was seen, so that the person
    or program behind it has its way for that long; each further foreign write starts the time anew."""

    def __init__(self, yield_for: float) -> None:
        self._yield_for = yield_for
        self._known: dict[Target, _Known] = {}

    def __contains__(self, target: Target) -> bool:
        return bool(self._get(target).expected)

    def saw(self, target: Target, value: float, now: float, writer: str = "", drift: Drift = Drift.FOREIGN) -> None:
        """A value was read back. `writer` names who wrote it, should it turn out not to be us; `drift` says why it
        would be another, where the target can tell: it began anew, or runs an older version of ours."""
        known = self._get(target)
        if known.expected and value not in known.expected:
            known = replace(known, drift=drift, drifted_at=now)
            if drift is Drift.FOREIGN:
                known = replace(known, foreign=writer or "somebody else", foreign_at=now)
        elif known.outcome is Outcome.UNKNOWN:
            return  # verify settles it; the write may still arrive
        self._known[target] = replace(known, expected=frozenset({value}))

    def interfered(self, target: Target, writer: str, at: float) -> None:
        """Somebody else is known to have written the target at `at`."""
        self._known[target] = replace(
            self._get(target), drift=Drift.FOREIGN, drifted_at=at, foreign=writer, foreign_at=at
        )

    def succeeded(self, target: Target, value: float, now: float) -> None:
        """Another process of ours wrote it, as one does that took over. When it moves it again, after we have moved it
        in between, both of us run and undo each other: then it is a stranger's write, and yielded to."""
        known = self._get(target)
        if value not in known.expected and known.expected:
            ours, theirs = known.changed_at, known.twin_at
            if ours is not None and theirs is not None and theirs <= ours and now - theirs < self._yield_for:
                known = replace(known, drift=Drift.FOREIGN, drifted_at=now, foreign="another Governor", foreign_at=now)
            known = replace(known, twin_at=now)
        self._known[target] = replace(known, expected=frozenset({value}))

    def settled(self, target: Target, value: float) -> None:
        """The target holds `value` as a consequence of our write, even if it is not what was asked for."""
        self._known[target] = replace(self._get(target), expected=frozenset({value}))

    def sent(
        self, target: Target, value: float, outcome: Outcome, now: float, *, moved: bool = True,
        over: float | None = None,
    ) -> None:  # fmt: skip
        """A write (or its verification) had this outcome. `moved` is False when the target held the value already.
        `over` is what the write replaces, as it was read: where its outcome is unknown and nothing is remembered yet,
        that may still be there."""
        known = replace(self._get(target), outcome=outcome)
        if outcome is Outcome.DONE:
            known = replace(known, expected=frozenset({value}))
            if moved:
                known = replace(known, changed_at=now, foreign="", drift=None)
        elif outcome is Outcome.UNKNOWN:
            before = known.expected or frozenset([] if over is None else [over])
            known = replace(known, expected=before | {value})
        self._known[target] = known

    def value(self, target: Target) -> float | None:
        """The one value known to be in force, None when there is none or two are possible."""
        expected = self._get(target).expected
        return next(iter(expected)) if len(expected) == 1 else None

    def state(
        self,
        target: Target,
        accepted: float | None,
        now: float,
        *,
        ready: float | None = None,
        pending: Sequence[Pending] = (),
        owner: str = "",
        error: str = "",
    ) -> TargetState:
        """The state to report. `owner` is a standing foreign writer, such as an autoscaler bound to the target."""
        known = self._get(target)
        recent = known.foreign if known.foreign and now - known.foreign_at < self._yield_for else ""
        news = known.drift if now - known.drifted_at < self._yield_for else None
        return TargetState(
            accepted,
            ready=ready,
            pending=tuple(pending),
            last_outcome=known.outcome,
            last_change=known.changed_at,
            foreign_writer=owner or recent,
            error=error,
            drift=Drift.FOREIGN if owner else news,
            foreign_until=known.foreign_at + self._yield_for if recent and not owner else None,
        )

    def _get(self, target: Target) -> _Known:
        return self._known.get(target, _Known())
