"""How fast a real HAProxy does what was decided."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from actuators.haproxy import HAProxy, HAProxyConfig, HAProxyPool
from benchmarks.actuators import Course
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.why import Why
from tests.support.haproxy import Proxy, haproxy
from tests.support.pipelined import Asking
from tests.support.ports import free_port

_ROUNDS = 300
_MANY = 1000
_SMALL = Target("chat", Lever.DOWNGRADE, "small")
_BINDING = Binding((_SMALL,), scopes=(("chat", Lever.BREAKER), ("many", Lever.WEIGHT)))


def _breaker(name: str) -> Target:
    return Target("chat", Lever.BREAKER, name)


Sender = Callable[[Mapping[Target, float]], None]


@contextmanager
def _stand(*, agent: bool = False, many: int = 0) -> Iterator[tuple[Proxy, Sender]]:
    """An HAProxy before three engines that it plays itself; `many` servers of another backend that nobody asks."""
    more = "backend many\n" + "".join(f"  server m{i} 127.0.0.1:9 weight 100\n" for i in range(many)) if many else ""
    with tempfile.TemporaryDirectory(prefix="governor-bench-") as name:
        port = free_port()
        shipped = "agent.cfg" if agent else "haproxy.cfg"
        with haproxy(Path(name), shipped, more, GOVERNOR_AGENT_PORT=str(port)) as proxy:
            pools = {pool: HAProxyPool(pool) for pool in (("chat", "many") if many else ("chat",))}
            config = HAProxyConfig(pools, str(proxy.socket), map=str(proxy.map))
            if agent:
                config = HAProxyConfig(pools, str(proxy.read_socket), mode="agent", listen=f"127.0.0.1:{port}")
            actuator = HAProxy(config, _BINDING)

            def send(values: Mapping[Target, float]) -> None:
                applied = actuator.apply([Decision(t, None, v, Why.DEMAND, send=True) for t, v in values.items()], 0.0)
                assert {one.outcome for one in applied} == {Outcome.DONE}, applied

            try:
                yield proxy, send
            finally:
                actuator.close()


def _swap(*, agent: bool = False, rounds: int = _ROUNDS) -> Iterator[float]:
    """Two servers change places, and the next request is answered by the one that came."""
    with _stand(agent=agent) as (proxy, send):
        send({_breaker("r2"): 0.0, _breaker("r3"): 0.0})
        with Asking(proxy.port) as client:
            for turn in range(rounds):
                goes, comes = ("r1", "r2") if turn % 2 == 0 else ("r2", "r1")
                began = time.perf_counter()
                send({_breaker(comes): 1.0, _breaker(goes): 0.0})
                answered = client.ask()
                yield time.perf_counter() - began
                assert answered == comes.upper(), answered


def _share() -> Iterator[float]:
    """All that consent go elsewhere, or nobody, and the next one does."""
    with _stand() as (proxy, send), Asking(proxy.port, x_consents_to_downgrade="yes") as client:
        for turn in range(_ROUNDS):
            away = turn % 2 == 0
            began = time.perf_counter()
            send({_SMALL: float(away)})
            answered = client.ask()
            yield time.perf_counter() - began
            assert (answered == "SMALL") is away, answered


def _thousand() -> Iterator[float]:
    """A weight of each of a thousand servers, read back."""
    with _stand(many=_MANY) as (_, send):
        for turn in range(20):
            weight = 0.5 + turn % 2 / 4
            began = time.perf_counter()
            send({Target("many", Lever.WEIGHT, f"m{i}"): weight for i in range(_MANY)})
            yield time.perf_counter() - began


def _all(rounds: Callable[[], Iterator[float]]) -> Callable[[], Sequence[float]]:
    return lambda: list(rounds())


COURSES = (
    Course("haproxy", "haproxy", "two servers change places, until a request is answered so", 0.002, _all(_swap)),
    Course("haproxy", "haproxy", "a downgrade share, until a request goes there", 0.002, _all(_share)),
    Course("haproxy", "haproxy", "1,000 weights in one batch, read back", 0.2, _all(_thousand)),
    Course(
        "haproxy",
        "haproxy",
        "by its agent, asked twice a second: two servers change places",
        1.1,
        _all(lambda: _swap(agent=True, rounds=20)),
    ),
)
