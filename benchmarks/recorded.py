"""Rehearsals of the public recordings of Llama-3.1-8B fleets that other autoscalers drove: WVA (33 runs), HPA (3).

The acceptance tests and docs/evidence.md are both made from here.
"""

import csv
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from controller.config import GovernorConfig
from controller.core.model import Decision, Plan, Snapshot
from controller.core.why import Why
from controller.rehearse.run import open_recording, rehearse
from controller.rehearse.summary import moves, reversals
from sources.import_csv import import_csv

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "tests" / "acceptance" / "llama31_8b_h100.yaml"
RECORDINGS = ROOT.parent / "shared" / "data" / "recordings"
PER_REPLICA = 1275.0  # requests a minute that one replica of the WVA cluster is known to serve
NEARLY_FULL = 0.9  # KV usage
ALIKE = 0.15  # offered load within this share either way of its middle is constant
LONG = 5  # samples that make a stretch


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of a table. `rate` completions a minute (None where not recorded), `pods` those that answered a scrape,
    `wanted` the replicas that the autoscaler had asked for."""

    at: float
    rate: float | None
    waiting: float
    kv: float
    pods: int
    wanted: int

    @property
    def full(self) -> bool:
        return self.waiting > 0 or self.kv > NEARLY_FULL


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run, and the decision at each of its samples."""

    name: str
    samples: tuple[Sample, ...]
    decisions: tuple[Decision, ...]

    @property
    def first_full(self) -> int | None:
        """The first sample with a queue or nearly no KV left."""
        return next((i for i, sample in enumerate(self.samples) if sample.full), None)

    @property
    def standing_since(self) -> int | None:
        """The sample from which on, up to the first full one, more was proposed than the pods that answered."""
        since = None
        for i in range(self.first_full if self.first_full is not None else -1, -1, -1):
            if (self.decisions[i].final or 0) <= self.samples[i].pods:
                break
            since = i
        return since

    @property
    def ahead(self) -> int | None:
        """By how many samples that proposal came before the fleet was full."""
        full, since = self.first_full, self.standing_since
        return None if full is None or since is None else full - since

    @property
    def peak(self) -> float:
        return max((sample.rate or 0.0 for sample in self.samples), default=0.0)

    def pairs(self) -> Iterator[tuple[Sample, Decision]]:
        return zip(self.samples, self.decisions, strict=True)

    def differences(self) -> Iterator[tuple[Sample, float, Why]]:
        """Where more or less was proposed than what stood, by how many replicas, and why."""
        for sample, decision in self.pairs():
            if decision.changed and decision.final is not None and decision.current is not None:
                yield sample, decision.final - decision.current, decision.why

    def raises(self) -> Iterator[tuple[Sample, float]]:
        """Where more was proposed, and how many replicas."""
        return ((sample, sample.wanted + by) for sample, by, _ in self.differences() if by > 0)

    def hours(self) -> tuple[float, float]:
        """Replica-hours of what the autoscaler had asked for, and of the proposals. Each stands until the next one."""
        recorded = proposed = 0.0
        for (sample, decision), after in zip(self.pairs(), self.samples[1:], strict=False):
            hours = (after.at - sample.at) / 3600
            recorded += sample.wanted * hours
            proposed += (sample.wanted if decision.final is None else decision.final) * hours
        return recorded, proposed

    def offered(self) -> tuple[float | None, ...]:
        """Requests a minute: completions, and what the queue gained meanwhile."""
        out: list[float | None] = [self.samples[0].rate]
        for before, now in zip(self.samples, self.samples[1:], strict=False):
            grown = (now.waiting - before.waiting) / (now.at - before.at) * 60
            out.append(None if now.rate is None else max(0.0, now.rate + grown))
        return tuple(out)

    def steady(self) -> Iterator[range]:
        """Stretches of at least `LONG` samples with constant load and the same replicas. Where the rate was not
        recorded, KV usage and the queue stand for load."""
        offered = self.offered()
        loads = [(s.kv, s.waiting) if o is None else (o,) for o, s in zip(offered, self.samples, strict=True)]
        begin = 0
        while begin < len(loads):
            end = begin + 1
            while end < len(loads) and self._alike(loads[begin : end + 1], begin, end):
                end += 1
            if end - begin >= LONG:
                yield range(begin, end)
                begin = end
            else:
                begin += 1

    def _alike(self, loads: Sequence[tuple[float, ...]], begin: int, end: int) -> bool:
        first, last = self.samples[begin], self.samples[end]
        return (first.pods, first.wanted) == (last.pods, last.wanted) and all(
            max(column) * (1 - ALIKE) <= min(column) * (1 + ALIKE) for column in zip(*loads, strict=True)
        )

    def turns(self, stretch: range) -> int:
        """How often the wish turned from above what was recorded to below it, or back. A wish that falls back to what
        is recorded is no turn: the recording never followed it, so it is put anew at each sample."""
        proposed = [math.nan if (d := self.decisions[i]).final is None else d.final for i in stretch]
        return reversals(proposed, [float(self.samples[i].wanted) for i in stretch])

    def steps_back(self, stretch: range) -> int:
        """Changes of direction of the bare number, falls back to what is recorded included."""
        return moves(final for i in stretch if (final := self.decisions[i].final) is not None)[2]


def wva(config: GovernorConfig, work: Path) -> list[Run]:
    """The 33 runs of the WVA cluster, a sample a minute. `work` is a folder for the converted recordings."""
    tables = [RECORDINGS / f"wva_llama31_8b_h100_{name}.csv.gz" for name in ("autoscaling", "pods")]
    return _runs(config, tables, "wva.yaml", work, _wva_sample)


def hpa(config: GovernorConfig, work: Path) -> list[Run]:
    """The 3 runs of the same cluster under the stock HPA, about a sample every 21 s; queue and KV only."""
    return _runs(config, [RECORDINGS / "hpa_llama31_8b_h100_autoscaling.csv.gz"], "hpa.yaml", work, _hpa_sample)


class _Reader(Protocol):
    def __call__(self, row: Mapping[str, str]) -> Sample: ...


def _runs(config: GovernorConfig, tables: Sequence[Path], mapping: str, work: Path, read: _Reader) -> list[Run]:
    rows: dict[str, dict[float, Sample]] = {}
    with gzip.open(tables[0], "rt") as text:
        for row in csv.DictReader(text):
            sample = read(row)
            rows.setdefault(row["experiment"], {}).setdefault(sample.at, sample)
    done = import_csv(tables, ROOT / "examples" / "import" / mapping, work)
    return [_run(config, one.group, one.path, rows[one.group]) for one in done]


def _run(config: GovernorConfig, name: str, recording: Path, rows: Mapping[float, Sample]) -> Run:
    decided: dict[float, Decision] = {}

    def keep(_tick: int, _ticks: int, snapshot: Snapshot, plan: Plan) -> None:
        (decided[round(snapshot.tick.at, 3)],) = plan.decisions

    source = open_recording(recording, config)
    # A step shorter than any distance of samples ticks at the samples themselves.
    rehearse(config, source, step=1.0, on_tick=keep)
    # The table holds some samples twice, milliseconds apart; the import took one of each.
    taken = [at for at in rows if at in decided]
    return Run(name, tuple(rows[at] for at in taken), tuple(decided[at] for at in taken))


def _wva_sample(row: Mapping[str, str]) -> Sample:
    return Sample(
        at=_time(row["ts_utc"]),
        rate=float(row["arrival_rpm"]),
        waiting=float(row["queue_len_sum"] or 0),
        kv=float(row["kv_usage_max"] or 0),
        pods=int(row["pods_seen"]),
        wanted=int(row["replicas_ready"]),
    )


def _hpa_sample(row: Mapping[str, str]) -> Sample:
    waiting = float(row["num_requests_waiting"])
    return Sample(
        at=_time(row["timestamp"]),
        rate=None,
        waiting=waiting / 1000 if waiting > 1000 else waiting,  # a Kubernetes quantity without its letter m
        kv=float(row["kv_cache_usage_perc"]),
        pods=int(row["replicas"]),
        wanted=int(row["desired_replicas"]),
    )


def _time(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), 3)
