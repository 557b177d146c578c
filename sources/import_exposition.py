"""Import timestamped exposition text: many scrapes of one target in one file.

Two forms are read: each scrape after a line ``# SCRAPE <unix seconds>``, or a time behind each sample (milliseconds, or
seconds where the numbers are too small for that), as backfilling for Prometheus has it. A scrape proves that its target
was up; an empty one that it was not.
"""

import gzip
import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median

from sources.contracts import load
from sources.contracts.resolve import identify
from sources.exposition import ExpositionError, parse
from sources.frames import Layout, Sample, labels
from sources.imported import Imported, ImportFailed
from sources.recording_file import Header, RecordingWriter
from sources.roles import sample_names

_SCRAPE = re.compile(r"#\s*SCRAPE\s+(\S+)\s*")
_MILLISECONDS = 1e11  # as seconds this is the year 5138


def import_exposition(
    text: Path, out: Path, *, engine: str = "", extra: Mapping[str, str] | None = None, everything: bool = False,
    comment: str = "",
) -> Imported:  # fmt: skip
    """Write the recording `out` from the file `text` (plain or gzip).

    `extra` labels are added to every series, as a scrape job would (pod, namespace, job, instance). Of `engine`, or of
    the engines that the names prove, only the metrics that a fact can be read from are kept, unless `everything`.
    Raises ImportFailed.
    """
    content = _read(text)
    notes = []
    if content and not content.endswith("\n"):
        content, notes = _without_last(content), ["the file is cut off, so its last scrape was left out"]
    added = dict(extra or {})
    target = labels((name, added.get(name, "")) for name in ("job", "instance"))
    engines: tuple[str, ...] = (engine,) if engine else ()
    wanted = _wanted(engines) if engine and not everything else None
    layout = Layout()
    scrapes: dict[float, list[Sample]] = {}
    for at, samples in _scrapes(text, content):
        if not everything and wanted is None and samples:
            engines = identify({sample.name for sample in samples})
            wanted = _wanted(engines) if engines else None
        kept = [_with(sample, added) for sample in samples if wanted is None or sample.name in wanted]
        told = any(sample.name == "up" for sample in samples)  # a federated scrape tells of its targets itself
        # Scrapes of one time are those of several targets.
        scrapes.setdefault(at, []).extend(kept if told else [*kept, Sample("up", target, 1.0 if samples else 0.0)])
    if not scrapes:
        raise ImportFailed(
            f"{text}: holds no scrape with a time; put a line `# SCRAPE <unix seconds>` before each, or a time behind "
            "each sample"
        )
    times = sorted(scrapes)
    interval = round(median(b - a for a, b in pairwise(times)), 3) if len(times) > 1 else 15.0
    header = Header("series", interval, source=text.name, comment=comment, engines=tuple(engines))
    with RecordingWriter(out, header) as writer:
        for at in times:
            writer.write(layout.frame(at, scrapes[at]))
    if wanted is None and not everything:
        notes.append("no known engine proved itself, so everything was kept")
    return Imported(out, "", len(times), len(layout), times[0], times[-1], interval, tuple(notes))


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ImportFailed(f"{path}: cannot be read: {error}") from error


def _without_last(content: str) -> str:
    """Half a scrape would look as if the other half of the series had vanished."""
    starts = [found.start() for found in re.finditer(r"^#\s*SCRAPE\s", content, re.MULTILINE)]
    return content[: starts[-1]] if starts else content[: content.rfind("\n") + 1]


def _wanted(engines: tuple[str, ...]) -> frozenset[str]:
    try:
        return frozenset().union(*(sample_names(load(name)) for name in engines))
    except ValueError as error:
        raise ImportFailed(str(error)) from error


def _with(sample: Sample, added: Mapping[str, str]) -> Sample:
    # The scrape's own label gives way, as with honour_labels off; it is kept as exported_*.
    own = ((f"exported_{name}" if name in added else name, value) for name, value in sample.labels)
    return Sample(sample.name, labels((*own, *added.items())), sample.value) if added else sample


def _scrapes(path: Path, content: str) -> Iterator[tuple[float, tuple[Sample, ...]]]:
    lines = content.split("\n")
    starts = [(i, found[1]) for i, line in enumerate(lines) if (found := _SCRAPE.fullmatch(line))]
    if not starts:
        yield from _timed(path, lines)
        return
    ends = [i for i, _ in starts[1:]] + [len(lines)]
    for (begin, time), end in zip(starts, ends, strict=True):
        at = _number(time)
        if at is None:
            raise ImportFailed(f"{path}, line {begin + 1}: {time!r} is not a time in unix seconds")
        chunk = [line for line in lines[begin + 1 : end] if line and not line.startswith("#")]
        yield at, _parse(path, begin + 2, "\n".join((*lines[begin + 1 : end], ""))) if chunk else ()


def _timed(path: Path, lines: list[str]) -> Iterator[tuple[float, tuple[Sample, ...]]]:
    by_time: dict[float, list[str]] = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            sample = line.split(" # ", 1)[0].rstrip()  # without the exemplar
            head, brace, tail = sample.rpartition("}")
            words = tail.split()
            if len(words) == (2 if brace else 3):
                at = _time(path, words[-1])
                by_time.setdefault(at, []).append(
                    f"{head}{brace} {' '.join(words[:-1])}" if brace else " ".join(words[:-1])
                )
    for at, rows in by_time.items():
        yield at, _parse(path, 1, "\n".join((*rows, "")))


def _time(path: Path, word: str) -> float:
    if (number := _number(word)) is None:
        raise ImportFailed(f"{path}: {word!r} stands where a sample's time should be")
    return number / 1000 if abs(number) >= _MILLISECONDS else number


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parse(path: Path, line: int, text: str) -> tuple[Sample, ...]:
    try:
        return parse(text).samples
    except ExpositionError as error:
        raise ImportFailed(f"{path}, scrape that begins in line {line}: {error}") from error
