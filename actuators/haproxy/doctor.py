"""What is wrong with an HAProxy before it matters: reachability, rights, algorithms, agents, names. Writes nothing."""

from collections.abc import Iterator

from actuators.haproxy.cli import Cli, Lost, NotReached
from actuators.haproxy.config import HAProxyConfig, address
from actuators.haproxy.look import Garbled, Server, View, look
from actuators.haproxy.names import MAPPED, SHARES
from actuators.haproxy.told import backend_of
from controller.core.model import Lever
from controller.core.ports import Binding, Finding

_HASHED = ("source", "uri", "url_param", "hdr", "rdp-cookie", "hash")


def diagnose(config: HAProxyConfig, binding: Binding) -> list[Finding]:
    """What a person should know, worst first."""
    try:
        with Cli(address(config.socket), config.timeout) as cli:
            view = look(cli, config)
            level = cli.ask("show cli level").strip()
    except (NotReached, Lost, Garbled) as error:
        return [Finding("error", "haproxy", f"{error}; see that HAProxy runs and has this `stats socket`")]
    found = [*_rights(config, level), *_watch(config, view)]
    for pool in binding.pools:
        found += _pool(config, binding, pool, view)
    return sorted(found, key=lambda one: ("error", "warning", "info").index(one.level))


def _rights(config: HAProxyConfig, level: str) -> Iterator[Finding]:
    if config.mode == "socket" and level != "admin":
        yield Finding(
            "error", "haproxy", f"the socket has level {level or 'unknown'}; write `level admin` on its stats socket"
        )
    if config.mode == "agent" and level == "admin":
        yield Finding("info", "haproxy", "the socket has level admin; for mode: agent `level user` is enough")


def _watch(config: HAProxyConfig, view: View) -> Iterator[Finding]:
    if config.expires and view.idle is None:
        text = "expires is true and expiry.lua is not loaded; write `lua-load` of it, or expires: false"
        yield Finding("error", "haproxy", text)
    kept = [name for name, path in (("map_file", config.map_file), ("state_file", config.state_file)) if not path]
    if config.mode == "socket" and kept:
        yield Finding("info", "haproxy", f"without {' and '.join(kept)} what was written is lost when HAProxy reloads")


def _pool(config: HAProxyConfig, binding: Binding, pool: str, view: View) -> Iterator[Finding]:
    levers = {lever for lever in binding.levers if any(t.pool == pool and t.lever is lever for t in binding.targets)}
    levers |= {lever for name, lever in binding.scopes if name == pool}
    if pool not in config.pools:
        yield Finding("error", pool, f"pools.{pool} is missing; tell its backend")
        return
    if levers <= set(MAPPED):
        return
    backend = config.pools[pool].backend
    servers = view.of(backend)
    if not servers:
        yield Finding("error", pool, f"HAProxy has no backend {backend} with servers")
    for replica, name in config.pools[pool].servers.items():
        if all(server.name != name for server in servers):
            yield Finding("error", pool, f"pools.{pool}.servers.{replica}: backend {backend} has no server {name}")
    if levers & set(SHARES):
        yield from _algorithm(pool, backend, view)
    for server in servers:
        yield from _server(config, levers, pool, server)


def _algorithm(pool: str, backend: str, view: View) -> Iterator[Finding]:
    algorithm = view.algorithms.get(backend, "")
    if algorithm == "static-rr":
        text = f"`balance static-rr` of backend {backend} takes 0 % and 100 % of a weight alone; write roundrobin"
        yield Finding("error", pool, text)
    elif algorithm in _HASHED:
        text = f"`balance {algorithm}` of backend {backend} moves by weight only with `hash-type consistent`"
        yield Finding("warning", pool, text)
    elif algorithm == "first":
        yield Finding(
            "error", pool, f"`balance first` of backend {backend} knows no weights; write `balance roundrobin`"
        )


def _server(config: HAProxyConfig, levers: set[Lever], pool: str, server: Server) -> Iterator[Finding]:
    name = backend_of(server)
    if not levers & set(SHARES):
        return
    if server.agent and config.mode == "socket":
        yield Finding(
            "error", pool, f"server {name} has an agent-check, which undoes what the socket says; use one of them"
        )
    if not server.agent and config.mode == "agent":
        yield Finding("error", pool, f"server {name} has no agent-check; copy it from the page of HAProxy")
    if server.initial < 100:
        text = f"server {name} has weight {server.initial}, so its steps are 1/{server.initial or 1}; write weight 100"
        yield Finding("error" if server.initial == 0 else "warning", pool, text)
