"""Short notation for streams of frames, and for what is to be read of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from sources.exposition import parse
from sources.frames import Frame, Layout, Sample
from sources.increments import Increments
from tests.support.repository import ROOT

MODEL = "m"
SHARED = ROOT.parent / "shared" / "data"


def shared(name: str) -> Path:
    """A file of shared/data; the test skips where that folder is absent."""
    if not (path := SHARED / name).exists():
        pytest.skip(f"shared/data/{name} is not beside the repository")
    return path


def needs(
    *facts: Fact, engine: str = "vllm", pool: str = "p", replica_facts: Iterable[Fact] | None = None, **selector: str
) -> PoolNeeds:
    """A pool that selects by equality, by default the model "m", and wants every fact when none is named."""
    wanted = frozenset(facts or Fact)
    labels = selector or {"model_name": MODEL}
    return PoolNeeds(
        pool,
        engine,
        tuple(Matcher(name, "=", value) for name, value in labels.items()),
        wanted,
        wanted if replica_facts is None else frozenset(replica_facts),
    )


def samples(text: str) -> tuple[Sample, ...]:
    """Samples in exposition notation, one a line or divided by ``;``."""
    return parse(text.replace(";", "\n") + "\n").samples


def feed(increments: Increments, layout: Layout, scrapes: Mapping[int, str]) -> None:
    for at, text in scrapes.items():
        increments.feed(layout.frame(at, samples(text)) if text else Frame(at, layout, layout.frame(at, ()).values))


def between(scrapes: Mapping[int, str], need: PoolNeeds | None = None) -> PoolFacts:
    """The pool's facts of the last scrape, taken one by one since the first."""
    return run(scrapes, need)[-1].pools["p"]


def run(scrapes: Mapping[int, str], need: PoolNeeds | None = None) -> list[Observation]:
    """One observation per scrape."""
    increments, layout, seen = Increments([need or needs()]), Layout(), []
    for at, text in scrapes.items():
        feed(increments, layout, {at: text})
        seen.append(increments.take(at))
    return seen
