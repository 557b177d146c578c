"""What is wrong with routers before it matters: reachability, keys, names, ranks. Writes nothing."""

from collections.abc import Iterator, Mapping

from actuators.endpoints import Endpoints
from actuators.router.config import RouterConfig
from actuators.router.workers import Worker, address
from controller.core.address import shown
from controller.core.ports import Binding, Finding

Looks = Mapping[str, Mapping[str, Worker] | str]  # by router: its workers, or why they are not known
_WORST = ("error", "warning", "info")


def diagnose(
    config: RouterConfig,
    binding: Binding,
    looks: Mapping[str, Looks],
    endpoints: Mapping[str, Endpoints | None],
) -> list[Finding]:
    """What a person should know, worst first."""
    found: list[Finding] = []
    for pool in binding.pools:
        if pool not in config.pools:
            found.append(Finding("error", pool, f"pools.{pool}: is missing; tell its routers"))
            continue
        members: dict[str, Mapping[str, Worker]] = {}
        for url, look in looks.get(pool, {}).items():
            if isinstance(look, str):
                found.append(Finding("error", pool, look))
            else:
                members[url] = look
                found += _workers(pool, shown(url), look)
        found += _names(pool, members, endpoints.get(pool))
        if len({frozenset(look) for look in members.values()}) > 1:
            text = "its routers do not have the same workers; what only some have is mended at the next decision on it"
            found.append(Finding("warning", pool, text))
        if config.make == "vllm" and not config.pools[pool].metrics:
            text = (
                f"without pools.{pool}.metrics, somebody who puts all workers back by hand looks like a restart of "
                "vllm-router"
            )
            found.append(Finding("info", pool, text))
    if config.make == "vllm" or config.api_key is None:
        text = "whoever reaches these routers can take workers out and put others in, for they ask for no key"
        found.append(Finding("info", "router", text))
    return sorted(found, key=lambda one: _WORST.index(one.level))


def _workers(pool: str, where: str, look: Mapping[str, Worker]) -> Iterator[Finding]:
    if len(look) < 2:
        yield Finding("info", pool, f"{where} has {len(look)} worker(s); the last one is never taken out")
    for worker in look.values():
        if not worker.whole:
            text = f"{shown(worker.url)} is several workers of {where}, one for each rank; such are not moved"
            yield Finding("warning", pool, text)


def _names(pool: str, members: Mapping[str, Mapping[str, Worker]], endpoints: Endpoints | None) -> Iterator[Finding]:
    if endpoints is None:
        return
    if endpoints.problem:
        yield Finding("warning", pool, f"pools.{pool}.endpoints: {endpoints.problem}")
    listed = {address(one.address) for one in endpoints.known}
    strangers = {shown(one.url) for look in members.values() for place, one in look.items() if place not in listed}
    if strangers and listed:
        text = (
            f"{', '.join(sorted(strangers))}: no replica of pools.{pool}.endpoints listens there; if it is one by "
            "another name, write that one"
        )
        yield Finding("warning", pool, text)
