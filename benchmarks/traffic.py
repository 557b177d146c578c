"""Write docs/traffic.md anew, its tables from the dataclasses in simulator/traffic/. python -m benchmarks.traffic"""

import sys
from pathlib import Path
from typing import Any, get_args

from controller.config.docs import first_paragraph, table
from controller.config.plugins import model_of
from simulator.traffic import arrivals, lengths, shapes, spec

PAGE = Path(__file__).resolve().parents[1] / "docs" / "traffic.md"

INTRO = """\
# Traffic

<!-- Made by `python -m benchmarks.traffic`; edit the dataclasses in simulator/traffic/ or the text there. -->

Who asks the fleet twin for what, and when. A scenario's `traffic` section lists *streams*; each is of a `kind`: made of
laws (`generated`), or from a file (`azure`, `mooncake`, `requests`, `servegen`, `agentic`). All streams are open loop:
when a request comes does not depend on how fast the fleet answers. The exception are clients that come again after a
refusal, and clients that go away because their patience is at an end.

* **Seeded.** The same seed gives the same requests, bit for bit. Each stream has random numbers of its own for each
  purpose, so that a stream more, or another law for the answers, moves no arrival of the rest.
* **Rates hold.** Arrivals are a renewal process of rate 1 with the wanted coefficient of variation, stretched by the
  rate of the moment. So a `cv` of 2 is 2 at any rate, and a flash has its area. Shapes of one stream multiply.
* **Prefixes are real.** A block of a prompt has a hash that says whose text it is and how far into it. Two requests of
  one system prompt share its blocks; a later turn of a conversation begins with all of the turn before and its answer.
  A generated stream without `prefix` and `conversations` has no hashes, and its prompts never hit a cache.
* **Durations** carry a unit (`30s`, `2m`), **ratios** are `30%` or `0.3`, as in the [config](configuration.md).

## Examples

Chat of two kinds of tenants, with a flash crowd to three times the rate and clients that come again:

```yaml
- name: chat
  kind: generated
  rate: 40
  shapes: [{kind: flash, at: 10m, rise: 30s, hold: 5m, fall: 2m, factor: 3}]
  arrivals: {kind: gamma, cv: 1.5}
  prompt: {kind: lognormal, mean: 1024, p99: 4096}
  answer: {kind: lognormal, mean: 256, p99: 1024}
  tenants:
    - {name: acme, share: 2, classes: {critical: 1}}
    - {name: small, count: 20, zipf: 1}
  classes:
    - {name: critical, priority: 0, deadline: 5s}
    - {name: batch, priority: 10, patience: 2m}
  sheddable: 30%
  retry: {attempts: 3, backoff: 1s}
```

Conversations over a day, each tenant with ten system prompts of which the first is used most, and a night batch:

```yaml
- name: assistants
  kind: generated
  rate: 20
  shapes: [{kind: diurnal, peak_at: 14h, peak: 1.6, trough: 0.4}]
  prompt: {kind: lognormal, mean: 200, cv: 1.2}
  answer: {kind: lognormal, mean: 300, cv: 1}
  tenants: [{name: team, count: 5}]
  prefix: {tokens: {kind: fixed, tokens: 1500}, prompts: 10}
  conversations: {turns: 6, think: 45s, context: 16384}
- name: night
  kind: generated
  rate: 5
  start: 1h
  end: 5h
  prompt: {kind: bimodal, short: {kind: fixed, tokens: 500}, long: {kind: fixed, tokens: 12000}, share: 10%}
  answer: {kind: fixed, tokens: 400}
  classes: [{name: batch, priority: 10}]
```

Half an hour of a recorded trace at twice its rate, without its longest prompts:

```yaml
- name: recorded
  kind: mooncake
  file: traces/mooncake_conversation_trace.jsonl.gz
  since: 10m
  until: 40m
  factor: 2
  longest: 30000
  classes: [{name: critical, deadline: 30s}]
```

## Scaling a trace

`speed` runs its clock faster; a day at `speed: 24` takes an hour and has 24 times the rate. `factor` changes the number
of requests and leaves the clock. With `scaling: even` every stretch of the trace has `factor` times its requests, give
or take one of the trace's, so minute and hour look as before. What is left out is evenly spaced: below a factor of 1,
gaps between requests become more regular than they were. Copies lie evenly between a request and the next, which keeps
the coefficient of variation of the gaps. `scaling: independent` is what fewer or more independent clients would do:
each request is kept by chance, and copies are the whole trace shifted by up to `shift`. Relative to the rate, the
counts of short stretches scatter more with fewer clients and less with more.

A `mooncake` trace keeps or leaves out together what shares its first two blocks, and each copy has a text of its own,
so that the hit rate of an infinite cache stays what it is; its stretches follow the factor less exactly. Prompts and
the blocks of prefixes scale together with `prompt_factor`.

A file that is missing or malformed is refused before the run, with its line and the mend.
"""

STREAMS: tuple[type[Any], ...] = get_args(spec.Stream)
GROUPS: tuple[tuple[str, str, tuple[type[Any], ...]], ...] = (
    ("Shapes", "`shapes[]`: a factor on the rate over time.", get_args(shapes.Shape)),
    ("Arrivals", "`arrivals`: the law of the gaps.", get_args(arrivals.Arrivals)),
    ("Lengths", "`prompt`, `answer`, `follow`, `prefix.tokens`: tokens.", get_args(lengths.Length)),
)
PARTS: tuple[tuple[str, type[Any]], ...] = (
    ("tenants[]", spec.Tenant),
    ("classes[]", spec.Class),
    ("prefix", spec.Prefix),
    ("conversations", spec.Conversations),
    ("pairs", lengths.Pairs),
    ("shapes[].points[]", shapes.Point),
    ("retry", spec.Retry),
)


def render() -> str:
    """The whole page, ending in a newline."""
    common = set(spec.Audience.__dataclass_fields__)
    lines = [INTRO, "## All streams\n", f"{first_paragraph(spec.Audience.__doc__)}\n"]
    lines.append(f"{table(model_of(spec.Audience))}\n")
    lines += ["## Traces\n", f"{first_paragraph(spec.Replay.__doc__)}\n"]
    lines.append(f"{table(model_of(spec.Replay), without=common)}\n")
    lines.append("## Kinds of streams\n")
    for one in STREAMS:
        replayed = issubclass(one, spec.Replay)
        lines += _kind(one, common | set(spec.Replay.__dataclass_fields__) if replayed else common)
    for title, words, members in GROUPS:
        lines += [f"## {title}\n", f"{words}\n"]
        for one in members:
            lines += _kind(one, set())
    lines.append("## Parts of a stream\n")
    for where, one in PARTS:
        lines += [f"### `{where}`\n", f"{first_paragraph(one.__doc__)}\n", f"{table(model_of(one))}\n"]
    return "\n".join(lines).rstrip() + "\n"


def _kind(one: type[Any], known: set[str]) -> list[str]:
    """A section on one of several dataclasses, without the fields that are explained elsewhere."""
    kind = one.__dataclass_fields__["kind"].default
    rows = table(model_of(one), without={"kind", *known})
    lines = [f"### `kind: {kind}`\n", f"{first_paragraph(one.__doc__)}\n"]
    return [*lines, f"{rows}\n"] if rows else lines


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
