"""What is run on both plants: two scenarios, the promise, and the policies with one setting for both.

Time is compressed ninefold against the control bench: a cold start of 180 s is 20 s here, and Governor's limits and
those of the HPA are shortened alike, so that a run takes minutes. What is not in a config cannot be shortened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.core.step_model import Profile

Data = dict[str, Any]

POOL, MODEL, NAMESPACE = "chat", "mock", "default"
GOVERNOR, NONE, STATIC = "governor", "none", "static"
START, PEAK, MOST = 4, 12, 16  # replicas at the start, of the static fleet, and the bound of everybody
COLD_START = 20.0  # seconds
INTERVAL = 3.0  # seconds from tick to tick
TTFT, TPOT = 2.0, 0.4  # promised, seconds
FIRST = 15.0  # seconds after which controllers join a fleet that serves already
WARM_UP, COOL_DOWN = 40.0, 20.0  # seconds at both ends that are not scored
SEATS = 8
BLOCK, BLOCKS = 64, 80  # of the KV cache: tokens of a block, blocks of a replica
KV_TOKENS = BLOCK * BLOCKS
SPEED = 0.12  # of the mocker's built-in step times
PROMPT, ANSWER = 400, 20  # mean tokens
LONGEST_PROMPT, LONGEST_ANSWER = 1200, 60
HPAS = (4.0, 6.0)  # targets in requests in flight per replica


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario: what it is called, how long it takes (seconds), requests/s and how they change."""

    name: str
    about: str
    seconds: float
    rate: float
    shapes: tuple[Mapping[str, Any], ...]


CASES = (
    Case("step", "the rate goes up 2.5-fold at once and stays there", 270, 3.0,
         ({"kind": "step", "at": "90s", "factor": 2.5},)),
    Case("flash", "the rate goes up threefold within 10 s, stays for 60 s and comes back within 20 s", 270, 3.0,
         ({"kind": "flash", "at": "90s", "rise": "10s", "hold": "60s", "fall": "20s", "factor": 3.0},)),
)  # fmt: skip


def contenders() -> tuple[str, ...]:
    """Who runs, in the order of the page."""
    return (GOVERNOR, *(hpa(target) for target in HPAS), NONE, STATIC)


def hpa(target: float) -> str:
    """The name of an HPA with this target."""
    return f"hpa-{target:g}"


def replicas(contender: str) -> int:
    """Replicas at the start."""
    return PEAK if contender == STATIC else START


def scenario(case: Case, profile: Profile, contender: str) -> Data:
    """The scenario of the twin, with everybody's config in it."""
    engine = {
        "kind": "profile", "a": _s(profile.a), "b": profile.b, "c": profile.c, "d": profile.d, "e": profile.e,
        "max_num_seqs": SEATS, "kv_tokens": KV_TOKENS,
    }  # fmt: skip
    web = {
        "kind": "generated", "name": "web", "rate": case.rate, "shapes": [dict(one) for one in case.shapes],
        "prompt": {"kind": "lognormal", "mean": PROMPT, "p99": 2.5 * PROMPT, "longest": LONGEST_PROMPT},
        "answer": {"kind": "lognormal", "mean": ANSWER, "p99": 2.5 * ANSWER, "longest": LONGEST_ANSWER, "shortest": 2},
    }  # fmt: skip
    pool = {
        "replicas": replicas(contender), "gpus": 1, "engine": engine,
        "limits": {"prefix_cache": False, "block": BLOCK},
        "life": {"pull": "0s", "load": _s(COLD_START), "warm": "0s"},
        "gateway": {"strategy": "least-loaded"},
    }  # fmt: skip
    return {
        "version": 1,
        "name": case.name,
        "duration": _s(case.seconds),
        "warm_up": _s(WARM_UP),
        "cool_down": _s(COOL_DOWN),
        "promises": {"default": {"ttft": _s(TTFT), "tpot": _s(TPOT)}},
        "fleet": {"prometheus": {"interval": "1s", "delay": "0s"}, "pools": {POOL: pool}},
        "traffic": {POOL: [web]},
        "governor": governor(profile, "vllm", {"engine": "gaie", "selector": {"model_name": POOL}}),
        "against": {"peers": {hpa(target): peer(target) for target in HPAS}},
    }


def governor(profile: Profile, engine: str, gateway: Mapping[str, Any] | None = None) -> Data:
    """Governor's config: times are those of the control bench divided by nine. `engine` and `gateway` say how the plant
    names its series. It is told the step times, since there is no time to learn them."""
    return {
        "interval": _s(INTERVAL),
        "deadline": "2s",
        "pools": {
            POOL: {
                "engine": engine,
                "selector": {"namespace": NAMESPACE},
                **({"gateway": dict(gateway)} if gateway is not None else {}),
                "window": "12s",
                "objectives": [
                    {"signal": "ttft", "percentile": "p95", "target": _s(TTFT)},
                    {"signal": "itl", "percentile": "p95", "target": _s(TPOT)},
                ],
                "cold_start": _s(COLD_START),
                "profile": {
                    "base": _s(profile.a),
                    "prefill_token": _s(profile.b),
                    "sequence": _s(profile.c),
                    "kv_token": _s(profile.d),
                    "attention": _s(profile.e),
                    "max_num_seqs": SEATS,
                    "kv_tokens": KV_TOKENS,
                },
                "levers": {
                    "replicas": {
                        "mode": "auto",
                        "min": 2,
                        "max": MOST,
                        "policy": {"kind": "capacity", "trim_time": "100s"},
                        "rate": {"up": "300%/7s", "down": "25%/7s"},
                        "cooldown": {"down": "7s"},
                        "stabilise": "33s",
                        "give_up": "100s",
                    }
                },
            }
        },
    }


def peer(target: float) -> Data:
    """The HPA, its times divided by nine, and with no limit on how many pods it adds at once."""
    return {
        "kind": "benchmarks.peers.hpa:Hpa", "target": target, "sync": _s(INTERVAL), "down_window": "33s",
        "up_pods": float(MOST),
    }  # fmt: skip


def _s(seconds: float) -> str:
    return f"{seconds:.12f}".rstrip("0").rstrip(".") + "s"
