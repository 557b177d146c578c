"""Who is in the next step. As vLLM V1 does it: the running first, then prompts in part, then whoever waits.

Blocks of a whole prompt are taken when it is admitted, and its hashes are known to the cache from then on. vLLM takes
them chunk by chunk; the difference shows only while a prompt longer than the token budget is computed.
"""

from simulator.engine.batch import Batch, Decoders
from simulator.engine.counts import Counts
from simulator.engine.kv import Pool
from simulator.engine.queue import Queue
from simulator.engine.sequence import Leg, Sequence, State
from simulator.engine.spec import EngineSpec
from simulator.engine.stepping import SteppedBatch


class Scheduler:
    """`chunks` is the prefill of the composed step, `slack` the seconds that the GPU waits in it for the host."""

    def __init__(self, spec: EngineSpec, counts: Counts, *, stepping: bool) -> None:
        self.spec = spec
        self.counts = counts
        self.pool = Pool(spec.kv_blocks)
        self.batch: Decoders = SteppedBatch(spec.block) if stepping else Batch(spec.block)
        self.queue = Queue(isolated=spec.isolation is not None, slots=spec.adapters is not None, wait=spec.max_wait)
        self.prefilling: list[Sequence] = []
        self.chunks: list[tuple[Sequence, int]] = []
        self.preempted = False
        self.slack = 0.0
        self._block = spec.block
        self._seats = spec.max_num_seqs
        self._spare = int(spec.watermark * self.pool.total)
        self._long = 0  # long prompts in the batch, and the tokens of their prompts
        self._long_tokens = 0
        self._users: dict[str, int] = {}  # sequences in the batch by adapter
        self._loaded: dict[str, None] = {}  # adapters, least recently used first

    @property
    def running(self) -> int:
        return self.batch.n + len(self.prefilling)

    def compose(self, now: float) -> float:
        """The next step. The answer is what it lasts, seconds; 0 when there is nothing to do."""
        batch, pool, spec = self.batch, self.pool, self.spec
        self.preempted = False
        needed = batch.blocks(1)
        while needed > pool.free:
            self._preempt(now)
            needed = batch.blocks(1)
        budget = spec.max_batched_tokens - batch.n
        self.chunks.clear()
        for sequence in self.prefilling:
            budget -= self._chunk(sequence, budget)
        loading = 0.0
        if budget > 0 and self.queue.count and not self.preempted:
            loading = self._admit(now, budget, needed)
        if not batch.n and not self.chunks:
            return 0.0
        profile = spec.profile
        seconds = profile.a + profile.c * batch.n + profile.d * batch.context
        host = profile.host * batch.n
        self.slack = host - seconds
        seconds = max(seconds, host) + loading
        for sequence, tokens in self.chunks:
            seconds += profile.b * tokens + profile.e * tokens * (sequence.computed + tokens / 2)
        return seconds

    def _chunk(self, sequence: Sequence, budget: int) -> int:
        """Give a prompt its part of the step."""
        tokens = min(sequence.target - sequence.computed, budget)
        lanes = self.spec.isolation
        if lanes is not None and lanes.long_chunk is not None and sequence.long:
            tokens = min(tokens, lanes.long_chunk)
        if tokens > 0:
            self.chunks.append((sequence, tokens))
        return tokens

    def _admit(self, now: float, budget: int, needed: int) -> float:
        """Take from the queue while budget, seats and blocks allow. The answer is the time to load adapters."""
        queue = self.queue
        loading = 0.0
        open_ = list(range(len(queue.kinds)))  # lanes whose head may still find a place in this step
        while budget > 0 and self.running < self._seats:
            best: Sequence | None = None
            for lane in open_:
                head = queue.head(lane)
                if head is not None and (best is None or head.key < best.key):
                    best = head
            if best is None:
                break
            if not self._slot(best):
                # Who asks for another adapter, or for none, goes past, as in vLLM.
                open_.remove(best.lane)
            elif self._seat(best) and self._place(best, needed):
                queue.discard(best)
                loading += self._enter(best, now)
                budget -= self._chunk(best, budget)
            else:
                kind = queue.kinds[best.lane]
                open_ = [lane for lane in open_ if queue.kinds[lane] is not kind]
        return loading

    def _seat(self, sequence: Sequence) -> bool:
        """Whether its lane may have one more."""
        lanes = self.spec.isolation
        if lanes is None:
            return True
        if not sequence.long:
            return self.running - self._long < self._seats - lanes.long_seqs
        room = lanes.long_kv * self.pool.total * self._block
        return self._long < self._seats - lanes.short_seqs and (
            not self._long or self._long_tokens + sequence.target <= room
        )

    def _slot(self, sequence: Sequence) -> bool:
        """Whether its adapter may join the batch."""
        name = sequence.job.request.adapter
        limit = self.spec.adapters
        return limit is None or not name or name in self._users or len(self._users) < limit.slots

    def _place(self, sequence: Sequence, needed: int) -> bool:
        """Find blocks for what must be in the cache before its next token, and take them."""
        pool, block = self.pool, self._block
        request = sequence.job.request
        size = request.block // block  # blocks that a hash stands for
        prefix = request.prefix if size and self.spec.prefix_cache else ()
        if len(prefix) * request.block > sequence.prompt:
            prefix = prefix[: sequence.prompt // request.block]
        if sequence.made and prefix and len(prefix) == sequence.prompt // request.block:
            prefix += sequence.job.after[: sequence.target // request.block - len(prefix)]
        found, revived = pool.match(prefix)
        alone = -(-sequence.target // block) - len(prefix) * size
        room = pool.free - needed
        if self.running:
            room -= self._spare
        if (len(prefix) - len(found)) * size + revived + alone > room:
            return False
        # The last token is always computed, for the next one comes from it; and vLLM finds whole blocks only.
        hit = min(len(found) * size * block, (sequence.target - 1) // block * block)
        pool.hold(found, prefix, size)
        pool.take(alone)
        sequence.held, sequence.alone = found, alone
        sequence.computed = sequence.target - 1 if sequence.leg is Leg.DECODE and not sequence.made else hit
        if sequence.scheduled_at < 0:
            sequence.job.cached = hit
            if self.spec.prefix_cache:
                self.counts.prefix_queries += sequence.target
                self.counts.prefix_hits += hit
        return True

    def _enter(self, sequence: Sequence, now: float) -> float:
        """Into the batch. The answer is the time to load its adapter."""
        sequence.state = State.PREFILL
        if sequence.scheduled_at < 0:
            sequence.scheduled_at = now
            if sequence.job.scheduled_at is None:
                sequence.job.scheduled_at = now
        self.prefilling.append(sequence)
        if sequence.long:
            self._long += 1
            self._long_tokens += sequence.target
        limit, name = self.spec.adapters, sequence.job.request.adapter
        if limit is None or not name:
            return 0.0
        self._users[name] = self._users.get(name, 0) + 1
        known = name in self._loaded
        self._loaded.pop(name, None)
        self._loaded[name] = None
        if known:
            return 0.0
        if len(self._loaded) > limit.slots:
            idle = next(one for one in self._loaded if one not in self._users)
            del self._loaded[idle]
        return limit.load

    @property
    def loaded(self) -> tuple[str, ...]:
        """Adapters in the slots."""
        return tuple(self._loaded)

    def release(self, sequence: Sequence, context: int) -> None:
        """Give back what a sequence of the batch holds, who had so many tokens in the cache (a prompt in the making
        has all its blocks: its `target`)."""
        block = self._block
        alone = sequence.alone - (-context // block) + (-sequence.target // block)
        job = sequence.job
        unit = job.request.block
        if job.after and unit >= block and self.spec.prefix_cache and sequence.state is State.DECODE:
            start = len(sequence.held) - sequence.prompt // unit
            if start >= 0:  # all of the prompt is known by its hashes
                answer = job.after[start : context // unit - sequence.prompt // unit]
                alone -= self.pool.adopt(sequence.held, answer, unit // block)
        self.pool.give(sequence.held, alone)
        sequence.held = []
        if sequence.long:
            self._long -= 1
            self._long_tokens -= sequence.target
        name = sequence.job.request.adapter
        if name in self._users:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]

    def drop(self, sequence: Sequence) -> None:
        """Take a sequence out of queue or batch, wherever it is."""
        if sequence.state is State.WAITING:
            self.queue.discard(sequence)
        elif sequence.state is State.PREFILL:
            self._unfill(sequence)
            self.release(sequence, sequence.target)
        else:
            context = self.batch.context_of(sequence)
            self.batch.remove(sequence)
            self.release(sequence, context)
        sequence.state = State.GONE

    def _unfill(self, sequence: Sequence) -> None:
        self.prefilling.remove(sequence)
        self.chunks = [part for part in self.chunks if part[0] is not sequence]

    def _preempt(self, now: float) -> None:
        """The last of the running loses its blocks and waits for its turn to compute them anew."""
        worst = max((*self.batch.sequences(), *self.prefilling), key=lambda sequence: sequence.key)
        if worst.state is State.DECODE:
            context = self.batch.context_of(worst)
            self.batch.remove(worst)
            self.release(worst, context)
            worst.made = context - worst.prompt + 1
            worst.target = context + 1
            worst.last_at = now
        else:
            self._unfill(worst)
            self.release(worst, worst.target)
        worst.computed = 0
        worst.state = State.WAITING
        worst.job.preempted += 1
        self.counts.preemptions += 1
        self.queue.push(worst)
        self.preempted = True

    def steps(self, wanted: int) -> int:
        """As many of `wanted` steps as end no sequence before the last, and as the free blocks allow."""
        return self.batch.fit(min(wanted, self.batch.reach()), self.pool.free)
