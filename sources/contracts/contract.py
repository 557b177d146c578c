"""Contract: which metric of an engine yields which fact. Values only; the data are the TOML files beside this one.

A candidate says how one fact is read: first the label filter, then increments per series (counters and histograms),
then duplicates away, then `within` a replica, then `across` replicas, then the scale.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.facts import Fact
from controller.core.ports import Matcher


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to read one fact.

    `metric` is the name on the wire; for a histogram its base name (no ``_bucket``), for a ``mean`` the counter of the
    sum. `kind` is ``histogram``, ``counter``, ``gauge`` or ``mean`` (two counters: a sum and a count, no buckets).
    `scale` turns the sample (of a histogram: its edges and sum) into the unit of the fact.

    `born_with`: the series appear with their first event, so while one of these sample names is exposed by a healthy
    target, absence means zero (no samples, for a histogram) and not "missing". `plus` are further candidates whose
    values are added, each read in its own way; a part that does not exist adds nothing. `over` makes a gauge a ratio,
    per replica: this / over.

    `only_with`: a series counts only while a series of that candidate with the same `on` labels has a value above 0
    (how kube-state-metrics tells an OOM restart from another). `workload_kind` restricts a candidate to pools whose
    workload is of this kind; `workload_labels` name the labels, in order of preference, that carry the workload's name,
    or, when the kind is empty, the name of one of its pods (``^name-.*``).

    `no_model`: the series carry no model label, so a pool's matcher on `Contract.model_label` does not apply to them;
    they belong to the pool of their replica.

    `whole`: the series tell of the whole pool what its replicas may tell each for itself; they are read only where none
    of them does.

    `value_label`: the value is the number of comma separated names in this label, taken from the series with the
    largest sample (an info metric whose sample is the time at which it was set).
    """

    metric: str
    kind: str
    where: tuple[Matcher, ...] = ()
    scale: float = 1.0
    duplicates: tuple[str, ...] = ()  # labels over which series repeat the SAME quantity: max over them first
    within: str = "sum"  # how the series of one replica combine: sum | max | mean
    across: str = "sum"  # how replicas combine into the pool: sum | max | mean
    over: "Candidate | None" = None
    plus: "tuple[Candidate, ...]" = ()
    count_metric: str = ""  # of a mean
    ignore_below: float | None = None  # samples beyond these are blanks of the exporter (-1 = disabled; 9.2e18)
    ignore_above: float | None = None
    value_label: str = ""
    no_model: bool = False
    whole: bool = False
    born_with: tuple[str, ...] = ()
    only_with: "Candidate | None" = None
    on: tuple[str, ...] = ()
    workload_kind: str = ""
    workload_labels: tuple[str, ...] = ()
    since: str = ""  # versions; informative, and a tie-break only
    until: str = ""
    observed_at: str = ""  # arrival | schedule | first_token | step | finish | scrape
    note: str = ""

    @property
    def parts(self) -> "tuple[Candidate, ...]":
        """What has to be read and added up: the candidate itself, then `plus`."""
        return (self, *self.plus)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric name that reading this candidate needs, base names for histograms."""
        own = [self.metric]
        own += [self.count_metric] if self.count_metric else []
        for other in (self.over, self.only_with, *self.plus):
            own += other.metrics if other is not None else ()
        return tuple(dict.fromkeys(own))


@dataclass(frozen=True, slots=True)
class Contract:
    """All that is known of one engine's metrics.

    `marks` are names, or prefixes when they end in ``:`` or ``_``, that prove the engine. `candidates` are best first.
    Every fact is either in `candidates` or in `unsupported` with its reason; `hints` hold the reason to give when a
    fact has candidates and none of them is exposed. `aka` are metric names that promise a fact and do not keep the
    promise, with what they are. `known` are names of released versions without ``_total`` (empty: not collected),
    `never` names that people query and that no version ever had, with the right one. `generations` are groups of names
    or prefixes of one quantity under successive names, best first, which an exporter may emit at the same time.
    """

    engine: str
    title: str
    model_label: str
    marks: tuple[str, ...]
    candidates: Mapping[Fact, tuple[Candidate, ...]]
    unsupported: Mapping[Fact, str]
    hints: Mapping[Fact, str]
    scope: str = "engine"  # engine | gateway | platform
    tenant_label: str = ""
    role_label: str = ""
    aliases: tuple[str, ...] = ()
    flags: str = ""  # what the operator must switch on
    releases: str = ""  # what the contract was checked against
    aka: Mapping[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    never: Mapping[str, str] = field(default_factory=dict)
    generations: tuple[tuple[str, ...], ...] = ()
