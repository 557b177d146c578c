"""The twin's page is vLLM's page: names, labels and edges as on the wire, and nothing born before its first event."""

from pathlib import Path

import pytest

from simulator.engine.counts import Counts
from simulator.engine.gauges import Load
from simulator.watch.exposition import Exposition, Http
from simulator.watch.page import Page, labels
from sources.exposition import parse

DUMPS = Path(__file__).parents[3] / "shared" / "data" / "metrics"
needs_dumps = pytest.mark.skipif(not DUMPS.exists(), reason="needs shared/data, which is not in the repository")
TARGET = labels(job="chat", instance="10.0.0.1:8000", namespace="default", pod="chat-v1-0")


def exposition() -> Exposition:
    return Exposition("tiny-llama-random", TARGET)


def scrape(counts: Counts, http: Http) -> Page:
    return exposition().page(counts, Load(3, 2, 0.5), http, 1000.0)


def served() -> tuple[Counts, Http]:
    counts, http = Counts(1000), Http()
    counts.ttft.add(0.3)
    counts.ttft.add(30.0)
    counts.finished["length"] += 2
    http.finished = 3
    return counts, http


def own(page: Page) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """The series without what the target gave them."""
    given = {name for name, _ in TARGET}
    return {(name, tuple(pair for pair in pairs if pair[0] not in given)) for name, pairs in page.keys}


@needs_dumps
@pytest.mark.parametrize("dump", ["idle", "light"])
def test_every_series_of_the_twin_is_one_of_a_real_vllm_and_none_that_is_read_lacks(dump: str) -> None:
    text = (DUMPS / f"vllm-0.32.0-cpu_{dump}.prom").read_text()
    real = {(name, tuple(sorted(pairs))) for name, pairs, _ in parse(text).samples}
    counts, http = (Counts(1000), Http()) if dump == "idle" else served()
    twin = own(scrape(counts, http))
    assert not twin - real
    names = {name for name, _ in twin}
    lacking = {(name, pairs) for name, pairs in real - twin if name in names and dict(pairs).get("le", "") != ""}
    assert not lacking


def test_buckets_add_up_and_end_in_the_count() -> None:
    page = scrape(*served())
    found = {
        dict(pairs)["le"]: value
        for name, pairs, value in page.samples()
        if name == "vllm:time_to_first_token_seconds_bucket"
    }
    assert (found["0.25"], found["0.5"], found["20.0"], found["40.0"], found["+Inf"]) == (0, 1, 1, 2, 2)
    assert list(found.values()) == sorted(found.values())


def test_http_series_are_born_with_their_first_event() -> None:
    def statuses(page: Page) -> set[str]:
        return {dict(pairs)["status"] for name, pairs in page.keys if name == "http_requests_total"}

    counts, http = Counts(1000), Http()
    assert statuses(scrape(counts, http)) == set()
    http.finished = 1
    assert statuses(scrape(counts, http)) == {"2xx"}
    http.failed = 1
    assert statuses(scrape(counts, http)) == {"2xx", "5xx"}


def test_pages_with_the_same_series_share_their_keys_so_that_readers_number_them_once() -> None:
    page_of = exposition()
    counts, http = served()
    first = page_of.page(counts, Load(3, 2, 0.5), http, 1000.0)
    counts.ttft.add(1.0)
    http.finished += 1
    assert page_of.page(counts, Load(0, 0, 0.0), http, 1000.0).keys is first.keys


def test_a_label_of_the_target_is_not_overruled_by_the_page() -> None:
    page = Exposition("m", labels(job="chat", model_name="from-relabelling")).page(
        Counts(10), Load(0, 0, 0.0), Http(), 1.0
    )
    assert {dict(pairs)["model_name"] for _, pairs in page.keys} == {"from-relabelling"}
