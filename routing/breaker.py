"""Circuit breaker: takes a replica out that fails, is slow though alive, or is stuck; and lets it back carefully.

Judged once per `window` on what ended in it (on more windows, up to 6, until `least` did):

    errors   share of errors >= max(errors, errors_ratio · the share of all other replicas)
    slow     `slow` of the requests beyond slow_ratio · the fleet's median, `slow_windows` windows in a row
    stuck    requests are there, and none gave a sign of life for `stuck` seconds

Slow is measured in seconds per output token, and in seconds to the first token per (uncached prompt + 256) tokens,
against the median of its peers: of the 16 others with the most similar number of requests in flight, those that have at
least half as many, or were given at least half as many in the window. So a fleet that is slow as a whole has no slow
replica, one that is slow because it gets most of the work (a hot prefix) is not blamed for that, and a straggler is,
however its requests pile up.

Never more than max(1, `ejected` · replicas) are out, the worst first, and none when more than half would have to go:
that is an overload, and fewer replicas would make it worse. A single replica stays in whatever it does.

    closed → open for open_time · 2^relapses (±20 % by hash) → probing: a request every window / probes
           → after `probes` good ones: weight 0.05, then 0.25, `ramp_step` each → closed

A bad probe, or a verdict on the ramp, is a relapse; they are forgotten after `open_limit` seconds closed.
"""

from collections import deque
from enum import StrEnum
from math import inf
from statistics import median

from routing.hashing import text_hash, unit
from routing.knobs import Breaker as Knobs
from routing.model import Replica

WINDOWS = 6  # remembered
FIXED_TOKENS = 256.0  # what a prefill costs before its first token, in tokens
LEAST_SLOW = 5  # samples that make a window of the slow test
GAIN = 0.1
PEERS = 16
JITTER = 0.2
RAMP = (0.05, 0.25)


class Phase(StrEnum):
    """Where a replica stands with its breaker."""

    CLOSED = "closed"  # in rotation
    OPEN = "open"  # out
    PROBING = "probing"  # out, but for probes
    RAMPING = "ramping"  # back at part of its weight


class _Health:
    """What is known of one replica."""

    __slots__ = (
        "busy_since",
        "ended",
        "errors",
        "first",
        "good",
        "next_probe",
        "per_token",
        "phase",
        "probes",
        "reference",
        "relapses",
        "replica",
        "samples",
        "sent",
        "since",
        "slow",
        "slow_windows",
        "step",
        "until",
        "windows",
    )

    def __init__(self, replica: Replica, now: float) -> None:
        self.replica = replica
        self.phase = Phase.CLOSED
        self.since = -inf  # requests sent earlier say nothing about this phase
        self.until = -inf  # end of this phase; of CLOSED: when relapses are forgotten
        self.relapses = 0
        self.step = 0  # of the ramp
        self.probes = self.good = 0  # at it, and ended well
        self.next_probe = -inf
        self.busy_since = now  # the last sign of life, or of being idle
        self.reference = (inf, inf)  # beyond this a request is slow: s per output token, s per prompt token
        self.forget()

    def forget(self) -> None:
        self.per_token: float | None = None  # means, the same units
        self.first: float | None = None
        self.sent = self.ended = self.errors = 0  # in this window
        self.samples = self.slow = 0
        self.slow_windows = 0
        self.windows: deque[tuple[int, int]] = deque(maxlen=WINDOWS)  # (ended, errors)


class Breaker:
    """The breakers of all replicas. `next_at` is when `poll` has something to do, unix seconds; `opened` counts by
    replica. While it is off nothing need be told but who joined and left."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs
        self.next_at = inf
        self.opened: dict[str, int] = {}
        self.probing: list[str] = []
        self._all: dict[str, _Health] = {}
        self._judge_at = inf

    def joined(self, replica: Replica, now: float) -> None:
        """It is new, or new again after a restart."""
        self.probing = [one for one in self.probing if one != replica.name]
        self._all[replica.name] = _Health(replica, now)
        self._schedule(now)

    def left(self, name: str) -> None:
        """It is no longer there. The last one left is let in whatever it did."""
        self._all.pop(name, None)
        self.probing = [one for one in self.probing if one != name]
        if len(self._all) == 1:
            self.probing.clear()
            self._all = {last: _Health(health.replica, -inf) for last, health in self._all.items()}

    def phase(self, name: str) -> Phase:
        """Where it stands."""
        return self._all[name].phase

    def factor(self, name: str) -> float:
        """The part of its weight that it may have. One that is probed has some, and is offered for probes alone."""
        health = self._all[name]
        if health.phase is Phase.CLOSED:
            return 1.0
        return 0.0 if health.phase is Phase.OPEN else RAMP[health.step]

    def probe_due(self, name: str, now: float) -> bool:
        """Whether the next request should try a replica that is `probing`."""
        health = self._all[name]
        return now >= health.next_probe and health.probes + health.good < self.knobs.probes

    def sent(self, name: str, now: float) -> None:
        """A request was given to it, and is counted in the replica's `inflight`."""
        health = self._all[name]
        health.sent += 1
        if health.replica.inflight == 1:
            health.busy_since = now
        if health.phase is Phase.PROBING:
            health.probes += 1
            health.next_probe = now + self.knobs.window / self.knobs.probes

    def first_token(self, name: str, sent_at: float, uncached_tokens: float, now: float) -> None:
        """It answered a request that was sent at `sent_at`."""
        health = self._all[name]
        health.busy_since = now
        if sent_at < health.since:
            return
        pace = (now - sent_at) / (uncached_tokens + FIXED_TOKENS)
        health.first = pace if health.first is None else health.first + GAIN * (pace - health.first)
        health.samples += 1
        health.slow += pace > health.reference[1]

    def finished(self, name: str, sent_at: float, per_token: float | None, now: float) -> bool:
        """A request came to its end, at so many seconds per output token. True when its weight changes."""
        health = self._all[name]
        health.busy_since = now
        if sent_at < health.since:
            return False
        health.ended += 1
        slow = False
        if per_token is not None:
            slow = per_token > health.reference[0]
            mean = health.per_token
            health.per_token = per_token if mean is None else mean + GAIN * (per_token - mean)
            health.samples += 1
            health.slow += slow
        if health.phase is not Phase.PROBING:
            return False
        health.probes -= 1
        if slow:
            return self._open(name, now)
        health.good += 1
        if health.good < self.knobs.probes:
            return False
        health.phase, health.step, health.since, health.until = Phase.RAMPING, 0, now, now + self.knobs.ramp_step
        health.forget()
        self.probing.remove(name)
        self._schedule(now)
        return True

    def failed(self, name: str, sent_at: float, now: float) -> bool:
        """A request failed there by the replica's fault. True when its weight changes."""
        health = self._all[name]
        health.busy_since = now
        if sent_at < health.since:
            return False
        health.ended += 1
        health.errors += 1
        if health.phase is not Phase.PROBING:
            return False
        health.probes -= 1
        return self._open(name, now)

    def dropped(self, name: str, sent_at: float) -> None:
        """A request left it by nobody's fault: its client went away, or it was cancelled. No sign of life."""
        health = self._all[name]
        if health.phase is Phase.PROBING and sent_at >= health.since:
            health.probes -= 1

    def poll(self, now: float) -> bool:
        """Phases that are over, and the judgement that is due. True when weights change."""
        if now < self.next_at:
            return False
        changed = False
        for name, health in self._all.items():
            if health.until > now:
                continue
            if health.phase is Phase.OPEN:
                health.phase, health.step, health.since, health.until = Phase.PROBING, 0, now, inf
                health.probes, health.good, health.next_probe, health.busy_since = 0, 0, now, now
                self.probing.append(name)
                changed = True
            elif health.phase is Phase.RAMPING:
                if health.step + 1 < len(RAMP):
                    health.step, health.until = health.step + 1, now + self.knobs.ramp_step
                else:
                    health.phase, health.until = Phase.CLOSED, now + self.knobs.open_limit
                changed = True
            elif health.phase is Phase.CLOSED:
                health.relapses = 0
        if now >= self._judge_at:
            changed = self._judge(now) or changed
        self._schedule(now)
        return changed

    def tune(self, knobs: Knobs, now: float) -> bool:
        """Other limits from now on; switched off, all come back at once. True when weights change."""
        was, self.knobs = self.knobs, knobs
        changed = False
        if was.on and not knobs.on:
            changed = any(health.phase is not Phase.CLOSED for health in self._all.values())
            self.probing.clear()
        if was.on != knobs.on:
            self._all = {name: _Health(health.replica, now) for name, health in self._all.items()}
        self._judge_at = inf
        self._schedule(now)
        return changed

    def _schedule(self, now: float) -> None:
        if not self.knobs.on:
            self.next_at = self._judge_at = inf
            return
        if self._judge_at == inf:
            self._judge_at = now + self.knobs.window
        moving = (health.until for health in self._all.values() if health.phase in (Phase.OPEN, Phase.RAMPING))
        self.next_at = min(self._judge_at, min(moving, default=inf))

    def _judge(self, now: float) -> bool:
        self._judge_at = now + self.knobs.window
        for health in self._all.values():
            health.windows.append((health.ended, health.errors))
            health.ended = health.errors = 0
        bad = {
            name: badness
            for name, health in self._all.items()
            if (badness := self._badness(health, now)) > 0.0 and health.phase is not Phase.OPEN
        }
        self._refer()
        for health in self._all.values():
            health.sent = 0
        relapsed = [name for name in bad if self._all[name].phase is Phase.PROBING]
        changed = [self._open(name, now) for name in relapsed]  # it was out already
        fresh = sorted((name for name in bad if name not in relapsed), key=lambda name: (-bad[name], name))
        out = sum(health.phase in (Phase.OPEN, Phase.PROBING) for health in self._all.values())
        count = len(self._all)
        if count < 2 or 2 * (len(fresh) + out) > count + (count == 2):
            return bool(changed)
        room = max(1, int(self.knobs.ejected * count)) - out
        changed += [self._open(name, now) for name in fresh[: max(0, room)]]
        return bool(changed)

    def _badness(self, health: _Health, now: float) -> float:
        """Above 0 when it should go: 2 stuck, 1 to 2 errors, up to 1 slow."""
        knobs = self.knobs
        if health.samples >= LEAST_SLOW:
            slow = health.slow / health.samples
            health.slow_windows = health.slow_windows + 1 if slow >= knobs.slow else 0
            health.samples = health.slow = 0
        if knobs.stuck is not None and health.replica.inflight > 0 and now - health.busy_since > knobs.stuck:
            return 2.0
        if health.phase is Phase.PROBING:
            return 0.0
        ended = errors = 0
        for some, wrong in reversed(health.windows):
            ended, errors = ended + some, errors + wrong
            if ended >= knobs.least:
                break
        if ended >= knobs.least:
            others = [pair for other in self._all.values() if other is not health for pair in other.windows]
            total, wrong = sum(pair[0] for pair in others), sum(pair[1] for pair in others)
            fleet = wrong / total if total else 0.0
            if errors / ended >= max(knobs.errors, knobs.errors_ratio * fleet):
                return 1.0 + errors / ended
        return 1.0 if health.slow_windows >= knobs.slow_windows else 0.0

    def _refer(self) -> None:
        """What is slow from now on, for each by its peers."""
        order = sorted(self._all, key=lambda name: (self._all[name].replica.inflight, name))
        for place, name in enumerate(order):
            health = self._all[name]
            near = [self._all[one] for one in order[max(0, place - PEERS // 2) : place + PEERS // 2 + 1] if one != name]
            alike = [one for one in near if _as_busy(one, health)]
            token = [one.per_token for one in alike if one.per_token is not None]
            first = [one.first for one in alike if one.first is not None]
            ratio = self.knobs.slow_ratio
            health.reference = (
                ratio * median(token) if token else inf,
                ratio * median(first) if first else inf,
            )

    def _open(self, name: str, now: float) -> bool:
        knobs, health = self.knobs, self._all[name]
        if health.phase is not Phase.CLOSED:
            health.relapses += 1
        seconds = min(knobs.open_time * 2.0 ** min(health.relapses, 32), knobs.open_limit)
        spread = 2.0 * unit(text_hash(f"{name}/{health.relapses}")) - 1.0
        health.phase, health.since, health.until = Phase.OPEN, inf, now + seconds * (1.0 + JITTER * spread)
        health.forget()
        self.probing = [one for one in self.probing if one != name]
        self.opened[name] = self.opened.get(name, 0) + 1
        self._schedule(now)
        return True


def _as_busy(peer: _Health, one: _Health) -> bool:
    """Whether a peer has enough to do for its pace to say what that of `one` should be."""
    return 2 * (peer.replica.inflight + 1) >= one.replica.inflight + 1 or 2 * peer.sent >= one.sent > 0
