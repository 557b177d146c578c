"""The actuator ``router``: a replica is a worker of its routers, or it is none."""

from collections.abc import Mapping, Sequence

from actuators.batch import decreases_first, invalid, reject, wanted
from actuators.endpoints import Endpoint, Endpoints, is_ip
from actuators.memory import Memory
from actuators.router.config import RouterConfig, RouterPool
from actuators.router.doctor import Looks, diagnose
from actuators.router.makes import Router as Make
from actuators.router.makes import Sglang, Vllm
from actuators.router.process import Process
from actuators.router.workers import Garbled, Worker, address
from actuators.several import Told, as_one, seen, together
from actuators.web import NoAnswer, Web
from controller.core.address import shown
from controller.core.model import Applied, Decision, Drift, Lever, Outcome, Target, TargetState
from controller.core.ports import Binding, Capability, Finding, Reach

_WRITER = "by the router's own commands"


class Router:
    """Replicas of its pools, in or out."""

    Config = RouterConfig

    def __init__(self, config: RouterConfig, binding: Binding) -> None:
        self._config, self._binding = config, binding
        self._web = Web(config.timeout, config.api_key, config.ca_file)
        self._plain = Web(config.timeout, None, config.ca_file)
        self._memory = Memory(config.yield_for)
        self._wanted: dict[Target, float] = {}
        self._routers = {name: self._processes(pool) for name, pool in config.pools.items()}
        self._endpoints = {
            name: Endpoints(pool.endpoints, config.refresh) if pool.endpoints is not None else None
            for name, pool in config.pools.items()
        }

    def _processes(self, pool: RouterPool) -> dict[str, Process]:
        return {
            url: Process(self._make(url), self._plain, metrics)
            for url, metrics in zip(pool.routers, pool.metrics or [""] * len(pool.routers), strict=True)
        }

    def _make(self, url: str) -> Make:
        c = self._config
        return Vllm(url, self._web) if c.make == "vllm" else Sglang(url, self._web, c.timeout, c.worker_key)

    @classmethod
    def describe(cls, config: RouterConfig | None = None) -> Mapping[Lever, Capability]:  # noqa: ARG003 - all alike
        note = "worker of sglang-router or vllm-router, or none: in or out, so a probe is a full share"
        return {Lever.BREAKER: Capability("in or out", high=1.0, persistent=False, reach=Reach.PROCESS, note=note)}

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        looks = self._looks({target.pool for target in targets}, now)
        return {target: self._read_one(target, looks.get(target.pool, {}), now) for target in targets}

    def _read_one(self, target: Target, looks: Looks, now: float) -> TargetState:
        try:
            place = self._place(target)
        except LookupError as error:
            return self._memory.state(target, None, now, error=str(error))
        errors = "; ".join(look for look in looks.values() if isinstance(look, str))
        values = {url: float(place in look) for url, look in looks.items() if not isinstance(look, str)}
        if not values:
            return self._memory.state(target, None, now, error=errors)
        value = as_one(values, self._wanted.get(target), otherwise=0.0)
        others = [url for url, one in values.items() if one == value]
        self._memory.saw(target, value, now, _WRITER, self._drift(target.pool, place, others, now))
        return self._memory.state(target, value, now, error=errors)

    def _drift(self, pool: str, place: str, urls: Sequence[str], now: float) -> Drift:
        """What another value than the last means at these routers."""
        processes = [self._routers[pool][url] for url in urls]
        if all(process.began(now) for process in processes):
            return Drift.RESTARTED
        return Drift.STALE if all(place in process.missed for process in processes) else Drift.FOREIGN

    # --- writing ------------------------------------------------------------------------------------------------

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = invalid(decisions, self._binding.owns, quantum=1.0, high=1.0)
        problems |= {
            d.target: f"pools.{d.target.pool}: is missing; tell its routers"
            for d in decisions
            if d.target.pool not in self._routers and d.target not in problems
        }
        if problems:
            return reject(decisions, problems)
        ordered = decreases_first(decisions)
        told: dict[Target, dict[str, Told]] = {d.target: {} for d in ordered}
        for pool in sorted({d.target.pool for d in ordered}):
            mine = [d for d in ordered if d.target.pool == pool]
            self._refresh(pool)
            for url, process in self._routers[pool].items():
                for target, one in self._carry_out(process, mine, now).items():
                    told[target][shown(url)] = one
        return tuple(self._recorded(decision, together(told[decision.target]), now) for decision in ordered)

    def _carry_out(self, process: Process, decisions: Sequence[Decision], now: float) -> dict[Target, Told]:
        """One router, told in turn; one command that fails does not stop the others."""
        told: dict[Target, Told] = {}
        places: dict[Target, str] = {}
        for decision in decisions:
            try:
                places[decision.target] = self._place(decision.target)
            except LookupError as error:
                told[decision.target] = (Outcome.REFUSED, str(error))
        process.missed.update(places.values())
        try:
            members = process.look(now)
        except NoAnswer as error:
            return {d.target: (Outcome.FAILED, f"nothing was sent: {error}") for d in decisions}
        except Garbled as error:
            outcome = Outcome.REFUSED if error.refused else Outcome.FAILED
            return {d.target: (outcome, str(error)) for d in decisions}
        leaving = {places[d.target] for d in decisions if d.target in places and wanted(d) == 0.0}
        for decision in decisions:
            target = decision.target
            if target not in places:
                continue
            place, inside = places[target], wanted(decision) > 0
            if (place in members) == inside:
                told[target] = (Outcome.DONE, f"was {'in' if inside else 'out'} already")
                process.missed.discard(place)
                continue
            try:
                worker = self._comer(process, target, place, members) if inside else _goer(members, place, leaving)
            except _Cannot as error:
                told[target] = (error.outcome, str(error))
                continue
            told[target] = process.router.add(worker) if inside else process.router.remove(worker)
            if told[target][0] is Outcome.DONE:
                process.moved(place, worker if inside else None)
        return told

    def _comer(self, process: Process, target: Target, place: str, members: Mapping[str, Worker]) -> Worker:
        """Who is to be let in, as it was. Raises _Cannot."""
        pool, endpoint = self._config.pools[target.pool], self._find(target)
        if endpoint is not None and not endpoint.ready:
            raise _Cannot(Outcome.FAILED, f"{target.member} is not ready, by the word of where its address is from")
        worker = process.known.get(place)
        if worker is not None:
            return worker
        other = next((shown(one.url) for at, one in members.items() if _by_ip(at) != _by_ip(place)), "")
        if other:
            raise _Cannot(
                Outcome.REFUSED,
                f"{place} may be {other} by another name, and would get two shares; write in "
                f"pools.{target.pool}.endpoints the addresses that the router has",
            )
        return Worker(f"{pool.scheme}://{place}")

    def _recorded(self, decision: Decision, told: Told, now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        outcome, detail = told
        self._wanted[target] = value
        self._memory.sent(target, value, outcome, now, moved=decision.current != value, over=decision.current)
        return Applied(target, outcome, detail)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        looks = self._looks({decision.target.pool for decision in decisions}, now)
        return tuple(self._verified(decision, looks.get(decision.target.pool, {}), now) for decision in decisions)

    def _verified(self, decision: Decision, looks: Looks, now: float) -> Applied:
        target, value = decision.target, wanted(decision)
        try:
            place = self._place(target)
        except LookupError as error:
            return Applied(target, Outcome.UNKNOWN, str(error))
        told: dict[str, Told] = {}
        for url, look in looks.items():
            if isinstance(look, str):
                told[shown(url)] = (Outcome.UNKNOWN, look)
            elif (place in look) == (value > 0):
                told[shown(url)] = (Outcome.DONE, f"{target.member} is {'in' if value > 0 else 'out'}")
            else:
                told[shown(url)] = self._routers[target.pool][url].router.settle(place, inside=value > 0)
        outcome, detail = seen(told)
        self._memory.sent(target, value, outcome, now)
        return Applied(target, outcome, detail)

    # --- shared -------------------------------------------------------------------------------------------------

    def diagnose(self, now: float) -> Sequence[Finding]:
        looks = self._looks(set(self._binding.pools), now)
        return diagnose(self._config, self._binding, looks, self._endpoints)

    def close(self) -> None:
        self._web.close()
        self._plain.close()

    def _looks(self, pools: set[str], now: float) -> dict[str, Looks]:
        """What every router of these pools shows."""
        looks: dict[str, Looks] = {}
        for pool in sorted(pools & self._routers.keys()):
            self._refresh(pool)
            found: dict[str, Mapping[str, Worker] | str] = {}
            for url, process in self._routers[pool].items():
                try:
                    found[url] = process.look(now)
                except (NoAnswer, Garbled) as error:
                    found[url] = str(error)
            looks[pool] = found
        return looks

    def _refresh(self, pool: str) -> None:
        if (endpoints := self._endpoints[pool]) is not None:
            endpoints.refresh()

    def _find(self, target: Target) -> Endpoint | None:
        endpoints = self._endpoints.get(target.pool)
        return endpoints.find(target.member) if endpoints is not None else None

    def _place(self, target: Target) -> str:
        """host:port of a replica. Raises LookupError, in words for people."""
        if target.pool not in self._routers:
            raise LookupError(f"pools.{target.pool}: is missing; tell its routers")
        if (endpoint := self._find(target)) is not None:
            return address(endpoint.address)
        if ":" in target.member and (place := address(target.member)):
            return place
        known = self._endpoints[target.pool]
        why = f" ({known.problem})" if known is not None and known.problem else ""
        raise LookupError(f"nobody tells where {target.member} listens{why}; see pools.{target.pool}.endpoints")


class _Cannot(Exception):
    """A worker that is left where it is."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def _goer(members: Mapping[str, Worker], place: str, leaving: set[str]) -> Worker:
    """Who is to be taken out. Raises _Cannot for the last one, and for one that could not be put back."""
    worker = members[place]
    if not worker.whole:
        text = f"{shown(worker.url)} is several workers, one for each rank, which could not be put back"
        raise _Cannot(Outcome.REFUSED, text)
    stay = [at for at, one in members.items() if one.kind == worker.kind and one.healthy and at not in leaving]
    if not stay:
        raise _Cannot(Outcome.FAILED, "no healthy worker would be left")
    return worker


def _by_ip(place: str) -> bool:
    return is_ip(place.rpartition(":")[0].strip("[]"))
