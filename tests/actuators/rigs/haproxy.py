"""Rigs of ``haproxy``: a real one, with limits, caps or weights by its socket, and with weights by its agent."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from actuators.haproxy import HAProxy, HAProxyConfig, HAProxyPool
from controller.core.model import Lever, Target
from controller.core.ports import Binding
from tests.actuators.rigs import Rig
from tests.support.haproxy import Proxy, Wire, haproxy, wire
from tests.support.ports import free_port
from tests.support.waiting import until

LIMITED = """
backend a
  server s 127.0.0.1:9 maxconn 4
backend b
  server s 127.0.0.1:9 maxconn 6
backend c
  server s 127.0.0.1:9 maxconn 2
"""
SHARES = {Target("chat", Lever.WEIGHT, f"r{n}"): share for n, share in ((1, 0.5), (2, 0.6), (3, 0.2))}


def limits_rig(folder: Path, stack: ExitStack) -> Rig:
    proxy = stack.enter_context(haproxy(folder, more=LIMITED))
    start = {Target(pool, Lever.ADMISSION, "concurrency"): n for pool, n in (("a", 4.0), ("b", 6.0), ("c", 2.0))}
    config = _config(proxy, pools={pool: HAProxyPool(pool) for pool in "abc"})
    rig = _rig(proxy, stack.enter_context(wire(proxy)), config, Binding(tuple(start)), start)
    rig.values = lambda: {target: float(proxy.limit(f"{target.pool}/s")) for target in start}
    rig.edit = lambda value: proxy.cli(f"set maxconn server a/s {value:.0f}")
    return replace(rig, up=5, down=3, other=7, forget=proxy.restart)


def caps_rig(folder: Path, stack: ExitStack) -> Rig:
    start = {Target("chat", Lever.TENANT_CAP, tenant): n for tenant, n in (("a", 40.0), ("b", 60.0), ("c", 20.0))}
    (folder / "governor.map").write_text("".join(f"chat/tenant_cap/{t.member} {n:.0f}\n" for t, n in start.items()))
    proxy = stack.enter_context(haproxy(folder))
    pools = {"chat": HAProxyPool("chat", tokens_per_request=10.0)}  # in 10 s: so many requests as tokens/s
    config = _config(proxy, pools=pools, map=str(proxy.map))
    rig = _rig(proxy, stack.enter_context(wire(proxy)), config, Binding(tuple(start)), start, lost="commit map")
    rig.values = lambda: {target: float(proxy.entries()[f"chat/tenant_cap/{target.member}"]) for target in start}
    rig.edit = lambda value: proxy.cli(f"set map {proxy.map} chat/tenant_cap/a {value:.0f}")
    rig = replace(rig, up=50, down=30, other=70, forget=proxy.restart, refuse=None)
    return replace(rig, cannot={"refuse": "HAProxy 2.6 takes any map entry, from any level of its socket"})


def shares_rig(folder: Path, stack: ExitStack) -> Rig:
    proxy = stack.enter_context(haproxy(folder))
    _stand(proxy)
    config = _config(proxy, map_file=str(proxy.map), state_file=str(proxy.state))
    binding = Binding((), scopes=(("chat", Lever.WEIGHT),))
    rig = _rig(proxy, stack.enter_context(wire(proxy)), config, binding, SHARES)
    rig.values = lambda: _shares(proxy)
    rig.edit = lambda value: proxy.cli(f"set server chat/r1 weight {value * 100:.0f}")
    return replace(rig, up=0.55, down=0.5, other=0.7, forget=proxy.restart)


def agent_rig(folder: Path, stack: ExitStack) -> Rig:
    port = free_port()
    proxy = stack.enter_context(
        haproxy(folder, "agent.cfg", GOVERNOR_AGENT_PORT=str(port), GOVERNOR_AGENT_INTER="20ms")
    )
    _stand(proxy)
    tap = stack.enter_context(wire(proxy))
    config = HAProxyConfig(
        {"chat": HAProxyPool("chat")}, str(tap.path), mode="agent", listen=f"127.0.0.1:{port}", timeout=1.0
    )
    rig = _rig(proxy, tap, config, Binding((), scopes=(("chat", Lever.WEIGHT),)), SHARES)

    def restart() -> None:
        proxy.restart()
        until(lambda: proxy.share("chat/r1") == 0.55)

    return replace(
        rig,
        up=0.55, down=0.5, other=0.7, values=lambda: _shares(proxy), forget=restart, edit=None, refuse=None,
        touched=lambda: int(_shares(proxy) != SHARES),
        fail=lambda: tap.next.append("refuse"),
        lose=lambda: tap.next.extend(["", "refuse"]),
        cannot={
            "edit": "the agent's next word undoes what the socket says",
            "refuse": "HAProxy asks, and does not answer",
        },
    )  # fmt: skip


def _stand(proxy: Proxy) -> None:
    proxy.cli(*(f"set server chat/{target.member} weight {share * 100:.0f}" for target, share in SHARES.items()))


def _shares(proxy: Proxy) -> dict[Target, float]:
    return {target: proxy.share(f"chat/{target.member}") for target in SHARES}


def _config(proxy: Proxy, **more: object) -> HAProxyConfig:
    values = {"pools": {"chat": HAProxyPool("chat")}, "map": str(proxy.map), "timeout": 1.0} | more
    return HAProxyConfig(socket=str(proxy.folder / "wire.sock"), **values)  # type: ignore[arg-type]


def _rig(
    proxy: Proxy, tap: Wire, config: HAProxyConfig, binding: Binding, start: Mapping[Target, float], lost: str = "set "
) -> Rig:
    first = next(iter(start))
    return Rig(
        HAProxy(config, binding),
        HAProxy.describe(config)[first.lever],
        start,
        up=0,
        down=0,
        other=0,
        values=dict,
        touched=lambda: tap.writes,
        edit=None,
        fail=lambda: tap.next.append("refuse"),
        refuse=lambda: tap.next.append("user"),
        lose=lambda: tap.next.append(("lose", lost)),
    )


RIGS = {
    "haproxy": limits_rig, "haproxy-agent": agent_rig, "haproxy-caps": caps_rig, "haproxy-weights": shares_rig,
}  # fmt: skip
