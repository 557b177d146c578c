"""Whatever happens in whatever order: each request ends exactly once, the cap holds, and accounts come back to zero."""

from collections.abc import Callable, Sequence
from math import floor, inf

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.actions import Action, Cancel, Drop, Fail, Redirect, Reject, Send
from routing.gateway import Gateway
from routing.knobs import Admission, Breaker, Concurrency, Downgrade, Klass, Knobs, Queue, Retries, Tenant
from routing.model import Ability, Replica, Request
from routing.strategies import NAMES as NAMES_OF_STRATEGIES
from routing.strategies import make

NAMES = ("a", "b", "c", "d")
TENANTS = ("t0", "t1", "")
CLASSES = ("critical", "batch", "other")

ANY_KNOBS = st.builds(
    Knobs,
    concurrency=st.builds(
        Concurrency,
        limit=st.none() | st.integers(0, 6),
        per_slot=st.none() | st.sampled_from([0.5, 1.0, 2.0]),
        kv=st.none() | st.just(0.5),
    ),
    queue=st.builds(
        Queue,
        length=st.integers(0, 6),
        wait=st.sampled_from([0.5, 3.0, 60.0]),
        fair=st.booleans(),
        hold=st.booleans(),
    ),
    classes=st.sampled_from(
        [
            {},
            {"critical": Klass(rank=0, floor=0.5), "batch": Klass(rank=2, floor=0.25, wait=1.0)},
            {
                "critical": Klass(rank=0, target=1.0, delay_lo=1.6, delay_hi=2.4, load_lo=1.05, load_hi=1.25),
                "batch": Klass(rank=1, target=1.0, delay_lo=0.25, delay_hi=1.0, load_lo=0.5, load_hi=0.5),
            },
        ]
    ),
    admission=st.builds(Admission, deadlines=st.booleans(), prefill_rate=st.none() | st.just(1000.0)),
    longest_prompt=st.none() | st.just(900),
    tenants=st.sampled_from(
        [
            {},
            {"t0": Tenant(requests_per_s=2.0, request_burst=3.0)},
            {"t1": Tenant(tokens_per_s=1000.0, token_burst=1500.0, weight=2.0)},
        ]
    ),
    downgrade=st.sampled_from([(), (Downgrade("small", 0.5, frozenset({"t0"}), frozenset({"*"})),)]),
    breaker=st.builds(
        Breaker, on=st.booleans(), window=st.just(1.0), least=st.just(2), stuck=st.none() | st.just(2.0),
        open_time=st.just(1.0), ramp_step=st.just(0.5), probes=st.just(2),
    ),
    retries=st.builds(Retries, attempts=st.integers(0, 2), client_budget=st.none() | st.just(0.1)),
    weights=st.sampled_from([{}, {"a": 0.0}, dict.fromkeys(NAMES, 0.0), {"b": 0.3}]),
    slow_start=st.sampled_from([0.0, 2.0]),
    strategy=st.sampled_from(["", "", *NAMES_OF_STRATEGIES]),
)  # fmt: skip

EVENT = st.tuples(
    st.sampled_from(
        ["arrive"] * 8 + ["finished"] * 6 + ["first_token"] * 5 + ["failed"] * 2 + ["gone", "joined", "left", "drain"]
        + ["report", "tune", "poll", "twice"]
    ),
    st.integers(0, 1 << 16),
    st.floats(0.0, 1.0),
)  # fmt: skip


class World:
    """A host that obeys, and keeps its own books to compare with."""

    def __init__(self, knobs: Knobs) -> None:
        self.now = 1000.0
        self.gateway = Gateway(knobs, make("least-loaded"), now=self.now)
        self.arrived: list[Request] = []
        self.at: dict[int, str] = {}  # sent and not ended: where
        self.prefilling: dict[int, str] = {}  # elsewhere than there
        self.waiting: set[int] = set()
        self.ended: dict[int, str] = {}
        self.log: list[Callable[[], Sequence[Action]]] = []

    def do(self, call: Callable[[], Sequence[Action]]) -> None:
        self.log.append(call)
        actions = call()
        self.obey(actions)
        self.check()
        if any(isinstance(action, Send) for action in actions):
            self.check_cap()

    def check_cap(self) -> None:
        """Recomputed by hand: after a send there is no more than may be."""
        knobs = self.gateway.knobs.concurrency
        replicas = [one for one in self.gateway.replicas.values() if one.ability.role != "prefill"]
        assert knobs.limit is None or len(self.at) <= knobs.limit
        if knobs.per_slot is not None and not self.prefilling:
            shares = {
                one.name: 0.0 if one.draining else knobs.per_slot * (one.slots or 0) * min(one.weight, 1.0)
                for one in replicas
            }
            held = sum(min(one.inflight, shares[one.name]) if _reduced(one) else one.inflight for one in replicas)
            assert held < max(1, floor(sum(shares.values()) + 1e-9)) + 1  # whole requests against parts of slots

    def end(self, id_: int, how: str) -> None:
        assert id_ not in self.ended, f"{id_} ended as {self.ended[id_]} and again as {how}"
        self.ended[id_] = how
        self.at.pop(id_, None)
        self.prefilling.pop(id_, None)
        self.waiting.discard(id_)

    def obey(self, actions: Sequence[Action]) -> None:
        for action in actions:
            assert action.id not in self.ended, f"{action} after the end"
            if isinstance(action, Send):
                replica = self.gateway.replicas[action.replica]
                assert not replica.draining
                assert replica.weight > 0.0
                assert replica.ability.role != "prefill"
                assert action.id not in self.at
                self.waiting.discard(action.id)
                self.at[action.id] = action.replica
                if action.prefill and action.prefill != action.replica:
                    assert self.gateway.replicas[action.prefill].weight > 0.0
                    self.prefilling[action.id] = action.prefill
            elif isinstance(action, Cancel):
                assert self.at[action.id] == action.replica
                self.end(action.id, "cancelled")
            elif isinstance(action, Drop):
                assert action.id not in self.at
                self.end(action.id, "dropped")
            else:
                assert isinstance(action, Reject | Redirect | Fail)
                self.end(action.id, type(action).__name__)

    def check(self) -> None:
        gateway = self.gateway
        assert gateway.inflight == len(self.at)
        assert gateway.queued == len(self.waiting)
        assert gateway.next_at > self.now
        total = gateway.counts().total
        assert total.arrived == len(self.arrived)
        assert total.ended == len(self.ended)
        assert total.arrived == total.ended + gateway.inflight + gateway.queued
        assert 0 <= total.hit_rate <= 1
        for name, replica in gateway.replicas.items():
            places = [*self.at.values(), *self.prefilling.values()]
            assert replica.inflight == places.count(name)
            assert replica.inflight_tokens >= -1e-6

    def step(self, what: str, pick: int, dt: float, knobs: Knobs) -> None:  # noqa: PLR0912
        gateway, now = self.gateway, self.now + dt
        while gateway.next_at <= now:  # the host keeps its appointments
            self.now = max(self.now, gateway.next_at)
            self.do(lambda at=self.now: gateway.poll(at))  # type: ignore[misc]
        self.now = now
        if what == "arrive":
            id_ = len(self.arrived)
            request = Request(
                id_, 1 + pick % 1000, 50, tenant=TENANTS[pick % 3], klass=CLASSES[pick // 3 % 3], priority=pick % 2,
                deadline=now + pick % 5 if pick % 4 == 0 else None, attempt=pick % 2,
                model="m" if pick % 7 == 1 else "", prefix=(pick % 5, 5 + pick % 11), session=f"s{pick % 6}",
            )  # fmt: skip
            self.arrived.append(request)
            self.waiting.add(id_)
            self.do(lambda: gateway.arrive(request, now))
        elif what == "joined":
            name = NAMES[pick % 4]
            self.lose(name)
            role = ("both", "both", "both", "prefill", "decode")[pick % 5]
            replica = Replica(
                name, Ability(model="m" if pick % 3 else "n", role=role), slots=1 + pick % 3, kv_tokens=2000
            )
            self.do(lambda: gateway.joined(replica, now))
        elif what == "left":
            name = NAMES[pick % 4]
            self.lose(name)
            self.do(lambda: gateway.left(name, now))
        elif what == "drain":
            self.do(lambda: gateway.drain(NAMES[pick % 4], now))
        elif what == "report":
            self.do(lambda: gateway.report(NAMES[pick % 4], 1, 0, 0.5, now))
        elif what == "tune":
            self.do(lambda: gateway.tune(knobs, now))
        elif what == "poll":
            self.do(lambda: gateway.poll(now))
        elif what == "twice" and self.log:
            before = dict(self.at), set(self.waiting), dict(self.ended)
            if self.arrived and (id_ := pick % len(self.arrived)) not in self.at:
                self.do(lambda: gateway.finished(id_, 3, now))
                self.do(lambda: gateway.failed(id_, now, "late news"))
                if id_ in self.waiting:
                    self.do(lambda: gateway.arrive(self.arrived[id_], now))
                assert (self.at, self.waiting, self.ended) == before
        elif self.arrived and what == "gone":
            id_ = pick % len(self.arrived)
            if id_ not in self.ended:
                self.end(id_, "gone")
            self.do(lambda: gateway.gone(id_, now))
        elif self.at:
            id_ = sorted(self.at)[pick % len(self.at)]
            place = self.at[id_]
            if what == "first_token":
                place = self.prefilling.pop(id_, place)
                self.do(lambda: gateway.first_token(id_, now, place))
            elif what == "finished":
                self.end(id_, "finished")
                self.do(lambda: gateway.finished(id_, pick % 50, now, place))
            else:
                self.lost(id_)
                self.do(lambda: gateway.failed(id_, now, "500", place))

    def lose(self, name: str) -> None:
        """A replica takes with it what it works on."""
        for id_ in [id_ for id_, place in self.at.items() if name in (place, self.prefilling.get(id_))]:
            self.lost(id_)

    def lost(self, id_: int) -> None:
        """Until the gateway says what becomes of it, it waits."""
        self.prefilling.pop(id_, None)
        del self.at[id_]
        self.waiting.add(id_)


def _reduced(replica: Replica) -> bool:
    return replica.draining or replica.weight < 1.0


@settings(max_examples=100, deadline=None)
@given(st.lists(ANY_KNOBS, min_size=3, max_size=3), st.lists(EVENT, min_size=20, max_size=150))
def test_every_request_ends_exactly_once(settings_: list[Knobs], events: list[tuple[str, int, float]]) -> None:
    knobs = settings_[0]
    world = World(knobs)
    for number in range(1, 4):
        world.step("joined", number, 0.0, knobs)
    for what, pick, dt in events:
        world.step(what, pick, dt, settings_[pick % 3])

    # Everybody stops: what is there ends, what waits leaves by its time.
    for id_ in sorted(world.at):
        if id_ in world.at:
            place = world.at[id_]
            world.end(id_, "finished")
            world.do(lambda id_=id_, place=place: world.gateway.finished(id_, 1, world.now, place))  # type: ignore[misc]
    for _ in range(1000):
        if not world.waiting and not world.at:
            break
        world.step("finished", 0, 1.0, knobs)
    assert not world.waiting
    assert not world.at
    assert len(world.ended) == len(world.arrived)
    assert world.gateway.inflight == 0
    assert all(replica.inflight_tokens == 0 for replica in world.gateway.replicas.values())
    assert world.gateway.next_at > world.now or world.gateway.next_at == inf
