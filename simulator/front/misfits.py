"""What a controller would move at a gateway, and the gateway has not or takes for something else.

A set-point without its knob cannot be read at any tick; one that is cut off from what it works on is moved in vain;
and a downgrade whose two ends do not mean the same prompts, or the same people, counts on relief that does not come, or
sends who never consented. None of it stops a run.
"""

from collections.abc import Iterator, Sequence

from controller.core.model import Lever, Target
from controller.core.rules import PoolRules
from controller.core.setpoints import OWN
from controller.core.sizes import Band
from routing.downgrade import EVERYBODY
from routing.knobs import Downgrade, Knobs
from simulator.front.knobs import CONCURRENCY, Setting


def misfits(knobs: Knobs, strategy: str, targets: Sequence[Target], band: Band, pool: PoolRules) -> Iterator[str]:
    """A sentence on each of `targets` that is moved in vain, as `target: what; mend`. `strategy` is the gateway's;
    `band` the prompts that the controller takes a downgrade for; `pool` says who consents to it."""
    setting = Setting(knobs, strategy)
    limits = knobs.concurrency
    capped = any(one is not None for one in (limits.limit, limits.per_slot, limits.per_replica, limits.kv))
    capped = capped or any(one.member == CONCURRENCY for one in targets)
    for target in targets:
        try:
            setting.get(target)
        except ValueError as error:
            yield str(error)
            continue
        if target.lever is Lever.ADMISSION and target.member in OWN and not capped:
            yield (
                f"{target}: nothing limits the requests in flight, so nobody waits at the gateway and there is hardly "
                "anyone to turn away; write knobs.concurrency, as per_slot: 1, or move concurrency too"
            )
        if target.lever is Lever.DOWNGRADE:
            rules = [rule for rule in knobs.downgrade if rule.pool == target.member]
            for rule in rules:
                if said := _other(rule, band):
                    yield f"{target}: {said}"
            if said := _others(rules, pool):
                yield f"{target}: {said}"


def _other(rule: Downgrade, band: Band) -> str:
    """In words, how a rule's prompts differ from those of the controller; "" where they are the same."""
    least, most = max(float(rule.shortest_prompt or 0), 1.0), float(rule.longest_prompt or 0) or None
    if (least, most) == (max(band.least, 1.0), band.most):
        return ""
    ours, own = _words(band.least, band.most), _words(least, most)
    return (
        f"the lever counts on {ours}, and the gateway's rule sends {own}; write the same in the lever's prompt and in "
        "shortest_prompt and longest_prompt of knobs.downgrade"
    )


def _others(rules: Sequence[Downgrade], pool: PoolRules) -> str:
    """In words, how those whom the rules for one receiver send differ from those who consent; "" where they are the
    same. Where the controller knows no tenants, or no classes, it counts on all of them."""
    ours, own = [], []
    for kind, known, agreed, named in (
        ("tenants", pool.tenants, pool.consenting_tenants, frozenset[str]().union(*(one.tenants for one in rules))),
        ("classes", pool.classes, pool.consenting_classes, frozenset[str]().union(*(one.classes for one in rules))),
    ):
        counted = agreed if known else frozenset((EVERYBODY,))
        same = counted == named if EVERYBODY not in named else not known or agreed == known.keys()
        if not same:
            ours.append(_people(counted, kind))
            own.append(_people(named, kind))
    if not ours:
        return ""
    return (
        f"the lever counts on {' and '.join(ours)}, and the gateway's rule sends {' and '.join(own)}; write the same "
        "in consents of the config and in tenants and classes of knobs.downgrade"
    )


def _people(names: frozenset[str], kind: str) -> str:
    if EVERYBODY in names:
        return f"all {kind}"
    return f"{', '.join(sorted(names))} of the {kind}" if names else f"no {kind}"


def _words(least: float, most: float | None) -> str:
    low = f"from {least:,.0f} tokens on" if least > 1 else ""
    high = f"up to {most:,.0f} tokens" if most is not None else ""
    return f"prompts {' and '.join(one for one in (low, high) if one)}" if low or high else "prompts of any length"
