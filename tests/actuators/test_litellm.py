"""The document of LiteLLM's plugin when files, proxies or people get in the way."""

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from actuators.litellm import LiteLLM, LiteLLMConfig, LiteLLMPool
from actuators.litellm import governor_litellm as plugin
from actuators.redis.server import RedisServer
from controller.config import load, loads
from controller.core.model import Drift, Lever, Outcome, Target
from controller.core.params import SecretRef
from controller.core.ports import Ack, Binding
from controller.run.assembly import RunMode, assemble
from tests.actuators.rigs import NOW
from tests.support.by_hand import TARGETS
from tests.support.decisions import decide
from tests.support.plugin_status import Status, plugin_status
from tests.support.redis_server import real_redis

WEIGHT, BREAKER = Target("chat", Lever.WEIGHT, "a"), Target("chat", Lever.BREAKER, "a")
ACME = Target("chat", Lever.TENANT_CAP, "acme")
SMALL = Target("chat", Lever.DOWNGRADE, "small")
BOUND = Binding((ACME, SMALL), "governor", (("chat", Lever.WEIGHT), ("chat", Lever.BREAKER)))
POOLS = {"chat": LiteLLMPool("gpt", tenants=("batch",), classes=("low",)), "small": LiteLLMPool("gpt-small")}


@dataclass
class Place:
    """A document, the plugin that reads it, and Governor's hands."""

    path: Path
    status: Status
    hands: LiteLLM
    config: LiteLLMConfig

    def put(
        self, value: float, current: float | None = None, target: Target = WEIGHT, until: float | None = None
    ) -> Outcome:
        (applied,) = self.hands.apply([decide(target, current, value)._replace(until=until)], NOW)
        assert applied.detail
        return applied.outcome

    def stands(self) -> float | None:
        entry = self.document()["pools"]["chat"].get("weight", {}).get("a")
        return None if entry is None else float(entry["value"])

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    path = tmp_path / "governor.json"
    with plugin_status(plugin.Reader(path=str(path))) as status:
        config = LiteLLMConfig(POOLS, document=str(path), status=(status.url,), timeout=0.5)
        made = Place(path, status, LiteLLM(config, BOUND), config)
        yield made
        made.hands.close()


def test_the_plugin_gets_all_that_it_needs_in_one_document(place: Place) -> None:
    decisions = [decide(WEIGHT, 1, 0.5), decide(BREAKER, 1, 0.25), decide(ACME, 1e12, 500), decide(SMALL, 0, 0.3)]
    until = NOW + 120
    outcomes = place.hands.apply([one._replace(until=until) for one in decisions], NOW)
    assert {one.outcome for one in outcomes} == {Outcome.DONE}
    told = plugin.parse(place.path.read_text())
    (pool,) = (one for name, one in told.pools.items() if name == "gpt")
    assert pool.values["weight"]["a"] == plugin.Value(0.5, until)
    assert pool.values["breaker"]["a"] == plugin.Value(0.25, until)
    assert pool.values["tenant_cap"]["acme"] == plugin.Value(500, until)
    assert pool.values["downgrade"]["small"] == plugin.Value(0.3, until, "gpt-small")
    assert pool.consents("batch", "low")
    assert not pool.consents("batch", "high")
    assert (told.generation, told.by, told.tenant) == (1, "governor", "team_id")


def test_a_neutral_value_leaves_nothing_behind(place: Place) -> None:
    for target, value, rest in ((WEIGHT, 0.5, 1.0), (ACME, 500.0, 1e12), (SMALL, 0.3, 0.0)):
        assert place.hands.read([target], NOW)[target].accepted == rest
        place.put(value, target=target)
        assert place.hands.read([target], NOW)[target].accepted == value
        place.put(rest, target=target)
        assert target.lever.value not in place.document()["pools"]["chat"]


def test_what_ran_out_is_neutral_again_and_nobodys_doing(place: Place) -> None:
    place.put(0.5, until=NOW + 60)
    place.hands.read([WEIGHT], NOW)
    state = place.hands.read([WEIGHT], NOW + 61)[WEIGHT]
    assert (state.accepted, state.drift, state.foreign_writer) == (1.0, None, "")


def proxy_is_down(at: Place, _: pytest.MonkeyPatch) -> None:
    at.status.drop = 99


def proxy_reads_another_document(at: Place, _: pytest.MonkeyPatch) -> None:
    at.status.hook.reader = plugin.Reader(path="/nowhere/governor.json")


def proxy_is_slow(at: Place, _: pytest.MonkeyPatch) -> None:
    at.status.wait = 5.0


def proxy_without_the_plugin(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> list[int]:
        return []

    monkeypatch.setattr(at.status.hook, "status", nothing)


def disk_is_full(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)


def disk_is_read_only(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", refused)


def document_is_garbage(at: Place, _: pytest.MonkeyPatch) -> None:
    at.path.write_text("{")


def document_is_a_folder(at: Place, _: pytest.MonkeyPatch) -> None:
    at.path.unlink()
    at.path.mkdir()


def somebody_edits(at: Place, _: pytest.MonkeyPatch) -> None:
    document = at.document()
    document["pools"]["chat"]["weight"]["a"]["value"] = 0.9
    at.path.write_text(json.dumps({**document, "by": "ops"}))


# What happens before a weight of 0.5 becomes one of 0.3; the outcome; what stands in the document then.
MATRIX: dict[str, tuple[Callable[[Place, pytest.MonkeyPatch], None], Outcome, float | None]] = {
    "the proxy is down": (proxy_is_down, Outcome.UNKNOWN, 0.3),
    "the proxy is slow": (proxy_is_slow, Outcome.UNKNOWN, 0.3),
    "the proxy reads another document": (proxy_reads_another_document, Outcome.UNKNOWN, 0.3),
    "the proxy has no plugin": (proxy_without_the_plugin, Outcome.UNKNOWN, 0.3),
    "the disk is full": (disk_is_full, Outcome.FAILED, 0.5),
    "the disk is read-only": (disk_is_read_only, Outcome.FAILED, 0.5),
    "the document is garbage": (document_is_garbage, Outcome.FAILED, None),
    "the document is a folder": (document_is_a_folder, Outcome.FAILED, None),
    "somebody edits it": (somebody_edits, Outcome.FAILED, 0.9),
}


@pytest.mark.parametrize("case", MATRIX)
def test_each_failure_ends_in_the_outcome_that_is_documented(
    place: Place, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange, outcome, stands = MATRIX[case]
    assert place.put(0.5) is Outcome.DONE
    arrange(place, monkeypatch)
    assert place.put(0.3, current=0.5) is outcome
    monkeypatch.undo()
    if stands is not None:
        assert place.stands() == stands
    assert [path.name for path in place.path.parent.iterdir()] == ["governor.json"]


def test_a_proxy_that_is_back_confirms_what_it_had_missed(place: Place) -> None:
    place.put(0.5)
    place.status.drop = 2
    assert place.put(0.3, current=0.5) is Outcome.UNKNOWN
    decision = decide(WEIGHT, 0.5, 0.3)
    assert place.hands.verify([decision], NOW)[0].outcome is Outcome.UNKNOWN
    assert place.hands.verify([decision], NOW)[0].outcome is Outcome.DONE


def test_one_of_several_proxies_that_lags_is_named_and_the_batch_is_not_done(place: Place) -> None:
    with plugin_status(plugin.Reader(path="/nowhere/governor.json")) as other:
        hands = LiteLLM(replace(place.config, status=(place.status.url, other.url)), BOUND)
        (applied,) = hands.apply([decide(WEIGHT, 1, 0.5)], NOW)
        assert (applied.outcome, other.url[:21] in applied.detail) == (Outcome.UNKNOWN, True)
        other.hook.reader = plugin.Reader(path=str(place.path))
        assert hands.verify([decide(WEIGHT, 1, 0.5)], NOW)[0].outcome is Outcome.DONE
        hands.close()


def test_many_slow_proxies_cost_the_time_of_one(place: Place) -> None:
    """0.5 s for all: the second of those that take 0.3 s each is not waited for, and the others not even asked."""
    place.status.wait = 0.3
    hands = LiteLLM(replace(place.config, status=(place.status.url,) * 5), BOUND)
    begun = time.monotonic()
    assert hands.apply([decide(WEIGHT, 1, 0.5)], NOW)[0].outcome is Outcome.UNKNOWN
    assert (time.monotonic() - begun < 1.2, place.status.asked <= 2) == (True, True)
    hands.close()


def test_a_redis_whose_password_is_wrong_is_refused_and_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("guess-7733\n")
    with real_redis(tmp_path) as real:
        server = RedisServer(real.url, user="governor", password=SecretRef(file=str(secret)))
        hands = LiteLLM(LiteLLMConfig(POOLS, redis=server), BOUND)
        (applied,) = hands.apply([decide(WEIGHT, 1, 0.5)], NOW)
        error = hands.read([WEIGHT], NOW)[WEIGHT].error
        hands.close()
    assert applied.outcome is Outcome.REFUSED
    assert "mend `user` or `password`" in applied.detail
    assert "guess-7733" not in applied.detail + error


def test_a_document_that_we_may_not_read_is_said_and_not_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights are the credentials of a file. Root may read all, so it is told no here."""
    place.put(0.5)

    def refused(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    (applied,) = place.hands.apply([decide(WEIGHT, 0.5, 0.3)], NOW)
    monkeypatch.undo()
    assert (applied.outcome, "Permission denied" in applied.detail) == (Outcome.FAILED, True)
    assert place.stands() == 0.5


def test_killed_between_write_and_answer_the_next_process_finds_the_truth(place: Place) -> None:
    place.put(0.5)
    place.status.drop = 1
    assert place.put(0.3, current=0.5) is Outcome.UNKNOWN
    heir = LiteLLM(place.config, BOUND)
    assert heir.verify([decide(WEIGHT, 0.5, 0.3)], NOW)[0].outcome is Outcome.DONE
    assert heir.read([WEIGHT], NOW)[WEIGHT].foreign_writer == ""
    heir.close()


def test_a_document_that_was_put_back_is_an_older_one_of_ours(place: Place) -> None:
    place.put(0.5)
    old = place.path.read_text()
    place.put(0.3, current=0.5)
    place.hands.read([WEIGHT], NOW)
    place.path.write_text(old)
    assert place.hands.read([WEIGHT], NOW + 15)[WEIGHT].drift is Drift.STALE


def test_a_document_that_was_deleted_is_somebodys_doing(place: Place) -> None:
    place.put(0.5)
    place.hands.read([WEIGHT], NOW)
    place.path.unlink()
    state = place.hands.read([WEIGHT], NOW + 15)[WEIGHT]
    assert (state.accepted, state.drift, bool(state.foreign_writer)) == (1.0, Drift.FOREIGN, True)


def test_what_a_successor_wrote_is_ours(place: Place) -> None:
    place.put(0.5)
    place.hands.read([WEIGHT], NOW)
    heir = LiteLLM(place.config, BOUND)
    heir.apply([decide(WEIGHT, 0.5, 0.3)], NOW)
    state = place.hands.read([WEIGHT], NOW + 15)[WEIGHT]
    assert (state.accepted, state.drift) == (0.3, None)
    heir.close()


def test_the_doctor_names_what_will_hurt_and_writes_nothing(place: Place) -> None:
    assert [one.level for one in place.hands.diagnose(NOW)] == ["info"]
    assert not place.path.exists()
    place.put(0.5)
    assert not place.hands.diagnose(NOW)
    place.status.drop = 1
    assert "the proxy" in place.hands.diagnose(NOW)[0].text
    blind = LiteLLM(replace(place.config, status=()), BOUND)
    assert "set status" in blind.diagnose(NOW)[0].text
    blind.close()


def test_without_a_status_nothing_claims_that_a_proxy_runs_it(place: Place) -> None:
    told = LiteLLM.describe(replace(place.config, status=()))[Lever.WEIGHT]
    assert (told.ack, LiteLLM.describe(place.config)[Lever.WEIGHT].ack) == (Ack.VALUE, Ack.VERSION)


def test_in_redis_the_document_goes_with_the_last_of_its_values(tmp_path: Path) -> None:
    with real_redis(tmp_path) as real:
        hands = LiteLLM(LiteLLMConfig(POOLS, redis=RedisServer(real.url)), BOUND)
        hands.apply(
            [decide(WEIGHT, 1, 0.5)._replace(until=NOW + 60), decide(ACME, None, 5)._replace(until=NOW + 300)], NOW
        )
        assert real.admin.pttl("governor:litellm") == pytest.approx(300_000, abs=2000)
        hands.apply([decide(BREAKER, 1, 0.25)], NOW)
        assert real.admin.pttl("governor:litellm") == -1
        other = LiteLLM(LiteLLMConfig(POOLS, redis=RedisServer(real.url)), BOUND)
        hands.read([WEIGHT], NOW)
        other.apply([decide(WEIGHT, 0.5, 0.7)], NOW)
        assert hands.apply([decide(WEIGHT, 0.5, 0.3)], NOW)[0].outcome is Outcome.FAILED
        hands.close()
        other.close()


@pytest.mark.parametrize("name", ["governor.yaml", "governor-api.yaml"])
def test_the_example_is_a_good_config_that_can_be_built(name: str) -> None:
    config = load(TARGETS / "litellm" / name)
    plugin_settings = config.actuators["proxy"].settings
    levers = config.pools["chat"].levers
    tenants = tuple(Target("chat", Lever.TENANT_CAP, "acme") for _ in levers if Lever.TENANT_CAP in levers)[:1]
    LiteLLM(plugin_settings, Binding(tenants, "governor", (("chat", Lever.WEIGHT),))).close()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "document"),
        ({"document": "governor.json"}, "document"),
        ({"document": "/a", "redis": RedisServer("redis://host")}, "document"),
        ({"document": "/a", "status": ("ftp://x",)}, "status.0"),
        ({"document": "/a", "status": ("http://me:pw@x",)}, "status.0"),
        ({"document": "/a", "tenant": "header:"}, "tenant"),
        ({"document": "/a", "klass": "colour"}, "klass"),
        ({"mode": "api"}, "url"),
        ({"mode": "api", "url": "http://x"}, "url"),
    ],
)
def test_a_config_that_cannot_work_is_refused_at_its_place(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: ") as caught:
        LiteLLMConfig(POOLS, **changes)
    assert "pw" not in str(caught.value)


def test_who_consents_is_said_once_and_reaches_the_proxy(tmp_path: Path) -> None:
    """It was written twice, in the pool and here, and a name that was added to one of them broke the start."""
    text = (Path(__file__).parents[2] / "examples" / "targets" / "litellm" / "governor.yaml").read_text()
    text = text.replace("/var/lib/governor/litellm.json", f"{tmp_path}/d.json").replace(
        "    status: [http://litellm:4000/governor/status]\n", ""
    )
    loop = assemble(loads(text), mode=RunMode.LIVE, ledger_path=tmp_path / "ledger")
    try:
        (told,) = loop.parts.actuators["chat/downgrade"].apply([decide(SMALL, 0.0, 0.2)], NOW)
    finally:
        loop.close()
    assert told.outcome is Outcome.DONE
    pool = plugin.parse((tmp_path / "d.json").read_text()).pools["chat"]  # its model group
    assert (pool.tenants, pool.classes) == (frozenset({"batch"}), frozenset({"standard", "background"}))


def test_a_receiver_or_a_pool_without_a_model_is_named() -> None:
    with pytest.raises(ValueError, match="pools: small, which receives from chat"):
        LiteLLM(LiteLLMConfig({"chat": LiteLLMPool("gpt")}, document="/a"), Binding((SMALL,), "governor"))
    with pytest.raises(ValueError, match="pools: chat is missing"):
        LiteLLM(LiteLLMConfig({}, document="/a"), Binding((ACME,), "governor"))
