"""The actuator ``dynamo``: requests in flight per replica, as busy thresholds of every frontend."""

from collections.abc import Mapping, Sequence

from actuators.batch import decreases_first, invalid, reject, wanted
from actuators.dynamo.config import DynamoConfig, DynamoPool
from actuators.dynamo.doctor import Looks, diagnose
from actuators.dynamo.formula import FIELDS, requests, threshold
from actuators.dynamo.frontend import Frontend, Look, Unreadable
from actuators.memory import Memory
from actuators.several import Told, as_one, seen, together
from actuators.web import NoAnswer, Web
from controller.core.address import shown
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target, TargetState
from controller.core.ports import Binding, Capability, Finding, Reach
from controller.core.rest import NO_LIMIT

_CONCURRENCY = "concurrency"
_CAN = Capability(
    "requests in flight per replica, counted as KV blocks", low=1.0, high=NO_LIMIT, persistent=False,
    reach=Reach.PROCESS, setpoints=(_CONCURRENCY,),
    note="busy thresholds of Dynamo's frontends, beyond which they answer 529; set-point concurrency alone",
)  # fmt: skip


class Dynamo:
    """The gates of all models of its frontends."""

    Config = DynamoConfig

    def __init__(self, config: DynamoConfig, binding: Binding) -> None:
        self._config, self._binding = config, binding
        self._web = Web(config.timeout, config.api_key, config.ca_file)
        self._frontends = {url: Frontend(url, self._web) for url in config.frontends}
        self._memory = Memory(config.yield_for)
        self._wanted: dict[Target, float] = {}

    @classmethod
    def describe(cls, config: DynamoConfig | None = None) -> Mapping[Lever, Capability]:  # noqa: ARG003 - all alike
        return {Lever.ADMISSION: _CAN}

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        looks = self._looks(now)
        return {target: self._read_one(target, looks, now) for target in targets}

    def _read_one(self, target: Target, looks: Looks, now: float) -> TargetState:
        if reason := self._unfit(target):
            return self._memory.state(target, None, now, error=reason)
        values, errors = self._values(target, looks, self._memory.value(target))
        error = "; ".join(errors)
        if not values:
            return self._memory.state(target, None, now, error=error)
        value = as_one(values, self._wanted.get(target), otherwise=min(values.values()))
        others = [url for url, one in values.items() if one == value]
        self._memory.saw(target, value, now, "by /busy_threshold", self._drift(target, looks, others, now))
        return self._memory.state(target, value, now, error=error)

    def _values(self, target: Target, looks: Looks, expected: float | None) -> tuple[dict[str, float], list[str]]:
        """Requests in flight per replica by the word of each frontend, and why some say nothing."""
        pool, values, errors = self._config.pools[target.pool], dict[str, float](), list[str]()
        for url, look in looks.items():
            try:
                values[url] = self._value(pool, look, expected)
            except ValueError as error:
                errors.append(f"{shown(url)}: {error}")
        return values, errors

    def _value(self, pool: DynamoPool, look: Look | str, expected: float | None) -> float:
        """Raises ValueError, in words for people, where it cannot be known."""
        if isinstance(look, str):
            raise ValueError(look)
        if pool.model not in look.thresholds:
            raise ValueError(f"knows no model {pool.model}; see that it has workers, and pools.*.model")
        found = look.thresholds[pool.model][FIELDS[pool.by]]
        return requests(pool, look.cards.get(pool.model), len(self._frontends), found, expected)

    def _drift(self, target: Target, looks: Looks, urls: Sequence[str], now: float) -> Drift:
        """What another value than the last means at these frontends."""
        pool = self._config.pools[target.pool]
        frontends = [(self._frontends[url], looks[url]) for url in urls]
        if all(
            isinstance(look, Look) and one.forgot(pool.model, look.thresholds[pool.model][FIELDS[pool.by]], now)
            for one, look in frontends
        ):
            return Drift.RESTARTED
        return Drift.STALE if all(pool.model in one.missed for one, _ in frontends) else Drift.FOREIGN

    # --- writing ------------------------------------------------------------------------------------------------

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = invalid(decisions, self._binding.owns, quantum=_CAN.quantum, low=_CAN.low, high=_CAN.high)
        for decision in decisions:
            if decision.target not in problems and (reason := self._unfit(decision.target)):
                problems[decision.target] = reason
        if problems:
            return reject(decisions, problems)
        ordered = decreases_first(decisions)
        told: dict[Target, dict[str, Told]] = {d.target: {} for d in ordered}
        for url, frontend in self._frontends.items() if ordered else ():
            frontend.missed.update(self._config.pools[d.target.pool].model for d in ordered)
            try:
                look = frontend.look(now)
            except (NoAnswer, Unreadable) as error:
                refused = isinstance(error, Unreadable) and error.refused
                outcome = Outcome.REFUSED if refused else Outcome.FAILED
                for decision in ordered:
                    told[decision.target][shown(url)] = (outcome, f"nothing was sent: {error}")
                continue
            for decision in ordered:
                told[decision.target][shown(url)] = self._set(frontend, look, decision)
        return tuple(self._recorded(decision, together(told[decision.target]), now) for decision in ordered)

    def _set(self, frontend: Frontend, look: Look, decision: Decision) -> Told:
        pool = self._config.pools[decision.target.pool]
        try:
            value = threshold(pool, look.cards.get(pool.model), len(self._frontends), wanted(decision))
        except ValueError as error:
            return Outcome.FAILED, str(error)
        return frontend.set(pool.model, FIELDS[pool.by], value)

    def _recorded(self, decision: Decision, told: Told, now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        outcome, detail = told
        self._wanted[target] = value
        self._memory.sent(target, value, outcome, now, moved=decision.current != value, over=decision.current)
        return Applied(target, outcome, detail)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        looks = self._looks(now) if decisions else {}
        return tuple(self._verified(decision, looks, now) for decision in decisions)

    def _verified(self, decision: Decision, looks: Looks, now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        if reason := self._unfit(target):
            return Applied(target, Outcome.UNKNOWN, reason)
        pool, told = self._config.pools[target.pool], dict[str, Told]()
        for url, look in looks.items():
            try:
                got = self._value(pool, look, value)
                told[shown(url)] = (Outcome.DONE if got == value else Outcome.FAILED, f"{target} is {got:g}")
            except ValueError as error:
                told[shown(url)] = (Outcome.UNKNOWN, str(error))
        outcome, detail = seen(told)
        if outcome is Outcome.DONE:
            for frontend in self._frontends.values():
                frontend.missed.discard(pool.model)
                frontend.told.add(pool.model)
        self._memory.sent(target, value, outcome, now)
        return Applied(target, outcome, detail)

    # --- shared -------------------------------------------------------------------------------------------------

    def diagnose(self, now: float) -> Sequence[Finding]:
        return diagnose(self._config, self._binding, self._looks(now))

    def close(self) -> None:
        self._web.close()

    def _looks(self, now: float) -> Looks:
        """What every frontend shows, or why nothing."""
        found: dict[str, Look | str] = {}
        for url, frontend in self._frontends.items():
            try:
                found[url] = frontend.look(now)
            except (NoAnswer, Unreadable) as error:
                found[url] = str(error)
        return found

    def _unfit(self, target: Target) -> str:
        """Why a target cannot be moved at all."""
        if target.pool not in self._config.pools:
            return f"pools.{target.pool}: is missing; tell its model"
        if target.member != _CONCURRENCY:
            return f"Dynamo cannot hold {target.member}: it refuses by load alone; write setpoints: [concurrency]"
        return ""
