"""Write docs/twin.md anew, its tables from the dataclasses in simulator/. python -m benchmarks.twin"""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_args

from controller.config.docs import first_paragraph, table
from controller.config.plugins import model_of
from simulator import spec
from simulator.cluster import disturbances
from simulator.engine.spec import Adapters, Isolation

PAGE = Path(__file__).resolve().parents[1] / "docs" / "twin.md"

INTRO = """\
# The fleet twin

<!-- Made by `python -m benchmarks.twin`; edit the dataclasses in simulator/ or the text there. -->

A simulated fleet that the same loop drives as a real one. A scenario's `fleet` section says what it is made of; who
asks it for what is in [traffic.md](traffic.md). Everything happens in virtual time, and one seed is one history, bit
for bit, on any number of cores. Looking at it (scrapes, read-back, a live view) changes nothing.

## What is modelled

* **Engines** batch as vLLM V1 does: token budget, chunked prefill, KV blocks with preemption, prefix cache. Step
  times are `a + b·prefill + c·sequences + d·KV + e·attention`. Details are on [replica.md](replica.md), how near it
  comes on [fidelity.md](fidelity.md).
* **Gateways** run the code of `routing/` that a real gateway runs ([gateway.md](gateway.md)). One stands in front of
  each pool, or of several: a pool that is `behind` another adds replicas of its own kind (another GPU, spot, the
  decode half) to its gateway. A gateway knows its own book-keeping at once, and what engines tell every
  `report_every`, late by `report_lag`.
* **Life.** A replica that is asked for waits for room in the quotas, then for a node, pulls, loads, warms, serves,
  drains and is gone. Each stage takes one time, or one drawn from a lognormal. Which replica goes first on a
  scale-down, how a rollout proceeds, and how long a crash loop waits (0, 10, 20, ... 300 s, forgiven after ten
  minutes) is as in Kubernetes.
* **The network** costs `delay` plus jitter once, on the way to the replica.
* **Memory.** Prompts that are being computed at the same time and have more than `memory_tokens` together end the
  process, as a CUDA out-of-memory does. Kubernetes sees an exit code and says `Error`; only the disturbance `oom` is
  an `OOMKilled`.

## What the controller sees

Only what Prometheus and the Kubernetes API would tell, never the truth.

* Each pod has vLLM's page: names, labels and bucket edges of 0.32, counted by the process since it started. The page
  is there while the port is open, which is when the replica serves or drains; before, `up` is 0.
  `http_requests_total` is born with its first event by status; a stream that was broken off counts 2xx and reaches no
  histogram.
* Each gateway has the page of llm-d's endpoint picker, at the target `<pool>-gateway`: a pool that is watched with
  `engine: gaie` sees what is offered, refused and queued before the engines, by tenant (`fairness_id`) and class
  (`request_class`, the twin's own label). With a standing concurrency cap engines show no queue; this page does.
* kube-state-metrics shows Deployments (`_spec_replicas`, `_status_replicas_ready`, ...) and pods (phase, restarts,
  last termination, waiting reason).
* Each target is scraped in its own phase of the interval. A scrape that fails leaves `up` 0 and no series; a pod that
  is gone takes its series with it. A query sees what was scraped `delay` ago and before, and no sample older than
  `lookback`.
* Replicas on their way are told by phase and by when they were asked for, without an estimate of when they will
  serve. With the port closed, loading and warming look the same.

## What is not modelled

Tokenisation and the HTTP server's own time; contention between pools on a host, a disk or a registry; speculative
decoding, multimodal inputs and pipeline parallelism; the control plane's own latency (a pod exists the moment that it
is asked for). Prefill and decode apart are simple: a whole prompt is computed, then its KV cache moves, then the
answer is made.

## Levers

Replicas of each pool; for its gateway the weight and the breaker factor of each replica (the lower one counts), the
tokens/s of each tenant, the requests in flight per replica and the longest prompt that admission lets in, the factor on
deadlines where `knobs.admission.deadlines` is on, the `priority` up to which ranks come in while others wait, for each
pool that `knobs.downgrade` names the share that goes there, and the `affinity` of its strategy, where that has one.
1e12 and more is no limit, for `priority` 100 is. What a config moves and the gateway has not, `governor simulate` says
once, before it runs; so it does where nothing limits the requests in flight, and nobody waits for `deadline` or
`priority` to turn away, and where a downgrade's sizes of prompts, or who consents to it, are not the same in the config
and in the gateway's rule.

A value that was not decided on what stands now is not taken. A tenant's cap leaves its `token_burst` as it is, and over
t seconds the tenant gets `cap · t + burst`: where a cap shall hold within seconds, write a burst of seconds of it, and
no less than the longest request.

## Example

```yaml
pools:
  chat:
    replicas: 4
    engine: {kind: library, model: Llama-3.1-8B, gpu: H100}
    limits: {max_num_seqs: 128}
    zones: [a, b]
    quota: 12
    life: {pull: 20s, load: {kind: lognormal, median: 45s, p90: 70s}, warm: 40s}
    gateway:
      strategy: hybrid
      delay: 2ms
      knobs:
        concurrency: {per_slot: 1}
        retries: {attempts: 1}
        downgrade: [{pool: small, classes: [batch], tenants: ["*"]}]
  small:
    replicas: 1
prometheus: {interval: 15s, delay: 2s, missing: 1%}
disturbances:
  - {kind: crash, at: 10m, pool: chat}
  - {kind: straggler, at: 20m, pool: chat, share: 25%, factor: 4, duration: 5m}
  - {kind: metrics_outage, at: 40m, duration: 5m}
```
"""
PARTS: tuple[tuple[str, type[Any]], ...] = (
    ("fleet", spec.FleetSpec),
    ("pools.<name>", spec.PoolSpec),
    ("pools.<name>.limits", spec.EngineLimits),
    ("pools.<name>.limits.isolation", Isolation),
    ("pools.<name>.limits.adapters", Adapters),
    ("pools.<name>.life", spec.LifeSpec),
    ("pools.<name>.gateway", spec.GatewaySpec),
    ("prometheus", spec.PrometheusSpec),
)
ENGINES: tuple[type[Any], ...] = (spec.LibraryEngine, spec.ProfileEngine)
DISTURBANCES: tuple[type[Any], ...] = get_args(disturbances.Disturbance)


def render() -> str:
    """The whole page, ending in a newline."""
    lines = [INTRO]
    for where, one in PARTS:
        lines += [f"## `{where}`\n", f"{first_paragraph(one.__doc__)}\n", f"{table(model_of(one))}\n"]
    lines += ["## Times\n", "A time of a stage is a duration, or drawn:\n", *_kind(spec.LogNormal)]
    lines.append("## Engines\n")
    for one in ENGINES:
        lines += _kind(one)
    lines.append("## Disturbances\n")
    lines.append(f"{first_paragraph(disturbances.Victims.__doc__)}\n")
    lines.append(f"{table(model_of(disturbances.Victims))}\n")
    for one in DISTURBANCES:
        struck = set(disturbances.Victims.__dataclass_fields__) if issubclass(one, disturbances.Victims) else set()
        lines += _kind(one, struck)
    return "\n".join(lines).rstrip() + "\n"


def _kind(one: type[Any], known: Collection[str] = ()) -> list[str]:
    """A section on one of several dataclasses, without the fields that are explained elsewhere."""
    kind = one.__dataclass_fields__["kind"].default
    rows = table(model_of(one), without={"kind", *known})
    lines = [f"### `kind: {kind}`\n", f"{first_paragraph(one.__doc__)}\n"]
    return [*lines, f"{rows}\n"] if rows else lines


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
