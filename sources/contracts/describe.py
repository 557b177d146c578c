"""``docs/engines.md``: what each engine tells, generated from the contracts so that the two cannot differ."""

import sys

from controller.core.facts import Fact
from controller.core.needs import way_for
from controller.core.signals import INFO, Signal
from sources.contracts import engines, load
from sources.contracts.contract import Candidate, Contract

_HEAD = """\
# What each engine tells

Generated from the metric contracts (`sources/contracts/*.toml`) by `python -m sources.contracts.describe`.
`governor doctor --exposition FILE` says the same of one page of your own.

A contract names, for each quantity, the metrics that hold it, best first. Which one is read depends on which exist, so
a rename between two releases needs no setting. What no metric holds is *unsupported*, with the reason, and nothing
similar is read in its place. In particular `tpot` never falls back to a per-step metric, whatever its name promises.

Restarts, replicas and GPUs come from kube-state-metrics and the DCGM exporter, which have contracts of their own.
A dot says that some release of the engine can tell the signal.

"""


def markdown() -> str:
    """The whole page."""
    contracts = [load(engine) for engine in engines()]
    served = [contract for contract in contracts if contract.scope != "platform"]
    return _HEAD + _table(served) + "\n" + "\n".join(_section(contract) for contract in contracts)


def _table(contracts: list[Contract]) -> str:
    """Signals against engines: ● where some release of the engine can tell it."""
    head = "| signal | unit | " + " | ".join(f"[{c.engine}](#{c.engine})" for c in contracts) + " |\n"
    rule = "| --- " * (len(contracts) + 2) + "|\n"
    rows = (
        f"| {signal} | {INFO[signal].unit} | "
        + " | ".join("●" if way_for(signal, c.candidates.keys()) else "" for c in contracts)
        + " |\n"
        for signal in Signal
        if any(way_for(signal, c.candidates.keys()) for c in contracts)
    )
    return head + rule + "".join(rows)


def _section(contract: Contract) -> str:
    also = f" (also `{'`, `'.join(contract.aliases)}`)" if contract.aliases else ""
    lines = [f"## {contract.engine}", "", f"{contract.title}{also}. Checked against {contract.releases}."]
    if contract.flags:
        lines[-1] += f" Switches: {contract.flags}."
    lines += ["", "| fact | metric | notes |", "| --- | --- | --- |"]
    for fact in Fact:
        for candidate in contract.candidates.get(fact, ()):
            lines.append(f"| {fact} | {_metric(candidate)} | {_notes(candidate)} |")
    lines += ["", "Unsupported:", ""]
    reasons: dict[str, list[str]] = {}
    for fact, reason in contract.unsupported.items():
        reasons.setdefault(reason, []).append(fact.value)
    lines += [f"- {', '.join(sorted(facts))}: {_plain(reason)}" for reason, facts in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


def _metric(candidate: Candidate) -> str:
    where = ",".join(f'{m.label}{m.op}"{m.value}"' for m in candidate.where)
    text = f"`{candidate.metric}{{{where}}}`" if where else f"`{candidate.metric}`"
    if candidate.count_metric:
        text += f" / `{candidate.count_metric}`"
    if candidate.over is not None:
        text += f" / {_metric(candidate.over)}"
    text = " + ".join([text, *(_metric(part) for part in candidate.plus)])
    return text.replace("|", "\\|")


def _notes(candidate: Candidate) -> str:
    span = ""
    if candidate.since or candidate.until:
        span = " to ".join(part for part in (candidate.since or "first release", candidate.until) if part)
        span = f"from {span}" if not candidate.until else span
    written = f"written at {candidate.observed_at.replace('_', ' ')}" if candidate.kind == "histogram" else ""
    return "; ".join(part for part in (span, written, _plain(candidate.note)) if part).replace("|", "\\|")


def _plain(text: str) -> str:
    return text.replace("<", "\\<")


if __name__ == "__main__":
    sys.stdout.write(markdown())
