"""What is wrong between Governor and its Envoys: who is not there, who refuses, and who else sets what Governor sets.
Only reads."""

from collections.abc import Iterator, Sequence

from actuators.endpoints import is_ip
from actuators.envoy.admin import Admin, AdminError
from actuators.envoy.checks import PER_ENDPOINT
from actuators.envoy.config import EnvoyConfig
from actuators.envoy.hub import Hub, alone
from actuators.envoy.publisher import Publisher
from actuators.envoy.resources import carrier, gate_keys
from controller.core.model import Lever, Target
from controller.core.ports import Binding, Finding

_RIVAL = "client_side_weighted_round_robin"


def findings(
    config: EnvoyConfig, binding: Binding, publisher: Publisher | None, hub: Hub | None, admins: Sequence[Admin]
) -> tuple[Finding, ...]:
    """Everything that a person should know."""
    found: list[Finding] = []
    if publisher is not None:
        found += _origins(config, publisher)
    if hub is not None:
        found += _streams(config, binding, hub)
    elif not admins:
        found.append(Finding("warning", "admin", "nothing tells whether Envoys took a file; set admin to their pages"))
    found += [
        Finding("info", name, "has no fallback: weights and breakers stay when every Governor is dead")
        for name, lever in sorted(binding.scopes)
        if lever in PER_ENDPOINT and not config.pools[name].fallback
    ]
    for admin in admins:
        found += _page(config, admin)
    return tuple(found)


def _origins(config: EnvoyConfig, publisher: Publisher) -> Iterator[Finding]:
    if publisher.problem:
        yield Finding("error", "envoy", f"looking after replicas and expiry failed: {publisher.problem}")
    for name in config.pools:
        origin = publisher.origin(name)
        if origin is None:
            continue
        if origin.problem:
            yield Finding("error", name, f"where its replicas listen cannot be told: {origin.problem}")
        names = [one.name for one in origin.known if not is_ip(one.host)]
        if names:
            yield Finding("error", name, f"{names[0]} has a name where Envoy needs an address; write its IP")


def _streams(config: EnvoyConfig, binding: Binding, hub: Hub) -> Iterator[Finding]:
    streams = hub.streams()
    if not streams:
        yield Finding("error", "envoy", "no Envoy is connected; does its bootstrap lead to `listen`?")
        return
    targets = [*binding.targets, *(_any_of(scope) for scope in binding.scopes)]
    for key in sorted({carrier(config, target) for target in targets}, key=str):
        asking = [one for one in streams if one.wanting(key.kind, key.name)]
        missing = hub.nodes() - {one.node for one in asking}
        if missing:
            yield Finding("error", min(missing), f"does not ask for {key.name}; add it to its bootstrap")
        twice = sorted({one.node for one in asking if [o.node for o in asking].count(one.node) > 1})
        if twice:
            yield Finding("warning", twice[0], "two Envoys call themselves so; give each its own node id")
        for one in asking:
            if one.words(key.kind, key.name):
                yield Finding("error", one.node, f"refused {key.name}: {one.words(key.kind, key.name)}")
            if not alone(one, key.kind):
                mend = "give each its own api_config_source instead of ads"
                yield Finding("error", one.node, f"{key.name} shares its stream, so nothing of it may expire; {mend}")


def _any_of(scope: tuple[str, Lever]) -> Target:
    return Target(scope[0], scope[1], "any")


def _page(config: EnvoyConfig, admin: Admin) -> Iterator[Finding]:
    try:
        yield from _overrides(config, admin)
        yield from _balancers(config, admin)
        stats = admin.stats("update_rejected")
    except AdminError as error:
        yield Finding("warning", admin.url, f"its admin page cannot be read: {error}")
        return
    for name, count in sorted(stats.items()):
        if isinstance(count, int) and count and _ours(config, name):
            yield Finding("warning", admin.url, f"{name} is {count}: it refused updates; its log says why")


def _ours(config: EnvoyConfig, stat: str) -> bool:
    stems = {f"cluster.{pool.told}." for pool in config.pools.values()}
    stems |= {"runtime.", f"extension_config_discovery.http_filter.{config.buckets}."}
    return any(stat.startswith(stem) for stem in stems)


def _overrides(config: EnvoyConfig, admin: Admin) -> Iterator[Finding]:
    for name, key in sorted(admin.runtime().items()):
        lever = _lever(config, name)
        if lever is not None and key.hides(config.layer(lever)):
            text = f"{name} is {key.value}, set in the layer {key.layer}, which hides what Governor says; remove it"
            yield Finding("error", admin.url, text)


def _lever(config: EnvoyConfig, key: str) -> Lever | None:
    """The lever that a runtime key is of, if any."""
    if any(key in gate_keys(config, name) for name in config.pools):
        return Lever.ADMISSION
    if key.startswith(tuple(config.split(name) + "." for name in config.pools)):
        return Lever.DOWNGRADE
    return Lever.TENANT_CAP if key.startswith("governor.shed.") else None


def _balancers(config: EnvoyConfig, admin: Admin) -> Iterator[Finding]:
    """Envoy can set weights itself from load reports of the replicas, and two hands on one dial swing; other balancers
    look at no weights."""
    told = {pool.told for pool in config.pools.values()}
    for cluster in admin.definitions():
        name, kind = str(cluster.get("name")), str(cluster.get("lb_policy", "ROUND_ROBIN"))
        if name in told and _RIVAL in str(cluster.get("load_balancing_policy", "")):
            yield Finding("error", name, f"its policy {_RIVAL} sets weights too; use one of the two")
        elif name in told and kind == "RANDOM":
            yield Finding("error", name, "lb_policy RANDOM looks at no weights; use ROUND_ROBIN or LEAST_REQUEST")
