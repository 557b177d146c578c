"""A small scenario that runs in a fraction of a second, for tests of what is around the twin."""

import json
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "version": 1,
    "name": "small",
    "duration": "6m",
    "warm_up": "1m",
    "cool_down": "30s",
    "events": [{"name": "rush", "begin": "2m", "end": "4m"}],
    "promises": {"default": {"ttft": "2s", "tpot": "100ms"}},
    "fleet": {
        "prometheus": {"interval": "5s"},
        "pools": {
            "chat": {
                "replicas": 1,
                "gpus": 2,
                "engine": {"kind": "profile", "a": "20ms", "b": 2e-4, "c": 1e-4, "d": 1e-7, "max_num_seqs": 16},
                "life": {"pull": "5s", "load": "10s", "warm": "5s"},
            }
        }
    },
    "traffic": {
        "chat": [
            {
                "kind": "generated",
                "name": "web",
                "rate": 2,
                "prompt": {"kind": "lognormal", "mean": 300, "p99": 1000},
                "answer": {"kind": "lognormal", "mean": 100, "p99": 300},
                "shapes": [{"kind": "flash", "at": "2m", "rise": "60s", "hold": "60s", "factor": 3}],
            }
        ]
    },
    "governor": {
        "interval": "15s",
        "pools": {
            "chat": {
                "engine": "vllm",
                "window": "30s",
                "selector": {"model_name": "chat"},
                "objectives": [{"signal": "ttft", "percentile": "p95", "target": "2s"}],
                "workload": {"namespace": "default", "name": "chat"},
                "gpus_per_replica": 2,
                "cold_start": "30s",
                "levers": {
                    "replicas": {
                        "mode": "auto", "min": 1, "max": 8, "policy": {"kind": "capacity"},
                        "rate": {"up": "300%/60s", "down": "50%/60s"},
                    }
                },
            }
        },
    },
    "against": {"peers": {"hpa": {"kind": "benchmarks.peers.hpa:Hpa", "target": 8}}},
    "seeds": 2,
}  # fmt: skip


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a dotted path; None takes the key away."""
    head, _, rest = path.partition(".")
    copy: dict[str, Any] = dict(data)
    if rest:
        below = copy[head]
        if isinstance(below, list):
            index, _, further = rest.partition(".")
            items = list(below)
            items[int(index)] = changed(items[int(index)], further, value)
            copy[head] = items
        else:
            copy[head] = changed(below, rest, value)
    elif value is None:
        copy.pop(head, None)
    else:
        copy[head] = value
    return copy


def written(folder: Path, data: dict[str, Any] | None = None, name: str = "small.yaml") -> Path:
    """The scenario as a file; JSON is YAML, and has no anchors."""
    path = folder / name
    path.write_text(json.dumps(SMALL if data is None else data, indent=1), encoding="utf-8")
    return path
