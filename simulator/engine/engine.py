"""Engine: one replica in virtual time.

Nothing is simulated until somebody calls. The engine holds one plan: the steps from `_start` to `_end`, the first of
which lasts `_first` seconds and each next one `_slope` more. A step with prefill in it is a plan of its own; steps that
only decode are one plan, as long as nobody joins or leaves: k steps last k*first + slope*k*(k-1)/2.
"""

from collections.abc import Callable
from math import inf

from routing.model import Request
from simulator.engine.counts import Counts
from simulator.engine.gauges import Gauges, Load
from simulator.engine.kv import KVListener
from simulator.engine.macro import end_of, ended_by
from simulator.engine.scheduler import Scheduler
from simulator.engine.sequence import Leg, Sequence, State
from simulator.engine.spec import UNBOUNDED, EngineSpec
from simulator.job import Ending, Job

LONGEST = 1 << 30  # steps of a plan


class Engine(Gauges):
    """One replica of an LLM engine, batching as vLLM V1 does.

    Calls come in order of time. `advance` answers with the jobs that ended by themselves; those that the caller
    cancelled it knows. `on_first_token` is told of each first token, at the time of the call that simulates it.
    """

    def __init__(self, spec: EngineSpec, now: float, *, stepping: bool = False) -> None:
        self.spec = spec
        self.on_first_token: Callable[[Job], None] | None = None
        self.prefilled: list[Job] = []  # jobs of Leg.PREFILL that are done here; the caller takes them away
        self._stepping = stepping
        self._slow = 1.0
        self._hung = False
        self._listener: KVListener | None = None
        self._tokens = spec.kv_blocks * spec.block
        self._impatient = spec.max_wait is not None
        self._longest = min(spec.max_context or UNBOUNDED, self._tokens)
        self._start_over(now)

    def _start_over(self, now: float) -> None:
        self.counts = Counts(min(self._longest, 1_000_000))
        self._scheduler = Scheduler(self.spec, self.counts, stepping=self._stepping)
        self._scheduler.pool.listener = self._listener
        self._sequences = {}
        self._ended: list[Job] = []
        self._serial = 0
        self._now = now
        self._origin = now  # of the plan, with its first step ...
        self._opening = 0.0
        self._done = 0  # ... and the steps taken since, so that looking in between moves no boundary by a rounding
        self._start = now
        self._end = inf
        self._first = 0.0
        self._slope = 0.0
        self._steps = 0  # of the plan; 0 when there is none
        self._left = 0.0  # of the step in progress while hung
        self._queued = 0  # who found no place in the step in progress
        self._frozen: Load | None = None  # what it told when it hung

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def next_at(self) -> float:
        """When something may happen that others must learn, unix seconds; inf when idle."""
        if self._ended:
            return self._now
        return min(self._end, self._scheduler.queue.patience()) if self._impatient else self._end

    @property
    def listener(self) -> KVListener | None:
        """Who is told of KV events."""
        return self._listener

    @listener.setter
    def listener(self, listener: KVListener | None) -> None:
        self._listener = self._scheduler.pool.listener = listener

    @property
    def slow(self) -> float:
        """Factor on the step time: 1 is healthy. Counts from the next step on."""
        return self._slow

    @slow.setter
    def slow(self, factor: float) -> None:
        self._cut()
        self._slow = factor

    @property
    def hung(self) -> bool:
        """The engine core has stopped, at the time of the last call: nothing moves but the waiting times."""
        return self._hung

    @hung.setter
    def hung(self, hung: bool) -> None:
        if hung == self._hung:
            return
        self._hung = hung
        self._frozen = self.load if hung else None
        if hung:
            self._cut()
            self._left = self._end - self._now
            self._end = inf
        elif self._steps:
            self._end = self._now + self._left
            self._first = self._end - self._start
            self._begin(self._start, self._first)
        else:
            self._plan(self._now)

    # --- what others do ----------------------------------------------------------------------------------------------

    def submit(self, job: Job, now: float, leg: Leg = Leg.WHOLE) -> None:
        """A request arrives. It joins the batch at the end of the step in progress, if there is room."""
        self._run(now)
        now = self._now
        request = job.request
        if job.sent_at is None:
            job.sent_at = now
        why = self._unfit(request)
        if why:
            job.ending, job.why, job.ended_at = Ending.REJECTED, why, now
            self.counts.rejected += 1
            self._ended.append(job)
            return
        if request.id in self._sequences:
            raise ValueError(f"job {request.id} is here already; an attempt needs an id of its own")
        self._serial += 1
        output = 1 if leg is Leg.PREFILL else max(1, min(job.output, request.max_tokens))
        lanes = self.spec.isolation
        long = lanes is not None and request.prompt_tokens > lanes.long_prompt
        # Priority, then arrival, in one number.
        sequence = Sequence(job, (request.priority << 48) + self._serial, output, now, leg, long)
        self._sequences[request.id] = sequence
        self._scheduler.queue.push(sequence)
        if not self._steps:
            self._plan(now)
        elif self._steps > 1:
            self._cut()

    def _unfit(self, request: Request) -> str:
        """Why a request is refused, with the status that its client gets; empty when it is not."""
        asked = request.prompt_tokens + request.max_tokens
        if asked > self._longest:
            return f"a context of {asked} tokens is longer than {self._longest} (HTTP 400)"
        if request.prompt_tokens < 1:
            return "an empty prompt (HTTP 400)"
        limit, waiting = self.spec.max_queue, self.waiting
        if limit is not None and waiting >= limit and (waiting or self.running >= self.spec.max_num_seqs):
            return f"{waiting} requests wait already (HTTP 503)"
        return ""

    def cancel(self, id: int, now: float, ending: Ending = Ending.ABORTED) -> bool:  # noqa: A002 - the contract's word
        """Take a job back. False when it is not here (any more): then it has ended or never came."""
        self._run(now)
        sequence = self._sequences.pop(id, None)
        if sequence is None:
            return False
        self._scheduler.drop(sequence)
        job = sequence.job
        job.ending, job.ended_at = ending, self._now
        if ending is Ending.TIMED_OUT:
            self.counts.timed_out += 1
        else:
            self.counts.aborted += 1
        self._cut()
        return True

    def advance(self, now: float) -> list[Job]:
        """Run to `now`. The jobs that ended since the last call, in order of `ended_at`."""
        self._run(now)
        ended, self._ended = self._ended, []
        return ended

    def fail(self, now: float) -> list[Job]:
        """The process dies, and all that it held and counted. The jobs that are lost; what ended before is in the
        answer too, with its own ending."""
        ended = self.advance(now)
        for sequence in self._sequences.values():
            job = sequence.job
            job.ending, job.why, job.ended_at = Ending.FAILED, "the replica failed", self._now
            ended.append(job)
        if self._listener is not None:
            self._listener.cleared()
        self._hung = False
        self._start_over(self._now)
        return ended

    # --- time --------------------------------------------------------------------------------------------------------

    def _run(self, now: float) -> None:
        """Everything that happens until `now`."""
        while self._end <= now:
            end = self._end
            self._commit(self._steps, end)
            self._plan(end)
        self._now = max(self._now, now)
        if self._impatient:
            self._expire(now)
        if self._steps > 1:
            self._catch_up(now)

    def _boundary(self, steps: int) -> float:
        """The end of step number `steps` of those that are left of the plan."""
        return end_of(self._origin, self._opening, self._slope, self._done + steps)

    def _within(self, now: float) -> int:
        """How many steps of those that are left of the plan have ended by `now`."""
        return ended_by(self._origin, self._opening, self._slope, self._done + self._steps, now) - self._done

    def _begin(self, now: float, first: float) -> None:
        """A plan begins with a step of `first` seconds."""
        self._origin = self._start = now
        self._opening = self._first = first
        self._done = 0

    def _catch_up(self, now: float) -> None:
        """Take the steps of the plan that have ended; the rest of the plan stays, and so does its end."""
        done = min(self._within(now), self._steps - 1)
        if done > 0:
            self._decode(done)
            self._done += done
            self._steps -= done
            self._start = self._boundary(0)
            self._first = self._opening + self._done * self._slope

    def _cut(self) -> None:
        """Nothing but the step in progress is decided any more."""
        if self._steps > 1:
            self._catch_up(self._now)
            self._steps = 1
            self._end = self._boundary(1)

    def _plan(self, now: float) -> None:
        """The next plan begins at `now`."""
        if self._hung:
            return
        scheduler = self._scheduler
        seconds = scheduler.compose(now) * self._slow
        self._queued = scheduler.queue.count
        self._begin(now, seconds)
        if not seconds:
            self._steps = 0
            self._end = inf
            return
        if scheduler.chunks:
            self._steps = 1
            self._slope = 0.0
            self._end = now + seconds
            return
        growth, longest = self.spec.profile.d * scheduler.batch.n, LONGEST
        self._slope = self._slow * growth
        if scheduler.slack > 0:
            # Steps are equal until contexts have grown so long that the host waits for the GPU.
            self._slope = 0.0
            longest = 1 + int(min(scheduler.slack / growth, LONGEST)) if growth else LONGEST
        # After a preemption the queue was not looked at.
        self._steps = 1 if scheduler.preempted else scheduler.steps(longest)
        self._end = self._boundary(self._steps)
        if not self._impatient:
            return
        patience = scheduler.queue.patience()
        if patience < self._end:
            # Who waits behind the one that gives up may fit where it did not.
            whole = self._within(patience)
            self._steps = whole if whole and self._boundary(whole) >= patience else whole + 1
            self._end = self._boundary(self._steps)

    # --- what happens ------------------------------------------------------------------------------------------------

    def _decode(self, steps: int) -> list[Sequence]:
        """Steps of the decoding sequences, which end at the same time as the plan's."""
        scheduler, counts = self._scheduler, self.counts
        batch = scheduler.batch
        tokens = batch.n
        if not tokens:
            return []
        scheduler.pool.take(batch.blocks(steps))
        batch.observe(counts.itl, self._first, self._slope, steps)
        counts.generation_tokens += steps * tokens
        counts.steps += steps
        counts.iteration_tokens.add(tokens, steps)
        return batch.run(steps)

    def _commit(self, steps: int, at: float) -> None:
        """The plan has ended."""
        if self._impatient:
            self._expire(at)
        if self._scheduler.chunks:
            self._commit_mixed(at)
        else:
            for sequence in self._decode(steps):
                self._finish(sequence, at)

    def _commit_mixed(self, at: float) -> None:
        """A step with prefill in it has ended."""
        scheduler, counts = self._scheduler, self.counts
        batch = scheduler.batch
        made = batch.n
        prompts = 0
        ended: list[Sequence] = []
        if made:
            scheduler.pool.take(batch.blocks(1))
            batch.observe(counts.itl, self._first, 0.0, 1)
            ended = batch.run(1)
        for sequence, tokens in scheduler.chunks:
            sequence.computed += tokens
            if sequence.computed < sequence.target:
                continue
            scheduler.prefilling.remove(sequence)
            made += 1
            sequence.made += 1
            if sequence.first_at < 0:
                prompts += sequence.prompt
                self._first_token(sequence, at)
            else:
                counts.itl.add(at - sequence.last_at)
            left = sequence.output - sequence.made
            if left:
                sequence.state = State.DECODE
                batch.add(sequence, sequence.target, left)
            else:
                ended.append(sequence)
        scheduler.chunks.clear()
        counts.prompt_tokens += prompts
        counts.generation_tokens += made
        counts.steps += 1
        counts.iteration_tokens.add(prompts + made)
        for sequence in ended:
            self._finish(sequence, at)

    def _first_token(self, sequence: Sequence, at: float) -> None:
        sequence.first_at = at
        self.counts.ttft.add(at - sequence.queued_at)
        job = sequence.job
        if sequence.leg is not Leg.PREFILL:
            job.first_token_at = at
            if self.on_first_token is not None:
                self.on_first_token(job)

    def _finish(self, sequence: Sequence, at: float) -> None:
        """Its last token has come."""
        job, counts, output = sequence.job, self.counts, sequence.output
        del self._sequences[job.request.id]
        self._scheduler.release(sequence, sequence.prompt + output - 1)
        sequence.state = State.GONE
        counts.ended(sequence.queued_at, sequence.scheduled_at, sequence.first_at, at, sequence.prompt, output)
        counts.finished["length" if output >= job.request.max_tokens or sequence.leg is Leg.PREFILL else "stop"] += 1
        if sequence.leg is Leg.PREFILL:
            self.prefilled.append(job)
            return
        job.ending, job.ended_at = Ending.FINISHED, at
        self._ended.append(job)

    def _expire(self, now: float) -> None:
        """Those who have waited too long by `now` go."""
        queue = self._scheduler.queue
        while (at := queue.patience()) <= now:
            sequence = queue.overdue()
            self._scheduler.drop(sequence)
            job = sequence.job
            del self._sequences[job.request.id]
            job.ending, job.ended_at = Ending.TIMED_OUT, at
            job.why = f"waited {self.spec.max_wait:g} s for a place in the batch"
            self.counts.timed_out += 1
            self._ended.append(job)
