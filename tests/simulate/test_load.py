"""A wrong scenario is refused with the place, the mistake and the mend, not with a number that means nothing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.config import ConfigError
from controller.simulate.load import open_study
from tests.support.scenarios import SMALL, changed, written

HPA = {"kind": "benchmarks.peers.hpa:Hpa", "target": 8}
STREAM = SMALL["traffic"]["chat"][0]


def problems(folder: Path, *changes: tuple[str, Any]) -> list[tuple[str, str, str]]:
    data = SMALL
    for path, value in changes:
        data = changed(data, path, value)
    with pytest.raises(ConfigError) as caught:
        open_study(written(folder, data))
    assert all(problem.line for problem in caught.value.problems)
    return [(problem.path, problem.mistake, problem.mend) for problem in caught.value.problems]


def test_the_small_scenario_is_good(tmp_path: Path) -> None:
    study = open_study(written(tmp_path))
    assert study.scenario.pools == {"chat": 1}
    assert set(study.peers) == {"hpa"}
    assert study.config.interval == 15.0


@pytest.mark.parametrize(
    ("path", "value", "place", "mistake", "mend"),
    [
        ("durtion", "6m", "durtion", "is not a known key", "duration"),
        ("duration", None, "duration", "is missing", "add it"),
        ("duration", "2m", "duration", "leaves less than a minute to score", "longer"),
        ("promises.default", {}, "promises.default.ttft", "nothing is promised", "ttft, tpot or e2e"),
        ("promises", {"gold": {"ttft": "1s"}}, "promises", "nothing is promised to requests without", "default"),
        ("fleet.pools.chat.replicas", -1, "fleet.pools.chat.replicas", "-1 is out of bounds", "at least 0"),
        ("fleet.pools.chat.engine.kind", "gpu", "fleet.pools.chat.engine.kind", "'gpu' is not a choice", "profile"),
        ("fleet.pools.chat.labels", {"job": "vllm"}, "fleet.pools.chat.labels.job", "is set by the twin itself",
         "remove it; the job is the pool's name"),
        ("fleet.pools.chat.labels", {"zone": "a"}, "fleet.pools.chat.labels.zone", "is set by the twin", "zones of"),
        ("fleet.pools.chat.labels", {"model_name": "a"}, "fleet.pools.chat.labels.model_name", "is set by", "name of"),
        ("fleet.pools.chat.labels", {"a-b": "a"}, "fleet.pools.chat.labels.a-b", "is no label", "letters, digits and"),
        ("fleet.pools.chat.labels", {5: "a"}, "fleet.pools.chat.labels.5", "is no label", "letters, digits and _"),
        ("traffic.chat.0.kind", "generatd", "traffic.chat[0].kind", "'generatd' is not a choice", "generated?"),
        ("traffic.chat.0.shapes.0.at", "2", "traffic.chat[0].shapes[0].at", "'2' has no unit", "2s"),
        ("traffic", {"code": [STREAM]}, "traffic.code", "is not a pool of the fleet", "chat"),
        ("traffic", {}, "traffic", "is empty", "add a stream"),
        ("traffic.chat", [STREAM, STREAM], "traffic.chat[1].name", "'web' is also a stream of chat", "its own"),
        ("traffic.chat.0.start", "7m", "traffic.chat[0].start", "is after the end of the run", "earlier"),
        ("events.0.end", "7m", "events[0].end", "lies in the part that is not scored", "scored is 1m to 5m30s"),
        ("events.0.begin", "30s", "events[0].begin", "lies in the part that is not scored", "begin later"),
        ("fleet.disturbances", [{"kind": "crash", "pool": "chat", "at": "6m"}], "fleet.disturbances[0].at",
         "is after the end of the run", "earlier"),
        ("events.0.name", "", "events[0].name", "is empty", "write a text"),
        ("fleet.pools.chat.gateway", {"knobs": {"strategy": "nope"}}, "fleet.pools.chat.gateway.knobs.strategy",
         "'nope' is unknown", "round-robin"),
        ("fleet.pools.chat.gateway", {"knobs": {"strategy": "hybrid", "parameters": {"zz": 1}}},
         "fleet.pools.chat.gateway.knobs.parameters.zz", "is not a parameter", "cache_tokens"),
        ("fleet.pools.chat.gateway", {"knobs": {"parameters": {"zz": 1}}},
         "fleet.pools.chat.gateway.knobs.parameters.zz", "is not a parameter", "write one of"),
        ("fleet.pools.chat.limits", {"max_num_seqs": 2, "isolation": {"short_seqs": 1, "long_seqs": 1}},
         "fleet.pools.chat.limits.isolation", "leave nothing of max_num_seqs (2) to share", "lower one of them"),
        ("fleet.pools.chat.limits", {"isolation": {"short_seqs": 8, "long_seqs": 8}},
         "fleet.pools.chat.limits.isolation", "leave nothing of max_num_seqs (16) to share", "lower one of them"),
        ("fleet.pools.chat.behind", "nope", "fleet.pools.chat.behind", "'nope' is no pool with a gateway", "name one"),
        ("fleet.disturbances", [{"kind": "crash", "pool": "nope", "at": "2m"}], "fleet.disturbances[0].pool",
         "there is no pool 'nope'", "chat"),
        ("fleet.pools.chat.engine", {"kind": "library", "model": "llama-3.1-8b", "gpu": "H999"},
         "fleet.pools.chat.engine.gpu", "H999 is not in the library", ""),
        ("duration", "1000d", "duration", "1000d is out of bounds", "at most 31d"),
        ("fleet.prometheus.interval", "1ms", "fleet.prometheus.interval", "1ms is out of bounds", "at least 100ms"),
        ("fleet.pools.chat.gateway", {"report_every": "1ns"}, "fleet.pools.chat.gateway.report_every",
         "1ns is out of bounds", "at least 10ms"),
        ("fleet.pools.chat.replicas", 1_000_000, "fleet.pools.chat.replicas", "is out of bounds", "at most 10000"),
        ("fleet.pools.chat.quota", 1_000_000, "fleet.pools.chat.quota", "is out of bounds", "at most 10000"),
        ("traffic.chat.0.shapes.0.factor", 1e9, "traffic.chat[0].shapes[0].factor", "is out of bounds", "at most"),
        ("traffic.chat.0.shapes", [{"kind": "step", "at": "2m", "factor": 1e6}], "traffic.chat[0]",
         "'web' makes about 480,000,240 requests, more than 50,000,000", "lower rate, factor or duration"),
        ("governor", 7, "governor", "is neither a path nor a config", "path"),
        ("governor.pools.chat.engine", "sglang", "governor.pools.chat.engine", "the metrics of vllm", "write vllm"),
        ("governor.pools.chat.levers.replicas.max", "x", "governor.pools.chat.levers.replicas.max",
         "'x' is not a number", "without quotes"),
        ("governor.pools.chat.levers", {}, "governor.pools.chat", "has no lever replicas", "add it"),
        ("against.peers.none", HPA, "against.peers.none", "is a name of this command's own", "something else"),
        ("against.peers.Governor", HPA, "against.peers.Governor", "is a name of this command's own", "something else"),
        ("against.peers.no controller", HPA, "against.peers.no controller", "is a name of this command's", "something"),
        ("against.peers.hpa.target", 0, "against.peers.hpa.target", "0 is out of bounds", "more than 0"),
        ("against.peers.hpa.kind", "nobody", "against.peers.hpa.kind", "no policy is called 'nobody'", "module:Class"),
        ("against.peers.hpa", {"kind": "tests.support.plugins:Wheel"}, "against.peers.hpa.kind",
         "does not drive replicas", "another policy"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_with_its_place_and_mend(
    tmp_path: Path, path: str, value: object, place: str, mistake: str, mend: str
) -> None:
    found = problems(tmp_path, (path, value))
    mine = [one for one in found if one[0] == place]
    assert mine, found
    assert mistake in mine[0][1]
    assert mend in mine[0][2]


def test_a_pool_that_the_fleet_does_not_have_is_named_where_the_config_stands(tmp_path: Path) -> None:
    inline = changed(SMALL, "governor.pools", {"chatt": SMALL["governor"]["pools"]["chat"]})
    with pytest.raises(ConfigError, match=r"governor.pools.chatt: is not a pool of the fleet; did you mean chat\?"):
        open_study(written(tmp_path, inline))
    config = {"version": 1, "source": {"kind": "prometheus", "url": "http://here"}, **inline["governor"]}
    (tmp_path / "governor.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    by_path = changed(SMALL, "governor", "governor.yaml")
    with pytest.raises(ConfigError, match=r"governor: pool chatt of governor\.yaml: is not a pool of the fleet"):
        open_study(written(tmp_path, by_path))


def test_a_pool_with_a_dot_in_its_name_is_still_found(tmp_path: Path) -> None:
    pool = {**SMALL["fleet"]["pools"]["chat"], "behind": "nope"}
    found = problems(tmp_path, ("fleet.pools", {**SMALL["fleet"]["pools"], "llama-3.1": pool}))
    assert found == [("fleet.pools.llama-3.1.behind", "'nope' is no pool with a gateway", "name one")]


def test_a_trace_that_is_multiplied_beyond_reason_is_refused_before_it_runs(tmp_path: Path) -> None:
    rows = "".join(f"{number / 1000:.3f},a,10,10\n" for number in range(1001))
    (tmp_path / "t.csv").write_text("arrival_s,tenant,input_tokens,output_tokens\n" + rows, encoding="utf-8")
    trace = {"kind": "requests", "name": "t", "file": "t.csv", "factor": 1000, "end": "100s"}
    open_study(written(tmp_path, changed(SMALL, "traffic.chat", [trace])))  # 1,001,000 are no mistake
    (found,) = problems(tmp_path, ("traffic.chat", [{**trace, "repeat": True}]))
    assert found[0] == "traffic.chat[0]"
    assert "'t' makes about 100,100,000 requests" in found[1]


def test_what_cannot_work_is_said_but_not_refused(tmp_path: Path) -> None:
    def said(*changes: tuple[str, Any]) -> list[str]:
        data = SMALL
        for path, value in changes:
            data = changed(data, path, value)
        return list(open_study(written(tmp_path, data)).scenario.warnings())

    assert said() == []
    crash = {"kind": "crash", "pool": "chat", "at": "2m"}
    (late,) = said(("fleet.disturbances", [crash, {**crash, "replica": 1}, {**crash, "share": "50%"}]))
    assert late.startswith("fleet.disturbances[1].replica: pool chat has 1 replicas at the start")
    (prompts,) = said(("fleet.pools.chat.role", "prefill"))
    assert prompts.startswith("fleet.pools.chat.role: ")
    assert "no request is answered" in prompts
    (answers,) = said(("fleet.pools.chat.role", "decode"))
    assert "they do it themselves" in answers
    other = {**SMALL["fleet"]["pools"]["chat"], "role": "decode", "behind": "chat", "model_name": "chat"}
    assert said(("fleet.pools.chat.role", "prefill"), ("fleet.pools.other", other)) == []
    (closed,) = said(("fleet.pools.chat.gateway", {"knobs": {"concurrency": {"limit": 0}}}))
    assert "knobs.concurrency.limit: 0 lets no request through" in closed
    (stranger,) = said(("traffic.chat.0.model", "caht"))
    assert stranger == "traffic.chat[0].model: no pool behind this gateway serves 'caht'; write one of chat"
    (tenant,) = said(("traffic.chat.0.tenants", [{"name": "a"}, {"name": "b", "model": "caht"}]))
    assert tenant.startswith("traffic.chat[0].tenants[1].model: ")


def test_a_pool_can_be_watched_at_its_gateway(tmp_path: Path) -> None:
    study = open_study(written(tmp_path, changed(SMALL, "governor.pools.chat.engine", "gaie")))
    assert study.config.pools["chat"].engine == "gaie"


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, ("traffic.chat.0.start", "7m"), ("against.peers.hpa.target", 0), ("events.0.end", "7m"))
    assert {place for place, _, _ in found} == {
        "traffic.chat[0].start", "against.peers.hpa.target", "events[0].end",
    }  # fmt: skip


def test_a_config_of_its_own_file_is_found_next_to_the_scenario(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    config = {"version": 1, "source": {"kind": "prometheus", "url": "http://here"}, **SMALL["governor"]}
    (tmp_path / "governor.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    study = open_study(written(folder, changed(SMALL, "governor", "../governor.yaml")))
    assert set(study.config.pools) == {"chat"}
    with pytest.raises(ConfigError, match=r"missing\.yaml.*cannot be read"):
        open_study(written(folder, changed(SMALL, "governor", "missing.yaml")))


def test_another_config_takes_the_place_of_the_scenarios_own(tmp_path: Path) -> None:
    config = changed({"version": 1, "source": {"kind": "prometheus", "url": "http://here"}, **SMALL["governor"]},
                     "interval", "20s")  # fmt: skip
    path = tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    assert open_study(written(tmp_path), path).config.interval == 20.0
