"""The shipped rule file: ``python -m sources.prometheus.rulefile > manifests/prometheus/recording-rules.yaml``."""

import sys
from collections.abc import Iterator

import yaml

from sources.contracts import engines, load
from sources.contracts.contract import Contract
from sources.prometheus.plan import presence
from sources.prometheus.promql import Reader, offset
from sources.prometheus.rules import RAW, STEP, labels, name

# A rule, too, must not read closer to now than a scrape lasts: see the `delay` of the source.
DELAY = 2.0
HEAD = """\
# Written by `python -m sources.prometheus.rulefile`; do not edit. Load it into Prometheus (rule_files) and set
# `recording_rules: true` on the source. Groups of engines that you do not run cost nothing; delete them if you like.
"""


def document() -> str:
    """The rule file as YAML."""
    groups = [
        {"name": f"inference-governor-{engine}", "interval": f"{STEP:g}s", "rules": rules}
        for engine in engines()
        if (rules := list(_rules(load(engine))))
    ]
    return HEAD + str(yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000))


def _rules(contract: Contract) -> Iterator[dict[str, str]]:
    if contract.scope == "platform":
        return
    reader = Reader(labels(contract), (), offset(STEP + DELAY), "up", offset(DELAY))
    for fact, candidates in contract.candidates.items():
        for position, candidate in enumerate(candidates):
            if candidate.kind == "histogram" and fact not in RAW:
                older = presence(candidates[:position])
                yield {"record": name(contract, fact, candidate, "bucket"), "expr": reader.buckets(candidate, older)}
                yield {"record": name(contract, fact, candidate, "sum"), "expr": reader.total(candidate, older)}


if __name__ == "__main__":
    sys.stdout.write(document())
