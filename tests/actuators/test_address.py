"""An address that is none is refused at its key when the config is read; else it breaks the first write, at night."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from actuators.dynamo.config import DynamoConfig, DynamoPool
from actuators.envoy.config import EnvoyConfig, EnvoyPool, Grpc
from actuators.litellm.config import LiteLLMConfig, LiteLLMPool
from actuators.redis.server import RedisServer
from actuators.router.config import RouterPool
from actuators.webhook import WebhookConfig
from controller.core.params import SecretRef
from tests.support.cli import governor

KEY = SecretRef(env="KEY")
NO_ADDRESS = "is no address, for its host or its port is broken"
PLACES: dict[str, Callable[[str], object]] = {
    "url: ": lambda url: WebhookConfig(url, initial=1.0),
    "read_url: ": lambda url: WebhookConfig("http://here", read_url=url),
    "url: is for litellm": lambda url: LiteLLMConfig({"a": LiteLLMPool("m")}, mode="api", url=url, master_key=KEY),
    "status.1: ": lambda url: LiteLLMConfig({"a": LiteLLMPool("m")}, document="/a", status=("http://a", url)),
    "routers.0: ": lambda url: RouterPool(routers=(url,)),
    "metrics.0: ": lambda url: RouterPool(routers=("http://a",), metrics=(url,)),
    "frontends.1: ": lambda url: DynamoConfig(("http://a", url), {"a": DynamoPool("m", 1.0)}),
    "admin.1: ": lambda url: EnvoyConfig({"a": EnvoyPool("a")}, Grpc("grpc", "127.0.0.1:9"), admin=("http://a", url)),
}


def said_of(place: str, url: str) -> str:
    with pytest.raises(ValueError, match=": ") as caught:
        PLACES[place](url)
    return str(caught.value)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://host:notaport", "http://host:99999", "http://host:0", "http://", "host:80", "ftp://host",
     "http://ho st", "http://host\n/x", "http://[::1]x:80"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_at_its_key_with_an_example(place: str, url: str) -> None:
    said = said_of(place, url)
    assert said.startswith(place.partition(" ")[0])
    assert "; write for example http" in said


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("url", ["http://me:hunter2@host", "http://:hunter2@host", "http://hunter2@host"])
def test_credentials_in_an_address_are_refused_and_not_repeated(place: str, url: str) -> None:
    """Envoy's admin page took them, used them for nothing, and put them into every finding of the doctor."""
    said = said_of(place, url)
    assert "credentials in the URL would be logged; " in said
    assert "hunter2" not in said


@pytest.mark.parametrize("url", ["http://me:hunter2@[::1", "http://me:hun/ter2@host", "me:hunter2@host"])
def test_credentials_are_not_told_either_where_the_address_is_broken_beside(url: str) -> None:
    for place in PLACES:
        assert "hun" not in said_of(place, url)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("url", ["http://host", "https://host:8443/a/path", "http://[::1]:80", "http://10.0.0.1/"])
def test_an_address_that_is_one_is_taken(place: str, url: str) -> None:
    assert PLACES[place](url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://host:notaport", f"url: {NO_ADDRESS}; write for example redis://HOST:6379/0"),
        ("redis://[::1", f"url: {NO_ADDRESS}; write for example redis://HOST:6379/0"),
        ("redis://host:0/0", "url: redis://host:0 names no host that can be asked; write for example redis://"),
        (
            "http://host",
            "url: http://host does not begin with redis:// or rediss:// or unix://; write for example redis://",
        ),
        ("redis://me:hunter2@host", "url: credentials in the URL would be logged; use user and password"),
        (
            "redis://host?ssl_cert_reqs=none",
            "url: credentials and options in it would be logged; use user, password and ca_file",
        ),
        (
            "unix:///a?password=hunter2",
            "url: credentials and options in it would be logged; use user, password and ca_file",
        ),
        ("unix://me:hunter2@/a", "url: credentials in the URL would be logged; use user and password"),
        ("unix://", "url: unix:// names no host that can be asked; write for example redis://HOST:6379/0"),
    ],
)
def test_an_address_that_is_none_of_a_redis_is_refused_with_the_mend(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        RedisServer(url)


@pytest.mark.parametrize("url", ["redis://host", "rediss://host:6380/3", "redis://[::1]:6379/0", "unix:///run/r.sock"])
def test_an_address_of_a_redis_is_taken(url: str) -> None:
    assert RedisServer(url).shown == url


def test_the_check_of_a_config_names_the_line_and_the_place_of_a_broken_address(tmp_path: Path) -> None:
    """They were told as `actuator: Invalid IPv6 URL`, or not at all, and the first write broke on them."""
    file = tmp_path / "governor.yaml"
    file.write_text("""\
version: 1
source: {kind: prometheus, url: "http://127.0.0.1:9"}
pools:
  chat:
    engine: vllm
    levers:
      replicas:
        {min: 1, max: 8, policy: {kind: threshold, signal: queue_depth, upper: 5, lower: 1},
         actuator: {kind: webhook, url: "http://[::1", initial: 1}}
""")
    done = governor("check", file)
    assert done.returncode == 2
    assert f"{file}:9: pools.chat.levers.replicas.actuator.url: is no address" in done.stdout + done.stderr
