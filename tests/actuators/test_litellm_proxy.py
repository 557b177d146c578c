"""What a client of a real LiteLLM proxy meets, with the example's configuration and engines of the tests."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from actuators.litellm import LiteLLM, LiteLLMConfig, LiteLLMPool
from controller.config import load
from controller.core.model import Lever, Outcome, Target
from controller.core.params import SecretRef
from controller.core.ports import Binding
from tests.support.by_hand import TARGETS
from tests.support.decisions import decide
from tests.support.litellm_proxy import KEY, Answer, Proxy, configured, litellm_proxy, picks
from tests.support.openai_upstream import Upstream, upstreams

pytestmark = pytest.mark.heavy

ZERO, ONE = (Target("chat", Lever.WEIGHT, name) for name in ("vllm-0", "vllm-1"))
OUT = Target("chat", Lever.BREAKER, "vllm-0")
ALSO_OUT = Target("chat", Lever.BREAKER, "vllm-1")
ACME, BATCH = (Target("chat", Lever.TENANT_CAP, name) for name in ("acme", "batch"))
SMALL = Target("chat", Lever.DOWNGRADE, "small")
NO_LIMIT = 1e12
REST = {ZERO: 1.0, ONE: 1.0, OUT: 1.0, ALSO_OUT: 1.0, ACME: NO_LIMIT, BATCH: NO_LIMIT, SMALL: 0.0}
BOUND = Binding((ACME, BATCH, SMALL), "governor", (("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))


@pytest.fixture(scope="module")
def engines() -> Iterator[list[Upstream]]:
    with upstreams(3) as made:
        yield made


@pytest.fixture(scope="module")
def started(engines: list[Upstream], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with litellm_proxy(tmp_path_factory.mktemp("litellm"), configured(engines)) as one:
        yield one


@pytest.fixture
def hands(started: Proxy) -> Iterator[LiteLLM]:
    """As the example configures it, over this document and with shallow buckets."""
    written = load(TARGETS / "litellm" / "governor.yaml")
    example, pool = written.actuators["proxy"].settings, written.pools["chat"]
    config = replace(
        example,
        document=str(started.document),
        status=(started.status_url,),
        burst=100,
        burst_seconds=0.0,
        timeout=10.0,
    )
    agreed = tuple(
        ("chat", kind, tuple(name for name, one in rules.items() if one.consents))
        for kind, rules in (("tenants", pool.tenants), ("classes", pool.classes))
    )
    one = LiteLLM(config, replace(BOUND, consents=agreed))
    yield one
    one.close()


@pytest.fixture
def proxy(started: Proxy, engines: list[Upstream], hands: LiteLLM) -> Proxy:
    put(hands)
    for engine in engines:
        engine.served = 0
    return started


def put(hands: LiteLLM, lasts: float | None = 60.0, **values: float) -> None:
    """These values, by the names of their targets above; all others are at rest."""
    now = time.time()
    wanted = REST | {globals()[name.upper()]: value for name, value in values.items()}
    until = None if lasts is None else now + lasts
    outcomes = hands.apply(
        [decide(t, None, v)._replace(until=None if v == REST[t] else until) for t, v in wanted.items()], now
    )
    assert {one.outcome for one in outcomes} == {Outcome.DONE}, outcomes


def shares(answers: list[Answer]) -> Counter[str]:
    assert {one.status for one in answers} == {200}
    return Counter(one.replica for one in answers)


def test_of_5000_choices_each_replica_gets_its_weight(proxy: Proxy, hands: LiteLLM) -> None:
    put(hands, zero=0.25, one=0.75)
    found = picks(proxy, 5000)
    assert abs(found["vllm-0"] - 1250) <= 3 * (5000 * 0.25 * 0.75) ** 0.5


def test_weights_hold_through_the_proxy_from_the_next_request_on(proxy: Proxy, hands: LiteLLM) -> None:
    """The draws of a running proxy cannot be seeded: 5 sigma, over 200 requests after each change."""
    bound = 5 * (200 * (1 / 11) * (10 / 11)) ** 0.5
    put(hands, zero=0.1)
    assert abs(shares(proxy.ask_many(200))["vllm-0"] - 200 / 11) <= bound
    put(hands, zero=1, one=0.1)
    assert abs(shares(proxy.ask_many(200))["vllm-1"] - 200 / 11) <= bound


def test_a_replica_that_is_out_gets_nothing_and_the_last_one_stays(proxy: Proxy, hands: LiteLLM) -> None:
    put(hands, out=0, zero=0.5)
    assert shares(proxy.ask_many(40)) == {"vllm-1": 40}
    put(hands, out=0, also_out=0)
    assert set(shares(proxy.ask_many(40))) == {"vllm-0", "vllm-1"}


def test_nothing_in_flight_is_lost_when_its_replica_is_taken_out(
    proxy: Proxy, hands: LiteLLM, engines: list[Upstream]
) -> None:
    engines[0].gate.clear()
    put(hands, also_out=0)
    with ThreadPoolExecutor(8) as crew:
        waiting = [crew.submit(proxy.ask) for _ in range(8)]
        until = time.monotonic() + 20
        while engines[0].inflight < 8:
            assert time.monotonic() < until
        put(hands, out=0)
        assert proxy.ask().replica == "vllm-1"
        engines[0].gate.set()
        assert shares([one.result() for one in waiting]) == {"vllm-0": 8}


def test_a_tenant_gets_its_tokens_and_its_neighbour_is_not_touched(proxy: Proxy, hands: LiteLLM) -> None:
    """A request takes 20 tokens in truth, and the bucket holds 100: it is empty after five at the latest."""
    put(hands, acme=0)
    answers = [proxy.ask(x_tenant="acme", text="x" * 40) for _ in range(8)]
    passed = [one for one in answers if one.status == 200]
    assert 1 <= len(passed) <= 5
    assert answers[0].status == 200
    assert "token limit of acme" in json.dumps(answers[-1].body)
    assert proxy.ask(x_tenant="batch").status == 200
    assert proxy.ask().status == 200
    put(hands, acme=NO_LIMIT)
    assert proxy.ask(x_tenant="acme").status == 200


def test_the_length_of_a_streamed_answer_is_paid_for(proxy: Proxy, hands: LiteLLM, engines: list[Upstream]) -> None:
    put(hands, acme=0)
    for engine in engines:
        engine.completion_tokens = 200
    try:
        assert "[DONE]" in proxy.stream(x_tenant="acme")
        assert any(proxy.ask(x_tenant="acme").status == 429 for _ in range(2))  # four more would pass unpaid
    finally:
        for engine in engines:
            engine.completion_tokens = 10


def test_who_is_refused_is_told_when_to_come_again(proxy: Proxy, hands: LiteLLM) -> None:
    put(hands, acme=5)
    last = next(one for _ in range(30) if (one := proxy.ask(x_tenant="acme", text="x" * 200)).status == 429)
    assert 1 <= int(last.headers["retry-after"]) <= 60


def test_the_share_that_consents_goes_to_the_smaller_model_to_the_request(
    proxy: Proxy, hands: LiteLLM, engines: list[Upstream]
) -> None:
    put(hands, small=0.3)
    answers = proxy.ask_many(100, x_tenant="batch", x_request_class="background")
    assert {one.status for one in answers} == {200}
    assert engines[2].served == 30
    for tenant, klass in (("acme", "background"), ("batch", "critical"), ("", "")):
        proxy.ask_many(10, x_tenant=tenant, x_request_class=klass)
    assert engines[2].served == 30


def test_every_answer_tells_the_generation_that_made_it(proxy: Proxy, hands: LiteLLM) -> None:
    put(hands, zero=0.5)
    told = proxy.status()
    assert proxy.ask().headers["x-governor-generation"] == str(told["generation"])
    assert (told["by"], told["problem"]) == ("governor", "")


def test_with_every_governor_dead_values_end_at_their_time(proxy: Proxy, hands: LiteLLM) -> None:
    put(hands, lasts=3, acme=0, also_out=0)
    put_at = time.time()
    hands.close()
    assert proxy.ask(x_tenant="acme", text="x" * 4000).status == 200  # all of the bucket
    assert proxy.ask(x_tenant="acme", text="x" * 4000).status == 429
    while proxy.ask(x_tenant="acme", text="x" * 4000).status == 429:
        assert time.time() - put_at < 20
    assert time.time() - put_at >= 2.9
    assert len(shares(proxy.ask_many(40))) == 2


def test_a_broken_document_changes_nothing_and_fails_nobody(proxy: Proxy, hands: LiteLLM) -> None:
    put(hands, out=0)
    good = proxy.document.read_text()
    for broken in ("{", "[]", '{"version": 2}', good.replace('"value": 0', '"value": "x"')):
        proxy.document.write_text(broken)
        assert shares(proxy.ask_many(10)) == {"vllm-1": 10}
        assert proxy.status()["problem"]
    proxy.document.unlink()
    assert shares(proxy.ask_many(10)) == {"vllm-1": 10}
    proxy.document.write_text(good)
    assert proxy.status()["problem"] == ""


def test_without_a_database_the_api_is_refused_with_the_mend(started: Proxy, tmp_path: Path) -> None:
    """The real proxy's own words: they are what `mode: api` must understand."""
    secret = tmp_path / "key"
    secret.write_text(KEY)
    config = LiteLLMConfig(
        {"chat": LiteLLMPool("chat")}, mode="api", url=started.url, master_key=SecretRef(file=str(secret)), timeout=10.0
    )
    hands = LiteLLM(config, Binding((), "governor", (("chat", Lever.WEIGHT),)))
    assert hands.read([ZERO], time.time())[ZERO].accepted == 1
    (applied,) = hands.apply([decide(ZERO, 1, 0.5)], time.time())
    assert (applied.outcome, "mode: plugin" in applied.detail) == (Outcome.REFUSED, True)
    assert any("config.yaml" in finding.text for finding in hands.diagnose(time.time()))
    secret.write_text("sk-wrong-0123456789")
    (applied,) = hands.apply([decide(ZERO, 1, 0.4)], time.time())
    assert applied.outcome is Outcome.REFUSED
    assert "sk-wrong" not in applied.detail
    hands.close()
