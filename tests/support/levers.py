"""A pool that has what every lever needs, and one lever of it as it is written."""

from pathlib import Path

from controller.config import GovernorConfig, loads

ROOT = Path(__file__).parents[2]
POOLS = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:9090"}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: chat}}
    labels: {{tenant: user, class: priority}}
    tenants: {{acme: {{guarantee: 100, consents: true}}, beta: {{}}}}
    classes: {{batch: {{rank: 1, sheddable: true, consents: true}}, critical: {{}}}}
    objectives: [{{signal: ttft, percentile: p95, target: 2s}}]
    levers: {{{lever}}}
  small:
    engine: vllm
    selector: {{model_name: small}}
"""


def config(lever: str) -> GovernorConfig:
    """The config with this lever; raises ConfigError."""
    return loads(POOLS.format(lever=lever))
