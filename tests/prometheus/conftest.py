"""One Prometheus for all tests that only read the vLLM recording."""

from collections.abc import Iterator

import pytest

from tests.support.prometheus import prometheus, write_blocks
from tests.support.vllm_recording import scrapes


@pytest.fixture(scope="session")
def vllm_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that holds the vLLM recording."""
    storage = tmp_path_factory.mktemp("vllm") / "tsdb"
    write_blocks(scrapes(), storage)
    with prometheus(storage) as url:
        yield url
