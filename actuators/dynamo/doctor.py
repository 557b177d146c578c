"""What is wrong with frontends before it matters: reachability, the admin API, models, the router's mode. Writes
nothing."""

from collections.abc import Iterator, Mapping

from actuators.dynamo.config import DynamoConfig
from actuators.dynamo.formula import FIELDS, FULL, threshold
from actuators.dynamo.frontend import Look
from controller.core.address import shown
from controller.core.ports import Binding, Finding

Looks = Mapping[str, Look | str]  # by frontend: what it shows, or why nothing
_WORST = ("error", "warning", "info")


def diagnose(config: DynamoConfig, binding: Binding, looks: Looks) -> list[Finding]:
    """What a person should know, worst first."""
    found: list[Finding] = []
    for url, look in looks.items():
        if isinstance(look, str):
            found.append(Finding("error", "dynamo", look if shown(url) in look else f"{shown(url)}: {look}"))
        elif look.counts is False:
            text = (
                f"{shown(url)} does not count the blocks of its workers, and goes by what they publish now and then; "
                "start it with --router-mode kv"
            )
            found.append(Finding("error", "dynamo", text))
    for pool in binding.pools:
        if pool not in config.pools:
            found.append(Finding("error", pool, f"pools.{pool}: is missing; tell its model"))
        else:
            found += _pool(config, pool, {url: look for url, look in looks.items() if isinstance(look, Look)})
    text = "whoever reaches these frontends can set their thresholds, for Dynamo asks for no key"
    found += [Finding("info", "dynamo", text)] if config.api_key is None else []
    return sorted(found, key=lambda one: _WORST.index(one.level))


def _pool(config: DynamoConfig, pool: str, looks: Mapping[str, Look]) -> Iterator[Finding]:
    mine = config.pools[pool]
    for url, look in looks.items():
        if mine.model not in look.thresholds:
            yield Finding("error", pool, f"{shown(url)} knows no model {mine.model}; it has {sorted(look.thresholds)}")
            continue
        try:
            least = threshold(mine, look.cards.get(mine.model), len(config.frontends), len(config.frontends))
            if mine.by == "decode_blocks" and least >= FULL:
                text = f"one request of {mine.tokens_per_request:g} tokens fills a worker of {shown(url)}"
                yield Finding("error", pool, text)
        except ValueError as error:
            yield Finding("error", pool, f"{shown(url)} {error}")
        others = [
            name for by, name in FIELDS.items() if by != mine.by and look.thresholds[mine.model][name] is not None
        ]
        if others:
            text = f"{shown(url)} also has {others[0]} of {mine.model}, which refuses beside Governor's"
            yield Finding("warning", pool, text)
