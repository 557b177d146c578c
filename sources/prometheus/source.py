"""PrometheusSource: one observation of the whole fleet per tick, within one deadline."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial

from controller.core.facts import Fact, Kind
from controller.core.observation import Observation
from controller.core.ports import Matcher, PoolNeeds
from sources import crew
from sources.prometheus.assemble import Edges, common_edges, values
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.discovery import Found, question, read, unborn, wanted_names
from sources.prometheus.errors import PrometheusError, TimedOut
from sources.prometheus.family import Family, families
from sources.prometheus.plan import Question, questions, sightings
from sources.prometheus.pools import Gathered, pool_facts
from sources.prometheus.promql import TARGET, one_of, selector
from sources.prometheus.rules import recorded
from sources.prometheus.silence import Silence
from sources.prometheus.targets import Targets
from sources.prometheus.transport import Answer, Transport

# An increment over a longer gap would arrive as one burst of a past that no window of the loop still holds, and
# restarts and births inside it could not be told; so reading starts anew, as after a start.
GAP = 300.0
_SAME = 1.0  # seconds by which two questions of one tick may count from different moments
_PAST = 60.0  # a slot this old is history, not the present that was late
_Key = tuple[str, Fact, str]


@dataclass(slots=True)
class _Eyes:
    """What is known of one family between ticks. `unseen` says why nothing is, while no look was answered; `sighted`
    whether its targets were seen once, so that one which is not known yet is newly started."""

    family: Family
    found: Found = field(default_factory=Found)
    questions: tuple[Question, ...] = ()
    looked_at: float | None = None
    unseen: str = ""
    sighted: bool = False
    edges: dict[_Key, dict[str, Edges]] = field(default_factory=dict)


class PrometheusSource:
    """Reads Prometheus, or anything that speaks its query API. Not safe for concurrent ``observe`` calls.

    The number of queries of a tick depends on the facts that are needed, never on the number of pools or replicas.
    """

    Config = PrometheusConfig

    def __init__(
        self, config: PrometheusConfig, needs: Sequence[PoolNeeds], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._config = config
        self._needs = tuple(needs)
        self._clock = clock
        self._transport = Transport(config)
        self._eyes = [_Eyes(family) for family in families(needs)]
        self._targets = Targets()
        self._silence = Silence()
        self._since: float | None = None
        self._asked: float | None = None  # the moment of that
        self._read_at: dict[_Key, float] = {}  # when each question was last answered: a failed one loses nothing

    def observe(self, at: float, deadline: float) -> Observation:
        """See ``Source``. A fact whose query failed is in ``failed``; its increment comes with the next answer."""
        until = time.monotonic() + deadline
        if self._since is not None and not self._since < at <= self._since + GAP:
            self._since = self._asked = None
            self._read_at.clear()
        since = self._since
        try:
            self._look(self._moment(at)[0], until)
            moment, lag = self._moment(at)  # again: the first answer tells how far the clocks are apart
            doubts, warnings = self._sight(moment, until)
            gathered = self._ask(moment, until, self._asked)
        except PrometheusError as error:
            return Observation(at, since, error=self._told(str(error), until, deadline))
        gathered.warnings |= warnings
        if gathered.failures and not gathered.answered:
            return Observation(at, since, error=self._told(next(iter(gathered.failures.values())), until, deadline))
        self._since, self._asked = at, moment
        seats = self._targets.by_pool()
        for name, got in gathered.got.items():
            doubts[name] |= self._silence.of(name, got, seats.get(name, {}), moment)
        gathered.doubts = doubts
        pools = {
            pool.pool: pool_facts(
                pool, gathered, seats.get(pool.pool, {}), self._targets.has_up, moment, lag, since is not None
            )
            for pool in self._needs
        }
        return Observation(at, since, pools, stamped=True)

    def close(self) -> None:
        self._transport.close()

    def _told(self, failure: str, until: float, deadline: float) -> str:
        """Of a silence each question tells what time was left for it; what matters is how long all was silent."""
        late = time.monotonic() >= until
        return f"{self._transport.url}: did not answer within {deadline:g} s" if late else failure

    def _moment(self, at: float) -> tuple[float, float]:
        """When to evaluate the slot `at`, on the backend's clock, and how much later the slot is.

        Evaluated ahead of the backend's clock, the same newest sample would be read as now and as before, and what it
        counted would be lost; so the present is read `delay` behind it. The past is read as it stands."""
        now = self._clock()
        if at < now - _PAST:
            return at, 0.0
        moment = min(at, now - self._config.delay)
        return moment + self._transport.skew, at - moment

    # --- the three rounds of a tick ---

    def _look(self, moment: float, until: float) -> None:
        """Find out what exists: all of it now and then, and at each tick what was not there yet. A failed look keeps
        the older finding; where there is none, the pools of that family are not known until a later one is answered.
        Raises PrometheusError when nothing is known of any."""
        asked: dict[str, str] = {}
        for i, eyes in enumerate(self._eyes):
            if not wanted_names(eyes.family):
                continue
            if self._is_due(eyes, moment):
                asked[str(i)] = question(eyes.family)
            elif names := unborn(eyes.family, eyes.found):
                asked[f"new {i}"] = question(eyes.family, names)
        if any(eyes.looked_at is not None for eyes in self._eyes):
            # Who is known is not left unread for one that does not answer what it exposes.
            until -= max(0.0, until - time.monotonic()) / 2
        failure: PrometheusError | None = None
        for key, answer in self._all(asked, moment, until).items():
            eyes = self._eyes[int(key.removeprefix("new "))]
            whole = key.isdigit()
            if isinstance(answer, PrometheusError):
                if eyes.looked_at is None:
                    eyes.unseen = f"which metrics exist could not be read: {answer}"
                    failure = failure or answer
                continue
            found = read(eyes.family, answer.rows)
            if not whole:
                found = eyes.found.joined(found)
            else:
                eyes.looked_at, eyes.unseen = moment, ""
                eyes.edges.clear()
            if whole or found != eyes.found:
                eyes.found = found
                eyes.questions = questions(eyes.family, found)
        if failure is not None and all(eyes.looked_at is None for eyes in self._eyes):
            raise failure

    def _is_due(self, eyes: _Eyes, moment: float) -> bool:
        if eyes.looked_at is None or not eyes.found.names:
            return True  # nothing there costs nothing to ask, and something may have started
        return not eyes.looked_at <= moment < eyes.looked_at + self._config.refresh

    def _sight(self, moment: float, until: float) -> tuple[defaultdict[str, set[str]], set[str]]:
        """See which targets there are, before asking anything that depends on it. Gives the doubts of each pool, and
        the warnings."""
        doubts: defaultdict[str, set[str]] = defaultdict(set)
        for eyes in self._eyes:
            if eyes.unseen and not eyes.family.platform:
                for pool in eyes.family.pools:
                    doubts[pool.pool].add(eyes.unseen)
        asked = {str(i): query for i, eyes in enumerate(self._eyes) if (query := sightings(eyes.family, eyes.found))}
        for i, eyes in enumerate(self._eyes):
            if str(i) not in asked and not eyes.unseen:
                eyes.sighted = True  # there is nothing yet, so what comes is new
        if not asked and not self._targets.known:
            return doubts, set()
        engines = [(str(i), eyes) for i, eyes in enumerate(self._eyes) if not eyes.family.platform]
        jobs = {job for _, eyes in engines for job in eyes.found.jobs} | {job for job, _ in self._targets.known}
        health = (*one_of("job", jobs),)
        # Not `up or process_start_time_seconds`: to `or` these are one series, for it does not look at the names.
        names = Matcher("__name__", "=~", "up|process_start_time_seconds")
        asked["up"] = f"max by (__name__,{','.join(TARGET)}) ({selector('', (names, *health))})"
        answers = self._all(asked, moment, until)
        warnings: set[str] = set()
        # Where nothing exists there is nothing to be asked, and nothing is the answer.
        empty = [eyes for key, eyes in engines if key not in asked and not eyes.unseen]
        sighted = {pool.pool for eyes in empty for pool in eyes.family.pools}
        for key, answer in answers.items():
            if isinstance(answer, PrometheusError):  # the targets of before stay, and age
                what = "targets are up" if key == "up" else "samples are stale"
                for pool in self._needs if key == "up" else self._eyes[int(key)].family.pools:
                    doubts[pool.pool].add(f"which {what} could not be read: {answer}")
                continue
            warnings.update(answer.warnings)
            if key != "up":
                eyes = self._eyes[int(key)]
                if not answer.warnings:
                    sighted.update(pool.pool for pool in eyes.family.pools)
                # Who was there all along, while we could not look, is not newly started.
                first = self._since is None or not eyes.sighted
                if self._targets.sight(eyes.family, bool(eyes.found.named), answer.rows, first=first):
                    eyes.edges.clear()
                eyes.sighted = True
        if isinstance(health_rows := answers["up"], Answer):
            self._targets.health(health_rows.rows, moment, sighted)
        return doubts, warnings

    def _ask(self, moment: float, until: float, since: float | None) -> Gathered:
        """All facts, and the bucket edges of histograms where pods came or the look was renewed. `since` is the moment
        of the observation before, None when this one has no increments."""
        asked: dict[str, str] = {}
        of: dict[str, tuple[_Eyes, Question]] = {}
        starting: list[Question] = []
        for eyes in self._eyes:
            up = eyes.found.up() if self._targets.has_up or eyes.family.platform else ""
            for item in eyes.questions:
                back = self._back(item, moment)
                if item.fact.kind is not Kind.GAUGE and back is None:
                    starting.append(item)
                    continue
                name = f"{len(of)}"
                of[name] = of[f"grid {name}"] = eyes, item
                if item.fact.kind is Kind.HISTOGRAM and item.key not in eyes.edges and (grid := item.grid()):
                    asked[f"grid {name}"] = grid
                asked[name] = self._expression(item, back, up)
        unseen = {eyes.family.contract.engine: eyes.unseen for eyes in self._eyes if eyes.unseen}
        gathered = Gathered([(eyes.family, eyes.found) for eyes in self._eyes], unseen)
        failed: set[_Key] = set()
        # Each answer becomes values while others are still awaited, and is forgotten: a fleet's are large.
        for name, answer in self._each(asked, moment, until):
            eyes, item = of[name]
            try:
                if name.startswith("grid "):
                    if isinstance(answer, Answer):
                        eyes.edges[item.key] = common_edges(item, answer.rows, self._targets)
                elif isinstance(answer, PrometheusError):
                    raise answer
                elif item.key not in failed:
                    edges = eyes.edges.get(item.key, {})
                    found = values(item, answer.rows, self._targets, edges, answer.dropped)
                    back = self._back(item, moment)
                    if since is not None and back is not None and back > moment - since + _SAME:
                        gathered.reaches(item, back)
                    self._read_at[item.key] = moment
                    gathered.take(item, found, answer)
            except PrometheusError as error:
                failed.add(item.key)
                gathered.fail(item, str(error))
            del answer
        for item in starting:
            self._read_at[item.key] = moment
            if (
                since is not None
            ):  # the others have increments: without this, nothing counted would look like nothing happened
                gathered.fail(item, f"it was not read in the last {GAP:.0f} s, so counting starts anew")
        if not asked:
            gathered.answered = True
        return gathered

    def _back(self, item: Question, moment: float) -> float | None:
        """Seconds since this question was last answered; None when it is the first time, or too long ago."""
        before = self._read_at.get(item.key)
        return moment - before if before is not None and 0 < moment - before <= GAP else None

    def _expression(self, item: Question, back: float | None, up: str) -> str:
        if self._config.recording_rules and back is not None and (rule := recorded(item, back)):
            return rule
        return item.promql(back, up)

    # --- many queries, one deadline ---

    def _all(self, queries: Mapping[str, str], moment: float, until: float) -> dict[str, Answer | PrometheusError]:
        """Every answer or the reason why there is none, in the order of `queries`."""
        return dict(self._each(queries, moment, until))

    def _each(
        self, queries: Mapping[str, str], moment: float, until: float
    ) -> Iterator[tuple[str, Answer | PrometheusError]]:
        """The same one by one; all are asked at once, and none is kept here once it was given."""
        jobs = [partial(self._one, query, moment, until) for query in queries.values()]
        futures = crew.start(jobs, self._config.concurrency, "prometheus")
        waiting = deque(zip(queries, futures, strict=True))
        del futures
        while waiting:
            name, future = waiting.popleft()
            wait([future], timeout=max(0.0, until - time.monotonic()))
            yield name, _outcome(future)
            del future

    def _one(self, query: str, moment: float, until: float) -> Answer:
        return self._transport.query(query, moment, until - time.monotonic())


def _outcome(future: Future[Answer]) -> Answer | PrometheusError:
    if not future.done():
        future.cancel()
        return TimedOut("the deadline of the tick passed before the answer came")
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, PrometheusError):
        return error
    raise error
