"""Governor's hands on a real HAProxy, and the HAProxy as configured before each test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from actuators.haproxy import HAProxy, HAProxyConfig, HAProxyPool
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.haproxy import Proxy, Wire, wire

NOW = 1_704_067_800.0
R1, R2, R3 = (Target("chat", Lever.WEIGHT, f"r{n}") for n in (1, 2, 3))
B1, B2, B3 = (Target("chat", Lever.BREAKER, f"r{n}") for n in (1, 2, 3))
GATE = Target("chat", Lever.ADMISSION, "concurrency")
ACME, OTHER = Target("chat", Lever.TENANT_CAP, "acme"), Target("chat", Lever.TENANT_CAP, "other")
SMALL = Target("chat", Lever.DOWNGRADE, "small")
BINDING = Binding((GATE, ACME, OTHER, SMALL), scopes=(("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))
POOL = HAProxyPool("chat", tokens_per_request=10.0)  # in the window of 10 s: as many requests as tokens/s
NO_LIMIT = 1e12
MORE = """
backend fixed
  balance static-rr
  server f1 127.0.0.1:9 weight 100
  server f2 127.0.0.1:9 weight 100
backend asking
  server q1 127.0.0.1:9 weight 10 agent-check agent-port 9
backend blind
  balance first
  server b1 127.0.0.1:9 weight 0
"""


def untouched(running: Proxy) -> Proxy:
    """As configured: nothing in the map, all in rotation, no limit."""
    names = ("chat/r1", "chat/r2", "chat/r3", "fixed/f1", "fixed/f2")
    running.cli(f"clear map {running.map}", *(f"set server {name} state ready" for name in names))
    running.cli(*(f"set server {name} weight 100%" for name in names))
    running.cli(*(f"set maxconn server {name} 0" for name in names))
    return running


@contextmanager
def tapped(proxy: Proxy) -> Iterator[Wire]:
    """A wire before its socket."""
    with wire(proxy) as one:
        yield one
    (proxy.folder / "wire.sock").unlink()


def hands(proxy: Proxy, binding: Binding = BINDING, **more: Any) -> HAProxy:
    values: dict[str, Any] = {"pools": {"chat": POOL}, "socket": str(proxy.socket), "map": str(proxy.map)} | more
    return HAProxy(HAProxyConfig(**values), binding)


def outcomes(applied: Any) -> dict[Target, Outcome]:
    return {one.target: one.outcome for one in applied}


def done(one: HAProxy, *decisions: Decision, now: float = NOW) -> None:
    applied = one.apply(decisions, now)
    assert set(outcomes(applied).values()) == {Outcome.DONE}, applied


def said(one: HAProxy) -> str:
    """All that the doctor says."""
    return "\n".join(f"{f.level}: {f.text}" for f in one.diagnose(NOW))
