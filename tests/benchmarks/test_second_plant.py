"""The bench on Dynamo's mock workers, without Dynamo: a page that says agreement where there is none would prove the
twin by nothing, and a process that is left behind eats the machine of everybody else."""

import asyncio
import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from benchmarks.second_plant import __main__ as command
from benchmarks.second_plant import calibrate, cases, environment, ranking
from benchmarks.second_plant.client import Ask, Told, play
from benchmarks.second_plant.fleet import Fleet, Replica
from benchmarks.second_plant.page import Results, Step, text
from benchmarks.second_plant.plant import FRONT, Plant
from benchmarks.second_plant.records import Records
from benchmarks.second_plant.run import DYNAMO, TWIN, Outcome, asks, on_twin, study
from controller.config import loads
from controller.core.ports import PoolNeeds
from controller.core.step_model import Profile
from controller.simulate.verdicts import GOOD, MISSED, OPEN, judge
from sources import scraped
from sources.scraped import ScrapedSource
from tests.support.ports import free_port
from tests.support.repository import ROOT

PROFILE = Profile(0.06, 0.0003, 0.004, 5e-5, 0.0, cases.SEATS, cases.KV_TOKENS)

# --- the hands -------------------------------------------------------------------------------------------------------

# Waits to be let in, serves one page, and says on its standard output when it does.
FAKE = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ready")
    def log_message(self, *words):
        pass
sys.stdin.readline() or sys.exit()
server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
print("open", flush=True)
server.serve_forever()
"""


def spawn(name: str, port: int) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", FAKE, str(port)], stdin=pipe, stdout=pipe)


def serves(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=1.0) as answer:
            return bool(answer.read() == b"ready")
    except URLError:
        return False


def opened(replica: Replica) -> None:
    """Until the process serves."""
    assert replica.process.stdout is not None
    assert replica.process.stdout.readline() == b"open\n"


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(spawn, serves, free_port, cold_start=20.0, lead=1.0)
    yield one
    one.close()
    for replica in one.everybody():
        for pipe in (replica.process.stdin, replica.process.stdout):
            if pipe is not None:
                pipe.close()


def test_a_replica_that_serves_before_its_cold_start_would_make_every_policy_look_quick(fleet: Fleet) -> None:
    fleet.want(1, 100.0)
    fleet.poll(118.9)
    (replica,) = fleet.everybody()
    assert (replica.let_in, fleet.count()) == (False, (1, 0, 1))
    assert fleet.coming() == [100.0]
    fleet.poll(119.0)
    assert replica.let_in
    opened(replica)
    fleet.poll(120.0)
    assert fleet.count() == (1, 1, 0)
    assert fleet.cold_starts() == [20.0]


def test_who_is_ended_first_is_who_serves_nobody_and_is_paid_for_until_it_is_gone(fleet: Fleet) -> None:
    fleet.want(1, 0.0, at_once=True)
    fleet.poll(0.0)
    (first,) = fleet.everybody()
    opened(first)
    fleet.poll(1.0)
    fleet.want(2, 10.0)
    fleet.want(1, 15.0)
    second = fleet.everybody()[1]
    assert (first.ending, second.ending) == (None, 15.0)
    second.process.wait(5.0)
    fleet.poll(18.0)
    assert fleet.count() == (1, 1, 0)
    assert fleet.paid(0.0, 30.0) == pytest.approx(30.0 + 8.0)
    assert [row[1:] for row in fleet.history()][-3:] == [(1, 1), (2, 1), (1, 1)]


def test_processes_that_are_left_behind_eat_the_machine(fleet: Fleet) -> None:
    fleet.want(2, 0.0, at_once=True)
    fleet.poll(0.0)
    fleet.close()
    assert all(one.process.poll() is not None for one in fleet.everybody())


# --- requests --------------------------------------------------------------------------------------------------------


def test_both_plants_and_all_contenders_get_the_same_requests() -> None:
    case = cases.CASES[0]
    load = asks(case, PROFILE, 1)
    assert load == asks(case, dataclasses.replace(PROFILE, a=0.1), 1) != asks(case, PROFILE, 2)
    assert [one.at for one in load] == sorted(one.at for one in load)
    assert all(1 <= one.prompt <= cases.LONGEST_PROMPT and 2 <= one.answer <= cases.LONGEST_ANSWER for one in load)
    before = sum(one.at < 90 for one in load) / 90
    after = sum(one.at >= 90 for one in load) / (case.seconds - 90)
    assert before == pytest.approx(3.0, rel=0.2)
    assert after == pytest.approx(7.5, rel=0.15)
    assert max(one.prompt + one.answer for one in load) < cases.KV_TOKENS


async def _served(late: float) -> list[Told]:
    """Three requests at a server that answers the first, refuses the second, and begins the third and no more."""
    seen = 0
    never = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        mine = seen
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        asked = json.loads(await reader.readexactly(length))
        status = b"503 busy" if mine == 2 else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n")
        if mine != 2:
            for _ in range(asked["max_tokens"] if mine == 1 else 1):
                writer.write(b'data: {"choices":[{"text":" w1"}]}\n\n')
            await writer.drain()
        if mine == 1:
            writer.write(b'data: {"choices":[{"text":"","finish_reason":"length"}]}\n\ndata: [DONE]\n\n')
        if mine == 3:
            await never.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    now = asyncio.get_running_loop().time
    try:
        port = server.sockets[0].getsockname()[1]
        begin = now() - late
        return await play([Ask(n / 50, 5, 3) for n in range(3)], port, "mock", begin, now() + 0.3, now)
    finally:
        never.set()
        server.close()


def test_what_the_client_waits_for_itself_counts_against_nobody_else_and_what_is_open_is_no_miss() -> None:
    first, second, third = told = asyncio.run(_served(late=0.01))
    assert (first.ok, second.ok, third.ok) == (True, False, False)
    assert (first.open, second.open, third.open) == (False, False, True)
    assert math.isnan(second.first)
    assert not math.isnan(third.first)
    assert first.due <= first.sent <= first.first <= first.last
    promises = study(cases.CASES[0], PROFILE, cases.NONE).scenario.promises
    assert judge(Records(told), promises, first.due + 1.0).result.tolist() == [GOOD, MISSED, OPEN]
    late = dataclasses.replace(first, due=first.due - cases.TTFT)
    assert judge(Records([late]), promises, first.due + 1.0).result.tolist() == [MISSED]


# --- calibration and config ------------------------------------------------------------------------------------------


def test_step_times_are_found_again() -> None:
    shapes = [(p, 1.0, 0.0) for p in (200.0, 400.0)] + [(0.0, n, n * kv) for n in (1.0, 4.0) for kv in (200.0, 600.0)]
    rows = [calibrate.Row(p, n, kv, calibrate.Row(p, n, kv, 1.0).fitted(PROFILE)) for p, n, kv in shapes]
    found, error = calibrate.fit(rows)
    assert [found.a, found.b, found.c, found.d] == pytest.approx([PROFILE.a, PROFILE.b, PROFILE.c, PROFILE.d])
    assert error == pytest.approx(0.0, abs=1e-9)
    shrinking, _ = calibrate.fit([dataclasses.replace(row, seconds=0.1 / row.sequences) for row in rows])
    assert min(shrinking.a, shrinking.b, shrinking.c, shrinking.d) >= 0


def test_governor_has_one_config_but_for_the_names_of_the_series() -> None:
    head = {"version": 1, "source": {"kind": "prometheus", "url": "http://none"}}
    real = loads(json.dumps({**head, **cases.governor(PROFILE, "dynamo")})).pools[cases.POOL]
    twin = study(cases.CASES[0], PROFILE, cases.GOVERNOR).config.pools[cases.POOL]
    assert real.engine == "dynamo"
    assert twin.gateway is not None
    assert real.model_copy(update={"engine": twin.engine, "gateway": twin.gateway}) == twin


def test_every_token_of_the_tokenizer_has_a_text_so_that_the_client_sees_each() -> None:
    files = environment.files()
    tokenizer = files["tokenizer.json"]
    assert isinstance(tokenizer, dict)
    assert len(tokenizer["model"]["vocab"]) == environment.WORDS + 2
    assert environment.version().count(".") == 2


# --- the page --------------------------------------------------------------------------------------------------------


def outcome(plant: str, case: str, contender: str, attained: float, cost: float, seed: int = 1) -> Outcome:
    return Outcome(
        plant, case, contender, seed, 1000, round(attained * 1000), 0, {"late": 1000 - round(attained * 1000)}, cost, 9,
        1.5, 0.2, [], *((20.2, 0.01, 0, 5.0) if plant == DYNAMO else ()),
    )  # fmt: skip


def results(**twin: tuple[float, float]) -> Results:
    """Canned results: attainment and cost by contender, on the twin as on Dynamo but for what is given."""
    real = dict(
        zip(
            cases.contenders(), ((0.9, 1600.0), (0.95, 2000.0), (0.8, 1900.0), (0.2, 880.0), (1.0, 2640.0)), strict=True
        )
    )
    rows = [
        outcome(plant, case.name, contender, *(twin.get(contender, values) if plant == TWIN else values))
        for case in cases.CASES
        for contender, values in real.items()
        for plant in (DYNAMO, TWIN)
    ]
    return Results("2026-11-29", "1.6.1", 2, PROFILE, 0.08, (Step(400, 1, 0, 0.19, 0.187),), tuple(rows))


def test_a_page_that_says_yes_where_the_plants_contradict_each_other() -> None:
    assert "**Yes.**" in text(results())
    assert "the opposite of 0" in " ".join(text(results()).split())
    swapped = text(results(governor=(0.7, 1600.0)))
    assert "**Not everywhere.**" in swapped
    told = " ".join(swapped.split())
    assert (
        "step, attainment: Governor and HPA at 6 in flight have 90.0% and 80.0% on Dynamo, 70.0% and 80.0% on the twin."
        in told
    )
    assert "static (12 replicas) > HPA at 4 in flight > HPA at 6 in flight > Governor > nobody (4 replicas)" in swapped
    near = text(results(**{"hpa-6": (0.89, 1900.0)}))
    assert "the opposite of 0" in " ".join(near.split())
    assert "One plant puts in an order what the other leaves open" in near


def test_a_hair_between_two_means_is_no_order() -> None:
    one = ranking.pairs({"a": 0.9, "b": 0.895}, {"a": 0.7, "b": 0.9}, ranking.Measure.ATTAINED)[0]
    assert (one.dynamo, one.twin, one.swapped, one.agreed) == (0, -1, False, False)
    cost = ranking.pairs({"a": 1000.0, "b": 1200.0}, {"a": 1000.0, "b": 900.0}, ranking.Measure.COST)[0]
    assert (cost.dynamo, cost.twin, cost.swapped) == (1, -1, True)
    assert ranking.order({"a": 0.5, "b": 0.9}, ranking.Measure.ATTAINED) == ["b", "a"]


def test_a_page_of_the_plant_that_no_source_could_read(tmp_path: Path) -> None:
    """Sources were taught when pages are scraped, and every tick on the plant failed until somebody measured there."""
    plant = Plant(Path(sys.executable), tmp_path, 1)
    try:
        page: scraped.Page = plant.page(FRONT, "dynamo_frontend_inflight_requests 3\n")
        needs = PoolNeeds("chat", "dynamo", (), frozenset(), frozenset())
        seen = ScrapedSource([needs], lambda _: [page]).observe(1_000.0, 1.0)
    finally:
        plant.__exit__()
    assert not seen.error


def test_a_number_of_the_page_that_was_typed_by_hand() -> None:
    assert (ROOT / "docs" / "second-plant.md").read_text("utf-8") == text(command.loaded())


def test_the_twin_of_the_page_still_runs() -> None:
    case = dataclasses.replace(cases.CASES[0], seconds=120.0)
    found = on_twin(case, PROFILE, cases.hpa(cases.HPAS[0]), 1)
    assert found.offered > 50
    assert found.replica_seconds > 0
    assert found.cold_start is None
