"""What must hold of every batch for HAProxy, whatever was there before: worked out without one."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from actuators.haproxy import HAProxyConfig, HAProxyPool
from actuators.haproxy.look import GENERATION, Server, View
from actuators.haproxy.names import Names, weight_of
from actuators.haproxy.orders import commands, orders
from actuators.haproxy.told import Reader
from controller.core.model import Decision, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide

NOW = 1_704_067_800.0
POOL = HAProxyPool("chat", tokens_per_request=700.0)
CONFIG = HAProxyConfig({"chat": POOL}, "/run/haproxy.sock", map="/etc/governor.map")
SHARES = (Lever.WEIGHT, Lever.BREAKER)
READER = Reader(Names(CONFIG), Binding((), scopes=tuple(("chat", lever) for lever in SHARES)))
REPLICAS = ("r1", "r2", "r3")

percents = st.integers(0, 100)
initials = st.sampled_from([1, 3, 10, 100, 256])


@st.composite
def views(draw: st.DrawFn) -> View:
    """Servers in any state, and a map that may or may not agree with them."""
    servers = {}
    for name in REPLICAS:
        initial = draw(initials)
        weight, admin = draw(st.integers(0, 256)), draw(st.sampled_from([0, 0, 0, 8, 1]))
        servers["chat", name] = Server("chat", name, "10.0.0.1:8000", weight, initial, admin, agent=False)
    keys = [f"chat/{lever}/{name}" for lever in SHARES for name in REPLICAS]
    entries = {key: str(draw(percents)) for key in draw(st.lists(st.sampled_from(keys), unique=True))}
    return View(("1", "1"), servers, entries)


targets = st.builds(lambda lever, name: Target("chat", lever, name), st.sampled_from(SHARES), st.sampled_from(REPLICAS))
batches = st.dictionaries(targets, percents.map(lambda p: p / 100), min_size=1).map(
    lambda batch: [decide(target, 1.0, value) for target, value in batch.items()]
)


def carried_out(view: View, batch: list[Decision]) -> View:
    """The view after HAProxy did what it was told, command by command; each in between has a server, if one had."""
    todo = orders(batch, READER, view, NOW, 7)
    had = any(one.share > 0 for one in view.servers.values())
    after = replace(view, map=todo.map)
    for decision in todo.kept:
        for line in commands(decision, todo, READER, view, NOW):
            after = obeyed(after, line)
            assert not had or any(one.share > 0 for one in after.servers.values()), "a moment without a server"
    return after


def obeyed(view: View, line: str) -> View:
    """One command, as HAProxy does it."""
    _, _, place, what, value = line.split(" ")
    key = ("chat", place.partition("/")[2])
    server = view.servers[key]
    if what == "weight":
        server = replace(server, weight=int(value))
    else:
        server = replace(server, admin={"drain": 8, "ready": 0}[value])
    return replace(view, servers={**view.servers, key: server})


@given(views(), batches)
def test_what_is_carried_out_is_what_is_then_read(view: View, batch: list[Decision]) -> None:
    todo = orders(batch, READER, view, NOW, 7)
    after = carried_out(view, batch)
    for decision in todo.kept:
        assert READER.value(decision.target, after, NOW, decision.final) == decision.final


@given(views(), batches)
def test_who_was_not_decided_on_stays_where_it_was(view: View, batch: list[Decision]) -> None:
    """A breaker that moves takes no weight with it, not even one that somebody else has set."""
    after = carried_out(view, batch)
    moved = {decision.target for decision in orders(batch, READER, view, NOW, 7).kept}
    for lever in SHARES:
        for name in REPLICAS:
            target = Target("chat", lever, name)
            if target not in moved:
                assert READER.value(target, after, NOW, None) == READER.value(target, view, NOW, None)


@given(views(), batches)
def test_only_what_would_empty_a_backend_is_put_off(view: View, batch: list[Decision]) -> None:
    todo = orders(batch, READER, view, NOW, 7)
    for target, (outcome, _) in todo.refused.items():
        if view.servers["chat", target.member].maintained:
            assert outcome is Outcome.REFUSED
            continue
        assert outcome is Outcome.FAILED
        assert next(d.final for d in batch if d.target == target) == 0
    assert (todo.map.get(GENERATION) == "7") is todo.changed


@given(st.floats(0, 1e9), st.sampled_from([1.0, 700.0, 3333.3]))
def test_a_cap_lets_through_no_more_than_was_decided_and_never_becomes_a_ban(value: float, per: float) -> None:
    names = Names(replace(CONFIG, pools={"chat": replace(POOL, tokens_per_request=per)}))
    target = Target("chat", Lever.TENANT_CAP, "acme")
    count = names.counted(target, value)
    assert (count == 0) is (value == 0)
    assert count <= 1 or names.value(target, count, None) <= value * (1 + 1e-9)
    assert names.value(target, count, value) == value


@given(percents, initials)
def test_a_share_is_never_more_than_was_decided_and_never_rounds_to_nothing(percent: int, initial: int) -> None:
    weight = weight_of(percent, initial)
    assert (weight == 0) is (percent == 0)
    assert weight <= max(1, initial * percent / 100)
