"""The daemon: calls `tick` at every slot, reloads the config, ends cleanly. The only place that knows APScheduler.

A slot that cannot be served is counted and never caught up: a controller that replays the past acts on it twice. The
scheduler works on wall time, and would wait for a clock that was set back until it has caught up: so the thread that
waits for signals looks now and then whether a job is due later than it can be. Ticks then go on with the slots of the
new clock, but for a step within one interval, which is waited for.

Threads: the main one schedules; one worker ticks; one does housekeeping, so that a slow tick delays no look at the
config; one waits for signals; HTTP has its own. A reload and a tick exclude each other by one lock, so that loops are
swapped between ticks. At the end nobody is waited for without limit.
"""

import queue
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_SCHEDULER_STARTED, JobSubmissionEvent, SchedulerEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from controller.config import ConfigError, GovernorConfig, Problem, config_hash, hints, load, without_actuator
from controller.config.errors import dotted
from controller.run import logs, memory
from controller.run.assembly import RunMode, assemble, own_version
from controller.run.face import Face
from controller.run.http import ListenError, Server
from controller.run.leave import bounded, leave
from controller.run.ledger import LedgerError
from controller.run.loop import ControlLoop
from controller.run.metrics import Metrics
from controller.run.narrate import Narrator
from controller.run.reload import ConfigWatch, Retry, problems_of
from controller.run.settings import LeverSettings, Loop, Settings
from controller.run.slots import Missed, Slots
from controller.run.status import Board

C = TypeVar("C")
L = TypeVar("L", bound=Loop)

_POLL = 2.0  # seconds between two looks at the config file, and at the clock
_SLACK = 1.0  # seconds that a job may be due beyond its period, for clocks that are slewed
_GRACE = 20.0  # seconds for a running tick to end: Kubernetes kills 30 seconds after it asked
_CLOSING = 3.0  # seconds for connections and files to be closed
_PASSING = (ListenError, LedgerError, OSError)  # reasons for which a config may be usable later as it is


class SlotTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler ships no types
    """Fires at slots. APScheduler's own interval trigger counts from the previous run, which drifts off the slots."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """The first slot in the future, so that slots gone by are not handed out."""
        latest = now if previous is None else max(previous, now)
        return datetime.fromtimestamp(self._slots.after(latest.timestamp()), UTC)


class Daemon(Generic[C, L]):
    """Runs loops built from configs of type `C` until told to stop.

    `load` reads the config and raises when it is invalid; `build(config, previous)` makes a loop that has adopted the
    state of the previous one; `describe` says what the daemon must know of a config. The constructor loads, binds and
    builds, and lets what they raise through: a daemon that cannot start says so before its first tick.
    """

    def __init__(
        self,
        *,
        path: Path,
        load: Callable[[], C],
        build: Callable[[C, L | None], L],
        describe: Callable[[C], Settings],
        version: str,
        mode: str,
        poll: float = _POLL,
        grace: float = _GRACE,
    ) -> None:
        self._load, self._build, self._describe, self._poll, self._grace = load, build, describe, poll, grace
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger()
        self._narrator = Narrator(self._log)
        self._watch, self._retry = ConfigWatch(path), Retry(poll)
        self._rejected: tuple[str, ...] = ()
        config = load()
        settings = describe(config)
        started = time.time()
        self._metrics = Metrics(version=version, mode=mode, started=started)
        self._board = Board(version=version, mode=mode, at=started, monotonic=time.monotonic())
        self._face = Face(settings.listen, self._listen)
        try:
            self._loop = build(config, None)
        except BaseException:
            self._face.close()
            raise
        self._between = threading.Lock()  # held by a tick, and by the swap of loops
        self._reloading = threading.Lock()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put is safe in a signal handler
        self._hangup, self._stopping, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._newest = 0.0  # slot of the newest tick
        self._slots = Slots(settings.interval)
        self._counter = Missed(self._slots)
        self._scheduler = BlockingScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(1), "housekeeping": ThreadPoolExecutor(1)},
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None},
        )
        self._adopt_settings(settings)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the HTTP face."""
        return self._face.address

    def run(self) -> int:
        """Blocks until SIGTERM, SIGINT or `stop`; gives 0. SIGHUP reloads. Handlers are set in the main thread only."""
        previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                previous[number] = signal.signal(number, self._on_signal)
        now = datetime.now(UTC)
        self._scheduler.add_job(self._tick, SlotTrigger(self._slots), id="tick", next_run_time=now)
        self._scheduler.add_job(self._look, self._looks(), id="look", executor="housekeeping")
        self._scheduler.add_listener(self._on_skipped, EVENT_JOB_MAX_INSTANCES)
        # Signals wait in the queue until there is a running scheduler to stop.
        self._scheduler.add_listener(self._on_started, EVENT_SCHEDULER_STARTED)
        self._face.start()
        try:
            self._scheduler.start()
            self._ended.wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            bounded(self._loop.close, _CLOSING, "loop")
            bounded(self._face.close, _CLOSING, "http")
        self._log.info("stopped")
        return 0

    def stop(self) -> None:
        """Asks the daemon to end after the running tick, which sends nothing any more. Returns at once; from any
        thread."""
        self._signals.put(signal.SIGTERM)

    # --- ticking -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        with self._between:
            if self._stopping.is_set():
                return
            at = self._slots.at(time.time())
            self._missed(self._counter.ran(at), at)
            back = self._newest - time.time()
            if back > self._slots.interval:
                self._log.warning("clock_stepped_back", by=round(back, 3), mend="ticks go on by the new clock")
                self._counter = Missed(self._slots)
                self._counter.ran(at)
            elif at <= self._newest:
                # A longer interval begins with an older slot, which is no news; a clock that stepped back is.
                if back > 0:
                    self._narrator.edges.failing("clock", "clock_stepped_back", at=at, newest=self._newest)
                return
            self._newest = at
            self._narrator.edges.fine("clock", "clock_caught_up", at=at)
            try:
                result = self._loop.tick(at)
            except Exception as problem:  # noqa: BLE001 - whatever went wrong, the next slot gets its tick
                self._metrics.failed()
                self._board.failed(repr(problem))
                self._narrator.edges.crashed("tick", "tick_failed", at=at, error=problem)
                return
            self._metrics.ticked(result)
            self._board.ticked(result, monotonic=time.monotonic())
            self._narrator.edges.fine("tick", "tick_recovered", at=at)
            self._narrator.ticked(result)

    def _looks(self) -> IntervalTrigger:
        return IntervalTrigger(seconds=self._poll)

    def _mind_clock(self) -> None:
        """Jobs that wait for a moment of the clock before it was set back get the next one of the new clock."""
        now = time.time()
        for name, period, trigger in (
            ("tick", self._slots.interval, SlotTrigger(self._slots)), ("look", self._poll, self._looks()),
        ):  # fmt: skip
            job = self._scheduler.get_job(name)
            due = job.next_run_time if job is not None else None
            if due is not None and due.timestamp() - now > period + _SLACK:
                self._scheduler.reschedule_job(name, trigger=trigger)

    def _on_skipped(self, event: JobSubmissionEvent) -> None:
        """The previous tick (or reload) still runs. Told here, not by the next tick, which may never come."""
        if event.job_id == "tick":
            slot = self._slots.at(event.scheduled_run_times[-1].timestamp())
            self._missed(self._counter.skipped(slot), slot)

    def _missed(self, slots: int, at: float) -> None:
        if slots:
            self._metrics.missed(slots)
            self._board.missed(slots)
            self._log.warning("ticks_missed", slots=slots, until=at)

    # --- config --------------------------------------------------------------------------------------------------

    def reload(self) -> bool:
        """Loads the config again and swaps loops between two ticks. An unusable config changes nothing."""
        with self._reloading:
            try:
                config = self._load()
                settings = self._describe(config)
                with self._face.moving(settings.listen), self._between:
                    if self._stopping.is_set():
                        return False
                    previous, self._loop = self._loop, self._build(config, self._loop)
                    self._adopt_settings(settings)
            except Exception as problem:  # noqa: BLE001 - whatever a plug-in raises, the previous config stays in force
                self._reject(problem)
                return False
            self._retry.forget()
            self._rejected = ()
            self._metrics.reloaded("done")
            self._log.info("config_reloaded", hash=settings.config_hash)
            try:
                previous.close()
            except Exception:  # noqa: BLE001 - the new loop is at work; what the old one leaves open is worth a line
                self._log.exception("close_failed")
            return True

    def _reject(self, problem: Exception) -> None:
        problems = problems_of(problem)
        self._metrics.reloaded("invalid")
        self._board.rejected(problems)
        if isinstance(problem, _PASSING):
            self._retry.failed(time.monotonic())
        if problems != self._rejected:  # a retry that fails for the same reason is no news
            self._log.error("config_rejected", problems=list(problems), mend="the previous config stays in force")
        self._rejected = problems

    def _adopt_settings(self, settings: Settings) -> None:
        now = time.time()
        self._metrics.configured(settings, at=now)
        self._board.configured(settings, at=now)
        for problem in settings.doubts:
            self._log.warning("config_doubtful", problem=problem)
        if settings.interval != self._slots.interval:
            self._slots = Slots(settings.interval)
            self._counter = Missed(self._slots)
            self._scheduler.reschedule_job("tick", trigger=SlotTrigger(self._slots))

    def _look(self) -> None:
        asked = self._hangup.is_set()
        if asked:
            with self._between:  # what is asked again while a tick runs is the same asking
                self._hangup.clear()
            self._watch.accept()
        if asked or self._watch.changed():
            self._retry.forget()
            self._rejected = ()
            self.reload()
        elif self._retry.due(time.monotonic()):
            self.reload()

    def _listen(self, address: str) -> Server:
        def failed(error: str) -> None:
            self._log.warning("page_failed", error=error)

        return Server(address, self._board, self._metrics, failed)

    # --- signals -------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.put(number)

    def _on_started(self, _event: SchedulerEvent) -> None:
        host, port = self.address
        self._log.info("started", host=host, port=port, interval=self._slots.interval)
        threading.Thread(target=self._attend, name="signals", daemon=True).start()

    def _attend(self) -> None:
        """Acts on signals outside the handler: shutting the scheduler down inside it could wait for a lock that the
        interrupted main thread holds. A reload is left to housekeeping, so that it cannot keep us from stopping."""
        while (number := self._calmed(self._signal())) == signal.SIGHUP:
            self._hangup.set()
            self._log.info("reload_asked")
            self._scheduler.modify_job("look", next_run_time=datetime.now(UTC))
        self._stopping.set()
        self._loop.stop()
        self._log.info("stopping", signal=signal.Signals(number).name)
        self._scheduler.shutdown(wait=False)
        until = time.monotonic() + self._grace
        while not (calm := self._between.acquire(timeout=0.1)):
            if time.monotonic() > until or not self._signals.empty():  # whoever asks twice does not want to wait
                break
        if calm:
            self._between.release()
        else:
            self._log.error("tick_abandoned", mend="what it left open is verified by the next process")
        self._ended.set()

    def _signal(self) -> int:
        """The next signal; meanwhile the clock is looked at."""
        while True:
            try:
                return self._signals.get(timeout=self._poll)
            except queue.Empty:
                self._mind_clock()

    def _calmed(self, number: int) -> int:
        """A storm of SIGHUP counts as one; it is over after a moment without, or after a whole poll of them."""
        until = time.monotonic() + self._poll
        while number == signal.SIGHUP and time.monotonic() < until:
            try:
                number = self._signals.get(timeout=self._poll / 10)
            except queue.Empty:
                break
        return number


def run(config_path: Path, dry_run: bool) -> int:
    """`governor run`: serves the config at `config_path` until told to stop; gives 0. Raises ConfigError, PluginError
    or InputError when it cannot start."""
    logs.configure()
    mode = RunMode.DRY_RUN if dry_run else RunMode.LIVE

    def read() -> GovernorConfig:
        config = load(config_path)
        unarmed = () if dry_run else without_actuator(config)
        if unarmed:
            problems = [Problem(dotted(finding.path), finding.mistake, finding.mend) for finding in unarmed]
            raise ConfigError(problems, str(config_path))
        return config

    def build(config: GovernorConfig, previous: ControlLoop | None) -> ControlLoop:
        return assemble(config, mode=mode, previous=previous)

    daemon = Daemon(path=config_path, load=read, build=build, describe=describe, version=own_version(), mode=mode.value)
    memory.settle()
    return leave(daemon.run())


def describe(config: GovernorConfig) -> Settings:
    """What the daemon must know of a config."""
    return Settings(
        interval=config.interval,
        deadline=config.deadline,
        listen=config.http.listen,
        config_hash=config_hash(config),
        objectives={name: pool.to_objectives() for name, pool in config.pools.items()},
        levers={
            name: {lever: LeverSettings(one.mode, one.min, one.max) for lever, one in pool.levers.items()}
            for name, pool in config.pools.items()
        },
        doubts=tuple(f"{dotted(one.path)}: {one.mistake}; {one.mend}" for one in hints(config, datetime.now(UTC))),
    )
