"""Real decisions of an overload, all five levers of a proxy at once, carried out by a real HAProxy and read back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actuators.haproxy import HAProxy
from controller.config import loads
from controller.config.terms import fleet_rules
from controller.core.decide import DecideState, decide
from controller.core.model import Decision, Lever, Outcome, Snapshot, Target, TargetState, Tick
from controller.core.ports import Binding
from controller.run.laws import policies
from tests.loop.test_lever_matrix import PODS, estimates, readings
from tests.support.haproxy import Proxy, haproxy

CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:9090"}}
actuators:
  edge:
    kind: haproxy
    socket: {socket}
    map: {map}
    expires: true
    pools: {{chat: {{backend: eight, tokens_per_request: 10}}}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: chat}}
    labels: {{tenant: user, class: priority}}
    tenants: {{acme: {{guarantee: 100, consents: true}}, beta: {{consents: true}}}}
    classes: {{batch: {{rank: 1, sheddable: true, consents: true}}, critical: {{}}}}
    objectives: [{{signal: ttft, percentile: p95, target: 2s}}]
    levers:
      tenant_cap: {{mode: auto, policy: {{kind: fair_share}}, actuator: edge}}
      downgrade: {{mode: auto, receivers: [small], policy: {{kind: downgrade}}, actuator: edge}}
      admission: {{mode: auto, setpoints: [concurrency], policy: {{kind: gate}}, actuator: edge}}
      weight: {{mode: auto, policy: {{kind: weights}}, actuator: edge}}
      breaker: {{mode: auto, policy: {{kind: breaker}}, actuator: edge}}
  small:
    engine: vllm
    selector: {{model_name: small}}
"""
EIGHT = "backend eight\n" + "".join(f"  server {pod} 127.0.0.1:9 weight 100\n" for pod in PODS)
MEMBERS = {
    Lever.TENANT_CAP: ("acme", "beta"), Lever.DOWNGRADE: ("small",), Lever.ADMISSION: ("concurrency",),
    Lever.WEIGHT: PODS, Lever.BREAKER: PODS,
}  # fmt: skip
TARGETS = [Target("chat", lever, member) for lever, members in MEMBERS.items() for member in members]
PROXIED = (Lever.WEIGHT, Lever.BREAKER)


class Chain:
    """Reads, decides and sends, tick by tick, fifteen seconds apart."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        made = loads(CONFIG.format(socket=proxy.socket, map=proxy.map))
        plugin = made.actuator("chat", Lever.WEIGHT)
        assert plugin is not None
        static = tuple(target for target in TARGETS if target.lever not in PROXIED)
        self.hands = HAProxy(plugin.settings, Binding(static, scopes=tuple(("chat", lever) for lever in PROXIED)))
        self.rules, self.laws, self.state = fleet_rules(made), policies(made), DecideState()
        self.at, self.number = time.time(), 0  # HAProxy has a clock of its own, by which values end

    def tick(self, trouble: bool) -> list[Decision]:
        self.at, self.number = self.at + 15.0, self.number + 1
        targets = dict(self.hands.read(TARGETS, self.at))
        assert not [s for s in targets.values() if s.error or s.foreign_writer or s.drift], targets
        targets[Target("chat", Lever.REPLICAS)] = TargetState(8.0, 8.0)
        snapshot = Snapshot(Tick(self.number, self.at, 15.0), {"chat": readings(trouble, self.at)}, targets)
        load = 16.0 if trouble else 2.0
        plan, self.state = decide(snapshot, estimates(load), self.rules, self.laws, self.state)
        sent = [d for d in plan.decisions if d.send and d.target in TARGETS]
        down = [d for d in sent if (d.final or 0.0) < (d.current or 0.0)]
        for batch in (down, [d for d in sent if d not in down]):
            applied = self.hands.apply(batch, self.at)
            assert {a.outcome for a in applied} <= {Outcome.DONE}, applied
        return sent


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with haproxy(tmp_path, more=EIGHT) as proxy:
        yield Chain(proxy)


def test_an_overload_is_met_and_released_and_nothing_is_taken_for_a_strangers_hand(chain: Chain) -> None:
    moved = {decision.target for _ in range(12) for decision in chain.tick(trouble=True)}
    assert {target.lever for target in moved} == set(MEMBERS) - {
        Lever.WEIGHT
    }  # in an overload weights have nothing to give
    states = chain.hands.read(TARGETS, chain.at)
    assert states[Target("chat", Lever.BREAKER, "pod-0")].accepted == 0.0
    assert (states[Target("chat", Lever.DOWNGRADE, "small")].accepted or 0.0) > 0.0
    assert {"eight/breaker/pod-0", "eight/downgrade/small"} <= proxy_ends(chain.proxy)
    for _ in range(240):
        chain.tick(trouble=False)
    after = {target: state.accepted for target, state in chain.hands.read(TARGETS, chain.at).items()}
    assert {after[target] for target in TARGETS if target.lever in PROXIED} == {1.0}
    assert after[Target("chat", Lever.DOWNGRADE, "small")] == 0.0
    assert not [key for key in proxy_ends(chain.proxy) if "breaker" in key]


def proxy_ends(proxy: Proxy) -> set[str]:
    """The keys of what ends by itself."""
    return {key.removesuffix("@until") for key in proxy.entries() if key.endswith("@until")}
