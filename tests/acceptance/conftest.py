"""The two ways in which the real vLLM recording is read: as the shipped file, and through a real Prometheus."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from controller.config import GovernorConfig, load, pool_needs
from controller.core.ports import PoolNeeds, Source
from sources.prometheus import PrometheusSource
from sources.recording import RecordingConfig, RecordingSource
from sources.recording_file import Recording
from tests.support.prometheus import needs_prometheus, prometheus, write_blocks
from tests.support.vllm_clients import RECORDING
from tests.support.vllm_recording import PATH as SCRAPED
from tests.support.vllm_recording import scrapes

Opener = Callable[[Sequence[PoolNeeds]], Source]


@pytest.fixture(scope="session", params=["shipped", pytest.param("prometheus", marks=needs_prometheus)])
def open_source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """Opens a fresh source of the recording for given needs."""
    opened: list[Source] = []

    def remember(source: Source) -> Source:
        opened.append(source)
        return source

    if request.param == "shipped":
        yield lambda needs: remember(RecordingSource(RecordingConfig(str(RECORDING)), needs))
    else:
        storage = tmp_path_factory.mktemp("acceptance") / "tsdb"
        # The text as it was scraped, where it is; else what was shipped of it.
        shipped = ((frame.at, tuple(frame.samples())) for frame in Recording(RECORDING).frames())
        write_blocks(scrapes() if SCRAPED.exists() else shipped, storage)
        with prometheus(storage) as url:
            yield lambda needs: remember(PrometheusSource(PrometheusSource.Config(url=url), needs))
            for source in opened:
                source.close()
            opened.clear()
    for source in opened:
        source.close()


@pytest.fixture(scope="session")
def config() -> GovernorConfig:
    return load(Path(__file__).parent / "vllm.yaml")


@pytest.fixture(scope="session")
def needs(config: GovernorConfig) -> tuple[PoolNeeds, ...]:
    return tuple(pool_needs(config))


@pytest.fixture(scope="session")
def times() -> tuple[float, ...]:
    """When the recording was scraped, unix seconds."""
    return Recording(RECORDING).times()
