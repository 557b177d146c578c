"""From a request log to a profile: the tool behind `governor calibrate --requests`."""

from dataclasses import dataclass, replace

from controller.core.errors import InputError
from controller.core.step_model import Profile
from simulator import library
from simulator.calibrate.fit import Term, fit
from simulator.calibrate.limits import read_limits
from simulator.calibrate.log import FEWEST, RequestLog, read_log
from simulator.calibrate.prior import find
from simulator.calibrate.replay import replay
from simulator.calibrate.score import Score, score
from simulator.engine.spec import EngineSpec

MOST = 3000  # requests that are used; a longer log takes longer and tells little more
NEAR = 1.2  # a cache that is smaller than this times what was held is another GPU's
BATCHED = 8192  # vLLM's default where it serves on large GPUs


@dataclass(frozen=True, slots=True)
class Calibration:
    """A profile, and how well it holds. `held_out` are the errors over the requests after the `fitted` ones, `inside`
    those over the fitted ones; `prior` what the fit began with, `notes` what was taken for granted."""

    profile: Profile
    max_batched_tokens: int
    terms: tuple[Term, ...]
    requests: int
    fitted: int
    held_out: tuple[Score, ...]
    inside: tuple[Score, ...]
    prior: str
    scale: float
    notes: tuple[str, ...]

    @property
    def held(self) -> tuple[str, ...]:
        """Terms that the log does not tell; they stand as in the prior."""
        return tuple(term.name for term in self.terms if term.held)


def calibrate_requests(
    text: str,
    *,
    entry: str = "",
    hold_out: float = 0.5,
    max_num_seqs: int | None = None,
    kv_tokens: int | None = None,
    max_batched_tokens: int | None = None,
) -> Calibration:
    """Fit to the request log in a CSV text. `entry` of the library is model/gpu/tp/precision[/engine]; `hold_out` is
    the share of requests, the last ones, that are kept for the errors. Limits that are None are looked for in the log,
    or are defaults that the notes tell. Raises InputError."""
    if not 0.1 <= hold_out <= 0.9:
        raise InputError(f"--hold-out {hold_out:.0%}: leaves too little to fit on or to check with; write 10% to 90%")
    log = read_log(text)
    notes = list(log.notes)
    if len(log) > MOST:
        notes.append(f"only the first {MOST:,} of {len(log):,} requests were used")
        log = log.head(MOST)
    count = round(len(log) * (1.0 - hold_out))
    if min(count, len(log) - count) < FEWEST // 4:
        raise InputError(
            f"--hold-out {hold_out:.0%}: leaves {count} requests to fit on and {len(log) - count} to check with; "
            f"{FEWEST // 4} are the fewest of each"
        )
    prior = find(entry) if entry else None
    spec = _spec(log.head(count), (max_num_seqs, kv_tokens, max_batched_tokens), prior, notes)
    if log.cached.any():
        notes.append("cached prompt tokens were taken off the prompts, and are missing in their contexts")
    found = fit(log, count, spec, None if prior is None else prior.profile)
    run = replay(log, spec, found.profile)
    if run.lost:
        raise InputError(
            f"{run.lost} requests are longer than the KV cache of {spec.profile.kv_tokens:,.0f} tokens; "
            "give the engine's own --kv-tokens"
        )
    return Calibration(
        found.profile,
        spec.max_batched_tokens,
        found.terms,
        len(log),
        count,
        score(log, run, slice(count, None)),
        score(log, run, slice(0, count)),
        "" if prior is None else str(prior),
        found.scale,
        tuple(notes),
    )


def _spec(
    log: RequestLog, given: tuple[int | None, int | None, int | None], prior: library.Entry | None, notes: list[str]
) -> EngineSpec:
    """The engine with the limits that were given, else those that the log shows, else defaults that are told. Only the
    requests that are fitted on are looked at."""
    seen = read_limits(log)
    seqs, tokens, batched = given
    if seqs is None:
        seqs = seen.max_num_seqs
        if seqs is not None:
            notes.append(f"max_num_seqs {seqs}: as many ran whenever requests waited")
        else:
            seqs = max(256, seen.largest)
            notes.append(f"max_num_seqs {seqs} is taken for granted: no queue shows it; at most {seen.largest} ran")
    elif seen.largest > seqs:
        raise InputError(f"--max-num-seqs {seqs}: {seen.largest} requests ran at once; give the engine's own number")
    if tokens is None and seen.kv_tokens is not None:
        tokens = seen.kv_tokens
        notes.append(
            f"KV cache of {tokens:,} tokens: about as many were held whenever requests waited; --kv-tokens is better"
        )
    elif tokens is None and prior is not None and (prior.profile.kv_tokens or 0) > NEAR * seen.fullest:
        tokens = int(prior.profile.kv_tokens or 0)
        notes.append(f"KV cache of {tokens:,} tokens: the library's for that GPU; the log does not show the limit")
    elif tokens is None:
        notes.append("the KV cache is taken to be without limit: the log does not show one; --kv-tokens tells it")
    if batched is None:
        batched = max(BATCHED, seqs)
        notes.append(f"max_num_batched_tokens {batched} is taken for granted; --max-batched-tokens tells it")
    try:
        return EngineSpec(
            replace(Profile(), max_num_seqs=float(seqs), kv_tokens=None if tokens is None else float(tokens)),
            max_batched_tokens=batched,
            prefix_cache=False,
        )
    except ValueError as error:
        raise InputError(str(error)) from error
