"""What Envoy is told, without Envoy: whatever is decided, it is never told what it would refuse or break by."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from actuators.endpoints import Endpoint, Inline
from actuators.envoy import Envoy, EnvoyConfig, EnvoyPool, Files, Grpc
from actuators.envoy.book import Book, Entry
from actuators.envoy.hub import Hub
from actuators.envoy.readback import of_endpoints, of_filter, of_runtime
from actuators.envoy.resources import WHOLE, Key, Kind, Scene, all_of, bucket
from controller.config import load
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import Binding
from controller.core.rest import NO_LIMIT
from controller.run.assembly import RunMode, assemble
from tests.support.envoy import TARGETS

NAMES = tuple(f"r{n}" for n in range(4))
HERE = Inline("inline", {name: f"10.0.0.{n}:80" for n, name in enumerate(NAMES)})
CONFIG = EnvoyConfig(
    {
        "chat": EnvoyPool("chat", "chat-steered", "chat-plain", HERE, tokens_per_request=50.0),
        "small": EnvoyPool("small"),
        "tiny": EnvoyPool("tiny"),
    },
    Grpc("grpc"),
)
ENDPOINTS = {"chat": tuple(Endpoint(name, f"10.0.0.{n}", 80) for n, name in enumerate(NAMES))}
GATE = Target("chat", Lever.ADMISSION, "concurrency")
CAP = Target("chat", Lever.TENANT_CAP, "acme")
SHARES = some.integers(0, 100).map(lambda n: n / 100)


@some.composite
def books(draw: some.DrawFn) -> Book:
    """Any values that single targets can have."""
    values = {
        Target("chat", lever, name): draw(SHARES) for lever in (Lever.WEIGHT, Lever.BREAKER) for name in NAMES
    }  # fmt: skip
    first = draw(SHARES)
    values[Target("chat", Lever.DOWNGRADE, "small")] = first
    values[Target("chat", Lever.DOWNGRADE, "tiny")] = round((1 - first) * draw(SHARES), 4)
    values[GATE] = draw(some.sampled_from([1.0, 3.0, 250.0, NO_LIMIT]))
    values[CAP] = draw(some.sampled_from([0.0, 1.0, 70.0, 12345.0, NO_LIMIT]))
    chosen = draw(some.sets(some.sampled_from(sorted(values))))
    until = draw(some.none() | some.floats(1.0, 100.0))
    return Book({target: Entry(values[target], until) for target in chosen})


def told(book: Book, envoys: int = 1) -> dict[Key, Mapping[str, Any]]:
    return {key: one.body for key, one in all_of(CONFIG, Scene(book, ENDPOINTS, envoys)).items()}


@given(books(), some.integers(1, 5))
def test_nothing_that_envoy_refuses_or_breaks_by_is_ever_told(book: Book, envoys: int) -> None:
    made = told(book, envoys)
    rows = made[Key(Kind.ENDPOINTS, "chat-steered")]["endpoints"][0]["lb_endpoints"]
    assert len(rows) == len(NAMES)
    assert all(1 <= row["load_balancing_weight"] <= 100 for row in rows), "weight 0 makes Envoy refuse all of them"
    assert any("health_status" not in row for row in rows), "somebody serves"
    split = made[Key(Kind.RUNTIME, "governor-downgrade")]["layer"]
    if split:
        assert sum(split.values()) == WHOLE, "all keys of a split, or none"
        assert min(split.values()) >= 0
        assert "governor.downgrade.chat.chat" in split
    gates = made[Key(Kind.RUNTIME, "governor-admission")]["layer"]
    assert all(isinstance(limit, int) and limit >= 1 for limit in gates.values())
    for row in made[Key(Kind.FILTER, "governor-buckets")]["typed_config"]["descriptors"]:
        held = row["token_bucket"]
        assert held["max_tokens"] == held["tokens_per_fill"] >= 1, "a refill is one fill interval"


@given(books(), some.integers(1, 3))
def test_what_is_read_back_is_what_was_told(book: Book, envoys: int) -> None:
    made, scene = told(book, envoys), Scene(book, ENDPOINTS, envoys)
    keys = {
        name: value for key, body in made.items() if key.kind is Kind.RUNTIME for name, value in body["layer"].items()
    }
    for target in (GATE, *book.members("chat", Lever.DOWNGRADE)):
        found = of_runtime(CONFIG, scene, target, keys)
        assert found is None or found == book.value(target)
    assert of_filter(CONFIG, scene, CAP, made[Key(Kind.FILTER, "governor-buckets")]) == book.value(CAP)
    if not all(book.value(Target("chat", Lever.BREAKER, name)) == 0 for name in NAMES):
        for target in book.members("chat", Lever.BREAKER):
            endpoint = next(one for one in ENDPOINTS["chat"] if one.name == target.member)
            body = made[Key(Kind.ENDPOINTS, "chat-steered")]
            weight = book.value(Target("chat", Lever.WEIGHT, target.member))
            if min(weight, book.value(target)) > 0:
                assert of_endpoints(scene, target, endpoint, body) == book.value(target)


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0, 2.7, 40.0, 1e6])
def test_a_bucket_fills_at_its_rate_exactly(rate: float) -> None:
    made = bucket(rate, 1.0)
    assert made["tokens_per_fill"] / float(made["fill_interval"][:-1]) == pytest.approx(rate, rel=1e-4)
    assert made["max_tokens"] <= max(1.0, rate)


def test_a_bucket_of_nothing_is_still_one_that_envoy_takes() -> None:
    made = bucket(0.0, 1.0)
    assert (made["tokens_per_fill"], made["fill_interval"]) == (1, "3600.000000s")


def test_a_replica_by_its_address_is_the_same_replica() -> None:
    book = Book({Target("chat", Lever.WEIGHT, "10.0.0.1:80"): Entry(0.5)})
    rows = told(book)[Key(Kind.ENDPOINTS, "chat-steered")]["endpoints"][0]["lb_endpoints"]
    assert [row["load_balancing_weight"] for row in rows] == [100, 50, 100, 100]


def test_a_pool_without_known_replicas_is_not_told_at_all() -> None:
    """An empty list would take out all of them."""
    assert Key(Kind.ENDPOINTS, "chat-steered") not in all_of(CONFIG, Scene(Book(), {"chat": ()}, 1))


# --- what a config lacks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "scopes", "says"),
    [
        ((Target("other", Lever.DOWNGRADE, "small"),), (), "pools: has no other"),
        ((Target("chat", Lever.DOWNGRADE, "huge"),), (), "pools: has no huge"),
        ((Target("chat", Lever.ADMISSION, "longest_prompt"),), (), "write setpoints: \\[concurrency\\]"),
        ((Target("small", Lever.TENANT_CAP, "acme"),), (), "pools.small.tokens_per_request: is missing"),
        ((), (("small", Lever.WEIGHT),), "pools.small.endpoints: is missing"),
        ((Target("chat", Lever.REPLICAS),), (), "Envoy cannot move replicas"),
    ],
)
def test_what_a_lever_lacks_is_said_with_its_mend(
    targets: tuple[Target, ...], scopes: tuple[tuple[str, Lever], ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Envoy(CONFIG, Binding(targets, scopes=scopes))


def test_it_claims_expiry_only_where_envoy_enforces_it() -> None:
    def expiring(config: EnvoyConfig) -> set[Lever]:
        return {lever for lever, can in Envoy.describe(config).items() if can.expiry}

    alone = {"chat": EnvoyPool("chat", endpoints=HERE)}
    assert expiring(CONFIG) == set(Lever) - {Lever.REPLICAS, Lever.ROUTING}
    assert expiring(EnvoyConfig(CONFIG.pools, Files("files", "/x"))) == {Lever.WEIGHT, Lever.BREAKER}
    assert expiring(EnvoyConfig(alone, Files("files", "/x"))) == set()
    assert expiring(EnvoyConfig(alone, Grpc("grpc"))) == {Lever.ADMISSION, Lever.DOWNGRADE, Lever.TENANT_CAP}


@pytest.mark.parametrize("port", ["0", "65536", "99999", "http"])
def test_a_port_that_no_envoy_could_reach_is_refused(port: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        Grpc("grpc", f"127.0.0.1:{port}")


@pytest.mark.parametrize("listen", ["0.0.0.0:18000", "10.0.0.1:18000", "127.example.com:1", "localhost.example.com:1"])
def test_a_port_that_strangers_reach_needs_tls(listen: str) -> None:
    with pytest.raises(ValueError, match="listen: anyone could steer"):
        Grpc("grpc", listen)
    assert Grpc("grpc", listen, plaintext=True).listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.2:18000", "[::1]:18000", "localhost:18000"])
def test_a_port_of_this_machine_alone_needs_none(listen: str) -> None:
    assert Grpc("grpc", listen).listen == listen


def test_the_example_is_a_config_that_can_be_built(tmp_path: Path) -> None:
    config = load(TARGETS / "governor.yaml")
    assemble(config, mode=RunMode.DRY_RUN, ledger_path=tmp_path).close()


# --- streams ---------------------------------------------------------------------------------------------------------


def test_two_layers_on_one_stream_are_never_told_to_expire() -> None:
    """Envoy ends itself when both do (its issue 24271; 1.40 does)."""
    hub = Hub(lambda: None)
    book = Book({GATE: Entry(3.0, math.inf)})
    made = all_of(CONFIG, Scene(book, ENDPOINTS, 1))
    hub.tell(made, made.keys())
    with hub.stream("edge-1") as shared:
        hub.asked(shared, Kind.RUNTIME, ("governor-admission", "governor-downgrade"), "", "", "")
        parcel = hub.next(shared, lambda: False)
        assert parcel is not None
        assert parcel.lasting == {}
        key = Key(Kind.RUNTIME, "governor-admission")
        assert hub.verdicts((key,), 0.0)[key].outcome is Outcome.REFUSED
        assert "api_config_source" in hub.verdicts((key,), 0.0)[key].detail


def test_nonsense_on_a_stream_is_no_answer() -> None:
    hub = Hub(lambda: None)
    key = Key(Kind.RUNTIME, "governor-admission")
    made = all_of(CONFIG, Scene(Book({GATE: Entry(3.0)}), ENDPOINTS, 1))
    hub.tell(made, made.keys())
    with hub.stream("edge-1") as stream:
        hub.asked(stream, "type.googleapis.com/unheard.of", ("x",), "7", "12", "")
        hub.asked(stream, key.kind, ("nothing-of-ours", key.name), "", "", "")
        parcel = hub.next(stream, lambda: False)
        assert parcel is not None
        assert [one.resource.key for one in parcel.told] == [key], "what there is not is not told"
        for nonce in ("", "0", "999", "x" * 1000):
            hub.asked(stream, key.kind, ("nothing-of-ours", key.name), "1", nonce, "")
        assert hub.verdicts((key,), 0.0)[key].outcome is Outcome.UNKNOWN
    assert hub.verdicts((key,), 0.0)[key].outcome is Outcome.FAILED, "nobody is left"


def test_an_answer_to_an_older_telling_is_no_yes_to_the_newer() -> None:
    hub = Hub(lambda: None)
    key = Key(Kind.RUNTIME, "governor-admission")
    with hub.stream("edge-1") as stream:
        made = all_of(CONFIG, Scene(Book({GATE: Entry(3.0)}), ENDPOINTS, 1))
        hub.tell(made, {key})
        hub.asked(stream, key.kind, (key.name,), "", "", "")
        first = hub.next(stream, lambda: False)
        hub.tell(made, {key})
        second = hub.next(stream, lambda: False)
        assert first is not None
        assert second is not None
        hub.asked(stream, key.kind, (key.name,), first.version, first.nonce, "")
        assert hub.verdicts((key,), 0.0)[key].outcome is Outcome.UNKNOWN
        hub.asked(stream, key.kind, (key.name,), first.version, second.nonce, "it is Tuesday")
        verdict = hub.verdicts((key,), 0.0)[key]
        assert verdict.outcome is Outcome.REFUSED
        assert "edge-1: it is Tuesday" in verdict.detail
