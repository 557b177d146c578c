"""What the doctor hears from targets is told once and in few words, or nobody reads it."""

from controller.config import loads
from controller.run.look import look

CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
pools:
  chat:
    engine: vllm
    labels: {{tenant: tenant}}
    tenants: {{acme: {{guarantee: 100}}}}
    levers:
      tenant_cap: {{policy: {{kind: fair_share}}, actuator: {{kind: redis, url: "{url}"}}}}
"""


def test_a_redis_that_is_down_is_named_once_in_each_finding() -> None:
    url = "redis://127.0.0.1:1/0"
    found = [one for one in look(loads(CONFIG.format(url=url))) if one.subject == url]
    assert [(one.level, one.text) for one in found] == [("error", "cannot connect")]
