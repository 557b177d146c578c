"""The library: step-time coefficients and KV capacity of common models, GPUs, parallel sizes, precisions and engines.

Each entry says where it comes from and how far off it was. Expect 5 to 20 % before calibration, more where GPUs talk
over PCIe. The KV cache is what memory leaves: util * memory - weights/TP - activations - the rest, over the bytes of a
token; an engine's own number of blocks is better where it is known.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from controller.core.step_model import Profile

GIB = 1 << 30
UTILISATION = 0.9  # vLLM's gpu_memory_utilization
ACTIVATIONS, ACTIVATIONS_EXPERTS = 5.5, 8.0  # GiB on each GPU
REST, REST_PARALLEL = 0.15, 0.6  # GiB on each GPU: contexts, communication buffers
KV_BYTES = 2  # of one cached element
MAX_NUM_SEQS = 256.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One configuration. `error` is relative, and `source` says of what; `kv_tokens` of the whole replica."""

    model: str
    gpu: str
    tp: int
    precision: str
    engine: str
    profile: Profile
    error: float
    source: str

    def __str__(self) -> str:
        return f"{self.model} on {self.tp}x {self.gpu}, {self.precision}, {self.engine}"


class NotInLibrary(LookupError):
    """Nobody has measured it. The message names what there is."""


def entries() -> tuple[Entry, ...]:
    """All of it: by hand first, then fitted, each in the order of its file."""
    return tuple(_library().values())


def find(model: str, gpu: str, tp: int = 1, precision: str = "", engine: str = "vllm") -> Entry:
    """One configuration; names as in the library or as their makers spell them, precision "" for the first there is."""
    model, gpu, engine = named("models", model), named("gpus", gpu), engine.lower()
    known = _library()
    if not precision:
        of_all = [entry for key, entry in known.items() if key[:3] == (model, gpu, tp) and key[4] == engine]
        if of_all:
            return of_all[0]
    entry = known.get((model, gpu, tp, precision.lower(), engine))
    if entry is None:
        wanted = f"{model} on {tp}x {gpu}, {precision or 'any precision'}, {engine}"
        raise NotInLibrary(f"{wanted} is not in the library; {_instead(known.values(), model)}")
    return entry


def profile(model: str, gpu: str, tp: int = 1, precision: str = "", engine: str = "vllm") -> Profile:
    """The coefficients and limits of one configuration."""
    return find(model, gpu, tp, precision, engine).profile


def kv_tokens(model: str, gpu: str, tp: int, precision: str, utilisation: float = UTILISATION) -> int:
    """Tokens that the KV cache of a replica holds. Raises `NotInLibrary` when the weights do not fit."""
    geometry = _tables()["models"][named("models", model)]
    memory = _tables()["gpus"][named("gpus", gpu)]["memory"]
    weights = geometry["weights"].get(precision)
    if weights is None:
        raise NotInLibrary(f"the weights of {model} are known in {', '.join(geometry['weights'])}, not in {precision}")
    left = (
        memory * utilisation
        - weights / tp
        - (ACTIVATIONS_EXPERTS if geometry.get("experts") else ACTIVATIONS)
        - (REST if tp == 1 else REST_PARALLEL)
    )
    if left <= 0:
        raise NotInLibrary(f"{model} in {precision} leaves no memory for a KV cache on {tp}x {gpu}; take more GPUs")
    if "kv_elements" in geometry:
        elements = geometry["layers"] * geometry["kv_elements"]
    else:
        # With more GPUs than heads each GPU holds a whole head, and copies of it exist.
        elements = 2 * geometry["layers"] * max(geometry["kv_heads"] / tp, 1) * geometry["head_dim"]
    return int(left * GIB / (elements * KV_BYTES))


def _instead(known: Iterable[Entry], model: str) -> str:
    of_model = [entry for entry in known if entry.model == model]
    return "there is " + "; ".join(str(entry) for entry in of_model) if of_model else "nothing is there of this model"


def named(kind: str, name: str) -> str:
    """The library's own name."""
    short = name.lower()
    for own, about in _tables()[kind].items():
        if short == own or short in (other.lower() for other in about["names"]):
            return str(own)
    raise NotInLibrary(f"{name} is not in the library; its {kind} are {', '.join(_tables()[kind])}")


def sources() -> Mapping[str, str]:
    """What the kinds of source are, in words."""
    return {**_tables()["sources"], **_fits()["sources"]}


def forget() -> None:
    """Read the files anew when they are next asked for; who fits them does so."""
    _fits.cache_clear()
    _library.cache_clear()


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(files("simulator").joinpath("library.toml").read_text(encoding="utf-8"))


@cache
def _fits() -> Mapping[str, Any]:
    return tomllib.loads(files("simulator").joinpath("fits.toml").read_text(encoding="utf-8"))


@cache
def _library() -> Mapping[tuple[str, str, int, str, str], Entry]:
    known: dict[tuple[str, str, int, str, str], Entry] = {}
    for table in (_tables(), _fits()):
        for row in table["entries"]:
            entry = _entry(row, table["sources"])
            known.setdefault((entry.model, entry.gpu, entry.tp, entry.precision, entry.engine), entry)
    return known


def _entry(row: Mapping[str, Any], sources: Mapping[str, str]) -> Entry:
    a, b, c, d, e = row["coefficients"]
    model, gpu, tp, precision = row["model"], row["gpu"], row["tp"], row["precision"]
    plain = Profile(a * 1e-6, b * 1e-6, c * 1e-6, d * 1e-9, e * 1e-9, MAX_NUM_SEQS)
    held = float(row.get("kv_tokens") or kv_tokens(model, gpu, tp, precision))
    return Entry(
        model, gpu, tp, precision, row["engine"], replace(plain, kv_tokens=held), row["error"], sources[row["source"]]
    )
