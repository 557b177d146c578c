"""What the scenarios of the bench are made of: one kind of replica, one gate, one promise. Plain data, as in a file.

A replica is of the 70B class on four GPUs of the A100 generation, and requests are long (prompts of 8,000 tokens from
retrieval, answers of 500). It serves about 0.83 of them a second, so that a fleet of a dozen replicas, which is what
control is about, is simulated in seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Data = dict[str, Any]

CHAT = "chat"
SLOTS = 32  # sequences in one batch: what keeps the promised time per token at full batches
PROFILE: Mapping[str, float] = {"a": 22e-3, "b": 75e-6, "c": 54e-6, "d": 40e-9, "e": 3.5e-9}
KV_TOKENS = 400_000
GPUS = 4
PROMPT, ANSWER = 8000, 500  # mean tokens
PER_REPLICA = 0.83  # such requests/s of one replica at full batches
TTFT, TPOT = 5.0, 0.12  # promised, seconds
PATIENCE = 20.0  # seconds until a client without a first token goes away
SHEDDABLE = 0.3  # share of the requests that may be shed first, where a scenario does not say otherwise
COLD_START = 180.0  # seconds, median
SCRAPE, DELAY = 15.0, 5.0  # seconds from scrape to scrape, and until a scrape can be queried

INTERVAL = 15.0  # seconds from tick to tick, as in governor.yaml


def seconds(value: float) -> str:
    """A duration as files have it."""
    return f"{value:.12f}".rstrip("0").rstrip(".") + "s"


def gate(**more: Any) -> Data:
    """The set-points of the data plane, the same for all contenders: no more in flight than the batches hold,
    deadlines on, what may be shed first is shed from nine tenths of the cap on, and new replicas start slowly."""
    return {
        "concurrency": {"per_slot": 1.0},
        "queue": {"length": 1000, "wait": "10s", "fair": True},
        "classes": {
            "critical": {"rank": 0},
            "sheddable": {"rank": 1, "load_lo": 0.9, "load_hi": 1.1},
        },
        "admission": {"deadlines": True},
        # A replica that has just come looks idle: all that waits is sent to it at once, and its prompts time out there.
        "slow_start": "60s",
        **more,
    }


def life(cold_start: float = COLD_START) -> Data:
    """Stage times whose medians add up to the cold start."""
    load, warm = 0.55 * cold_start, 0.33 * cold_start
    return {
        "pull": seconds(0.12 * cold_start),
        "load": {"kind": "lognormal", "median": seconds(load), "p90": seconds(1.2 * load)},
        "warm": {"kind": "lognormal", "median": seconds(warm), "p90": seconds(1.25 * warm)},
    }


def engine(faster: float = 1.0, slots: int = SLOTS) -> Data:
    """Step times; `faster` divides them."""
    times: Data = {name: value / faster for name, value in PROFILE.items()}
    times["a"] = seconds(times["a"])
    return {"kind": "profile", **times, "max_num_seqs": slots, "kv_tokens": KV_TOKENS}


def pool(
    replicas: int, *, knobs: Data | None = None, cold_start: float = COLD_START, strategy: str = "least-loaded",
    **more: Any,
) -> Data:  # fmt: skip
    """A pool behind the gate; `knobs` in place of the gate's."""
    front = {"strategy": strategy, "knobs": gate() if knobs is None else knobs}
    return {
        "replicas": replicas, "gpus": GPUS, "engine": engine(), "life": life(cold_start), "gateway": front,
        **more,
    }  # fmt: skip


def lengths(prompt: float = PROMPT, answer: float = ANSWER) -> Data:
    """Lognormal lengths with these means, tokens."""
    return {
        "prompt": {"kind": "lognormal", "mean": prompt, "p99": 3 * prompt, "longest": int(4 * prompt)},
        "answer": {"kind": "lognormal", "mean": answer, "p99": 3 * answer, "longest": int(5 * answer)},
    }


def asked(sheddable: float = SHEDDABLE, retry: bool = False, ttft: float = TTFT) -> Data:
    """Who asks: one class with a deadline, a share of it sheddable; clients go away, and with `retry` come back."""
    data: Data = {
        "classes": [{"name": "critical", "deadline": seconds(ttft), "patience": seconds(PATIENCE), "patience_cv": 0.5}],
        "sheddable": sheddable,
    }
    if retry:
        data["retry"] = {"attempts": 3, "backoff": "2s", "impatient": True}
    return data


def web(rate: float, shapes: Sequence[Data] = (), **more: Any) -> Data:
    """A stream of chats with retrieval, requests/s."""
    return {
        "kind": "generated", "name": "web", "rate": rate, "shapes": list(shapes), **lengths(), **asked(), **more
    }  # fmt: skip


def scenario(
    minutes: float, pools: Mapping[str, Data], traffic: Mapping[str, Sequence[Data]], *, warm_up: float = 8.0,
    cool_down: float = 2.0, events: Sequence[tuple[str, float, float]] = (), scrape: Data | None = None,
    disturbances: Sequence[Data] = (), fleet: Data | None = None, promises: Data | None = None,
) -> Data:  # fmt: skip
    """A scenario without Governor's config; times in minutes."""
    return {
        "version": 1,
        "duration": f"{minutes:g}m",
        "warm_up": f"{warm_up:g}m",
        "cool_down": f"{cool_down:g}m",
        "events": [{"name": name, "begin": f"{begin:g}m", "end": f"{end:g}m"} for name, begin, end in events],
        "promises": promises or {"default": {"ttft": seconds(TTFT), "tpot": seconds(TPOT)}},
        "fleet": {
            "prometheus": scrape or {"interval": seconds(SCRAPE), "delay": seconds(DELAY)},
            "pools": dict(pools),
            "disturbances": list(disturbances),
            **(fleet or {}),
        },
        "traffic": {name: list(streams) for name, streams in traffic.items()},
    }
