"""`governor calibrate`: step-time coefficients of an engine from its own request log, or from a recording.

The fits live in the simulator and are reached by the registry; here is what a person types and reads. What is printed
is YAML: the numbers for a config and a scenario, and around them, as comments, how far they can be trusted.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from controller import registry
from controller.cli.terminal import about, read_text
from controller.config import GovernorConfig, load
from controller.config.errors import BadValue
from controller.config.units import format_duration, ratio
from controller.core.errors import InputError
from controller.core.step_model import Profile
from controller.rehearse.intervals import read_intervals

_KEYS = {"base": "a", "prefill_token": "b", "sequence": "c", "kv_token": "d", "attention": "e"}


def register(app: typer.Typer) -> None:
    """Add the command of this room."""
    app.command(short_help="Fit an engine's step time to a request log or a recording.")(calibrate)


def calibrate(
    requests: Annotated[
        Path | None,
        typer.Option("--requests", metavar="FILE", help="Request log of one engine: CSV, plain or gzip, - for stdin."),
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option("--recording", "-r", metavar="FILE", help="A recording; needs --config."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="The config that names the recorded pool.")
    ] = None,
    pool: Annotated[str, typer.Option(metavar="NAME", help="Which pool, if the config has several.")] = "",
    library: Annotated[
        str,
        typer.Option(metavar="MODEL/GPU/TP/PRECISION", help="Where terms stand that the data does not tell."),
    ] = "",
    hold_out: Annotated[
        str, typer.Option(metavar="SHARE", help="The last part of the data, kept to measure the error on.")
    ] = "50%",
    max_num_seqs: Annotated[int | None, typer.Option(metavar="N", min=1, help="The engine's, if not seen.")] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tokens in its KV cache: blocks times block size.")
    ] = None,
    max_batched_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Its max_num_batched_tokens; with --requests.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fits step-time coefficients, prints them with their error on data that was held out, and says what the data does
    not tell."""
    if (requests is None) == (recording is None):
        raise InputError("calibrate: needs data: give either --requests FILE or --recording FILE with --config FILE")
    limits = {"max_num_seqs": max_num_seqs, "kv_tokens": kv_tokens}
    kept = _share(hold_out)
    if requests is not None:
        text = read_text(str(requests))
        with about(str(requests)):
            tool = registry.tool("calibrate-requests")
            found = tool(text, entry=library, hold_out=kept, max_batched_tokens=max_batched_tokens, **limits)
        lines = _of_requests(found, str(requests))
    else:
        if config is None:
            raise InputError("--recording: needs --config FILE, which says which pool was recorded")
        if max_batched_tokens is not None:
            raise InputError("--max-batched-tokens: a recording of means does not depend on it; leave it out")
        settings = load(config)
        intervals = read_intervals(Path(str(recording)), settings, _pool(settings, pool, config))
        with about(str(recording)):
            found = registry.tool("calibrate-recording")(intervals, entry=library, hold_out=kept, **limits)
        lines = _of_recording(found, str(recording))
    if as_json:
        sys.stdout.write(json.dumps(_json(found), allow_nan=False) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)


def _share(text: str) -> float:
    try:
        return ratio(text)
    except BadValue as error:
        raise InputError(f"--hold-out: {error.mistake}; {error.mend}") from error


def _pool(config: GovernorConfig, name: str, path: Path) -> str:
    if name:
        return name
    if len(config.pools) > 1:
        raise InputError(f"--pool: is needed, for {path} has several: {', '.join(config.pools)}")
    return next(iter(config.pools))


def _json(found: Any) -> dict[str, Any]:
    """Any: what a fit of the simulator gives, which this room may not import. A term that the data does not bound at
    all is unsure by null."""
    plain: dict[str, Any] = dataclasses.asdict(found)
    for term in plain.get("terms", ()):
        term["unsure"] = term["unsure"] if math.isfinite(term["unsure"]) else None
    for part in ("held_out", "inside"):
        for row, one in zip(plain.get(part, ()), getattr(found, part, ()), strict=True):
            row.update(mean_error=one.mean_error, p99_error=one.p99_error)
    return plain


def _of_requests(found: Any, path: str) -> Iterator[str]:
    """Any: a Calibration of the simulator, which this room may not import."""
    out = found.requests - found.fitted
    yield f"# {path}: fitted to {found.fitted} requests; the errors are those of the {out} after them."
    yield "#"
    yield "#          mean                          p99                           median error"
    yield "#          log       twin                log       twin                of one request"
    for one in found.held_out:
        yield (
            f"#   {one.kind:<5} {_time(one.real_mean)} {_time(one.twin_mean)} {one.mean_error:+7.1%}   "
            f"{_time(one.real_p99)} {_time(one.twin_p99)} {one.p99_error:+7.1%}   {one.typical:7.1%}"
        )
    yield "#"
    for term in found.terms:
        if term.held:
            left = "all" if term.unsure >= 1 else f"{term.unsure:.0%}"
            yield f"# {_key(term.name)} stands as in the library: the log leaves {left} of a full step open."
    yield from _prior(found.prior, found.scale)
    for note in found.notes:
        yield f"# {note}."
    yield from _yaml(found.profile, {"max_batched_tokens": found.max_batched_tokens})


def _of_recording(found: Any, path: str) -> Iterator[str]:
    """Any: a RecordingFit of the simulator, which this room may not import."""
    yield f"# {path}: fitted to {found.calm} calm intervals of {found.intervals}, up to {found.largest:.0f} sequences."
    yield "# Errors of a fit to the first of them on the others:"
    yield "#"
    yield "#             intervals   bias     median error"
    for one in found.errors:
        yield f"#   {one.signal:<9} {one.intervals:9} {one.bias:+8.1%} {one.typical:9.1%}"
    yield "#"
    fixed, sequence, prefill = found.factors
    yield f"# Times the prior: fixed cost {fixed:.2f}, cost of a sequence {sequence:.2f}, of prefill {prefill:.2f}."
    for note in found.notes:
        yield f"# {note[0].upper()}{note[1:]}."
    yield from _yaml(found.profile, {})


def _prior(prior: str, scale: float) -> Iterator[str]:
    if prior:
        yield f"# Began with {prior}, times {scale:.2f}."


def _yaml(profile: Profile, limits: Mapping[str, int]) -> Iterator[str]:
    values = {key: _rounded(getattr(profile, name)) for key, name in _KEYS.items()}
    seats, tokens = int(profile.max_num_seqs), profile.kv_tokens
    yield ""
    yield "# For a config: pools.NAME.profile"
    yield "profile:"
    for key, value in values.items():
        yield f"  {key}: {format_duration(value)}"
    if profile.host:
        yield f"  host: {format_duration(_rounded(profile.host))}"
    yield f"  max_num_seqs: {seats}"
    if tokens is not None:
        yield f"  kv_tokens: {int(tokens)}"
    yield ""
    yield "# For a scenario: pools.NAME.engine and pools.NAME.limits"
    yield "engine:"
    yield "  kind: profile"
    for key, name in _KEYS.items():
        plain = f"{values[key]:.14f}".rstrip("0").rstrip(".")
        yield f"  {name}: {format_duration(values[key]) if name == 'a' else plain}"
    if profile.host:
        yield f"  host: {_rounded(profile.host):.14f}".rstrip("0")
    yield f"  max_num_seqs: {seats}"
    yield f"  kv_tokens: {'null' if tokens is None else int(tokens)}"
    if limits:
        yield "limits:"
        for key, limit in limits.items():
            yield f"  {key}: {limit}"


def _key(name: str) -> str:
    return next(key for key, own in _KEYS.items() if own == name)


def _rounded(value: float) -> float:
    """Four digits: more would say that more is known."""
    return float(f"{value:.4g}")


def _time(seconds: float) -> str:
    return f"{seconds:8.3f}s" if seconds >= 1 else f"{seconds * 1e3:7.1f}ms"
