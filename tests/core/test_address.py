"""Passwords in addresses: a message about a broken one repeated it, and messages are logged, kept and mailed."""

import re
from collections.abc import Callable, Mapping

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from actuators.dynamo.config import DynamoConfig, DynamoPool
from actuators.endpoints import Inline
from actuators.envoy.config import EnvoyConfig, EnvoyPool, Grpc
from actuators.redis.server import RedisServer
from actuators.router.config import RouterPool
from actuators.router.workers import workers
from actuators.webhook import WebhookConfig
from controller.config import ConfigError, loads
from controller.core.address import place, shown, unusable, without_credentials
from sources.direct import DirectConfig
from sources.prometheus.config import PrometheusConfig
from sources.reasons import reason
from tests.support.written import pool, written

KEY = "hunter2"
PLACES: Mapping[str, Callable[[str], object]] = {
    "prometheus": lambda url: PrometheusConfig(url=url),
    "direct": lambda url: DirectConfig({"a": ["http://a", url]}),
    "webhook": lambda url: WebhookConfig(url, initial=1.0),
    "router": lambda url: RouterPool(routers=(url,)),
    "dynamo": lambda url: DynamoConfig((url,), {"a": DynamoPool("m", 1.0)}),
    "envoy": lambda url: EnvoyConfig({"a": EnvoyPool("a")}, Grpc("grpc", "127.0.0.1:9"), admin=(url,)),
    "redis": RedisServer,
    "inline": lambda url: Inline("inline", {"a": url}),
}
PIECES = st.sampled_from(
    ["", "/", "//", "#", "?", ":", "@", "[", "]", "::1", "%40", "\\", "0", "80", " ", "\n", "\uff20", "é", "x"]
)
SCHEMES = st.sampled_from(
    ["http://", "https://", "HTTP://", "http:/", "http:", "", "//", "redis://", "unix://", "ftp://"]
)
HOSTS = st.sampled_from(["host", "[::1]", "[::1", "[::1]x:80", "host:80", "host:no", "host:99999", "", "1.2.3.4/a?b#c"])


@st.composite
def odd(draw: st.DrawFn) -> str:
    """An address with a name and a password, and whatever a keyboard may have put around the password."""
    user, before, behind = draw(st.sampled_from(["", "me", "me:", ":"])), draw(PIECES), draw(PIECES)
    return f"{draw(SCHEMES)}{user}{before}{KEY}{behind}@{draw(HOSTS)}"


@given(odd())
def test_no_odd_address_is_taken_with_its_password_and_no_refusal_repeats_it(url: str) -> None:
    assert KEY not in shown(url)
    assert KEY not in place(url)
    assert KEY not in without_credentials(f"Failed to parse: {url}") or " " in url or "\n" in url
    for name, made in PLACES.items():
        with pytest.raises(ValueError, match=r"(?s).") as caught:
            made(url)
        assert KEY not in str(caught.value), name


@given(st.text(max_size=40))
def test_whatever_text_stands_for_an_address_is_shown_and_judged(text: str) -> None:
    assert "@" not in shown(text)
    assert (unusable(text, "x") == "") <= text.lower().startswith(("http://", "https://"))


@given(odd())
def test_the_check_of_a_config_never_prints_a_password(url: str) -> None:
    quoted = "'" + re.sub(r"[^ -~\xe9\uff20]", " ", url) + "'"
    source = f"{{kind: prometheus, url: {quoted}}}"
    hook = f"{{kind: webhook, url: {quoted}, initial: 1}}"
    lever = f"replicas: {{min: 1, max: 2, policy: {{kind: capacity}}, actuator: {hook}}}"
    with pytest.raises(ConfigError) as caught:
        loads(written(pool(levers=[lever]), source=source))
    assert KEY not in str(caught.value)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("kind", ["[{}]", "{{a: {}}}", "{{env: {}}}"])
def test_a_url_of_the_wrong_shape_is_not_printed_either(kind: str) -> None:
    url = kind.format(f"'http://me:{KEY}@host'")
    with pytest.raises(ConfigError) as caught:
        loads(written(pool(), source=f"{{kind: prometheus, url: {url}}}"))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "as_shown"),
    [
        ("http://host:80/a?token=x", "http://host:80"),
        ("https://[::1]:8443/", "https://[::1]:8443"),
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("http://me:p@ss@host/a", "http://host"),
        ("redis://host/0", "redis://host"),
    ],
)
def test_a_server_is_still_told(url: str, as_shown: str) -> None:
    assert shown(url) == as_shown


def test_a_page_is_told_with_its_path_and_without_its_token() -> None:
    assert place("http://host:80/metrics?token=x") == "http://host:80/metrics"


def test_the_password_of_a_proxy_is_not_in_the_reason() -> None:
    """It stands in an environment variable, and a broken one was quoted whole."""
    error = requests.exceptions.InvalidURL(f"Failed to parse: http://me:{KEY}@[::1")
    assert reason(error) == "Failed to parse: [::1"


def test_a_worker_with_a_password_is_no_rank() -> None:
    """What stood before the @ was shown as the worker's address."""
    row = {"url": f"http://me:{KEY}@a:1", "is_healthy": True}
    (one,) = workers({"workers": [row]}, "here").values()
    assert shown(one.url) == "http://a:1"
    assert one.whole
