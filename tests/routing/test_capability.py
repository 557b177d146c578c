"""Capability match: who can serve a request, what was missing, and a canary's exact share."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.capability import Capability
from routing.model import Ability, Replica, Request
from tests.support.queues import ask

FLEET = [
    Replica("a", Ability(model="big", version="v1", precision="bf16", hardware="h100", region="eu", context=8192)),
    Replica("b", Ability(model="big", version="v2", precision="fp8", hardware="h200", region="us", context=32768)),
    Replica("c", Ability(model="small", precision="bf16", hardware="l40s", region="eu", context=4096)),
    Replica("d", Ability(model="small", tenants=frozenset({"acme"}))),
]


FIELDS = ("model", "version", "precision", "hardware", "region")


def matched(request: Request, replicas: list[Replica] | None = None) -> str:
    return "".join(one.name for one in Capability().match(request, FLEET if replicas is None else replicas).replicas)


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ({}, "abc"),
        ({"tenant": "acme"}, "abcd"),
        ({"model": "big"}, "ab"),
        ({"model": "small", "tenant": "acme"}, "cd"),
        ({"model": "big", "version": "v2"}, "b"),
        ({"precision": "bf16", "tenant": "acme"}, "acd"),  # d does not say, and so serves any
        ({"hardware": "h100"}, "a"),
        ({"region": "eu"}, "ac"),
        ({"prompt": 8000, "max_tokens": 192}, "ab"),
        ({"prompt": 8000, "max_tokens": 193}, "b"),  # prompt and answer together
        ({"zone": "anywhere", "adapter": "x"}, "abc"),  # preferences, not capabilities
    ],
)
def test_the_match(wish: dict[str, object], names: str) -> None:
    assert matched(ask(1, **wish)) == names  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wish", "missing"),
    [
        ({"model": "huge"}, "no replica serves model 'huge'; there is 'big', 'small'"),
        (
            {"model": "big", "version": "v3"},
            "no replica with model 'big' serves version 'v3'; there is 'v1', 'v2'",
        ),
        (
            {"model": "big", "version": "v1", "region": "us"},
            "no replica with model 'big' and version 'v1' serves region 'us'; there is 'eu'",
        ),
        ({"model": "big", "prompt": 40_000}, "the request needs a context of 40100 tokens; the longest is 32768"),
    ],
)
def test_what_is_missing_is_named(wish: dict[str, object], missing: str) -> None:
    found = Capability().match(ask(1, **wish), FLEET)  # type: ignore[arg-type]

    assert not found.replicas
    assert found.missing == missing


def test_a_tenant_without_a_replica_of_its_own() -> None:
    found = Capability().match(ask(1, model="small", tenant="zeta"), [FLEET[3]])
    assert found.missing == "no replica with model 'small' serves tenant 'zeta'"
    assert Capability().match(ask(1), []).missing == "there is no replica"


def test_a_verdict_is_not_kept_longer_than_the_fleet() -> None:
    """A new version behind an old name, or a replica more, and the remembered match would send to what is gone."""
    capability, request = Capability(), ask(1, model="big")
    one = Replica("a", Ability(model="big"))
    assert capability.match(request, [one]).replicas == [one]
    two = Replica("b", Ability(model="big"))
    assert len(capability.match(request, [one, two]).replicas) == 2
    one.ability = Ability(model="other")
    assert capability.match(request, [one, two]).replicas == [two]
    assert capability.match(request, []).missing == "there is no replica"


class TestCanary:
    """A share is a share, not a chance."""

    def fleet(self, canary: float | None, others: int = 3) -> list[Replica]:
        stable = [Replica(f"s{number}", Ability(model="m", version="v1")) for number in range(others)]
        return [*stable, Replica("c", Ability(model="m", version="v2", canary=canary))]

    @pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.25, 1.0])
    def test_after_any_number_of_requests_it_is_off_by_less_than_one(self, share: float) -> None:
        capability, replicas, got = Capability(), self.fleet(share), 0
        for number in range(1, 401):
            names = {one.name for one in capability.match(ask(number, model="m"), replicas).replicas}
            assert names in ({"c"}, {"s0", "s1", "s2"})
            got += names == {"c"}
            assert abs(got - share * number) <= 1.0

    def test_who_asks_for_a_version_gets_it_and_is_not_counted(self) -> None:
        capability, replicas = Capability(), self.fleet(0.25)
        for number in range(50):
            assert [one.name for one in capability.match(ask(number, version="v2"), replicas).replicas] == ["c"]
        got = [capability.match(ask(number), replicas).replicas[0].name for number in range(100)]
        assert got.count("c") == 25

    def test_a_canary_that_drains_swallows_nothing(self) -> None:
        capability, replicas = Capability(), self.fleet(0.5)
        replicas[3].draining = True
        for number in range(20):
            assert len(capability.match(ask(number), replicas).replicas) == 4
        replicas[3].draining = False
        got = [capability.match(ask(number), replicas).replicas[0].name for number in range(20)]
        assert got.count("c") == 10  # and no debt was kept meanwhile

    def test_two_canaries_and_two_stable_versions_share(self) -> None:
        replicas = [
            Replica("a", Ability(version="v1")),
            Replica("b", Ability(version="v2")),
            Replica("c", Ability(version="v2")),
            Replica("d", Ability(version="v3", canary=0.1)),
            Replica("e", Ability(version="v4", canary=0.3)),
        ]
        capability = Capability()
        got = Counter(capability.match(ask(number), replicas).replicas[0].ability.version for number in range(1000))
        assert got == {"v1": 200, "v2": 400, "v3": 100, "v4": 300}

    def test_a_canary_alone_serves_all(self) -> None:
        assert matched(ask(1), self.fleet(0.01, others=0)) == "c"


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_the_fast_match_is_the_plain_one(seed: int, count: int) -> None:
    """Memory of verdicts, against each field looked at each time."""
    chance, capability = Random(seed), Capability()
    words = ("", "x", "y")
    replicas = [
        Replica(
            f"r{number}",
            Ability(**{name: chance.choice(words) for name in FIELDS}, context=chance.choice((None, 200, 900))),  # type: ignore[arg-type]
        )
        for number in range(count)
    ]
    for number in range(10):
        fields = {name: chance.choice(words) for name in FIELDS}
        request = ask(number, chance.choice((50, 500)), 100, **fields)  # type: ignore[arg-type]
        plain = [
            one
            for one in replicas
            if all(getattr(one.ability, name) in ("", wanted) or not wanted for name, wanted in fields.items())
            and (one.ability.context is None or one.ability.context >= request.prompt_tokens + 100)
        ]
        assert list(capability.match(request, replicas).replicas) == plain
        assert bool(plain) == (not capability.match(request, replicas).missing)
        if number == 5:
            replicas[0].ability = Ability("y", "y", "y")
