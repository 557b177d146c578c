"""What a batch of decisions asks of HAProxy, worked out in full before the first write. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actuators.batch import decreases_first, wanted
from actuators.haproxy.common import Told
from actuators.haproxy.look import GENERATION, Server, View
from actuators.haproxy.names import MAPPED, SHARES, live, weight_of
from actuators.haproxy.told import Reader, backend_of
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.rest import at_rest

_IDLE = 5  # seconds after which expiry.lua, which looks several times a second, does not run any more


@dataclass(frozen=True, slots=True)
class Orders:
    """`decisions` in the order in which they are answered; `kept` those that are carried out, in the order of writing:
    what takes a server out comes last, so that in a swap there is no moment without one. `refused` with reasons; `map`
    the whole map as it is to be, and whether it is `changed`."""

    decisions: tuple[Decision, ...]
    kept: tuple[Decision, ...]
    refused: Mapping[Target, Told]
    map: Mapping[str, str]
    changed: bool


def orders(decisions: Sequence[Decision], reader: Reader, view: View, now: float, generation: int | None) -> Orders:
    """The orders of a batch that has been found valid; `generation` is the map's, None where there is no map."""
    ordered = decreases_first(decisions)
    refused: dict[Target, Told] = {}
    for decision in ordered:
        if reason := _refusal(decision, reader, view):
            refused[decision.target] = (Outcome.REFUSED, reason)
    entries = dict(view.map)
    open_ = [decision for decision in ordered if decision.target not in refused]
    for decision in open_:
        if decision.target.lever in SHARES:
            _agree(entries, decision.target, reader, view, now)
    agreed = dict(entries)
    for decision in open_:
        _remember(entries, decision, reader, view)
    for target, reason in _emptied(open_, entries, reader, view, now).items():
        refused[target] = (Outcome.FAILED, reason)  # of this moment alone: others may come back at the next
        _restore(entries, agreed, reader.names.key(target, view))
    changed = entries != view.map
    if changed and generation is not None:
        entries[GENERATION] = str(generation)
    kept = [decision for decision in open_ if decision.target not in refused]
    kept.sort(key=lambda d: d.target.lever in SHARES and percent(d.target, entries, reader, view, now) == 0)
    return Orders(tuple(ordered), tuple(kept), refused, entries, changed)


def _refusal(decision: Decision, reader: Reader, view: View) -> str:
    target = decision.target
    try:
        if target.lever in SHARES:
            server = reader.found(target, view)
            if server.agent and reader.names.config.mode == "socket":
                return f"server {backend_of(server)} has an agent-check, which would undo it; use mode: agent for it"
            if server.maintained:
                return f"server {backend_of(server)} is in maintenance, which is for whoever began it to end"
            if not server.agent and reader.names.config.mode == "agent":
                return f"server {backend_of(server)} has no agent-check, and asks nobody; see the page of HAProxy"
        elif target.lever is Lever.ADMISSION and not view.of(reader.names.pool(target).backend):
            return f"HAProxy has no backend {reader.names.pool(target).backend} with servers"
    except LookupError as error:
        return str(error)
    ends = decision.until is not None and reader.names.config.expires and wanted(decision) != at_rest(target)
    if ends and target.lever not in MAPPED and (view.idle is None or view.idle > _IDLE):
        return "expiry.lua does not run in HAProxy, so that the value would stay for ever; load it, see its page"
    return ""


def _remember(entries: dict[str, str], decision: Decision, reader: Reader, view: View) -> None:
    key, count = reader.names.key(decision.target, view), reader.names.counted(decision.target, wanted(decision))
    entries[key] = str(count)
    told = reader.names.config.mode == "socket"  # an agent must go on saying that there is no limit
    if told and decision.target.lever not in SHARES and wanted(decision) == at_rest(decision.target):
        del entries[key]  # as if it had never been written
    if decision.until is None or not reader.names.config.expires or wanted(decision) == at_rest(decision.target):
        entries.pop(f"{key}@until", None)
    else:
        entries[f"{key}@until"] = str(math.ceil(decision.until))


def _agree(entries: dict[str, str], target: Target, reader: Reader, view: View, now: float) -> None:
    """Where the server does not stand as the map says, what stands becomes the word of weight and breaker before one of
    the two moves: else it would be taken back with it."""
    for lever in SHARES:
        twin = Target(target.pool, lever, target.member)
        key, share = reader.names.key(twin, view), reader.share(twin, view, now)
        if reader.binding.owns(twin) and share != (100 if (asked := live(view.map, key, now)) is None else asked):
            entries[key] = str(share)
            entries.pop(f"{key}@until", None)


def _restore(entries: dict[str, str], before: Mapping[str, str], key: str) -> None:
    for name in (key, f"{key}@until"):
        entries.pop(name, None)
        if name in before:
            entries[name] = before[name]


def _emptied(
    decisions: Sequence[Decision], entries: Mapping[str, str], reader: Reader, view: View, now: float
) -> dict[Target, str]:
    """The decisions that together would take the last server of a backend out: it would answer 503 to all."""
    after: dict[tuple[str, str], int] = {}
    taken: dict[str, list[Target]] = {}
    for decision in decisions:
        if decision.target.lever in SHARES:
            server = reader.found(decision.target, view)
            after[server.backend, server.name] = percent(decision.target, entries, reader, view, now)
            if wanted(decision) == 0:
                taken.setdefault(server.backend, []).append(decision.target)
    left = {
        backend: any(after.get((backend, one.name), one.share) > 0 for one in view.of(backend)) for backend in taken
    }
    return {
        target: f"it would take the last server of backend {backend} out of rotation"
        for backend, targets in taken.items()
        if not left[backend]
        for target in targets
    }


def percent(target: Target, entries: Mapping[str, str], reader: Reader, view: View, now: float) -> int:
    """What a server gets when `entries` are the map: the lesser of weight and breaker."""
    twins = [reader.names.key(Target(target.pool, lever, target.member), view) for lever in SHARES]
    return min(100 if (count := live(entries, key, now)) is None else count for key in twins)


def commands(decision: Decision, todo: Orders, reader: Reader, view: View, now: float) -> tuple[str, ...]:
    """What is to be said on the socket, beside the map, to carry out one decision."""
    target = decision.target
    if target.lever in SHARES:
        server = reader.found(target, view)
        return _weigh(server, percent(target, todo.map, reader, view, now))
    if target.lever is Lever.ADMISSION:
        limit = reader.names.counted(target, wanted(decision))
        servers = view.of(reader.names.pool(target).backend)
        return tuple(f"set maxconn server {backend_of(s)} {limit}" for s in servers if s.maxconn != limit)
    return ()


def _weigh(server: Server, share: int) -> tuple[str, ...]:
    """A drain keeps what is in flight. The weight is set before the server is let back, so that it comes back slowly;
    the one of a server that goes out stays, so that nothing else is to be remembered. To repeat the limit of one that
    comes back makes HAProxy look at its queue: requests that wait there would wait on until another one ends."""
    name, weight = backend_of(server), weight_of(share, server.initial)
    if share == 0:
        return () if server.out else (f"set server {name} state drain",)
    lines = () if server.weight == weight else (f"set server {name} weight {weight}",)
    if not server.out:
        return lines
    queue = (f"set maxconn server {name} {server.maxconn}",) if server.maxconn else ()
    return (*lines, f"set server {name} state ready", *queue)
